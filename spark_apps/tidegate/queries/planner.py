"""The window-sizing controller on the warehouse: arrivals and what has been learnt in, plans out.

Its state is carried from interval to interval. It needs the tuples only as counts per tick of arrival and pane of event
time, which ingest leaves in the state ``arrivals``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Pipeline, Stream
from tidegate.engine.context import RunContext, StageRun, previous_label
from tidegate.operators.tuple_bytes import Held
from tidegate.operators.window_sizing import (
    Arrivals,
    ControllerSpec,
    ControllerState,
    advance_counts,
    plan_table,
    query_plan_table,
    rates_table,
)
from tidegate.queries import questions as queries
from tidegate.queries.slacks import SlackHistory, require_calibrated
from tidegate.queries.widths import SlackWidths
from tidegate.store.intervals import Interval
from tidegate.store.warehouse import Warehouse

STATE = "window_sizing"
QUERY_PLANS = "query_plans"
"""State: the row of ``query_plan`` of every query that is in effect at the interval's end."""
ARRIVALS = "arrivals"
FIRST_ARRIVALS = "first_arrivals"

ARRIVALS_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("slot_us", pa.int64()),
        ("pane_us", pa.int64()),
        ("tuples", pa.int64()),
        ("bytes", pa.float64()),
    ]
)
FIRST_SCHEMA = pa.schema([("stream", pa.string()), ("first_arrival_us", pa.int64())])


def held(pipeline: Pipeline, stream: Stream) -> tuple[Held, ...]:
    """What the operators of all queries on a stream hold of its tuples."""
    return tuple(
        queries.held(query, alias, source)
        for query in pipeline.queries
        for alias, source in query.sources
        if source.stream == stream.name
    )


def put_arrivals(context: RunContext, stage: StageRun, intervals: Sequence[Interval], counts: pa.Table) -> None:
    """Keep what arrived in the intervals (``ARRIVALS_SCHEMA``) for :func:`plan`, and when each stream began."""
    pipeline = context.pipeline
    first = (
        first_arrivals_us(context.warehouse, previous_label(pipeline, intervals[0])) if not context.cold_start else {}
    )
    ordered = counts.sort_by([(name, "ascending") for name in ("stream", "slot_us", "pane_us")])
    slots = ordered.column("slot_us")
    for interval in intervals:
        within = pc.and_(pc.greater_equal(slots, interval.start_us), pc.less(slots, interval.end_us))
        own = ordered.filter(within)
        for stream in pipeline.streams:
            arrived = own.filter(pc.equal(own.column("stream"), stream.name)).column("slot_us")
            if stream.name not in first and len(arrived):
                first[stream.name] = arrived[0].as_py()
        stage.commit.put_state(ARRIVALS, interval, own)
        began = pa.table({"stream": list(first), "first_arrival_us": list(first.values())}, schema=FIRST_SCHEMA)
        stage.commit.put_state(FIRST_ARRIVALS, interval, began)


def first_arrivals_us(warehouse: Warehouse, label: str) -> dict[str, int]:
    """Stream → start of the tick in which its first tuple arrived, as known at the end of that interval."""
    saved = warehouse.read_state(FIRST_ARRIVALS, label)
    return {} if saved is None else {row["stream"]: row["first_arrival_us"] for row in saved.to_pylist()}


def plan(context: RunContext, stage: StageRun, intervals: Sequence[Interval]) -> None:
    """Write ``stream_rates``, ``window_plan`` and ``query_plan`` of the intervals, and the state for the next one.

    What was learnt up to an interval's start (slacks, slack widths) is what the interval is planned with.
    """
    pipeline, warehouse = context.pipeline, context.warehouse
    context.require_predecessor("stream_rates", intervals, "ingest")
    require_calibrated(context, intervals)
    slacks = SlackHistory.load(warehouse, intervals)
    widths = SlackWidths.load(warehouse, intervals)
    before = previous_label(pipeline, intervals[0])
    saved = None if context.cold_start else warehouse.read_state(STATE, before)
    in_effect = None if context.cold_start else warehouse.read_state(QUERY_PLANS, before)
    schema = warehouse.schema("query_plan")
    query_plans = {} if in_effect is None else {row["query"]: row for row in in_effect.to_pylist()}
    state: ControllerState | None = None
    for interval in intervals:
        spec = controller_spec(pipeline, slacks, widths, interval)
        if state is None:
            state = ControllerState.initial(spec) if saved is None else ControllerState.from_arrow(saved, spec)
        arrived = warehouse.read_state(ARRIVALS, interval.label)
        assert arrived is not None, interval.label
        advanced = advance_counts(spec, state, interval.start_us, interval.end_us, by_stream(pipeline, arrived))
        state = advanced.state
        rates, rows = rates_table(advanced.rates), query_plan_table(advanced.query_plans)
        query_plans |= {row["query"]: row for row in rows.to_pylist()}
        stage.commit.put_arrow("stream_rates", interval, rates)
        stage.commit.put_arrow("window_plan", interval, plan_table(advanced.plans))
        stage.commit.put_arrow("query_plan", interval, rows)
        stage.commit.put_state(STATE, interval, state.to_arrow())
        known = [query_plans[q.id] for q in pipeline.queries if q.id in query_plans]
        stage.commit.put_state(QUERY_PLANS, interval, pa.Table.from_pylist(known, schema=schema))
        stage.record(interval, rows_out=len(advanced.plans), peak_state_bytes=_peak_bytes(rates))


def controller_spec(
    pipeline: Pipeline, slacks: SlackHistory, widths: SlackWidths, interval: Interval
) -> ControllerSpec:
    """What an interval is planned with: what was learnt up to its start."""
    return ControllerSpec.from_pipeline(
        pipeline,
        slack_widths_s=widths.slack_widths_s(interval.start_us),
        slacks_s={q.id: slacks.pending_s(q, interval.start_us) for q in pipeline.queries},
    )


def by_stream(pipeline: Pipeline, arrived: pa.Table) -> Mapping[str, Arrivals]:
    """Stream → what arrived on it, of rows of ``ARRIVALS_SCHEMA``; streams without any are missing."""
    streams = np.array(arrived.column("stream").to_pylist(), dtype=object)
    slot, pane, tuples, size = (arrived.column(name).to_numpy() for name in ARRIVALS_SCHEMA.names[1:])
    return {
        s.name: Arrivals(slot[own], pane[own], tuples[own], size[own])
        for s in pipeline.streams
        if (own := streams == s.name).any()
    }


def _peak_bytes(rates: pa.Table) -> int:
    """The most bytes that all windows together held in a tick."""
    if rates.num_rows == 0:
        return 0
    together = rates.group_by("tick").aggregate([("held_bytes", "sum")]).column("held_bytes_sum")
    return int(np.ceil(np.nanmax(together.to_numpy()))) if together.null_count < len(together) else 0
