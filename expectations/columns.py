"""Columns that no tuple has a value in, and columns that no stream declares: since when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from tidegate.store import gathered, parquet
from tidegate.store.gathered import Gathered

# So many intervals before one are looked at by themselves, before all are.
_NEAR_INTERVALS = 24
_REMEMBERED = 8192
_EMPTY_COLUMNS = pa.schema([("column", pa.string()), ("interval", pa.string())])


class Tables(gathered.Tables, Protocol):
    """The tables of one pipeline (a Warehouse is one)."""

    def tables(self) -> list[str]: ...  # noqa: D102
    def schema(self, table: str) -> pa.Schema: ...  # noqa: D102
    def labels(self, table: str) -> list[str]: ...  # noqa: D102  # ascending
    def rows(self, table: str, label: str) -> int: ...  # noqa: D102


@dataclass
class EmptyColumns:
    """Which columns of a stream's tuples have had no value up to an interval.

    Only footers of Parquet files are read: of the interval's own files, and where it has a column without a value of
    those of the intervals just before it; where these have none either, of all, once each, for what they say is
    gathered in ``folder`` (None: read anew every time).
    """

    tables: Tables
    folder: Path | None = None
    _near: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    _ever: dict[str, _Past] = field(default_factory=dict)

    def files(self, table: str, labels: Sequence[str]) -> tuple[str, ...]:
        """The files of the partitions."""
        return self.tables.files(table, labels)

    def read_arrow(
        self, table: str, labels: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """A row for each partition with tuples and column without a value: what :class:`Gathered` keeps of a table."""
        filled = [label for label in labels or () if self.tables.rows(table, label)]
        pairs = [(column, label) for label in filled for column in sorted(self.of(table, label))]
        arrays = [pa.array([pair[i] for pair in pairs], pa.string()) for i in (0, 1)]
        return pa.Table.from_arrays(arrays, schema=_EMPTY_COLUMNS)

    def of(self, table: str, label: str) -> frozenset[str]:
        """Columns without a value in a partition: all, if it has no tuples."""
        key = (table, label)
        if key not in self._near:
            if len(self._near) > _REMEMBERED:
                self._near.clear()
            columns = set(self.tables.schema(table).names)
            if self.tables.rows(table, label):
                for path in self.tables.files(table, [label]):
                    columns &= _without_values(path, columns)
            self._near[key] = frozenset(columns)
        return self._near[key]

    def so_far(self, table: str, label: str, before: Sequence[str], declared: Sequence[str]) -> list[str]:
        """Which declared columns have a value neither in the interval ``label`` nor in those ``before`` it.

        Args:
            table: the stream's tuples.
            label: the interval, which has tuples.
            before: labels of the earlier partitions, ascending.
            declared: the stream's columns, in their order.
        """
        empty = self.of(table, label) & set(declared)
        for earlier in reversed(before[-_NEAR_INTERVALS:]):
            if not empty:
                return []
            empty &= self.of(table, earlier)
        if empty and len(before) > _NEAR_INTERVALS:
            past = self._past(table)
            empty = frozenset(name for name in empty if past.is_empty(name, label))
        return [name for name in declared if name in empty]

    def _past(self, table: str) -> _Past:
        if table not in self._ever:
            labels = self.tables.labels(table)
            if self.folder is None:
                rows = self.read_arrow(table, labels)
            else:
                rows = Gathered(self.folder / f"empty_columns_{table}.parquet").read(self, table, labels)
            self._ever[table] = _Past.of([x for x in labels if self.tables.rows(table, x)], rows)
        return self._ever[table]


@dataclass(frozen=True)
class _Past:
    """All intervals of a stream: ``filled``: those with tuples; ``empty``: column → those in which it has no value."""

    filled: Sequence[str]
    empty: dict[str, list[str]]

    @classmethod
    def of(cls, filled: Sequence[str], rows: pa.Table) -> _Past:
        """From pairs of column and interval, intervals ascending."""
        empty: dict[str, list[str]] = {}
        for column, label in zip(rows["column"].to_pylist(), rows["interval"].to_pylist(), strict=True):
            empty.setdefault(column, []).append(label)
        return cls(filled, empty)

    def is_empty(self, column: str, label: str) -> bool:
        """Whether a column has no value in any interval up to ``label``."""
        return bisect_right(self.empty.get(column, []), label) == bisect_right(self.filled, label)


def _without_values(path: str, columns: set[str]) -> set[str]:
    """Those of some columns that are NULL in all rows of a file, by its statistics, or not in it."""
    footer = parquet.footer(path)
    there = set(footer.schema.to_arrow_schema().names)
    nulls: dict[str, int] = dict.fromkeys(columns & there, 0)
    for group in (footer.row_group(n) for n in range(footer.num_row_groups)):
        for chunk in (group.column(n) for n in range(group.num_columns)):
            if chunk.path_in_schema in nulls and chunk.statistics is not None and chunk.statistics.has_null_count:
                nulls[chunk.path_in_schema] += chunk.statistics.null_count
    return {name for name in columns if name not in there or nulls[name] == footer.num_rows}


@dataclass
class UnknownColumns:
    """Which names that no column is read from an interval's records are the first to have.

    They are looked for in the partition before the interval's; only where that lacks some, in all of them: each is
    read once, for its rows are gathered in ``folder`` (None: read anew every time).
    """

    tables: Tables
    folder: Path | None = None
    _first: dict[tuple[str, str], str] | None = None

    def new(self, label: str, names: Set[tuple[str, str]], last: pa.Table) -> Set[tuple[str, str]]:
        """Those of an interval's streams and names that no interval before it has.

        Args:
            label: the interval.
            names: pairs of stream and name that it has.
            last: rows of ``unknown_columns`` of the interval before.
        """
        unseen = names - set(zip(last["stream"].to_pylist(), last["column"].to_pylist(), strict=True))
        return {name for name in unseen if self._first_label(name) == label}

    def _first_label(self, name: tuple[str, str]) -> str | None:
        if self._first is None:
            groups = self._all().group_by(["stream", "column"], use_threads=False).aggregate([("interval", "min")])
            self._first = {(row["stream"], row["column"]): row["interval_min"] for row in groups.to_pylist()}
        return self._first.get(name)

    def _all(self) -> pa.Table:
        labels = self.tables.labels("unknown_columns")
        if self.folder is None:
            return self.tables.read_arrow("unknown_columns", labels)
        return Gathered(self.folder / "unknown_columns.parquet").read(self.tables, "unknown_columns", labels)
