"""Native Structured Streaming: watermarks, append mode, micro-batches of one file a stream.

A last file with one tuple of key −1, far ahead, closes the last windows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from infra.benchmarks.rivals.job import SECOND_US, Job
from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from infra.benchmarks.rivals.workload import Data

AHEAD_S = 86_400


def prepare(data: Data, folder: Path, streams: Sequence[str]) -> None:
    """The same files by hard link, one folder a stream, and the tuple that closes the last windows."""
    for stream in streams:
        target = folder / stream
        target.mkdir(parents=True)
        files = data.files(stream)
        for number, file in enumerate(files):
            os.link(file, target / f"{number:03}.parquet")
        schema = pq.read_schema(files[0])
        ahead_us = data.start_us + (data.workload.seconds + AHEAD_S) * SECOND_US
        row = {field.name: pa.array([0]).cast(field.type) for field in schema}
        row["event_time"] = row["arrival_time"] = pa.array([ahead_us]).cast(schema.field("event_time").type)
        row["key"] = pa.array([-1])
        last = target / f"{len(files):03}.parquet"
        pq.write_table(pa.table(row, schema=schema), last)
        os.utime(last, (1_600_000_000 + len(files),) * 2)


def stream(session: SparkSession, job: Job, name: str) -> DataFrame:
    """A stream with its watermark, which is as far behind as the latest tuple."""
    folder = str(Path(job.prepared) / name)
    files = session.readStream.schema(session.read.parquet(folder).schema).option("maxFilesPerTrigger", 1)
    return files.parquet(folder).withWatermark("event_time", f"{job.slack_s} seconds")


def answered(answers: DataFrame, job: Job) -> pa.Table:
    """All that the query gives until its streams end."""
    parts: list[pa.Table] = []
    query = (
        answers.writeStream.outputMode("append")
        .option("checkpointLocation", f"{job.scratch}/checkpoint")
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, number: parts.append(frame.toArrow()))
        .start()
    )
    query.awaitTermination()
    return pa.concat_tables(parts)
