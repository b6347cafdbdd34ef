"""Calibrate: what memory leaves of the slacks that promises ask for, and what is expected of answers.

How much windows of any height would have taken of late is known from what arrived
(``operators.window_sizing.footprint``, carried from interval to interval); which slack and which share of the range
past winners and windows needed is known from their truth. The decision is ``operators.window_sizing.waits``'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.declarations.models import Pipeline, Query, to_us
from tidegate.engine.context import RunContext, StageRun
from tidegate.operators.accuracy import Support
from tidegate.operators.accuracy.slack import Float64s
from tidegate.operators.accuracy.support import SHARES
from tidegate.operators.window_sizing import (
    FOOTPRINT_SCHEMA,
    Arrivals,
    Footprint,
    FootprintSpec,
    Room,
    Want,
    choose_waits,
    longest_wait_s,
    observed,
)
from tidegate.queries import planner
from tidegate.store.intervals import Interval
from tidegate.store.warehouse import Warehouse

FOOTPRINTS = "footprints"
"""State: stream → what windows of any height on it would have taken."""
_MOST_WAITS = 64
_SCHEMA = pa.schema([("stream", pa.string()), *FOOTPRINT_SCHEMA])

Row = dict[str, Any]
Footprints = Mapping[str, Footprint]


def footprints_at_end(
    context: RunContext, stage: StageRun, intervals: Sequence[Interval], before: str
) -> dict[Interval, Footprints]:
    """Interval → stream → its footprint at the interval's end; carried on as state.

    ``before``: label of the interval before, empty if nothing is carried on.
    """
    pipeline, warehouse = context.pipeline, context.warehouse
    found: dict[Interval, Footprints] = {}
    now = footprints_at(warehouse, before)
    for interval in intervals:
        saved = warehouse.read_state(planner.ARRIVALS, interval.label)
        # A warehouse of before arrivals were kept says nothing of what came then.
        arrived = {} if saved is None else planner.by_stream(pipeline, saved)
        for name, footprint in now.items():
            own_arrivals = arrived.get(name, Arrivals.none())
            now[name] = observed(footprint, interval.start_us, interval.end_us, own_arrivals)
        found[interval] = dict(now)
        parts = []
        for name, footprint in now.items():
            rows = footprint.to_arrow()
            parts.append(rows.add_column(0, "stream", pa.array([name] * rows.num_rows, pa.string())))
        stage.commit.put_state(FOOTPRINTS, interval, pa.concat_tables([_SCHEMA.empty_table(), *parts]))
    return found


def footprints_at(warehouse: Warehouse, label: str) -> dict[str, Footprint]:
    """Stream → its footprint as it was kept at the end of an interval; without a label as before anything arrived."""
    kept = warehouse.read_state(FOOTPRINTS, label)
    found = {}
    for name, spec in _specs(warehouse.pipeline).items():
        own = None if kept is None else kept.filter(pa.array(np.array(kept.column("stream").to_pylist()) == name))
        found[name] = Footprint.initial(spec) if own is None else Footprint.from_arrow(own, spec)
    return found


def _specs(pipeline: Pipeline) -> dict[str, FootprintSpec]:
    """Stream → the heights of interest: of those that queries read, the widest range and the longest wait."""
    tick_us, ranges_s = pipeline.tick_s * 1_000_000, dict[str, float]()
    for query in pipeline.queries:
        for stream, range_s in query.ranges_s().items():
            ranges_s[stream] = max(ranges_s.get(stream, 0.0), range_s)
    heights = {stream: round((range_s + pipeline.horizon_s) * 1e6) for stream, range_s in ranges_s.items()}
    return {stream: FootprintSpec(tick_us, (-(-us // tick_us) + 1) * tick_us) for stream, us in sorted(heights.items())}


def support_of(query: Query, slack_s: Float64s, share: Float64s | None, weight: Float64s) -> Support:
    """What past winners, or windows, of the query needed; without shares none was measured."""
    share = np.full(len(slack_s), np.nan) if share is None else share
    # Until widths are measured: ERROR × range may be missed; of a top-k query and with a bound nothing.
    tolerable = 1.0 if query.error is None or not query.is_narrowed else 1 - min(query.error, 1.0)
    return Support(slack_s, share, weight, tolerable)


def within_memory(
    pipeline: Pipeline,
    interval: Interval,
    rows: Sequence[Row],
    supports: Mapping[str, Support],
    known: Mapping[str, Support],
    footprints: Footprints,
) -> list[Row]:
    """The rows of ``slack_plan`` with no more slack than memory can hold, and with what is expected of answers.

    Args:
        rows: as the promises ask for; one a query with a promise.
        supports: query → what its newest windows needed.
        known: query → what its windows of late needed, old ones counting less.
    """
    wants = wants_of(pipeline, interval, rows, supports, known)
    arrived = any(footprint.peaks for footprint in footprints.values())
    waits = choose_waits(wants, room_of(pipeline, footprints)) if arrived else {}
    planned = []
    for row in rows:
        support, wait = known[row["query"]], waits.get(row["query"])
        row = {**row, "slack_needed_s": row["slack_s"], "bytes_needed": None if wait is None else wait.bytes_needed}
        wanted_s, expected = row["slack_needed_s"], row["accuracy_expected"]
        if wait is not None and wait.limited:
            part = support.part(wait.slack_s, wait.share, wanted_s)
            row |= {"slack_s": wait.slack_s, "method": "memory"}
            row["accuracy_expected"] = None if expected is None else expected * part
        by_share = None
        if expected is not None and support.known:
            by_share = [(f"{at:g}", expected * support.part(row["slack_s"], at, wanted_s)) for at in SHARES]
        row["accuracy_by_share"] = by_share
        row["accuracy_by_wait"] = None if by_share is None else _by_wait(pipeline, row, support)
        planned.append(row)
    return planned


def _by_wait(pipeline: Pipeline, row: Row, support: Support) -> list[tuple[str, float]] | None:
    """What is expected of a query's answers over whole ranges, by their waits: at most 64 of its updates'.

    None of a query without any. ``row``: of ``slack_plan``.
    """
    query, slack_s, horizon_s = pipeline.query(row["query"]), row["slack_s"], pipeline.horizon_s
    if not query.emits_updates:
        return None
    every_s = query.emit_every_s or float(horizon_s)
    count = max(0, math.ceil((horizon_s - slack_s) / every_s) - 1)
    numbers = np.unique(np.linspace(1, count, min(count, _MOST_WAITS)).astype(np.int64)).tolist()
    waits_s = sorted({0.0, slack_s, *(slack_s + number * every_s for number in numbers)})
    return [(f"{at:.16g}", support.expected_after(at, slack_s, row["accuracy_expected"])) for at in waits_s]


def wants_of(
    pipeline: Pipeline,
    interval: Interval,
    rows: Sequence[Row],
    supports: Mapping[str, Support],
    known: Mapping[str, Support],
) -> list[Want]:
    """What the queries that are asked after an interval would have.

    Args:
        rows: K and target of those with a promise.
        supports: of the newest windows, from which it is told which share of the ranges keeps the promise.
        known: of all of late, from which it is told what less than that is worth.
    """
    wanted = {row["query"]: row for row in rows}
    wants = []
    for query in pipeline.queries:
        if not _active(query, interval):
            continue
        row, support, share = wanted.get(query.id), supports.get(query.id), 1.0
        if row is not None and support is not None and query.error is not None and query.is_narrowed:
            share = support.needed_share(row["accuracy_target"])
        slack_s = 0.0 if row is None else row["slack_s"]
        of_late, gap_s, longest_s = known.get(query.id), query.longest_gap_s, longest_wait_s(pipeline, query, 0.0)
        wants.append(Want(query.id, query.ranges_s(), slack_s, share, of_late, gap_s, query.priority, longest_s))
    return wants


def room_of(pipeline: Pipeline, footprints: Footprints) -> Room:
    """The pipeline's memory, and what windows of any height take of it."""
    return Room(
        float(pipeline.memory_budget_bytes),
        pipeline.tick_s * 1_000_000,
        lambda stream, height_us: footprints[stream].bytes_at(height_us),
    )


def _active(query: Query, interval: Interval) -> bool:
    """Whether the query is asked in the interval that follows."""
    length_us = interval.end_us - interval.start_us
    begun = query.active_from is None or to_us(query.active_from) < interval.end_us + length_us
    return begun and (query.active_to is None or interval.end_us < to_us(query.active_to))
