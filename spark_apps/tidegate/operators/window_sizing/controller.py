"""The live controller: watches rates and queries at every tick, plans anew when Table 4 says so."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa

from tidegate.declarations.models import Pipeline, Stream, to_us
from tidegate.declarations.tables import common_schema
from tidegate.operators.window_sizing.bounds import EffectiveBounds
from tidegate.operators.window_sizing.needs import Floats, Integers, Needs, QueryNeed, WindowNeed
from tidegate.operators.window_sizing.planning import SupportLevel, live_widths

Trigger = Literal["start", "budget", "query_start", "query_end", "rate"]

LEVEL_ORDER: dict[str, int] = {"A": 0, "B": 1, "infeasible": 2}

# Bytes that a stored value takes in the operators' columns, before anything has been measured.
_COLUMN_BYTES = {"string": 24, "integer": 8, "double": 8, "boolean": 1, "timestamp": 8, "date": 8}


@dataclass(frozen=True)
class SizedStream:
    """A stream as the controller knows it: declared ``rate`` (tuples/s), ``tuple_bytes``, greatest width."""

    name: str
    rate: float
    tuple_bytes: float
    max_width_s: float | None = None


@dataclass(frozen=True)
class SizedQuery:
    """A query as the controller knows it: per stream its range and slack width, and its DURATION [from, to)."""

    id: str
    ranges_s: Mapping[str, float]
    slack_widths_s: Mapping[str, float]
    delay_s: float
    active_from_us: int | None = None
    active_to_us: int | None = None
    weight: float = 1.0
    priority: int = 0

    def active(self, t_us: int) -> bool:
        """Whether t lies in the query's DURATION."""
        begun = self.active_from_us is None or self.active_from_us <= t_us
        return begun and (self.active_to_us is None or t_us < self.active_to_us)

    def tolerable_s(self, stream: str) -> float:
        """Q_t − Q_e on the stream."""
        return max(self.ranges_s[stream] - self.slack_widths_s.get(stream, 0.0), 0.0)


@dataclass(frozen=True)
class ControllerSpec:
    """What the controller is to do.

    ``tick_us``: spacing of its ticks; widths are multiples of it. ``rate_change``: δ, by how much of the planned byte
    rate a stream's byte rate must have moved. ``half_life_s``: of the exponentially weighted rate. Hysteresis:
    ``hysteresis_ticks``, how many ticks in a row a moved rate or another level must last; ``level_margin``, the share
    of M by which a level must be out of reach (or within it) before it counts as another level.
    """

    streams: tuple[SizedStream, ...]
    queries: tuple[SizedQuery, ...]
    memory_budget_bytes: float
    tick_us: int
    rate_change: float = 0.5
    half_life_s: float = 3600.0
    hysteresis_ticks: int = 2
    level_margin: float = 0.1

    @classmethod
    def from_pipeline(
        cls,
        pipeline: Pipeline,
        tuple_bytes: Mapping[str, float] | None = None,
        slack_widths_s: Mapping[tuple[str, str], float] | None = None,
    ) -> ControllerSpec:
        """The spec that a pipeline declares.

        ``tuple_bytes``: stream → measured bytes per tuple, where known. ``slack_widths_s``: (query, stream) → slack
        width learnt from data; without it ERROR × range (0 for a query that promises no error bound).
        """
        measured, learnt = tuple_bytes or {}, slack_widths_s or {}
        return cls(
            streams=tuple(
                SizedStream(s.name, s.rate, measured.get(s.name, declared_tuple_bytes(s)), s.max_width_s)
                for s in pipeline.streams
            ),
            queries=tuple(
                SizedQuery(
                    id=q.id,
                    ranges_s=q.ranges_s(),
                    slack_widths_s={s: learnt.get((q.id, s), (q.error or 0.0) * r) for s, r in q.ranges_s().items()},
                    delay_s=q.every_s,
                    active_from_us=None if q.active_from is None else to_us(q.active_from),
                    active_to_us=None if q.active_to is None else to_us(q.active_to),
                    priority=q.priority,
                )
                for q in pipeline.queries
            ),
            memory_budget_bytes=pipeline.memory_budget_bytes,
            tick_us=pipeline.tick_s * 1_000_000,
            rate_change=pipeline.rate_change,
        )

    @property
    def tick_s(self) -> float:
        """The tick in seconds."""
        return self.tick_us / 1e6

    @cached_property
    def fingerprint(self) -> str:
        """Names what is declared, budget and measured sizes apart; a state under another one starts a new plan."""
        streams = [(s.name, s.max_width_s) for s in self.streams]
        queries = [(q.id, sorted(q.ranges_s.items()), sorted(q.slack_widths_s.items()), q.weight) for q in self.queries]
        return hashlib.sha256(repr((streams, queries, self.tick_us)).encode()).hexdigest()[:16]

    def active(self, t_us: int) -> tuple[SizedQuery, ...]:
        """The queries whose DURATION holds t."""
        return tuple(query for query in self.queries if query.active(t_us))

    def needs(self, queries: Sequence[SizedQuery], byte_rates: Mapping[str, float]) -> Needs:
        """The planning problem of these queries at these byte rates."""
        return Needs.of(
            [WindowNeed(s.name, byte_rates[s.name], s.max_width_s) for s in self.streams],
            [QueryNeed(q.id, q.ranges_s, q.slack_widths_s, q.delay_s, q.weight, q.priority) for q in queries],
        )


def declared_tuple_bytes(stream: Stream) -> float:
    """Bytes per tuple to plan with before anything has been measured: event id, two times, the declared columns."""
    own = {stream.id, stream.event_time, stream.arrival_time}
    return 24.0 + 8.0 + 8.0 + sum(_COLUMN_BYTES[c.type] for c in stream.columns if c.name not in own)


@dataclass(frozen=True)
class StreamState:
    """What the controller remembers of one stream.

    ``rate``, ``tuple_bytes``: exponentially weighted, now. ``plan_byte_rate``: bytes/s that the plan in effect reckons
    with. ``width_s``: planned width (None: not planned yet). ``lower_us``: effective lower bound at the last tick
    (None: nothing evicted, the window counts as filled). ``first_arrival_us``: start of the tick's slot in which the
    first tuple arrived, None before. ``moved_ticks``: for how many ticks in a row the rate has been off. ``pending_*``:
    arrivals since the last tick, not yet evaluated.
    """

    stream: str
    rate: float
    tuple_bytes: float
    plan_byte_rate: float = 0.0
    width_s: float | None = None
    lower_us: int | None = None
    first_arrival_us: int | None = None
    moved_ticks: int = 0
    pending_tuples: int = 0
    pending_bytes: float = 0.0

    @property
    def byte_rate(self) -> float:
        """Bytes that one second of width costs now."""
        return self.rate * self.tuple_bytes


@dataclass(frozen=True)
class ControllerState:
    """All that the controller carries from tick to tick; the same in memory and in an Arrow table.

    ``tick_us``: the last tick evaluated, None before the first. ``level_ticks``: for how many ticks in a row another
    level than the planned one could be had. ``active_queries``, ``memory_budget_bytes``, ``fingerprint``: as at that
    tick.
    """

    streams: tuple[StreamState, ...]
    tick_us: int | None = None
    support_level: str = ""
    level_ticks: int = 0
    memory_budget_bytes: float = 0.0
    active_queries: tuple[str, ...] = ()
    fingerprint: str = ""

    @classmethod
    def initial(cls, spec: ControllerSpec) -> ControllerState:
        """The state before the first tick: declared rates, nothing planned."""
        return cls(tuple(StreamState(s.name, s.rate, s.tuple_bytes) for s in spec.streams))

    def stream(self, name: str) -> StreamState:
        """The state of that stream; KeyError if there is none."""
        for stream in self.streams:
            if stream.stream == name:
                return stream
        raise KeyError(name)

    def to_arrow(self) -> pa.Table:
        """One row per stream (``STATE_SCHEMA``); what concerns all streams is repeated in each."""
        common = {name: getattr(self, name) for name in _COMMON_FIELDS} | {"active_queries": list(self.active_queries)}
        rows = [{f.name: getattr(s, f.name) for f in fields(StreamState)} | common for s in self.streams]
        return pa.Table.from_pylist(rows, schema=STATE_SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table, spec: ControllerSpec) -> ControllerState:
        """The saved state, for the streams of ``spec``: streams new to it start afresh, others are dropped."""
        rows = {row["stream"]: row for row in table.select(STATE_SCHEMA.names).to_pylist()}
        if not rows:
            return cls.initial(spec)
        saved = {name: StreamState(**{f.name: row[f.name] for f in fields(StreamState)}) for name, row in rows.items()}
        common = {name: next(iter(rows.values()))[name] for name in _COMMON_FIELDS}
        common["active_queries"] = tuple(common["active_queries"])
        return cls(tuple(saved.get(s.stream, s) for s in cls.initial(spec).streams), **common)

    def bounds(self, stream: str, rows: Sequence[PlanRow], until_us: int | None = None) -> EffectiveBounds:
        """The stream's effective bounds from this state's tick on, under its present plan and the ``rows`` after it."""
        own = [row for row in rows if row.stream == stream]
        at = self.stream(stream)
        starts = [row.effective_from_us for row in own]
        widths = [round(row.width_s * 1e6) for row in own]
        if self.tick_us is not None and at.width_s is not None:
            starts, widths = [self.tick_us, *starts], [round(at.width_s * 1e6), *widths]
        return EffectiveBounds.of(starts, widths, at.lower_us, until_us)

    @property
    def nbytes(self) -> int:
        """Bytes of the state as saved."""
        return int(self.to_arrow().nbytes)


STATE_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("rate", pa.float64()),
        ("tuple_bytes", pa.float64()),
        ("plan_byte_rate", pa.float64()),
        ("width_s", pa.float64()),
        ("lower_us", pa.int64()),
        ("first_arrival_us", pa.int64()),
        ("moved_ticks", pa.int64()),
        ("pending_tuples", pa.int64()),
        ("pending_bytes", pa.float64()),
        ("tick_us", pa.int64()),
        ("support_level", pa.string()),
        ("level_ticks", pa.int64()),
        ("memory_budget_bytes", pa.float64()),
        ("active_queries", pa.list_(pa.string())),
        ("fingerprint", pa.string()),
    ]
)
_COMMON_FIELDS = tuple(f.name for f in fields(ControllerState) if f.name != "streams")


@dataclass(frozen=True)
class PlanRow:
    """One row of ``window_plan``: the plan of one stream from ``effective_from_us`` on."""

    stream: str
    effective_from_us: int
    support_level: SupportLevel
    width_s: float
    min_width_s: float
    max_width_s: float
    byte_rate: float
    planned_bytes: float
    trigger: Trigger


@dataclass(frozen=True)
class RateRow:
    """One row of ``stream_rates``: tuples that arrived in the tick before ``tick_us``, and the estimates at it."""

    stream: str
    tick_us: int
    tuples: int
    rate: float
    tuple_bytes: float


PLAN_SCHEMA = common_schema("window_plan")
RATES_SCHEMA = common_schema("stream_rates")


def plan_table(rows: Sequence[PlanRow]) -> pa.Table:
    """The rows as table ``window_plan``; the columns of level C's schedule are null."""
    columns = {
        name: [getattr(row, "effective_from_us" if name == "effective_from" else name, None) for row in rows]
        for name in PLAN_SCHEMA.names
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in PLAN_SCHEMA], schema=PLAN_SCHEMA)


def rates_table(rows: Sequence[RateRow]) -> pa.Table:
    """The rows as table ``stream_rates``."""
    columns = {
        name: [getattr(row, "tick_us" if name == "tick" else name) for row in rows] for name in RATES_SCHEMA.names
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in RATES_SCHEMA], schema=RATES_SCHEMA)


def step(
    spec: ControllerSpec,
    state: ControllerState,
    tick_us: int,
    tuples_by_stream: Mapping[str, int],
    bytes_by_stream: Mapping[str, float],
) -> tuple[ControllerState, tuple[PlanRow, ...]]:
    """Evaluate one tick; a new plan's rows take effect at it.

    Idea: the rate estimate of every stream moves towards what arrived in the slot [tick − tick length, tick). Then the
    triggers of Table 4 are tried in the order start, budget, query_start, query_end, rate; the first that holds makes a
    new plan for all streams. Before a stream's first tuple its declared rate stands.

    Arguments: ``tick_us``: the next multiple of the tick after ``state.tick_us``; tuples and bytes that arrived in the
    slot before it, streams without any may be missing.

    **Cost**: O(streams + queries), a plan O(e log e). **Guarantee**: a function of its arguments alone, so any split of
    the ticks into runs gives the same rows; Σ planned_bytes ≤ M; nothing is planned when nothing changed.
    ValueError if a tick was left out.

    **Source**: papers/01, "When to adjust (Table 4)". Deviates: the byte rate is watched, not the rate alone; a level
    that other rates made possible or impossible for ``hysteresis_ticks`` counts as a moved rate; level C is not used
    yet.
    """
    if tick_us % spec.tick_us:
        raise ValueError(f"{tick_us} is not a multiple of the tick")
    if state.tick_us is not None and tick_us != state.tick_us + spec.tick_us:
        raise ValueError(f"the tick after {state.tick_us} is {state.tick_us + spec.tick_us}, not {tick_us}")
    streams = tuple(
        _observed(
            spec, stream, tick_us, tuples_by_stream.get(stream.stream, 0), bytes_by_stream.get(stream.stream, 0.0)
        )
        for stream in state.streams
    )
    active = spec.active(tick_us)
    level_ticks = state.level_ticks + 1 if _level_moved(spec, active, streams, state) else 0
    seen = replace(state, streams=streams, tick_us=tick_us, level_ticks=level_ticks)
    trigger = _trigger(spec, seen, active)
    now = replace(
        seen,
        active_queries=tuple(query.id for query in active),
        memory_budget_bytes=float(spec.memory_budget_bytes),
        fingerprint=spec.fingerprint,
    )
    return (now, ()) if trigger is None else _planned(spec, now, active, trigger)


def advance(
    spec: ControllerSpec,
    state: ControllerState,
    start_us: int,
    end_us: int,
    arrival_us: Mapping[str, Integers],
    tuple_bytes: Mapping[str, Floats | float] | None = None,
) -> tuple[ControllerState, tuple[RateRow, ...], tuple[PlanRow, ...]]:
    """:func:`advance_counts` for tuples that are not counted yet.

    Arguments: ``arrival_us``: stream → int64 µs, any order; all within [start, end). ``tuple_bytes``: stream → bytes
    per tuple, one number or float64 per arrival; where missing, the present estimate stands.
    """
    slots = len(range(start_us, end_us, spec.tick_us))
    tuples: dict[str, list[int]] = {}
    sizes: dict[str, list[float]] = {}
    for name, times in arrival_us.items():
        arrivals = np.asarray(times, dtype=np.int64)
        if len(arrivals) and not (start_us <= arrivals.min() and arrivals.max() < end_us):
            raise ValueError(f"arrivals of {name} outside the interval")
        slot = (arrivals - start_us) // spec.tick_us
        tuples[name] = np.bincount(slot, minlength=slots).tolist()
        if tuple_bytes is not None and name in tuple_bytes:
            weights = np.broadcast_to(np.asarray(tuple_bytes[name], dtype=np.float64), arrivals.shape)
            # Summed in canonical order, so that the order of the arrivals does not matter.
            order = np.lexsort((weights, slot))
            sizes[name] = np.bincount(slot[order], weights=weights[order], minlength=slots).tolist()
    return advance_counts(spec, state, start_us, end_us, tuples, sizes)


def advance_counts(
    spec: ControllerSpec,
    state: ControllerState,
    start_us: int,
    end_us: int,
    tuples_by_stream: Mapping[str, Sequence[int]],
    bytes_by_stream: Mapping[str, Sequence[float]],
) -> tuple[ControllerState, tuple[RateRow, ...], tuple[PlanRow, ...]]:
    """Evaluate every tick in [start, end), given what arrived in [start, end), counted per tick.

    Entry i of a stream's sequences: tuples and bytes that arrived in [start + i ticks, start + (i + 1) ticks),
    evaluated at the end of that slot. The last slot waits in the state for the next call, so an interval needs nothing
    but its own tuples and the state of the interval before. Streams without any may be missing.
    """
    if start_us % spec.tick_us or end_us % spec.tick_us:
        raise ValueError("start and end must be multiples of the tick")
    ticks = range(start_us, end_us, spec.tick_us)
    none: Sequence[int] = [0] * len(ticks)
    rates: list[RateRow] = []
    plans: list[PlanRow] = []
    for i, tick in enumerate(ticks):
        tuples = {s.stream: s.pending_tuples for s in state.streams}
        state, rows = step(spec, state, tick, tuples, {s.stream: s.pending_bytes for s in state.streams})
        plans.extend(rows)
        rates.extend(RateRow(s.stream, tick, tuples[s.stream], s.rate, s.tuple_bytes) for s in state.streams)
        state = replace(
            state,
            streams=tuple(
                replace(
                    s,
                    pending_tuples=int(tuples_by_stream.get(s.stream, none)[i]),
                    pending_bytes=float(bytes_by_stream.get(s.stream, none)[i]),
                )
                for s in state.streams
            ),
        )
    return state, tuple(rates), tuple(plans)


def _observed(spec: ControllerSpec, stream: StreamState, tick_us: int, tuples: int, size_bytes: float) -> StreamState:
    """The stream after its slot's arrivals: estimates, lower bound, how long its rate has been off."""
    lower = stream.lower_us
    if stream.width_s is not None:
        reached = tick_us - round(stream.width_s * 1e6)
        lower = reached if lower is None else max(lower, reached)
    first = stream.first_arrival_us
    if first is None and tuples > 0:
        first = tick_us - spec.tick_us
    rate, tuple_bytes = stream.rate, stream.tuple_bytes
    if first is not None:
        newness = -math.expm1(-math.log(2.0) * spec.tick_s / spec.half_life_s)
        rate += newness * (tuples / spec.tick_s - rate)
        if tuples > 0 and size_bytes > 0:
            tuple_bytes += newness * (size_bytes / tuples - tuple_bytes)
    # Less than one tuple in a half-life is as good as none: no relative change is read into it.
    floor = tuple_bytes / spec.half_life_s
    planned = stream.plan_byte_rate
    off = abs(max(rate * tuple_bytes, floor) - max(planned, floor)) > spec.rate_change * max(planned, floor)
    return replace(
        stream,
        rate=rate,
        tuple_bytes=tuple_bytes,
        lower_us=lower,
        first_arrival_us=first,
        moved_ticks=stream.moved_ticks + 1 if off else 0,
        pending_tuples=0,
        pending_bytes=0.0,
    )


def _trigger(spec: ControllerSpec, state: ControllerState, active: Sequence[SizedQuery]) -> Trigger | None:
    """Which row of Table 4 asks for a new plan; ``state`` still names the queries and the budget of the tick before."""
    if not state.support_level or state.fingerprint != spec.fingerprint:
        return "start"
    if state.memory_budget_bytes != float(spec.memory_budget_bytes):
        return "budget"
    by_id = {query.id: query for query in spec.queries}
    before = [by_id[query_id] for query_id in state.active_queries]
    was_active = set(state.active_queries)
    is_active = {query.id for query in active}
    max_t, min_t = _extremes(before)
    level = state.support_level
    # Table 4's columns: at A only the reach beyond Max_T matters, at B everything that reaches Min_T, below always.
    for query in active:
        if query.id not in was_active:
            for stream, range_s in query.ranges_s.items():
                least = max_t.get(stream, 0.0) if level == "A" else min_t.get(stream, 0.0)
                if range_s > least or (level == "B" and range_s >= least) or level == "infeasible":
                    return "query_start"
    for query in before:
        if query.id not in is_active and level != "A":
            reaches = any(range_s >= min_t.get(stream, 0.0) for stream, range_s in query.ranges_s.items())
            if level == "infeasible" or reaches:
                return "query_end"
    moved = any(stream.moved_ticks >= spec.hysteresis_ticks for stream in state.streams)
    return "rate" if moved or state.level_ticks >= spec.hysteresis_ticks else None


def _extremes(queries: Sequence[SizedQuery]) -> tuple[dict[str, float], dict[str, float]]:
    """Stream → Max_T and stream → Min_T of these queries."""
    max_t: dict[str, float] = {}
    min_t: dict[str, float] = {}
    for query in queries:
        for stream, range_s in query.ranges_s.items():
            max_t[stream] = max(max_t.get(stream, 0.0), range_s)
            min_t[stream] = max(min_t.get(stream, 0.0), query.tolerable_s(stream))
    return max_t, min_t


def _level_moved(
    spec: ControllerSpec, active: Sequence[SizedQuery], streams: Sequence[StreamState], state: ControllerState
) -> bool:
    """Whether the byte rates of now give another level than the planned one, by more than the margin."""
    if not state.support_level:
        return False
    byte_rates = {s.stream: s.byte_rate for s in streams}
    quantum = spec.tick_s
    needed = [
        math.fsum(math.ceil(w / quantum - 1e-9) * quantum * byte_rates[name] for name, w in widths.items())
        for widths in _extremes(active)
    ]

    def level(budget_bytes: float) -> int:
        return 0 if budget_bytes >= needed[0] else 1 if budget_bytes >= needed[1] else 2

    planned = LEVEL_ORDER[state.support_level]
    worse = level(spec.memory_budget_bytes * (1 + spec.level_margin)) > planned
    return worse or level(spec.memory_budget_bytes * (1 - spec.level_margin)) < planned


def _planned(
    spec: ControllerSpec, state: ControllerState, active: Sequence[SizedQuery], trigger: Trigger
) -> tuple[ControllerState, tuple[PlanRow, ...]]:
    """The state under a new plan, and its rows, one per stream."""
    assert state.tick_us is not None
    needs = spec.needs(active, {s.stream: s.byte_rate for s in state.streams})
    level, widths = live_widths(needs, spec.memory_budget_bytes, spec.tick_s)
    rows = tuple(
        PlanRow(
            stream=stream.stream,
            effective_from_us=state.tick_us,
            support_level=level,
            width_s=float(widths[w]),
            min_width_s=float(needs.min_t[w]),
            max_width_s=float(needs.max_t[w]),
            byte_rate=float(needs.byte_rate[w]),
            planned_bytes=float(widths[w] * needs.byte_rate[w]),
            trigger=trigger,
        )
        for w, stream in enumerate(state.streams)
    )
    streams = tuple(
        replace(stream, plan_byte_rate=row.byte_rate, width_s=row.width_s, moved_ticks=0)
        for stream, row in zip(state.streams, rows, strict=True)
    )
    return replace(state, streams=streams, support_level=level, level_ticks=0), rows
