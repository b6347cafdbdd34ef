"""A query's tuples, from the tables' files straight into its operator, whoever runs it.

Spark's own way, from a scan through a shuffle and a sort to Arrow in a Python worker, costs several times what the
operators do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from operator import and_
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Lookup, Stream, to_us
from tidegate.operators.arrivals import int64s
from tidegate.operators.duplicates import hashes
from tidegate.operators.expressions import columns_of, evaluate, pushed_down, truth
from tidegate.operators.schedule import NEVER_US
from tidegate.queries.sieves import Sieve
from tidegate.store import parquet
from tidegate.store.cut import read_file
from tidegate.store.intervals import interval_holding
from tidegate.store.places import located
from tidegate.store.references import References
from tidegate.values.limbs import is_decimal, limbs
from tidegate.values.ordered import as_ordered_integers
from tidegate.values.types import TIMESTAMP

if TYPE_CHECKING:
    from tidegate.store.warehouse import Warehouse

BATCH_ROWS = 1 << 17
_FILES_AT_ONCE = 256
_SMALL_BYTES = 1 << 15
_ODD, _OTHER_ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class EventFiles:
    """A stream's accepted tuples: files of ``schema`` one behind the other in order of arrival, each sorted by it.

    ``kept_in``: the folder in which queries may keep what they need of large files. ``references``: what tuples are
    looked up in.
    """

    paths: tuple[str, ...]
    schema: pa.Schema
    kept_in: str | None = None
    references: References = field(default_factory=References)

    @classmethod
    def between(
        cls,
        warehouse: Warehouse,
        stream: Stream,
        labels: Sequence[str],
        start_us: int,
        seen_by_us: int,
        kept_in: str | None = None,
    ) -> EventFiles:
        """Those with the tuples of an event time or later that had arrived by an instant.

        ``labels``: the partitions that there are.
        """
        pipeline = warehouse.pipeline
        oldest = interval_holding(pipeline, start_us - stream.max_early_s * 1_000_000).label
        newest = interval_holding(pipeline, seen_by_us).label
        wanted = [label for label in labels if oldest <= label <= newest]
        return cls.of(warehouse, stream, wanted, kept_in)

    @classmethod
    def of(cls, warehouse: Warehouse, stream: Stream, labels: Sequence[str], kept_in: str | None = None) -> EventFiles:
        """Those of some partitions, in the order of their labels."""
        table = f"events_{stream.name}"
        references = References.of(warehouse, labels if warehouse.pipeline.lookups(stream.name) else ())
        return cls(warehouse.files(table, labels), warehouse.schema(table), kept_in, references)

    def table(self, bounds_us: tuple[int, int, int], columns: Sequence[str]) -> pa.Table:
        """Columns of the tuples within bounds: least event time, end of event time, last arrival."""
        if not self.paths:
            return pa.schema([self.schema.field(name) for name in columns]).empty_table()
        source = parquet.dataset(self.paths, self.schema)
        return source.to_table(columns=list(columns), filter=_within(bounds_us))

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of all tuples, in the order of the files. **Memory**: a batch, and what is read ahead."""
        if self.paths:
            yield from _batches(self.paths, self.schema, columns, None)

    def cut(self, rows: int) -> list[EventFiles]:
        """The same in runs of consecutive files, each as short as it can be with so many rows; the last may be less."""
        found: list[list[str]] = [[]]
        gathered = 0
        for path in self.paths:
            if gathered >= rows:
                found.append([])
                gathered = 0
            found[-1].append(path)
            gathered += _rows_of(path)
        return [replace(self, paths=tuple(own)) for own in found if own]

    def rows(self) -> int:
        """How many rows the files have, from their footers."""
        return sum(map(_rows_of, self.paths))


@lru_cache(100_000)
def _rows_of(path: str) -> int:
    """A file's rows: files are written once, under a name of their own."""
    return int(parquet.footer(path).num_rows)


def _may_hold(path: str, bounds_us: tuple[int, int, int]) -> bool:
    """Whether a file may have tuples within bounds, by the statistics in its footer."""
    first, end, last = bounds_us
    (least, most), (earliest, _) = (_span_us(path, name) for name in ("event_time", "arrival_time"))
    return most >= first and least < end and earliest <= last


@lru_cache(100_000)
def _span_us(path: str, column: str) -> tuple[int, int]:
    """The least and the greatest instant of a file's column, as far as its footer tells."""
    footer = parquet.footer(path)
    index = footer.schema.names.index(column)
    told = [footer.row_group(n).column(index).statistics for n in range(footer.num_row_groups)]
    if not all(one is not None and one.has_min_max for one in told):
        return -NEVER_US, NEVER_US
    return min((to_us(one.min) for one in told), default=NEVER_US), max(
        (to_us(one.max) for one in told), default=-NEVER_US
    )


def _batches(
    paths: Sequence[str], schema: pa.Schema, columns: Sequence[str], wanted: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    """Columns of the rows that are wanted, in the order of the files. **Memory**: a batch, and what is read ahead."""
    for first in range(0, len(paths), _FILES_AT_ONCE):
        some = paths[first : first + _FILES_AT_ONCE]
        if all(map(_is_small, some)):
            rows = pa.concat_tables([_kept(path, schema) for path in some]).select(columns)
            rows = rows if wanted is None else rows.filter(wanted)
            yield from rows.combine_chunks().to_batches(BATCH_ROWS)
        else:
            source = parquet.dataset(some, schema)
            scanner = source.scanner(columns=columns, filter=wanted, batch_size=BATCH_ROWS, use_threads=False)
            yield from scanner.to_batches()


@lru_cache(100_000)
def _is_small(path: str) -> bool:
    """Whether a file is of this machine, and of a few hundred rows. Of one that is gone, who reads it says so."""
    where, store = located(path)
    try:
        return store is None and os.stat(where).st_size <= _SMALL_BYTES
    except FileNotFoundError:
        return True


@lru_cache(4 * _FILES_AT_ONCE)
def _kept(path: str, schema: pa.Schema) -> pa.Table:
    """The rows of a small file: query after query reads the same ones."""
    return read_file(path, schema)


@dataclass(frozen=True)
class HeldOf:
    """What becomes of a column of values before the operator sees it; ``by``: another column that is used up."""

    held: Callable[[pa.Array, pa.Array | None, tuple[float, ...]], pa.Array]
    by: str | None
    parameters: tuple[float, ...]


@dataclass(frozen=True)
class Side:
    """What one alias of a query reads.

    Args:
        files: its stream's.
        bounds_us: least event time, end of event time, last arrival.
        conditions: SQL that must be true of a tuple.
        columns: slot → SQL and type of the value; ``event_us`` and ``arrival_us`` come by themselves.
        constants: further columns, of one value each.
        held: slot → what becomes of its values.
        sieve: what is needed of large files, if that is little.
        waited_us: what is taken off every arrival.
        part: a column, and which part of how many by its values is read.
        lookups: what is looked up for each tuple before anything is computed.
    """

    files: EventFiles
    bounds_us: tuple[int, int, int]
    conditions: tuple[str, ...]
    columns: Mapping[str, tuple[str, pa.DataType]]
    constants: Mapping[str, object]
    held: Mapping[str, HeldOf] = field(default_factory=dict)
    sieve: Sieve | None = None
    waited_us: int = 0
    part: tuple[str, int, int] | None = None
    lookups: tuple[Lookup, ...] = ()

    def batches(self) -> Iterator[pa.Table]:
        """The tuples as the files have them, with ``read_us``: the arrival that they are sorted by."""
        if self.sieve is None or not any(map(self.sieve.worth, self.files.paths)):
            yield from self._read(self.files.paths, bounded=True)
            return
        for path in self.files.paths:
            if not _may_hold(path, self.bounds_us):
                continue
            if self.sieve.worth(path):
                yield from map(self._bounded, self.sieve.tuples(path, self._read([path], bounded=False)))
            else:
                yield from self._read([path], bounded=True)

    def _bounded(self, table: pa.Table) -> pa.Table:
        first_us, end_us, last_us = self.bounds_us
        event_us, read_us = int64s(table.column("event_us")), int64s(table.column("read_us"))
        within = (event_us >= first_us) & (event_us < end_us) & (read_us <= last_us)
        return table if within.all() else table.filter(pa.array(within))

    def _read(self, paths: Sequence[str], bounded: bool) -> Iterator[pa.Table]:
        if not paths:
            return
        schema = self.files.schema
        asked = [*self.conditions, *(sql for sql, _ in self.columns.values())]
        references = self.files.references
        known = [*schema.names, *references.columns(self.lookups)]
        wanted = dict.fromkeys(["event_time", "arrival_time", *(c for sql in asked for c in columns_of(sql, known))])
        names = references.needed(wanted, self.lookups, schema.names) if self.lookups else list(wanted)
        parts = [part for sql in self.conditions if (part := pushed_down(sql, schema)) is not None]
        parts += [_within(self.bounds_us)] if bounded else []
        for batch in _batches(paths, schema, names, reduce(and_, parts) if parts else None):
            if not batch.num_rows:
                continue
            if self.lookups:
                batch = references.extended(batch, self.lookups, wanted)
            for sql in self.conditions:
                batch = batch.filter(pa.array(truth(sql, batch)))
            if batch.num_rows:
                yield self._shaped(batch)

    def of_nothing(self) -> pa.Table:
        """What the columns are where there is no tuple: of a row of NULLs, without its times."""
        schema = self.files.schema
        nothing = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], names=schema.names)
        return replace(self, part=None)._shaped(nothing).drop_columns(["event_us", "arrival_us", "read_us"])

    def _shaped(self, batch: pa.RecordBatch) -> pa.Table:
        event_us, read_us = (batch.column(name).cast(pa.int64()) for name in ("event_time", "arrival_time"))
        counted_us = pc.max_element_wise(event_us, pc.subtract(read_us, self.waited_us))
        columns = {"event_us": event_us, "arrival_us": counted_us, "read_us": read_us}
        columns |= {slot: evaluate(sql, batch, kind) for slot, (sql, kind) in self.columns.items()}
        for slot, of in self.held.items():
            columns[slot] = of.held(columns[slot], None if of.by is None else columns.pop(of.by), of.parameters)
        columns |= {name: pa.repeat(value, batch.num_rows) for name, value in self.constants.items()}
        table = pa.table(columns)
        if self.part is None:
            return table
        name, index, number = self.part
        return table.filter(pa.array(_parts(table.column(name), number) == index))


def _parts(column: pa.ChunkedArray, number: int) -> np.ndarray:
    """Which part each row belongs to: equal values to the same one."""
    values = column.combine_chunks()
    if pa.types.is_string(values.type):
        own = hashes(values)
    elif is_decimal(values.type):
        pairs = limbs(values)
        own = (pairs["low"] + pairs["high"].view(np.uint64) * _OTHER_ODD) * _ODD
    else:
        own = as_ordered_integers(values).view(np.uint64) * _ODD
    return (own >> np.uint64(32)) % np.uint64(number)


def _within(bounds_us: tuple[int, int, int]) -> pc.Expression:
    """Least event time, end of event time, last arrival."""
    first, end, last = (pa.scalar(us, pa.int64()).cast(TIMESTAMP) for us in bounds_us)
    within = (pc.field("event_time") >= first) & (pc.field("event_time") < end)
    return within & (pc.field("arrival_time") <= last)


def in_order_of_arrival(sides: Sequence[Side], schema: pa.Schema) -> Iterator[pa.Table]:
    """The sides' tuples, merged: tables of ``schema`` in ascending order of ``arrival_us``, across tables too.

    A tuple that arrived before its event time counts from then on, so it waits until what the files have reaches there.
    So do all tuples of the time that is taken off arrivals.

    **Cost**: O(n) and a sort of nearly sorted runs. **Memory**: a batch a side, and twice what waits.
    """
    readers = [side.batches() for side in sides]
    waiting: list[list[pa.Table]] = [[] for _ in sides]
    read_us = [-NEVER_US] * len(sides)
    rows = left_rows = 0
    while any(until < NEVER_US for until in read_us):
        side = read_us.index(min(read_us))
        batch = next(readers[side], None)
        if batch is None:
            read_us[side] = NEVER_US
        elif batch.num_rows:
            read_us[side] = int(batch.column("read_us")[-1].as_py())
            waiting[side].append(_shaped(batch, schema))
            rows += batch.num_rows
        known_us = min(read_us)
        # As many again as were left: going over those costs each tuple little.
        if rows >= max(BATCH_ROWS, 2 * left_rows) or known_us == NEVER_US:
            known_us -= 0 if known_us == NEVER_US else sides[0].waited_us
            ready: list[pa.Table] = []
            for own, tables in enumerate(waiting):
                taken, left = _before(tables, known_us)
                ready += taken
                waiting[own] = left
            rows = left_rows = sum(table.num_rows for tables in waiting for table in tables)
            if ready:
                yield _sorted(ready)


def _shaped(batch: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _before(tables: Sequence[pa.Table], known_us: int) -> tuple[list[pa.Table], list[pa.Table]]:
    """What arrived before the instant, and the rest."""
    taken, left = [], []
    for table in tables:
        early = int64s(table.column("arrival_us")) < known_us
        if early.all():
            taken.append(table)
        elif early.any():
            taken.append(table.filter(pa.array(early)))
            left.append(table.filter(pa.array(~early)))
        else:
            left.append(table)
    return taken, left


def _sorted(tables: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables)
    arrival_us = int64s(table.column("arrival_us"))
    if (arrival_us[1:] >= arrival_us[:-1]).all():
        return table
    # Stable: a few sorted runs are merged, not sorted.
    return table.take(pa.array(np.argsort(arrival_us, kind="stable")))
