"""Tidegate itself: its own parser, session and host, on the Parquet of a warehouse, to Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from infra.benchmarks.join_aggregate.job import SECOND_US, SIDES, Job, serve
from infra.benchmarks.rivals import tidegate
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidegate.declarations.models import Pipeline
from tidegate.declarations.tables import schema
from tidegate.hosts.queries import answer
from tidegate.hosts.scan import EventFiles
from tidegate.hosts.session import start_session, suit_to_size
from tidegate.operators.schedule import Schedule


def pipeline_of(job: Job) -> Pipeline:
    """The pipeline that a user would write."""
    lines = [
        "SELECT COUNT(*) AS pairs, SUM(l.value) AS total",
        f"FROM lefts [{job.range_s} SECONDS] AS l, rights [{job.range_s} SECONDS] AS r",
        f"WHERE l.key = r.key EVERY {job.every_s} SECONDS",
    ]
    return tidegate.pipeline_of(job, {f"{side}s": job.stream(side) for side in SIDES}, "value", lines)


def start(job: Job) -> tuple[Pipeline, SparkSession]:
    """The pipeline and a session with Tidegate's own settings."""
    pipeline = pipeline_of(job)
    return pipeline, start_session(pipeline, "benchmark")


def run(session: tuple[Pipeline, SparkSession], job: Job) -> dict[str, int]:
    """Answer every window; the bytes that the operators held at most."""
    pipeline, spark = session
    suit_to_size(spark, 0)  # one task reads the files; what is left to Spark are the answers
    query = pipeline.query("asked")
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
