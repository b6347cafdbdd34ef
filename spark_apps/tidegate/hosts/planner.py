"""The window-sizing controller on the warehouse: rates in, plans out, its state carried from interval to interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from tidegate.declarations.models import Stream
from tidegate.declarations.tables import STREAM_KEYS
from tidegate.hosts.context import RunContext, StageRun, previous_label
from tidegate.hosts.intervals import Interval
from tidegate.operators.window_sizing.controller import (
    ControllerSpec,
    ControllerState,
    advance_counts,
    plan_table,
    rates_table,
)

STATE = "window_sizing"

_FIXED_BYTES = {"integer": 8, "double": 8, "boolean": 1, "timestamp": 8, "date": 4}
_STRING_OFFSET_BYTES = 4


def tuple_bytes(stream: Stream) -> SparkColumn:
    """Bytes that a tuple takes in the operators' columns: fixed widths, strings with their length and an offset."""
    fixed = 16 + _STRING_OFFSET_BYTES
    strings = ["event_id"]
    for column in stream.columns:
        if column.name in STREAM_KEYS or column.name == stream.id:
            continue
        if column.type == "string":
            strings.append(column.name)
            fixed += _STRING_OFFSET_BYTES
        else:
            fixed += _FIXED_BYTES[column.type]
    lengths = (F.coalesce(F.octet_length(F.col(f"`{name}`")), F.lit(0)) for name in strings)
    total = F.lit(fixed).cast("bigint")
    for length in lengths:
        total = total + length
    return total


def plan(
    context: RunContext,
    stage: StageRun,
    intervals: Sequence[Interval],
    counts: Mapping[tuple[str, int], tuple[int, int]],
) -> None:
    """Write ``stream_rates`` and ``window_plan`` of the intervals, and the state that the next one continues from.

    Args:
        counts: (stream, start of a tick in microseconds) → tuples and bytes that arrived in it.
    """
    pipeline = context.pipeline
    spec = ControllerSpec.from_pipeline(pipeline)
    before = previous_label(pipeline, intervals[0])
    saved = None if context.cold_start else context.warehouse.read_state(STATE, before)
    state = ControllerState.initial(spec) if saved is None else ControllerState.from_arrow(saved, spec)
    for interval in intervals:
        ticks = range(interval.start_us, interval.end_us, spec.tick_us)
        by_tick = {s.name: [counts.get((s.name, tick), (0, 0)) for tick in ticks] for s in pipeline.streams}
        state, rates, plans = advance_counts(
            spec,
            state,
            interval.start_us,
            interval.end_us,
            {name: [tuples for tuples, _ in pairs] for name, pairs in by_tick.items()},
            {name: [float(size) for _, size in pairs] for name, pairs in by_tick.items()},
        )
        stage.commit.put_arrow("stream_rates", interval, rates_table(rates))
        stage.commit.put_arrow("window_plan", interval, plan_table(plans))
        stage.commit.put_state(STATE, interval, state.to_arrow())
