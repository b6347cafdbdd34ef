"""Tuples on which a query's expressions fail, counted where each of them is met once: in the interval of its arrival.

A slice of answers reads tuples that others read, too, and a sieve keeps few of them. So they are counted by themselves:
every tuple that arrived in the interval, whichever windows hold it. Expressions that cannot fail cost nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Branch, Query, to_us
from tidegate.engine import Slice
from tidegate.engine.context import RunContext
from tidegate.operators.expressions import Failed, can_fail, columns_of
from tidegate.queries.questions import computations
from tidegate.queries.scan import BATCH_ROWS, EventFiles
from tidegate.store import parquet
from tidegate.store.intervals import Interval
from tidegate.values.types import TIMESTAMP


@dataclass(frozen=True, eq=False)
class Arrived:
    """What arrived in an interval of a stream that a query knows by an alias."""

    query: Query
    alias: str
    source: Branch
    interval: Interval
    files: EventFiles


def count_failures(
    context: RunContext, queries: Sequence[Query], intervals: Sequence[Interval]
) -> dict[tuple[str, Interval], int]:
    """(query, interval) → how many of the tuples that arrived in it fail; none where none do.

    A tuple counts once for each alias, and for each branch of a union.

    Of a query with DURATION only tuples of event times that one of its windows may hold.
    """
    warehouse, parts = context.warehouse, []
    for query in queries:
        for alias, source in query.sources:
            if not any(can_fail(sql) for _, sql, _ in computations(query, alias, source)):
                continue
            for interval in intervals:
                files = EventFiles.of(warehouse, context.pipeline.stream(source.stream), [interval.label])
                parts.append(Arrived(query, alias, source, interval, files))
    counts: dict[tuple[str, Interval], int] = defaultdict(int)
    found = context.run_slices(failed_tuples, parts, sum(part.files.rows() for part in parts))
    for part, count in zip(parts, found, strict=True):
        counts[part.query.id, part.interval] += count
    return counts


def failed_tuples(part: Slice) -> int:
    """How many of the tuples fail."""
    arrived: Arrived = part.of
    schema, asked = arrived.files.schema, computations(arrived.query, arrived.alias, arrived.source)
    references, lookups = arrived.files.references, arrived.source.lookups
    known = [*schema.names, *references.columns(lookups)]
    times = ["event_time", "arrival_time"] if lookups else ["event_time"]
    names = dict.fromkeys([*times, *(c for _, sql, _ in asked for c in columns_of(sql, known))])
    count = 0
    for rows in _batches(arrived, references.needed(names, lookups, schema.names) if lookups else list(names)):
        rows = references.extended(rows, lookups, names) if lookups else rows
        failed = Failed(rows)
        for slot, sql, kind in asked:
            if slot is None:
                failed.filtered(sql)
            else:
                failed.value(sql, kind)
        count += int(failed.rows.sum())
    return count


def _batches(arrived: Arrived, columns: list[str]) -> Iterator[pa.RecordBatch]:
    query = arrived.query
    range_us = next(round(w.range_s * 1e6) for w in query.windows if w.alias == arrived.alias)
    bounds: list[pc.Expression] = []
    if not arrived.files.paths:
        return iter(())
    if query.active_from is not None:
        bounds.append(pc.field("event_time") >= _instant(to_us(query.active_from) - range_us))
    if query.active_to is not None:
        bounds.append(pc.field("event_time") < _instant(to_us(query.active_to)))
    source = parquet.dataset(arrived.files.paths, arrived.files.schema)
    within = bounds[0] & bounds[-1] if bounds else None
    return iter(source.scanner(columns, filter=within, batch_size=BATCH_ROWS, use_threads=False).to_batches())


def _instant(us: int) -> pa.Scalar:
    return pa.scalar(us, pa.int64()).cast(TIMESTAMP)
