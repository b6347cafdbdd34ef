"""What a stage runs in: the pipeline, its warehouse, a Spark session when asked for, and the account of the run."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import KafkaSource, Pipeline, SparkSource
from tidegate.declarations.stages import STAGES
from tidegate.declarations.tables import CLIENT, JVM, WORKER
from tidegate.engine import Measured, Memory, Slice, run_as_tasks, tagged
from tidegate.engine import run as run_here
from tidegate.engine.metrics import ProcessMeter
from tidegate.store.commit import Commit
from tidegate.store.folders import private_folder
from tidegate.store.intervals import Interval, interval_holding
from tidegate.store.places import ObjectPath, Place, place, said
from tidegate.store.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Result = TypeVar("Result")

ROWS_HERE = 8_000_000
"""Where no Spark is named, slices that read up to so many rows, some three seconds' work, run in this process: as tasks
they would hardly be done sooner, and take more processor time."""
ROWS_BEFORE_SPARK = 100_000_000
"""Larger work runs in this process, too, until it has read so many rows: starting Spark takes about as long as that."""
_SLICES_A_CORE = 2
"""On a cluster: if one takes longer, or is lost, the other cores have something to do meanwhile."""
_LARGEST_LOG_BYTES = 4 << 20
_STAGES = frozenset(stage.name for stage in STAGES)


class StageRun:
    """One stage at work on some intervals: where it writes, and what it did."""

    def __init__(self, stage: str, commit: Commit, intervals: Sequence[Interval]):
        self.stage = stage
        self.commit = commit
        self.intervals = intervals
        self._rows: dict[tuple[str, str | None], dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def record(self, interval: Interval, query: str | None = None, **numbers: int) -> None:
        """Add to what the run's account says of one interval (and query): rows_in, rows_out, rows_late …

        ``peak_state_bytes`` keeps the largest, everything else adds up.
        """
        row = self._rows[interval.label, query]
        for name, number in numbers.items():
            row[name] = max(row[name], number) if name == "peak_state_bytes" else row[name] + number

    def rows(self, interval: Interval) -> list[dict[str, object]]:
        """The account of one interval: a row a query, or one row."""
        queries = [q for label, q in self._rows if label == interval.label] or [None]
        return [{"query": q, **self._rows.get((interval.label, q), {})} for q in queries]

    def total(self, name: str) -> int:
        """Sum (largest, for peak_state_bytes) of one number over all intervals and queries."""
        numbers = [row[name] for row in self._rows.values() if name in row]
        return max(numbers, default=0) if name == "peak_state_bytes" else sum(numbers)


@dataclass
class RunContext:
    """A pipeline at work on a warehouse. Use as a context manager: it stops the Spark session that it started.

    ``beside``: a session of the caller's, which is used and not stopped. ``here``: whether all slices run in this
    process, or all as tasks of Spark (None: as tasks where a Spark is named, else where they are done sooner).
    ``tidied``: whether upkeep has been done. ``days_follow``: a later pass of the same run ends a UTC day, too.
    ``memory``: stage → what it keeps for its next pass.
    """

    pipeline: Pipeline
    warehouse_root: str | Place
    output: TextIO = field(default_factory=lambda: sys.stderr)
    app: str = "run"
    cold_start: bool = False
    beside: SparkSession | None = None
    here: bool | None = None
    worker_memory: Memory = field(default_factory=Memory, init=False)
    tidied: bool = field(default=False, init=False)
    days_follow: bool = field(default=False, init=False)
    memory: dict[str, Any] = field(default_factory=dict, init=False)
    _spark: SparkSession | None = field(default=None, init=False)
    _shares_spark: bool = field(default=False, init=False)
    _large_rows: int = field(default=0, init=False)
    _stage: StageRun | None = field(default=None, init=False)
    _told_cold_start: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.warehouse = Warehouse(self.warehouse_root, self.pipeline)

    def __enter__(self) -> RunContext:
        try:
            private_folder(self.warehouse.folder)
            private_folder(self.warehouse.local)
        except OSError as error:
            why = error.strerror or said(error)
            raise UserError(
                f"the warehouse {self.warehouse.root} cannot be written: {why}; give a writable folder with --warehouse"
            ) from None
        return self

    def __exit__(self, *exc: object) -> None:
        self.release_spark()

    def release_spark(self) -> None:
        """Stop the Spark session that was started, if one was; the next use starts another.

        One that this process had before (a notebook's) goes on.
        """
        if self._spark is not None and self.beside is None and not self._shares_spark:
            with warnings.catch_warnings():
                # That the JVM has ended is what the command says itself.
                warnings.simplefilter("ignore", RuntimeWarning)
                self._spark.stop()
        self._spark = None

    def end_landing(self) -> None:
        """Stop a session that was started for landing alone: where no Spark is named, slices run in this process."""
        if not spark_is_named():
            self.release_spark()

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started when first asked for."""
        if self._spark is None:
            from tidegate.engine.session import session_is_active, start_session

            if self.beside is not None:
                self._spark = self.beside
            else:
                self.progress("starting Spark")
                self._shares_spark = session_is_active()
                self._spark = start_session(
                    self.pipeline, self.app, *self._connectors(), landing=bool(self.pipeline.landed_streams)
                )
        return self._spark

    def _connectors(self) -> tuple[list[str], dict[str, str]]:
        """The groups of jars that a session of this process's own needs for landing, and settings that go with them."""
        from tidegate.engine.delta_spark import DELTA_CATALOG, s3a_settings
        from tidegate.engine.jars import jars

        streams = self.pipeline.landed_streams
        groups = ["kafka"] if any(isinstance(stream.source, KafkaSource) for stream in streams) else []
        settings: dict[str, str] = {}
        if any(isinstance(s.source, SparkSource) and s.source.format == "delta" for s in streams) and jars("delta"):
            groups, settings = [*groups, "delta"], DELTA_CATALOG
        checkpoints = [place(stream.checkpoint or self.warehouse.root) for stream in streams]
        if any(isinstance(one, ObjectPath) and one.root.startswith("s3:") for one in checkpoints):
            return [*groups, "s3"], settings | s3a_settings()
        return groups, settings

    def most_slices(self, rows: int) -> int:
        """Into how many slices work on so many rows is worth cutting; ``partitions`` at most.

        Slices overlap in what they read. So on one machine, this one or a Spark Connect server's, there are no more of
        them than cores. On a cluster there are two a core, by the cores that it has when first asked; more if each
        would read more than ``ROWS_HERE``, as what a slice holds grows with that; and any number where Spark adds
        executors as there is work for them.
        """
        most = self.pipeline.partitions
        if on_this_machine():
            return min(most, cores(spark_master()))
        if self.here or rows == 0:
            return most  # nothing to ask Spark for
        if self._server_cores:
            return min(most, self._server_cores)
        if self._cluster_cores == 0:
            return most
        return min(most, max(_SLICES_A_CORE * self._cluster_cores, rows // ROWS_HERE))

    @cached_property
    def _server_cores(self) -> int:
        """Cores of a Spark Connect server whose tasks run in itself; 0 of any other."""
        from tidegate.engine.session import CORES, setting

        master = setting(self.spark, "spark.master") if spark_master().startswith("sc://") else ""
        # It counted its cores itself.
        return int(setting(self.spark, CORES) or cores(master)) if master.startswith("local") else 0

    @cached_property
    def _cluster_cores(self) -> int:
        from tidegate.engine.session import cluster_cores

        return cluster_cores(self.spark)

    def run_slices(self, work: Callable[[Slice], Result], parts: Sequence[Any], rows: int) -> list[Result]:
        """What ``work`` gives for each part, a slice each: by Spark's tasks, or by this process; it gives the same.

        Where a Spark is named (:func:`spark_is_named`), it runs whatever there is. Else it runs what is worth it: more
        than one slice, on more than one core, and more than ``ROWS_HERE``. A session is started for such work once
        ``ROWS_BEFORE_SPARK`` have been read without it: so a run takes at most about twice as long as one that knew
        what is to come.

        Args:
            work: what to do.
            parts: with what.
            rows: how many rows of tables are read, or what takes as long.
        """
        slices = [Slice(number, part) for number, part in enumerate(parts)]
        if not slices or not self._as_tasks(len(slices), rows):
            return run_here(slices, work)
        with tagged(self.spark, self._tags()):
            done = run_as_tasks(slices, work, self.spark, self._measured)
        self.worker_memory = self.worker_memory.or_more(done.memory)
        return done.results

    @property
    def _measured(self) -> Measured:
        if on_this_machine():
            return "nothing"
        return "workers" if spark_master().startswith("sc://") else "executors"

    def _tags(self) -> list[str]:
        """What Spark's UI tells the stage's jobs by: pipeline, stage and interval, or first and last interval."""
        tags = [f"pipeline:{self.pipeline.name}"]
        if self._stage is not None:
            first, last = self._stage.intervals[0].label, self._stage.intervals[-1].label
            tags.append(f"stage:{self.app if self.app in _STAGES else self._stage.stage}")
            tags.append(f"interval:{first}" if first == last else f"interval:{first}…{last}")
        return tags

    def _as_tasks(self, slices: int, rows: int) -> bool:
        if self.here is not None or spark_is_named():
            return not self.here
        if min(slices, cores(spark_master())) < 2 or rows <= ROWS_HERE:
            return False
        if self._spark is None and self.beside is None:
            self._large_rows += rows
            return self._large_rows > ROWS_BEFORE_SPARK
        return True

    def progress(self, message: str) -> None:
        """Say what is being done, with the time, on the error stream."""
        print(f"{datetime.now(UTC):%H:%M:%S} {self.pipeline.name}: {message}", file=self.output, flush=True)

    def require_predecessor(self, table: str, intervals: Sequence[Interval], stage: str) -> None:
        """UserError if the interval before the first is missing though others are there: a gap would be silent."""
        first = intervals[0]
        earlier = [label for label in self.warehouse.labels(table) if label < first.label]
        if self.cold_start or not self.warehouse.labels(table):
            if not self._told_cold_start:
                self._told_cold_start = True
                why = "what is there from before is not used" if self.cold_start else "there is nothing from before"
                self.progress(f"cold start at {first.label}: {why}")
            return
        before = previous_label(self.pipeline, first)
        if before not in earlier and first.label != self.warehouse.labels(table)[0]:
            newest = earlier[-1] if earlier else None
            where = f"the newest earlier one is {newest}" if newest else "there is no earlier one"
            raise UserError(
                f"stage {stage} for {first.label} continues from {before}, but table {table} has no such partition "
                f"({where}): run the intervals in between first, or start here without earlier state with --cold-start"
            )

    @contextmanager
    def stage(self, stage: str, intervals: Sequence[Interval]) -> Iterator[StageRun]:
        """Run a stage: measure it, publish what it wrote together with its metrics, log in one line what it did."""
        started_at, clock = datetime.now(UTC), time.monotonic()
        span = intervals[0].label if len(intervals) == 1 else f"{intervals[0].label} … {intervals[-1].label}"
        self.progress(f"{stage}: {span} ({len(intervals)} interval{'s' if len(intervals) != 1 else ''})")
        self.worker_memory = Memory()
        with ProcessMeter() as meter, self.warehouse.commit(stage, intervals) as commit:
            run = self._stage = StageRun(stage, commit, intervals)
            try:
                yield run
            finally:
                self._stage = None
            seconds = time.monotonic() - clock
            for interval in intervals:
                commit.put_file(
                    "run_metrics",
                    interval,
                    stage,
                    self._metrics(run, interval, started_at, seconds, meter.peak_bytes, len(intervals)),
                )
        line = {
            "app": stage,
            "pipeline": self.pipeline.name,
            "from": intervals[0].start.isoformat(),
            "to": intervals[-1].end.isoformat(),
            "intervals": len(intervals),
            "seconds": round(time.monotonic() - clock, 3),
            **{n: run.total(n) for n in ("rows_in", "rows_out", "rows_late", "rows_quarantined", "peak_state_bytes")},
            "memory_budget_bytes": self.pipeline.memory_budget_bytes,
            "peak_process_bytes": max(meter.peak_bytes, self._worker_bytes(meter.peak_bytes)),
            "process_budget_bytes": self.pipeline.process_budget_bytes,
        }
        self.log(line)
        self.progress(f"{stage}: done in {line['seconds']:.1f} s")

    def _worker_bytes(self, client_bytes: int) -> int:
        """What the stage's workers took at most on one machine; with this process, where that is this one's."""
        return max(
            self.worker_memory.elsewhere, self.worker_memory.here + client_bytes if self.worker_memory.here else 0
        )

    def log(self, line: dict[str, object]) -> None:
        """Append a line of JSON to ``_logs/stages.jsonl``; the file before is kept once it has grown large."""
        path = self.warehouse.local / "_logs" / "stages.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _LARGEST_LOG_BYTES:
            os.replace(path, path.with_suffix(".1.jsonl"))
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _metrics(
        self, run: StageRun, interval: Interval, started_at: datetime, seconds: float, client_bytes: int, share: int
    ) -> pa.Table:
        """Rows of this process, one a query, and a row of its workers and of a JVM that it shares, if it had any."""
        names = ("rows_in", "rows_out", "rows_late", "rows_landed_late", "rows_quarantined", "rows_failed")
        common = {"app": run.stage, "started_at": started_at, "seconds": seconds / share}
        rows: list[dict[str, object]] = [
            {
                **common,
                "kind": CLIENT,
                "query": row["query"],
                **{name: row.get(name, 0) for name in (*names, "peak_state_bytes")},
                "memory_budget_bytes": self.pipeline.memory_budget_bytes,
                "peak_process_bytes": client_bytes,
                "process_budget_bytes": self.pipeline.process_budget_bytes,
            }
            for row in run.rows(interval)
        ]
        budgets = {
            WORKER: self.pipeline.process_budget_bytes,
            JVM: self._jvm_budget if self.worker_memory.jvm else None,
        }
        for kind, peak_bytes in ((WORKER, self._worker_bytes(client_bytes)), (JVM, self.worker_memory.jvm)):
            if peak_bytes:
                row = {"kind": kind, "peak_process_bytes": peak_bytes, "process_budget_bytes": budgets[kind]}
                rows.append(common | row)
        return pa.Table.from_pylist(rows, schema=self.warehouse.schema("run_metrics"))

    @cached_property
    def _jvm_budget(self) -> int | None:
        """What the server's JVM may take, bytes; None if the server does not say."""
        from tidegate.engine.session import JVM_BYTES, setting

        return int(setting(self.spark, JVM_BYTES) or 0) or None


def spark_master() -> str:
    """Spark's master, or with ``sc://`` a Spark Connect server, as far as this process is told."""
    return os.environ.get("TIDEGATE_SPARK_MASTER") or os.environ.get("SPARK_REMOTE") or "local[2]"


def spark_is_named() -> bool:
    """Whether somebody said which Spark to use: then all slices are its tasks, however few.

    By ``TIDEGATE_SPARK_MASTER`` (Airflow's connection ``spark_default`` sets it) or ``SPARK_REMOTE``, or by starting
    this process with spark-submit.
    """
    return any(os.environ.get(name) for name in ("TIDEGATE_SPARK_MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"))


def on_this_machine() -> bool:
    """Whether Spark's tasks would run in a JVM of this process's own."""
    return spark_master().startswith("local")


def cores(master: str) -> int:
    """How many tasks ``local[n]`` runs at a time."""
    inside = master.removeprefix("local").strip("[]").partition(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside == "*" else 1


def previous_label(pipeline: Pipeline, interval: Interval) -> str:
    """The label of the interval before."""
    return interval_holding(pipeline, interval.start_us - 1).label
