"""Tuples on which a query's expressions fail, counted where each of them is met once: in the interval of its arrival.

A slice of answers reads tuples that others read, too, and a sieve keeps few of them. So they are counted by themselves:
every tuple that arrived in the interval, whichever windows hold it. Pairs of a join on which a condition over both
tuples fails are counted likewise, in the interval in which the later one arrived. Expressions that cannot fail cost
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Branch, Query, to_us
from tidegate.engine import Slice
from tidegate.engine.context import RunContext
from tidegate.operators.arrivals import int64s
from tidegate.operators.expressions import Failed, can_fail, columns_of
from tidegate.operators.pair_failures import PairConditions, SharedWindows, failed_pairs
from tidegate.operators.schedule import Int64s, Schedule, window_ends_us, window_ranges_us
from tidegate.queries.questions import Question, computations, sides_of, sides_of_alias
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
    pairs = [pair for query in queries for pair in _pairs(context, query, intervals)]
    found = context.run_slices(count_failed_pairs, pairs, sum(pair.rows() for pair in pairs))
    for pair, count in zip(pairs, found, strict=True):
        counts[pair.query.id, pair.interval] += count
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


@dataclass(frozen=True, eq=False)
class ArrivedPairs:
    """Pairs of tuples of two aliases, the left one and the right one, of which the later arrived in an interval.

    ``fresh``: stream → the files with what arrived in it. ``files``: stream → those with what may pair with that.
    """

    query: Query
    aliases: tuple[str, str]
    conditions: tuple[str, ...]
    keys: tuple[str, ...]
    interval: Interval
    fresh: Mapping[str, EventFiles]
    files: Mapping[str, EventFiles]

    def rows(self) -> int:
        """How many rows are read, about."""
        return sum(files.rows() for files in self.fresh.values())


def _pairs(context: RunContext, query: Query, intervals: Sequence[Interval]) -> Iterator[ArrivedPairs]:
    """What is to be looked at for conditions over two aliases that can fail.

    Conditions over more aliases, and over two that no equality connects, are left out: which tuples they meet depends
    on the order in which the aliases are joined.
    """
    of_slot = {column.slot: column.alias for column in query.compared}
    by_aliases: dict[tuple[str, ...], list[str]] = defaultdict(list)
    order = [window.alias for window in query.windows]
    for condition in query.conditions:
        named = {of_slot[slot] for slot in columns_of(condition.expression, list(of_slot))}
        if query.bounded is not None:
            named = set(order)
        by_aliases[tuple(alias for alias in order if alias in named)].append(condition.expression)
    for aliases, conditions in by_aliases.items():
        if len(aliases) != 2 or not any(map(can_fail, conditions)):
            continue
        left, right = aliases
        if query.bounded is not None and query.bounded.alias == left:
            left, right = right, left
        keys = [j.slot for j in query.join_classes if {left, right} <= {alias for alias, _ in j.columns}]
        if not keys:
            continue
        for interval in intervals:
            fresh, files = _files_of_pairs(context, query, (left, right), interval)
            yield ArrivedPairs(query, (left, right), tuple(conditions), tuple(keys), interval, fresh, files)


def _files_of_pairs(
    context: RunContext, query: Query, aliases: tuple[str, str], interval: Interval
) -> tuple[dict[str, EventFiles], dict[str, EventFiles]]:
    warehouse, low_us, high_us = context.warehouse, *_distance_us(query, aliases)
    names = dict.fromkeys(name for window in query.windows if window.alias in aliases for name in window.streams)
    streams = [context.pipeline.stream(name) for name in names]
    # A tuple that arrived before its event time counts from then on.
    latest_us = max(stream.max_late_s for stream in streams) * 1_000_000
    first_us = interval.start_us - latest_us - max(abs(low_us), abs(high_us))
    fresh, files = {}, {}
    for stream in streams:
        labels = warehouse.labels(f"events_{stream.name}")
        newest_us = interval.end_us - 1
        fresh[stream.name] = EventFiles.between(warehouse, stream, labels, interval.start_us, newest_us)
        files[stream.name] = EventFiles.between(warehouse, stream, labels, first_us, newest_us)
    return fresh, files


def _distance_us(query: Query, aliases: tuple[str, str]) -> tuple[int, int]:
    """Least and greatest event time of the right tuple of a pair, less that of the left one."""
    if query.bounded is not None and query.bounded.bound is not None:
        return query.bounded.bound.low_us, query.bounded.bound.high_us
    ranges_us = {window.alias: round(window.range_s * 1e6) for window in query.windows}
    left, right = aliases
    return -ranges_us[right], ranges_us[left]


def count_failed_pairs(part: Slice) -> int:
    """How many of the pairs fail.

    **Memory**: the tuples that can pair with what arrived in the interval.
    """
    arrived: ArrivedPairs = part.of
    query, start_us, end_us = arrived.query, arrived.interval.start_us, arrived.interval.end_us
    fresh = [table for table in _tuples(arrived, arrived.fresh, None) if table.num_rows]
    event_us = [int64s(t.column("event_us"))[int64s(t.column("arrival_us")) >= start_us] for t in fresh]
    times_us = np.concatenate([np.zeros(0, np.int64), *event_us])
    if len(times_us) == 0:
        return 0
    low_us, high_us = _distance_us(query, arrived.aliases)
    reach_us = max(abs(low_us), abs(high_us))
    first_us, last_us = int(times_us.min()) - reach_us, int(times_us.max()) + reach_us
    left, right = _tuples(arrived, arrived.files, (first_us, last_us))
    windows = None
    if query.bounded is None:
        ends_us = _active_ends_us(query, first_us, min(last_us, end_us) + reach_us)
        ranges_us = window_ranges_us(query, ends_us)
        windows = SharedWindows(ends_us, *(ranges_us[alias] for alias in arrived.aliases))
    elif query.active_from is not None or query.active_to is not None:
        left = left.filter(pa.array(_may_matter(query, arrived.aliases[0], int64s(left.column("event_us")))))
    return failed_pairs(
        PairConditions(arrived.keys, low_us, high_us, arrived.conditions, windows), left, right, start_us
    )


def _may_matter(query: Query, alias: str, event_us: Int64s) -> np.ndarray:
    """Whether a window that the query is asked for may hold a tuple of these event times."""
    range_us = next(round(w.range_s * 1e6) for w in query.windows if w.alias == alias)
    matters = np.ones(len(event_us), dtype=bool)
    if query.active_from is not None:
        matters &= event_us >= to_us(query.active_from) - range_us
    if query.active_to is not None:
        matters &= event_us < to_us(query.active_to)
    return matters


def _active_ends_us(query: Query, start_us: int, end_us: int) -> Int64s:
    """The ends of the windows that a query is asked for, in [start, end)."""
    if query.active_from is not None:
        start_us = max(start_us, to_us(query.active_from))
    if query.active_to is not None:
        end_us = min(end_us, to_us(query.active_to))
    return window_ends_us(query, start_us, max(start_us, end_us))


def _tuples(
    arrived: ArrivedPairs, files: Mapping[str, EventFiles], within_us: tuple[int, int] | None
) -> list[pa.Table]:
    """What had arrived by the end of the interval of both aliases, of which event times; keys, times and slots."""
    query, end_us = arrived.query, arrived.interval.end_us
    first_us, last_us = (-(2**55), end_us) if within_us is None else within_us
    ends_us = np.array([end_us])
    schedule = Schedule(ends_us, ends_us, {window.alias: ends_us - 1 for window in query.ranged})
    sides = sides_of(Question(query, schedule, np.ones(1), {**files, **_no_files(query, files)}, 1), [schedule])
    tables = []
    for alias in arrived.aliases:
        slots = [*arrived.keys, *(c.slot for c in query.compared if c.alias == alias)]
        parts = []
        for side in sides_of_alias(query, sides, alias):
            columns = {slot: side.columns[slot] for slot in slots}
            side = replace(side, bounds_us=(first_us, last_us + 1, end_us), columns=columns, held={})
            times = [("event_us", pa.int64()), ("arrival_us", pa.int64())]
            shape = pa.schema([*times, *((slot, kind) for slot, (_, kind) in columns.items())])
            parts += [shape.empty_table(), *(batch.select(shape.names).cast(shape) for batch in side.batches())]
        table = pa.concat_tables(parts)
        tables.append(table.filter(pa.array(int64s(table.column("arrival_us")) < end_us)))
    return tables


def _no_files(query: Query, files: Mapping[str, EventFiles]) -> dict[str, EventFiles]:
    """Stream → nothing, of those that are not looked at."""
    return {name: EventFiles((), pa.schema([])) for name in query.streams if name not in files}


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
