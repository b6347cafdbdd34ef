"""Tidegate itself: its own parser, session and host, on the Parquet of a warehouse, to Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from infra.benchmarks.join_aggregate.job import SECOND_US, SIDES, Job, serve
from infra.benchmarks.rivals import tidegate
from pyspark.sql import SparkSession

from tidegate.declarations.models import Pipeline
from tidegate.declarations.tables import schema
from tidegate.engine import Slice
from tidegate.engine import run as run_slices
from tidegate.engine.session import start_session
from tidegate.operators.schedule import Schedule
from tidegate.queries.questions import Answering, Question
from tidegate.queries.scan import EventFiles


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
    asked = Question(query, schedule, np.ones(len(schedule)), events, job.every_s * SECOND_US)
    Path(job.out).mkdir(parents=True, exist_ok=True)
    (peak,) = run_slices([Slice(0, Asked(asked, str(Path(job.out) / "part-00000.parquet")))], _write)
    return {"peak_state_bytes": peak}


@dataclass(frozen=True, eq=False)
class Asked:
    """Every window, and where the answers go."""

    question: Question
    file: str


def _write(part: Slice) -> int:
    asked: Asked = part.of
    answering = Answering(asked.question)
    rows = answering.table()
    ends = pa.array(asked.question.schedule.window_end_us).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    columns = {
        "window_end": ends.take(rows.column("_window_index").combine_chunks()),
        "count": rows.column("pairs").cast(pa.int64()),
        "sum": rows.column("total"),
    }
    pq.write_table(pa.table(columns), asked.file)
    return answering.peak_state_bytes


if __name__ == "__main__":
    serve(start, run)
