"""Which windows an interval answers, cut into slices, and the tables that the answers go to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.tables import TIMESTAMP, WIDTHS
from tidegate.engine import Slice
from tidegate.engine import run as run_slices
from tidegate.hosts.context import RunContext, StageRun
from tidegate.hosts.intervals import Interval, labels_holding
from tidegate.hosts.plans import Emissions, PlanHistory
from tidegate.hosts.queries import Answering, Question
from tidegate.hosts.scan import EventFiles
from tidegate.hosts.slacks import SlackHistory, require_calibrated
from tidegate.hosts.warehouse import Commit
from tidegate.operators.schedule import Int64s, Schedule

Result = TypeVar("Result")

ROWS_OF_A_SLICE = 1_000_000
"""About a second's work: next to it, starting a task costs little."""
ROWS_HERE = 2_000_000
"""Up to so many tuples to be read, a stage's slices run in this process: a Spark session would take longer to start."""
_ROWS_AT_ONCE = 1 << 16
KEPT = "_sifted"
"""Folder of the warehouse in which top-k queries keep what they need of large files."""


@dataclass(frozen=True)
class Windows:
    """The windows that a query answers in some intervals: the schedule, and what each answer says of itself."""

    schedule: Schedule
    coverage: np.ndarray
    widths_s: Mapping[str, np.ndarray]
    ranges_s: Mapping[str, float]
    support_level: np.ndarray
    slack_us: Int64s

    def as_arrow(self, pipeline: Pipeline) -> pa.Table:
        """A row a window: window_index, interval (of the emission) and the answer's own columns."""
        schedule = self.schedule
        aliases = list(self.widths_s)
        widths = [[(alias, float(self.widths_s[alias][i])) for alias in aliases] for i in range(len(schedule))]
        return pa.table(
            {
                "window_index": pa.array(np.arange(len(schedule)), pa.int64()),
                "interval": labels_holding(pipeline, schedule.emit_us),
                "window_end": pa.array(schedule.window_end_us, pa.int64()).cast(pa.timestamp("us")).cast(TIMESTAMP),
                "emitted_at": pa.array(schedule.emit_us, pa.int64()).cast(pa.timestamp("us")).cast(TIMESTAMP),
                "width_s": pa.array(widths, WIDTHS),
                "range_s": pa.array([list(self.ranges_s.items())] * len(schedule), WIDTHS),
                "coverage": self.coverage,
                "support_level": pa.array(self.support_level.tolist(), pa.string()),
                "slack_s": self.slack_us / 1e6,
            }
        )


def emitted_windows(
    query: Query, plans: PlanHistory, slacks: SlackHistory, intervals: Sequence[Interval]
) -> Windows | None:
    """The windows whose instant of emission lies in the intervals; None if there are none."""
    given = plans.emissions(query, slacks, intervals[0].start_us, intervals[-1].end_us)
    if len(given.emit_us) == 0:
        return None
    return windows_of(query, plans, given)


def windows_of(query: Query, plans: PlanHistory, given: Emissions) -> Windows:
    """What each of the answers holds, and what it says of itself."""
    held_from_us = {stream: plans.held_from_us(stream, given.emit_us) for stream in query.streams}
    ranges_us = {w.alias: round(w.range_s * 1e6) for w in query.windows}
    lower_us = {w.alias: held_from_us[w.stream] for w in query.windows}
    slack_us = given.emit_us - given.window_end_us
    schedule = Schedule.from_ticks(given.window_end_us, slack_us, ranges_us, lower_us)
    widths_us = {alias: schedule.width_us(alias) for alias in ranges_us}
    coverage = np.ones(len(schedule))
    for alias, range_us in ranges_us.items():
        coverage = coverage * (widths_us[alias] / range_us)
    return Windows(
        schedule,
        coverage,
        {alias: width / 1e6 for alias, width in widths_us.items()},
        {w.alias: float(w.range_s) for w in query.windows},
        plans.support_level(query, given, held_from_us),
        slack_us,
    )


def question(context: RunContext, query: Query, schedule: Schedule, coverage: np.ndarray | None = None) -> Question:
    """What to ask of the warehouse's tuples for a schedule's windows; without ``coverage``, whole ones."""
    pipeline, warehouse = context.pipeline, context.warehouse
    newest_us = int(schedule.emit_us.max())
    files: dict[str, EventFiles] = {}
    for window in query.windows:
        stream = pipeline.stream(window.stream)
        lower_us = min(int(schedule.lower_us[w.alias].min()) for w in query.windows if w.stream == stream.name)
        labels = warehouse.labels(f"events_{stream.name}")
        kept_in = str(warehouse.folder / KEPT)
        files[stream.name] = EventFiles.between(warehouse, stream, labels, lower_us, newest_us, kept_in)
    covered = np.ones(len(schedule)) if coverage is None else coverage
    return Question(query, schedule, covered, files, pipeline.tick_s * 1_000_000)


def cuts(asked: Question, count: int, most: int, passes: int = 1) -> list[tuple[int, int]]:
    """How ``count`` windows, in the order of their emission, are cut into slices: [first, last) of each.

    By cost: ``ROWS_OF_A_SLICE`` rows each, or more where ``most`` slices would not do. A slice answers for at least as
    long as its windows reach back, so that no more than half of what it reads is read by others, too.

    Args:
        asked: all of them.
        count: how many there are to be cut.
        most: the number of slices, at most.
        passes: how often a row is worked on.
    """
    schedule = asked.schedule
    rows = sum(files.rows() for files in asked.files.values()) * passes
    reach_us = max(int((schedule.emit_us - lower_us).max()) for lower_us in schedule.lower_us.values())
    span_us = int(schedule.emit_us[-1] - schedule.emit_us[0])
    number = max(1, min(most, count, rows // ROWS_OF_A_SLICE, span_us // max(reach_us, 1)))
    bounds = [count * part // number for part in range(number + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def run_here_or_on_spark(
    context: RunContext, work: Callable[[Slice], Result], parts: Sequence[Any], rows: int
) -> list[Result]:
    """What ``work`` gives for each part: by this process if few rows are read, else by one Spark job, a task a part."""
    slices = [Slice(number, part) for number, part in enumerate(parts)]
    return run_slices(slices, work, None if rows <= ROWS_HERE else lambda: context.spark)


@dataclass(frozen=True, eq=False)
class Answers:
    """Windows to answer, and where their answers go.

    Args:
        asked: the windows.
        about: a row a window, what its answers say of it; ``interval`` is where they belong.
        files: interval → the file to write its answers to.
        schema: of the table.
        order: columns that its rows are sorted by.
    """

    asked: Question
    about: pa.Table
    files: Mapping[str, str]
    schema: pa.Schema
    order: tuple[str, ...]

    def windows(self, first: int, last: int, files: Mapping[str, str]) -> Answers:
        """Some of them."""
        schedule = self.asked.schedule
        lower_us = {alias: bound[first:last] for alias, bound in schedule.lower_us.items()}
        part = Schedule(schedule.window_end_us[first:last], schedule.emit_us[first:last], lower_us)
        asked = replace(self.asked, schedule=part, coverage=self.asked.coverage[first:last])
        return replace(self, asked=asked, about=self.about.slice(first, last - first), files=files)


@dataclass
class Written:
    """What a slice has written: rows an interval, and the most that its operator held."""

    rows: dict[str, int] = field(default_factory=dict)
    peak_state_bytes: int = 0


def write(part: Slice) -> Written:
    """Answer a slice's windows, and write the answers, in their order, to the files that it was given.

    **Memory**: what the operator holds, and some 65 000 answers an interval.
    """
    asked: Answers = part.of
    answering, writers = Answering(asked.asked), {label: PartFile(file) for label, file in asked.files.items()}
    for answers in answering:
        for label, rows in by_interval(described(answers, asked.about), asked.schema, asked.order):
            writers[label].add(rows)
    written = {label: writer.close() for label, writer in writers.items()}
    return Written({label: rows for label, rows in written.items() if rows}, answering.peak_state_bytes)


def described(answers: pa.Table, about: pa.Table) -> pa.Table:
    """Answers with what is said of their windows."""
    rows = about.take(answers.column("window_index").combine_chunks())
    for name in rows.schema.names:
        if name not in answers.schema.names:
            answers = answers.append_column(rows.schema.field(name), rows.column(name))
    return answers


def by_interval(answers: pa.Table, schema: pa.Schema, order: Sequence[str]) -> Iterable[tuple[str, pa.Table]]:
    """The rows of each interval, shaped as the table's and sorted."""
    labels = answers.column("interval")
    for label in pc.unique(labels).to_pylist():
        own = answers.filter(pc.equal(labels, label)).select(schema.names).cast(schema)
        yield label, in_order(own, order)


def in_order(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sorted ascending by columns: NULL first, NaN last."""
    keys = {}
    for number, name in enumerate(names):
        column = rows.column(name)
        if pa.types.is_floating(column.type):
            nan = pc.fill_null(pc.is_nan(column), False)
            keys[f"{number}n"] = pc.add(pc.is_valid(column).cast(pa.int8()), nan.cast(pa.int8()))
            column = pc.if_else(nan, pa.scalar(None, column.type), column)
        keys[f"{number}v"] = column
    order = pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending", "at_start") for key in keys])
    return rows.take(order)


class PartFile:
    """A file that is there, under its name, once it is whole; none if it has no rows."""

    def __init__(self, file: str):
        self.file, self.partial = Path(file), Path(f"{file}.partial")
        self.waiting: list[pa.Table] = []
        self.writer: pq.ParquetWriter | None = None
        self.rows = self.written = 0

    def add(self, rows: pa.Table) -> None:
        """Write rows behind those that are there, sooner or later."""
        self.waiting.append(rows)
        self.rows += rows.num_rows
        if self.rows - self.written >= _ROWS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        table = pa.concat_tables(self.waiting)
        self.writer = self.writer or pq.ParquetWriter(self.partial, table.schema)
        self.writer.write_table(table)
        self.waiting, self.written = [], self.rows

    def close(self) -> int:
        """Have the file appear; how many rows it has."""
        if self.rows > self.written:
            self._write()
        if self.writer is not None:
            self.writer.close()
            self.partial.rename(self.file)
        return self.rows


class Staged:
    """The partitions of a table that slices write, aside, to be moved in by the commit."""

    def __init__(self, commit: Commit, table: str, intervals: Sequence[Interval]):
        self.commit, self.table, self.intervals = commit, table, list(intervals)
        self.folders = {i.label: commit.stage_folder(table, i.label) for i in intervals}

    def files(self, number: int, labels: Iterable[str]) -> dict[str, str]:
        """Where the slice of that number writes the rows of each interval: in the order of slices."""
        name = f"part-{number:05d}-{self.commit.id}.parquet"
        return {label: str(self.folders[label] / name) for label in sorted(set(labels))}

    def settle(self, counted: Sequence[Mapping[str, int]]) -> dict[Interval, int]:
        """Rows an interval, once what is there is what the slices have counted; intervals without rows get a file.

        Raises:
            UserError: rows are missing, as where a worker does not see the warehouse's folder.
        """
        rows = {}
        for interval in self.intervals:
            folder = self.folders[interval.label]
            files = sorted(folder.glob("*.parquet"))
            there = sum(pq.read_metadata(file).num_rows for file in files)
            rows[interval] = sum(counts.get(interval.label, 0) for counts in counted)
            if there != rows[interval]:
                raise UserError(
                    f"{rows[interval]} rows of table {self.table} were written for {interval.label}, but {there} are "
                    f"in {folder}: every worker must see the warehouse at the same path; nothing has been replaced"
                )
            if not files:
                empty = self.commit.warehouse.schema(self.table).empty_table()
                pq.write_table(empty, self.files(0, [interval.label])[interval.label])
        return rows


def write_answers(context: RunContext, stage: StageRun, asked: Sequence[Query], intervals: Sequence[Interval]) -> None:
    """Answer the asked queries' windows that are emitted in the intervals, and put the answers into their tables."""
    pipeline, warehouse = context.pipeline, context.warehouse
    labels = [interval.label for interval in intervals]
    warehouse.require("window_plan", labels, "ingest")
    plans = PlanHistory.for_emissions(warehouse, intervals[0].start_us)
    if any(query.promised is not None for query in asked):
        require_calibrated(context, intervals)
    slacks = SlackHistory.load(warehouse, intervals)
    rows_in = {
        (s, interval): warehouse.rows(f"events_{s}", interval.label)
        for s in {s for q in asked for s in q.streams}
        for interval in intervals
    }
    staged = {query.id: Staged(stage.commit, f"answers_{query.id}", intervals) for query in asked}
    answered: dict[str, int] = {}
    parts: list[Answers] = []
    owners: list[str] = []
    rows = 0
    for query in asked:
        windows = emitted_windows(query, plans, slacks, intervals)
        answered[query.id] = 0 if windows is None else len(windows.schedule)
        if windows is None:
            continue
        about, table = windows.as_arrow(pipeline), staged[query.id]
        whole = question(context, query, windows.schedule, windows.coverage)
        every = Answers(whole, about, {}, warehouse.schema(table.table), sort_columns(query))
        for number, (first, last) in enumerate(cuts(whole, len(windows.schedule), pipeline.partitions)):
            where = table.files(number, about.column("interval").slice(first, last - first).to_pylist())
            part = every.windows(first, last, where)
            part = replace(part, asked=question(context, query, part.asked.schedule, part.asked.coverage))
            rows += sum(files.rows() for files in part.asked.files.values())
            parts.append(part)
            owners.append(query.id)
    done = run_here_or_on_spark(context, write, parts, rows)
    for query in asked:
        own = [written for written, owner in zip(done, owners, strict=True) if owner == query.id]
        counts = staged[query.id].settle([written.rows for written in own])
        peak = max((written.peak_state_bytes for written in own), default=0)
        for interval in intervals:
            read = sum(rows_in[s, interval] for s in query.streams)
            stage.record(interval, query.id, rows_in=read, rows_out=counts[interval], peak_state_bytes=peak)
        context.progress(f"{stage.stage}: {query.id}: {answered[query.id]} windows, {sum(counts.values())} rows")


def sort_columns(query: Query) -> tuple[str, ...]:
    """By which columns a query's answers are sorted within a partition: a total order of the rows."""
    if query.kind == "top_k":
        return "emitted_at", "window_end", *query.row_keys
    return "emitted_at", "window_end", *(o.name for o in query.outputs)
