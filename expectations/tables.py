"""The rows of the intervals that are judged, and of the period that trails each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from expectations.columns import EmptyColumns, Tables, UnknownColumns
from tidegate.declarations.interval_labels import label_start
from tidegate.declarations.models import Pipeline, to_us
from tidegate.values.types import TIMESTAMP

# Tables with a row a tuple: of these a suite gets the columns that it names, and nothing is remembered.
_ROW_A_TUPLE = ("events_", "history_samples_", "quarantine")
# Intervals are judged together up to so many rows, and no more rows than these are remembered of a table.
ROWS_AT_ONCE = 200_000

# What an expectation is about; every frame begins with these columns.
SUBJECT: tuple[tuple[str, pa.DataType], ...] = (
    ("interval", pa.string()),
    ("table", pa.string()),
    ("query", pa.string()),
    ("window_end", pa.string()),
    ("subject", pa.string()),
)


class Interval(Protocol):
    """[start, end) of arrival time; ``label`` names its partitions."""

    @property
    def start(self) -> datetime: ...  # noqa: D102
    @property
    def end(self) -> datetime: ...  # noqa: D102
    @property
    def label(self) -> str: ...  # noqa: D102


@dataclass
class Cached:
    """Tables that remember the small partitions that suites and trailing periods read again and again.

    ``gathered``: this machine's folder for what is read of all intervals, once each; None: none.
    ``ahead``: labels of the intervals that are judged next; who asks for one of their partitions has all of them read.
    """

    tables: Tables
    gathered: Path | None = None
    ahead: tuple[str, ...] = ()
    _labels: dict[str, list[str]] = field(default_factory=dict)
    _together: dict[tuple[str, tuple[str, ...]], pa.Table] = field(default_factory=dict)
    _parts: dict[tuple[str, str], pa.Table] = field(default_factory=dict)
    _steps: dict[tuple[str, str], list[tuple[str, int, Any]]] = field(default_factory=dict)
    _first_arrivals: dict[tuple[str, str], datetime | None] = field(default_factory=dict)
    _began: dict[tuple[str, str], datetime | None] = field(default_factory=dict)

    @cached_property
    def empty_columns(self) -> EmptyColumns:
        """Which columns have had no value."""
        return EmptyColumns(self.tables, self.gathered)

    @cached_property
    def unknown_columns(self) -> UnknownColumns:
        """Since when records have had columns that are not declared."""
        return UnknownColumns(self.tables, self.gathered)

    def labels(self, table: str) -> list[str]:
        """Labels of the table's partitions, ascending."""
        if table not in self._labels:
            self._labels[table] = self.tables.labels(table)
        return self._labels[table]

    def part(self, table: str, label: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One partition: the named columns and ``interval``; None: all."""
        if table.startswith(_ROW_A_TUPLE):
            return self.tables.read_arrow(table, [label], columns)
        key = (table, label)
        if key not in self._parts and len(self.ahead) > 1 and label in self.ahead:
            self.together(table, self.ahead)
        if key not in self._parts:
            rows = self.tables.read_arrow(table, [label])
            if rows.num_rows > ROWS_AT_ONCE:
                return rows
            self._remember(table, {label: rows})
        return self._parts[key]

    def together(self, table: str, labels: tuple[str, ...]) -> pa.Table:
        """Several partitions, labels ascending, of a table that has not a row a tuple."""
        key = (table, labels)
        if key not in self._together:
            # One piece: it is cheaper to compute with than one a file.
            rows = self.tables.read_arrow(table, labels).combine_chunks()
            if rows.num_rows > ROWS_AT_ONCE:
                return rows
            if len(self._together) > 512:
                self._together.clear()
            self._together[key] = rows
            self._remember(table, by_label(rows, labels))
        return self._together[key]

    def _remember(self, table: str, parts: dict[str, pa.Table]) -> None:
        if len(self._parts) > 8192:
            self._parts.clear()
        self._parts |= {(table, label): rows for label, rows in parts.items()}

    def steps(self, table: str, label: str) -> list[tuple[str, int, Any]]:
        """(query, effective from, what is in effect) of one partition of ``slack_plan`` or ``query_plan``, in µs."""
        if (table, label) not in self._steps:
            of = _slot_step if table == "query_plan" else _slack_step
            # A plan may stand for years: intervals in which none was made are not read.
            rows = self.part(table, label).to_pylist() if self.tables.rows(table, label) else []
            self._steps[table, label] = [(r["query"], to_us(r["effective_from"]), of(r)) for r in rows]
        return self._steps[table, label]

    def first_arrival(self, stream: str, until: str, length: timedelta) -> datetime | None:
        """When the stream's first tuple arrived, as far back as the intervals up to ``until`` go without a gap."""
        if (stream, until) not in self._began:
            self._began[stream, until] = self._first_arrival(f"events_{stream}", until, length)
        return self._began[stream, until]

    def _first_arrival(self, table: str, until: str, length: timedelta) -> datetime | None:
        labels = self.labels(table)
        last = bisect_right(labels, until) - 1
        if last < 0:
            return None
        end = label_start(labels[last])
        # Without a gap: as many intervals lie between the two as there are labels.
        begin = bisect_left(range(last), True, key=lambda i: end - label_start(labels[i]) == (last - i) * length)
        for label in labels[begin : last + 1]:
            key = (table, label)
            if key not in self._first_arrivals:
                rows = self.tables.read_arrow(table, [label], ["arrival_time"])
                self._first_arrivals[key] = pc.min(rows["arrival_time"]).as_py()
            if self._first_arrivals[key] is not None:
                return self._first_arrivals[key]
        return None


def _slack_step(row: dict[str, Any]) -> int:
    return int(round(row["slack_s"] * 1e6))


def _slot_step(row: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    slot_end, extra = (None if row[name] is None else to_us(row[name]) for name in ("slot_end", "extra_answer"))
    return slot_end, None if row["period_s"] is None else round(row["period_s"] * 1e6), extra


@dataclass(frozen=True)
class Case:
    """One interval to be judged."""

    pipeline: Pipeline
    interval: Interval
    cached: Cached

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The interval's rows of a table, at least the named columns (None: all); none if it has no partition."""
        return self.cached.part(table, self.interval.label, columns)

    def has(self, table: str) -> bool:
        """Whether the interval's partition is there, with rows or without."""
        labels, label = self.cached.labels(table), self.interval.label
        at = bisect_left(labels, label)
        return at < len(labels) and labels[at] == label

    def before(self, table: str) -> list[str]:
        """Labels of a table's partitions of all earlier intervals, ascending."""
        labels = self.cached.labels(table)
        return labels[: bisect_left(labels, self.interval.label)]

    def trailing(self, table: str, period: timedelta) -> list[str]:
        """Labels of a table's partitions of the intervals that began within ``period`` before this interval's end."""
        labels = self.cached.labels(table)
        begin = bisect_left(labels, self.interval.end - period, key=label_start)
        return labels[begin : bisect_right(labels, self.interval.label)]


@dataclass(frozen=True)
class Cases:
    """Intervals to be judged together, in their order."""

    pipeline: Pipeline
    intervals: tuple[Interval, ...]
    cached: Cached

    def __iter__(self) -> Iterator[Case]:
        """One interval after another."""
        return (Case(self.pipeline, interval, self.cached) for interval in self.intervals)

    @property
    def labels(self) -> tuple[str, ...]:
        """The intervals' labels, in their order."""
        return tuple(interval.label for interval in self.intervals)

    def read(self, table: str) -> pa.Table:
        """All intervals' rows of a table that has not a row a tuple, with a column ``interval``."""
        return self.cached.together(table, self.labels)

    def starts(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """When each row's interval began."""
        starts = pa.array([interval.start for interval in self.intervals], TIMESTAMP)
        return starts.take(pc.index_in(rows["interval"], pa.array(self.labels, pa.string())))

    def in_parts(self) -> Iterator[Cases]:
        """The same intervals in groups of up to ``ROWS_AT_ONCE`` rows in the tables, by the log; at least one each."""
        tables = [table for table in self.cached.tables.tables() if not table.startswith(_ROW_A_TUPLE)]
        part: list[Interval] = []
        rows = 0
        for interval in self.intervals:
            own = sum(self.cached.tables.rows(table, interval.label) for table in tables)
            if part and rows + own > ROWS_AT_ONCE:
                yield Cases(self.pipeline, tuple(part), self.cached)
                part, rows = [], 0
            part.append(interval)
            rows += own
        if part:
            yield Cases(self.pipeline, tuple(part), self.cached)


def by_label(rows: pa.Table, labels: Sequence[str]) -> dict[str, pa.Table]:
    """The rows of each label, of rows that stand in the order of the labels."""
    counts = {one["values"]: one["counts"] for one in pc.value_counts(rows["interval"]).to_pylist()}
    found, begin = {}, 0
    for label in labels:
        count = counts.get(label, 0)
        found[label] = rows.slice(begin, count)
        begin += count
    return found


def instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Timestamps as text, to the second or, where needed, the microsecond: 2013-02-08T10:05:00Z."""
    text = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
    return pc.replace_substring_regex(text, r"\.0+Z$", "Z")


def instant(text: str | None) -> datetime | None:
    """The instant that ``instants`` wrote."""
    return datetime.fromisoformat(text) if text else None


def seconds(later: pa.ChunkedArray, earlier: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """Later − earlier in seconds, as doubles."""
    between = pc.subtract(pc.cast(later, pa.int64()), pc.cast(earlier, pa.int64()))
    return pc.divide(pc.cast(between, pa.float64()), 1e6)


def nulls(table: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray | pa.Array:
    """How many of the named columns are null, row by row."""
    total: pa.ChunkedArray | pa.Array = pa.array([0] * table.num_rows, pa.int64())
    for column in columns:
        total = pc.add(total, pc.cast(pc.is_null(table[column], nan_is_null=True), pa.int64()))
    return total


def constant(value: object, type_: pa.DataType, rows: int) -> pa.Array:
    """A column of one value."""
    return pa.repeat(pa.scalar(value, type_), rows)


def shaped(columns: dict[str, object], schema: pa.Schema, rows: int) -> pa.Table:
    """A frame: columns that are not given are null; single values are repeated."""
    arrays = []
    for wanted in schema:
        given = columns.get(wanted.name)
        if isinstance(given, pa.Array | pa.ChunkedArray):
            arrays.append(given.cast(wanted.type))
        else:
            arrays.append(constant(given, wanted.type, rows))
    return pa.Table.from_arrays(arrays, schema=schema)


def joined(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """The frames, one after another."""
    return pa.concat_tables(parts) if parts else schema.empty_table()
