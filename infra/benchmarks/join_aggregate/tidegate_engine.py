"""Tidegate itself: its own parser, session and host, on the Parquet of a warehouse, to Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from infra.benchmarks.join_aggregate.job import SECOND_US, SIDES, Job, serve
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.declarations.tables import schema
from tidegate.hosts.queries import answer
from tidegate.hosts.scan import EventFiles
from tidegate.hosts.session import start_session, suit_to_size
from tidegate.operators.schedule import Schedule

PIPELINE = """\
name: benchmark
description: Two streams to join
owner: benchmark
start: 2013-01-01T00:00:00Z
interval: 1 hour
tick: {every_s} seconds
horizon: 1 hour
memory_budget: 1 GiB
process_budget: {process_budget}
streams:
{streams}"""
STREAM = """\
  {side}s:
    format: parquet
    path: {path}/*/*.parquet
    columns: {{event_id: integer, event_time: timestamp, arrival_time: timestamp, key: integer, value: double}}
    id: event_id
    event_time: event_time
    arrival_time: arrival_time
    rate: 1000 per second
    max_early: 1 minute
    max_late: 1 hour
"""
QUERY = """\
-- The benchmark's query
SELECT COUNT(*) AS pairs, SUM(l.value) AS total
FROM lefts [{range_s} SECONDS] AS l, rights [{range_s} SECONDS] AS r
WHERE l.key = r.key EVERY {every_s} SECONDS
"""
PROCESS_BUDGET = "6 GiB"


def pipeline_of(job: Job) -> Pipeline:
    """The pipeline that a user would write."""
    folder = Path(job.scratch) / "benchmark"
    (folder / "queries").mkdir(parents=True, exist_ok=True)
    streams = "".join(STREAM.format(side=side, path=job.stream(side)) for side in SIDES)
    text = PIPELINE.format(every_s=job.every_s, streams=streams, process_budget=PROCESS_BUDGET)
    (folder / "pipeline.yml").write_text(text)
    (folder / "queries" / "joined.sql").write_text(QUERY.format(range_s=job.range_s, every_s=job.every_s))
    return load_pipeline(folder)


def start(job: Job) -> tuple[Pipeline, SparkSession]:
    """The pipeline and a session with Tidegate's own settings."""
    pipeline = pipeline_of(job)
    return pipeline, start_session(pipeline, "benchmark")


def run(session: tuple[Pipeline, SparkSession], job: Job) -> dict[str, int]:
    """Answer every window; the bytes that the operators held at most."""
    pipeline, spark = session
    suit_to_size(spark, 0)  # one task reads the files; what is left to Spark are the answers
    query = pipeline.query("joined")
    ranges_us = {window.alias: job.range_s * SECOND_US for window in query.windows}
    schedule = Schedule.from_ticks(job.ends_us, job.slack_s * SECOND_US, ranges_us)
    events = {
        f"{side}s": EventFiles(
            tuple(sorted(str(path) for path in Path(job.stream(side)).rglob("*.parquet"))),
            schema(pipeline, f"events_{side}s"),
        )
        for side in SIDES
    }
    ends = pa.array(schedule.window_end_us).cast(pa.timestamp("us", tz="UTC"))
    windows = pa.table({"window_end": ends})
    tick_us, coverage = job.every_s * SECOND_US, np.ones(len(schedule))
    answered = answer(spark, query, schedule, coverage, events, pipeline.partitions, tick_us, windows)
    columns = ("window_end", F.col("pairs").cast("bigint").alias("count"), F.col("total").alias("sum"))
    answered.frame.select(*columns).coalesce(1).write.parquet(job.out)
    return {"peak_state_bytes": answered.peak_state_bytes}


if __name__ == "__main__":
    serve(start, run)
