"""Native Structured Streaming: watermarks, append mode, micro-batches of one file a side.

A last file with one tuple of no key, far ahead, closes the last windows.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from infra.benchmarks.join_aggregate.job import SECOND_US, SIDES, Job, serve
from infra.benchmarks.join_aggregate.spark_rival import both_sides, start
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from infra.benchmarks.join_aggregate.workload import Data

AHEAD_S = 86_400


def prepare(data: Data, folder: Path) -> None:
    """The same files by hard link, one folder a side, and the tuple that closes the last windows."""
    for side in SIDES:
        target = folder / side
        target.mkdir(parents=True)
        files = sorted((data.folder / f"events_{side}").glob("*/*.parquet"))
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


def run(session: SparkSession, job: Job) -> None:
    """The form's query, to its end."""
    # Windows of 1970 are aligned as ours, whose start is a whole day.
    window = F.window("event_time", f"{job.range_s} seconds", f"{job.every_s} seconds").alias("w")
    lefts, rights = (_stream(session, job, side) for side in SIDES)
    if job.form == "naive":
        joined = lefts.select(window, "key", "value").join(rights.select(window, "key"), ["w", "key"])
        found = joined.groupBy("w").agg(F.count("*").alias("count"), F.sum("value").alias("sum"))
    else:
        # Totals per key and window of both sides at once; then their products: no join, no tuples in the state.
        totals = both_sides(lefts, rights).groupBy(window, "key").agg(*(F.sum(c).alias(c) for c in ("l", "s", "r")))
        products = totals.where("l > 0 AND r > 0").select(
            "w", (F.col("l") * F.col("r")).alias("n"), F.expr("s * r AS t")
        )
        found = products.groupBy("w").agg(F.sum("n").alias("count"), F.sum("t").alias("sum"))
    last = F.timestamp_micros(F.lit(job.end_us))
    answers = found.where(F.col("w.end") <= last).select(F.unix_micros("w.end").alias("end_us"), "count", "sum")
    parts: list[pa.Table] = []
    query = (
        answers.writeStream.outputMode("append")
        .option("checkpointLocation", f"{job.scratch}/checkpoint")
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, number: parts.append(frame.toArrow()))
        .start()
    )
    query.awaitTermination()
    table = pa.concat_tables(parts)
    job.write(*(np.asarray(table[name]) for name in ("end_us", "count", "sum")))


def _stream(session: SparkSession, job: Job, side: str) -> DataFrame:
    folder = str(Path(job.prepared) / side)
    stream = session.readStream.schema(session.read.parquet(folder).schema).option("maxFilesPerTrigger", 1)
    return (
        stream.parquet(folder)
        .select("event_time", "key", "value")
        .withWatermark("event_time", f"{job.slack_s} seconds")
    )


if __name__ == "__main__":
    serve(start, run)
