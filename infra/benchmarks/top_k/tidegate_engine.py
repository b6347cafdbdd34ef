"""Tidegate itself: its own stages, on a warehouse that its own ingest has filled.

``sql``: the stage top_k. ``learn``: what calibration adds to it, its truth and slacks learnt after the answers.
``learn+sql``: the two as ``tidegate run`` has them, learnt first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from infra.benchmarks.rivals import tidegate
from infra.benchmarks.top_k.job import SECOND_US, STREAM, Job, serve
from infra.benchmarks.top_k.workload import Data

from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.queries import planner
from tidegate.stages import calibrate, ingest, top_k
from tidegate.store.intervals import Interval, intervals_between

TABLE = f"events_{STREAM}"
TUPLE_BYTES = 60.0


@dataclass
class Session:
    """A warehouse for each run, so that the second run finds nothing done."""

    contexts: list[RunContext]
    intervals: tuple[Interval, ...]


def prepare(data: Data, folder: Path) -> None:
    """The tuples as the stage ingest writes them; by a process of its own, which is not measured."""
    folder.mkdir(parents=True)
    job = Job(
        "", str(data.folder), "", "", str(folder), data.start_us, data.workload.seconds, 60, 60, 0, 1, 0, False, 1
    )
    _pipeline(job)
    first, last = _span(job)
    command = [sys.executable, "-m", "tidegate.cli", "run", str(folder / "benchmark"), "--stage", "ingest"]
    command += ["--warehouse", str(folder), "--from", first.isoformat(), "--to", last.isoformat()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def start(job: Job) -> Session:
    """Warehouses with the tuples and their plans, and a session with Tidegate's own settings."""
    pipeline = _pipeline(job)
    intervals = intervals_between(pipeline, *_span(job))
    contexts: list[RunContext] = []
    for number in range(1 + job.warm):
        beside = contexts[0].spark if contexts else None
        context = RunContext(pipeline, Path(job.scratch) / f"warehouse-{number}", beside=beside)
        _filled(context, job, intervals)
        contexts.append(context)
        assert context.spark
        if job.form == "learn":
            top_k.run(context, intervals)
    return Session(contexts, intervals)


def run(session: Session, job: Job) -> None:
    """The form's stages."""
    context = session.contexts.pop(0)
    if "learn" in job.form:
        calibrate.learn(context, session.intervals)
    if "sql" in job.form:
        top_k.run(context, session.intervals)
    os.rename(context.warehouse.folder / ("answers_asked" if "sql" in job.form else "truth_asked"), job.out)


def _span(job: Job) -> tuple[datetime, datetime]:
    """The hours in which windows end, and the one in which the last of them become final."""
    first = datetime.fromtimestamp(job.start_us / SECOND_US, UTC)
    return first, first + timedelta(hours=job.seconds // 3600 + 2)


def _pipeline(job: Job) -> Pipeline:
    """The pipeline that a user would write; its query ends with the stream."""
    first = datetime.fromtimestamp(job.start_us / SECOND_US, UTC)
    last = first + timedelta(seconds=job.seconds + 1)
    lines = [
        f"SELECT {'key, ' if job.grouped else ''}score FROM {STREAM} [{job.range_s} SECONDS]",
        f"{'GROUP BY key ' if job.grouped else ''}ORDER BY score DESC LIMIT {job.k}",
        f"ACCURACY 95% EVERY {job.every_s} SECONDS DURATION ['{first:%Y-%m-%dT%H:%M:%S}', '{last:%Y-%m-%dT%H:%M:%S}')",
    ]
    return tidegate.pipeline_of(job, {STREAM: job.stream(STREAM)}, "score", lines)


def _filled(context: RunContext, job: Job, intervals: tuple[Interval, ...]) -> None:
    """What ingest leaves: the tuples' files by hard link, their numbers per tick, the window plans."""
    tick_us = job.every_s * SECOND_US
    counts = [planner.ARRIVALS_SCHEMA.empty_table()]
    context.warehouse.folder.mkdir(parents=True)
    with context.stage("ingest", intervals) as stage:
        for interval in intervals:
            stage.commit.put_arrow("source_files", interval, context.warehouse.schema("source_files").empty_table())
            target = stage.commit.stage_folder(TABLE, interval.label)
            for file in sorted(Path(job.prepared).glob(f"benchmark/{TABLE}/interval={interval.label}/*.parquet")):
                os.link(file, target / f"{file.stem}-{stage.commit.id}.parquet")
                counts.append(_counted(file, tick_us))
        planner.put_arrivals(context, stage, intervals, pa.concat_tables(counts))
    ingest.plan(context, intervals)


def _counted(file: Path, tick_us: int) -> pa.Table:
    """Tuples per tick of arrival and pane, as ingest counts them; what they weigh is only planned with."""
    times = pq.ParquetFile(file).read(["arrival_time", "event_time"])
    slot_us, pane_us = (column.cast(pa.int64()).to_numpy() // tick_us * tick_us for column in times.columns)
    counted = pa.table({"slot_us": slot_us, "pane_us": pane_us}).group_by(["slot_us", "pane_us"])
    counts = counted.aggregate([([], "count_all")]).rename_columns({"count_all": "tuples"})
    counts = counts.append_column("stream", pa.repeat(STREAM, len(counts)))
    counts = counts.append_column("bytes", pc.multiply(counts["tuples"].cast(pa.float64()), TUPLE_BYTES))
    return counts.select(planner.ARRIVALS_SCHEMA.names).cast(planner.ARRIVALS_SCHEMA)


if __name__ == "__main__":
    serve(start, run)
