"""Versions of reference tables in effect, and tuples with the columns that are looked up in them.

A tuple meets the version that is in effect in the interval in which it arrived. ``table_versions`` says which that is,
an interval and table a row; the rows of a version are in ``reference_<table>``, in the partition of the interval from
which it is in effect. Neither changes when an interval is run again, so that answers, truths and re-runs agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.interval_labels import label_start
from tidegate.declarations.models import Lookup, ReferenceTable, to_us
from tidegate.declarations.tables import TABLE_VERSIONS, reference_rows_schema
from tidegate.operators.expressions import columns_of, evaluate
from tidegate.operators.lookup import Keyed
from tidegate.operators.schedule import instants_us
from tidegate.store.cut import read_file
from tidegate.store.intervals import interval_holding
from tidegate.values.types import arrow_type

if TYPE_CHECKING:
    from tidegate.store.warehouse import Warehouse

_VERSIONS_KEPT = 16


@dataclass(frozen=True)
class Version:
    """One version of a reference table: its rows are those of the files that bear its name."""

    name: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class References:
    """The versions in effect in some intervals.

    ``tables``: by name. ``in_effect``: table → (start of an interval in microseconds → the version in effect in it).
    """

    tables: Mapping[str, ReferenceTable] = field(default_factory=dict)
    in_effect: Mapping[str, Mapping[int, Version]] = field(default_factory=dict)
    interval_us: int = 1

    @classmethod
    def of(cls, warehouse: Warehouse, labels: Iterable[str]) -> References:
        """Those of the intervals with these labels; nothing for a pipeline without reference tables."""
        pipeline = warehouse.pipeline
        if not pipeline.tables:
            return cls()
        rows = {label: versions_of(warehouse, label) for label in labels}
        return cls.by_rows(warehouse, rows, lambda table, label: warehouse.files(table, [label]))

    @classmethod
    def by_rows(cls, warehouse: Warehouse, rows: Mapping[str, Sequence[Mapping[str, Any]]], files: Any) -> References:
        """Those of intervals, by label, of which the rows of ``table_versions`` are known.

        ``files``: table of the warehouse, label → paths.
        """
        pipeline = warehouse.pipeline
        tables = {table.name: table for table in pipeline.tables}
        in_effect: dict[str, dict[int, Version]] = {name: {} for name in tables}
        known: dict[tuple[str, str, int], Version] = {}
        for label, versions in rows.items():
            for row in versions:
                name, from_us = row["table"], to_us(row["in_effect_from"])
                if name in tables:
                    key = name, row["version"], from_us
                    if key not in known:
                        since = interval_holding(pipeline, from_us).label
                        known[key] = Version(row["version"], tuple(files(f"reference_{name}", since)))
                    in_effect[name][to_us(label_start(label))] = known[key]
        return cls(tables, in_effect, pipeline.interval_s * 1_000_000)

    def and_others(self, others: Iterable[References]) -> References:
        """Those of more intervals."""
        both = {name: dict(of) for name, of in self.in_effect.items()}
        for other in others:
            for name, of in other.in_effect.items():
                both[name] |= of
        return References(self.tables, both, self.interval_us)

    def columns(self, lookups: Sequence[Lookup]) -> list[str]:
        """The columns that lookups give."""
        return [lookup.name_of(c.name) for lookup in lookups for c in self.tables[lookup.table].columns]

    def needed(self, names: Iterable[str], lookups: Sequence[Lookup], stored: Sequence[str]) -> list[str]:
        """Of the stored columns those that are needed for some columns, stored ones and such as are looked up."""
        known = [*stored, *self.columns(lookups)]
        wanted = dict.fromkeys(names)
        for lookup in reversed(lookups):
            if any(lookup.name_of(c.name) in wanted for c in self.tables[lookup.table].columns):
                wanted |= dict.fromkeys(name for sql in lookup.keys for name in columns_of(sql, known))
        return [name for name in wanted if name in set(stored)]

    def extended(self, rows: Any, lookups: Sequence[Lookup], names: Iterable[str] | None = None) -> Any:
        """Tuples (a table or a batch) with the columns that are looked up; of these only ``names``, None: all.

        The tuples have ``event_time``, ``arrival_time``, and what the keys are computed from.
        """
        wanted = set(self.columns(lookups) if names is None else names)
        for lookup in reversed(lookups):
            if wanted & {lookup.name_of(c.name) for c in self.tables[lookup.table].columns}:
                known = self.columns(lookups)
                wanted |= {name for sql in lookup.keys for name in columns_of(sql, known)}
        for lookup in lookups:
            columns = [c for c in self.tables[lookup.table].columns if lookup.name_of(c.name) in wanted]
            if columns:
                values = self._looked_up(rows, lookup).select([c.name for c in columns])
                arrays = [*rows.columns, *(column.combine_chunks() for column in values.columns)]
                fields = [*rows.schema.names, *(lookup.name_of(c.name) for c in columns)]
                rows = type(rows).from_arrays(arrays, names=fields)
        return rows

    def _looked_up(self, rows: Any, lookup: Lookup) -> pa.Table:
        """The table's row of each tuple, NULLs where there is none."""
        table, in_effect = self.tables[lookup.table], self.in_effect[lookup.table]
        arrival_us, event_us = (instants_us(rows.column(name)) for name in ("arrival_time", "event_time"))
        kinds = [arrow_type(table.column(name).type) for name in table.key]
        keys = [_whole(evaluate(sql, rows, kind)) for sql, kind in zip(lookup.keys, kinds, strict=True)]
        starts, number = np.unique(arrival_us // self.interval_us * self.interval_us, return_inverse=True)
        versions = [in_effect.get(int(start)) for start in starts]
        different = [version for version in dict.fromkeys(versions) if version is not None]
        parts, place, first = [reference_rows_schema(table).empty_table()], np.full(len(arrival_us), -1), 0
        for version in different:
            there, keyed = _keyed(version, table)
            here = np.flatnonzero(np.isin(number, [i for i, one in enumerate(versions) if one == version]))
            some = [key.take(pa.array(here)) for key in keys] if len(here) < len(arrival_us) else keys
            places = keyed.places(some, event_us[here])
            place[here] = np.where(places >= 0, places + first, -1)
            parts.append(there)
            first += there.num_rows
        together = pa.concat_tables(parts)
        return together.take(pa.array(place, mask=place < 0))


def versions_of(warehouse: Warehouse, label: str) -> list[dict[str, Any]]:
    """An interval's rows of ``table_versions``."""
    schema = warehouse.schema(TABLE_VERSIONS)
    return [row for path in warehouse.files(TABLE_VERSIONS, [label]) for row in _rows_of(path, schema)]


@lru_cache(100_000)
def _rows_of(path: str, schema: pa.Schema) -> tuple[dict[str, Any], ...]:
    """The rows of a file, which is written once."""
    return tuple(read_file(path, schema).to_pylist())


@lru_cache(_VERSIONS_KEPT)
def _keyed(version: Version, table: ReferenceTable) -> tuple[pa.Table, Keyed]:
    """A version's rows, and which of them a key names."""
    schema = reference_rows_schema(table)
    wanted = pa.schema([pa.field("table_version", pa.string()), *schema])
    rows = pa.concat_tables([wanted.empty_table(), *(read_file(path, wanted) for path in version.paths)])
    rows = rows.filter(pc.equal(rows.column("table_version"), version.name)).select(schema.names).combine_chunks()
    return rows, keyed(rows, table)


def keyed(rows: pa.Table, table: ReferenceTable) -> Keyed:
    """The rows of a reference table by their keys."""
    columns = [_whole(rows.column(name)) for name in table.key]
    first_us = None if table.valid_from is None else _bound(rows, table.valid_from, -(2**62))
    last_us = None if table.valid_to is None else _bound(rows, table.valid_to, 2**62)
    return Keyed.of(columns, first_us, last_us)


def _bound(rows: pa.Table, name: str, otherwise_us: int) -> npt.NDArray[np.int64]:
    values = _whole(rows.column(name)).cast(pa.int64())
    return np.asarray(pc.fill_null(values, otherwise_us).to_numpy(zero_copy_only=False), np.int64)


def _whole(column: Any) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
