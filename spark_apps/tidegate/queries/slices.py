"""Questions cut into slices: which, what each of them does, and the files that it writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Query
from tidegate.engine import Slice
from tidegate.engine.context import RunContext
from tidegate.operators.schedule import Int64s, Schedule
from tidegate.queries.questions import Answering, Question, least_event_us
from tidegate.queries.scan import EventFiles
from tidegate.store import parquet
from tidegate.store.commit import Commit
from tidegate.store.intervals import Interval
from tidegate.store.places import move, place

ROWS_OF_A_SLICE = 1_000_000
"""About a second's work: next to it, starting a task costs little."""
_ROWS_AT_ONCE = 1 << 16
KEPT = "_sifted"
"""Folder of the warehouse in which top-k queries keep what they need of large files."""


def question(
    context: RunContext,
    query: Query,
    schedule: Schedule,
    coverage: np.ndarray | None = None,
    looking_back: bool = False,
    with_ties: bool = False,
) -> Question:
    """What to ask of the warehouse's tuples for a schedule's windows; without ``coverage``, whole ones.

    ``looking_back``: nobody asks what was held while they waited (see ``Question.waited_us``).
    ``with_ties``: see there.
    """
    pipeline, warehouse = context.pipeline, context.warehouse
    newest_us = int(schedule.emit_us.max())
    files: dict[str, EventFiles] = {}
    for stream in map(pipeline.stream, query.streams):
        lower_us = min(least_event_us(schedule, w) for w in query.windows if stream.name in w.streams)
        labels = warehouse.labels(f"events_{stream.name}")
        kept_in = str(warehouse.local / KEPT)
        files[stream.name] = EventFiles.between(warehouse, stream, labels, lower_us, newest_us, kept_in)
    covered = np.ones(len(schedule)) if coverage is None else coverage
    aggregate = looking_back and query.kind != "top_k"
    # Tuples that match may happen until a bound's lag is over: that much every window waits in any case.
    waited_us = int((schedule.emit_us - schedule.window_end_us).min()) - query.lag_us if aggregate else 0
    return Question(query, schedule, covered, files, pipeline.tick_s * 1_000_000, waited_us, with_ties=with_ties)


def cuts(asked: Question, count: int, most: int) -> list[tuple[int, int]]:
    """How ``count`` windows, in the order of their emission, are cut into slices: [first, last) of each.

    By cost: ``ROWS_OF_A_SLICE`` rows each, or more where ``most`` slices would not do. A slice answers for at least as
    long as its windows reach back, so that no more than half of the tuples that it works on are others', too. What all
    windows wait, if it is taken off, does not count: the tuples that come meanwhile are read, and left out at once.

    Args:
        asked: all of them.
        count: how many there are to be cut.
        most: the number of slices, at most.
    """
    schedule = asked.schedule
    early_us = schedule.emit_us - asked.waited_us
    reach_us = max(int((early_us - lower_us).max()) for lower_us in schedule.lower_us.values())
    span_us = int(schedule.emit_us[-1] - schedule.emit_us[0])
    number = max(1, min(slices_worth(asked.rows(), most), count, span_us // max(reach_us, 1)))
    bounds = [count * part // number for part in range(number + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def slices_worth(rows: int, most: int) -> int:
    """How many slices so many rows are worth: ``most`` at most."""
    return max(1, min(most, rows // ROWS_OF_A_SLICE))


def windows_by_rows(ends_us: Int64s, rows: int) -> list[Int64s]:
    """Windows in slices of about ``ROWS_OF_A_SLICE`` of the rows that they have together, a window each at least."""
    return list(np.array_split(ends_us, max(1, min(len(ends_us), rows // ROWS_OF_A_SLICE))))


@dataclass(frozen=True, eq=False)
class Answers:
    """Windows to answer, and where their answers go.

    Args:
        asked: the windows.
        about: a row a window, what its answers say of it; ``interval`` is where they belong.
        files: interval → the file to write its answers to.
        schema: of the table.
        order: columns that its rows are sorted by.
        partials: files of the partial answers of all keys, where there are (see ``queries.keys``).
    """

    asked: Question
    about: pa.Table
    files: Mapping[str, str]
    schema: pa.Schema
    order: tuple[str, ...]
    partials: tuple[str, ...] = ()

    def windows(self, first: int, last: int, files: Mapping[str, str]) -> Answers:
        """Some of them."""
        schedule = self.asked.schedule
        lower_us = {alias: bound[first:last] for alias, bound in schedule.lower_us.items()}
        part = Schedule(schedule.window_end_us[first:last], schedule.emit_us[first:last], lower_us)
        asked = replace(self.asked, schedule=part, coverage=self.asked.coverage[first:last])
        return replace(self, asked=asked, about=self.about.slice(first, last - first), files=files)


@dataclass
class Written:
    """What a slice has written: rows an interval, rows that failed an interval, and the most that its operator held."""

    rows: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    peak_state_bytes: int = 0


def write(part: Slice) -> Written:
    """Answer a slice's windows, and write the answers, in their order, to the files that it was given.

    **Memory**: what the operator holds, and some 65 000 answers an interval.
    """
    asked: Answers = part.of
    answering = Answering(asked.asked, partials=asked.partials)
    writers = {label: PartFile(file) for label, file in asked.files.items()}
    for answers in answering:
        for label, rows in by_interval(described(answers, asked.about), asked.schema, asked.order):
            writers[label].add(rows)
    written = {label: writer.close() for label, writer in writers.items()}
    failed: dict[str, int] = defaultdict(int)
    for label, count in zip(asked.about.column("interval").to_pylist(), answering.failed.tolist(), strict=True):
        failed[label] += count
    return Written({label: rows for label, rows in written.items() if rows}, dict(failed), answering.peak_state_bytes)


def described(answers: pa.Table, about: pa.Table) -> pa.Table:
    """Answers with what is said of their windows."""
    rows = about.take(answers.column("_window_index").combine_chunks())
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
        self.file, self.partial = place(file), place(f"{file}.partial")
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
        self.writer = self.writer or parquet.writer(self.partial, table.schema)
        self.writer.write_table(table)
        self.waiting, self.written = [], self.rows

    def close(self) -> int:
        """Have the file appear; how many rows it has."""
        if self.rows == 0:
            return 0
        if self.writer is None:
            parquet.write(pa.concat_tables(self.waiting), self.partial)
        else:
            if self.rows > self.written:
                self._write()
            self.writer.close()
        move(self.partial, self.file)
        return self.rows


class Staged:
    """The partitions of a table that slices write, to be put in place by the commit."""

    def __init__(self, commit: Commit, table: str, intervals: Sequence[Interval]):
        self.commit, self.table, self.intervals = commit, table, list(intervals)
        self.folders = {i.label: commit.stage_folder(table, i.label) for i in intervals}

    def files(self, number: int, labels: Iterable[str]) -> dict[str, str]:
        """Where the slice of that number writes the rows of each interval: in the order of slices."""
        return {label: self.file(label, f"part-{number:05d}") for label in sorted(set(labels))}

    def file(self, label: str, name: str) -> str:
        """Where a slice writes rows of an interval, under a name of its own."""
        return f"{self.folders[label]}/{name}-{self.commit.id}.parquet"

    def settle(self, counted: Sequence[Mapping[str, int]]) -> dict[Interval, int]:
        """Rows an interval, once what is there is what the slices have counted; intervals without rows get a file.

        Raises:
            UserError: rows are missing, as where a worker does not see the warehouse's folder.
        """
        rows = {}
        for interval in self.intervals:
            folder, files = self.folders[interval.label], self.commit.written(self.table, interval.label)
            there = sum(map(self.commit.rows, files))
            rows[interval] = sum(counts.get(interval.label, 0) for counts in counted)
            if there != rows[interval]:
                raise UserError(
                    f"{rows[interval]} rows of table {self.table} were written for {interval.label}, but {there} are "
                    f"in {folder}: every worker must see the warehouse at the same path; nothing has been replaced"
                )
            if not files:
                empty = self.commit.warehouse.schema(self.table).empty_table()
                parquet.write(empty, self.files(0, [interval.label])[interval.label])
        return rows
