"""The live controller: watches rates, queries and memory at every tick, plans anew when there is reason to.

What it holds in memory never exceeds the budget: what would is evicted early, what mends least first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tidegate.operators.window_sizing.eviction import Worth, bounds_within
from tidegate.operators.window_sizing.ledger import Arrivals, Ledger, Slot
from tidegate.operators.window_sizing.live_planning import LivePlan, in_phase, live_plan
from tidegate.operators.window_sizing.needs import Floats, Integers
from tidegate.operators.window_sizing.planning import SupportLevel, admit
from tidegate.operators.window_sizing.query_support import (
    WindowNow,
    going_on,
    query_row,
    query_support,
    says_the_same,
)
from tidegate.operators.window_sizing.replanning import plan_in_effect, plan_rows, waiting_queries
from tidegate.operators.window_sizing.rows import PlanRow, QueryPlanRow, RateRow, Trigger
from tidegate.operators.window_sizing.spec import ControllerSpec, SizedQuery
from tidegate.operators.window_sizing.state import ControllerState, QueryState, StreamState, slot_of
from tidegate.operators.window_sizing.triggers import (
    LEVEL_ORDER,
    Widths,
    extremes_us,
    headroom,
    level_moved,
    planning_budget,
    trigger,
)


class Advanced(NamedTuple):
    """What came of some ticks: the state after them, and the rows of the three tables."""

    state: ControllerState
    rates: tuple[RateRow, ...]
    plans: tuple[PlanRow, ...]
    query_plans: tuple[QueryPlanRow, ...]


def advance(
    spec: ControllerSpec,
    state: ControllerState,
    start_us: int,
    end_us: int,
    arrival_us: Mapping[str, Integers],
    event_us: Mapping[str, Integers],
    tuple_bytes: Mapping[str, Floats | float],
) -> Advanced:
    """:func:`advance_counts` for tuples that are not counted yet.

    Arguments: stream → int64 µs, any order, the arrivals all within [start, end); ``tuple_bytes``: stream → bytes per
    tuple, one number or float64 per arrival.
    """
    arrivals = {
        name: Arrivals.of(times, event_us[name], tuple_bytes[name], spec.tick_us) for name, times in arrival_us.items()
    }
    return advance_counts(spec, state, start_us, end_us, arrivals)


def advance_counts(
    spec: ControllerSpec, state: ControllerState, start_us: int, end_us: int, arrivals: Mapping[str, Arrivals]
) -> Advanced:
    """Evaluate every tick in [start, end), given what arrived in [start, end).

    Idea: at a tick t, (1) the rate estimate of every stream moves towards what arrived in the tick before; before a
    stream's first tuple its declared rate stands. (2) If a trigger says so, all windows are planned anew, from t on.
    (3) Windows let go of what their plan does not hold any more. (4) What arrives in [t, t + tick) is taken in; if the
    windows would then hold more than M, panes are evicted early, those that mend least first. That counts from t: the
    row of such a window effective from t has the width that is left and names ``eviction``, and at t + tick there is
    a new plan.

    A plan lets windows hold all that queries need, unless they take turns: what is foreseen, from the rates, decides
    on surplus, turns and admission, and throws nothing away. Levels B and below come of what is evicted when memory is
    really full, in the same order in which :func:`live_plan` would spend it.

    Arguments: ``start_us``, ``end_us``: multiples of the tick, start the first tick after ``state.tick_us``.
    ``arrivals``: stream → what arrived; streams without any may be missing. The last slot's rates wait in the state for
    the next call, so an interval needs nothing but its own tuples and the state of the interval before.

    **Cost**: per tick without a plan O(d) Python and O(panes) numpy; a plan costs what its level's algorithm does.
    **Guarantee**: the rows do not depend on how ticks are split into calls. Held bytes, counted by whole panes, never
    exceed M. Nothing changes when nothing changed.

    >>> from tidegate.operators.window_sizing.spec import SizedQuery, SizedStream
    >>> query = SizedQuery("q", {"s": 120.0}, {"s": 60.0}, delay_s=60.0)
    >>> spec = ControllerSpec((SizedStream("s", 0.1, 50.0, max_width_s=120.0),), (query,), 1200.0, tick_us=60_000_000)
    >>> times = np.arange(0, 300_000_000, 10_000_000)
    >>> arrivals = Arrivals.of(times, times, 50.0, tick_us=60_000_000)
    >>> advanced = advance_counts(spec, ControllerState.initial(spec), 0, 300_000_000, {"s": arrivals})
    >>> [(row.trigger, row.support_level, row.width_s) for row in advanced.plans]
    [('start', 'A', 120.0)]
    >>> [row.held_bytes for row in advanced.rates]
    [0, 300, 600, 900, 900]

    **Source**: papers/01, "When to adjust" and "Settled here, for all levels".
    """
    tick_us = spec.tick_us
    if start_us % tick_us or end_us % tick_us:
        raise ValueError("start and end must be multiples of the tick")
    if state.tick_us is not None and start_us != state.tick_us + tick_us and start_us < end_us:
        raise ValueError(f"the tick after {state.tick_us} is {state.tick_us + tick_us}, not {start_us}")
    run = _Run(spec, state, start_us)
    ticks = np.arange(start_us, end_us + tick_us, tick_us, dtype=np.int64)
    slots = [arrivals.get(stream.stream, Arrivals.none()).cut(ticks) for stream in state.streams]
    for t, *arriving in zip(range(start_us, end_us, tick_us), *slots, strict=True):
        run.tick(t, arriving)
    return Advanced(run.saved(), tuple(run.rates), tuple(run.plans), tuple(run.query_plans))


class _Run:
    """The working copy of the state within one call: streams, their ledgers, queries."""

    def __init__(self, spec: ControllerSpec, state: ControllerState, start_us: int) -> None:
        self.spec, self.state = spec, state
        self.tick_us, self.level_ticks = state.tick_us, state.level_ticks
        self.streams = list(state.streams)
        self.ledgers: list[Ledger] = [stream.ledger(start_us) for stream in state.streams]
        self.queries = {query.id: query for query in state.queries}
        self.rates: list[RateRow] = []
        self.plans: list[PlanRow] = []
        self.query_plans: list[QueryPlanRow] = []
        self.next_event_us = start_us  # the first tick of a call looks at queries and what was learnt about them
        self.active: tuple[SizedQuery, ...] = ()
        self.widths: dict[str, Widths] = {}
        self.extremes: dict[str, tuple[int, int]] = {}

    def saved(self) -> ControllerState:
        """The state with the ledgers written back."""
        streams = tuple(
            replace(
                stream,
                pane_us=tuple(ledger.pane_us.tolist()),
                pane_tuples=tuple(ledger.tuples.tolist()),
                pane_bytes=tuple(ledger.bytes.tolist()),
            )
            for stream, ledger in zip(self.streams, self.ledgers, strict=True)
        )
        return replace(
            self.state,
            streams=streams,
            tick_us=self.tick_us,
            level_ticks=self.level_ticks,
            queries=tuple(self.queries.values()),
        )

    def tick(self, t_us: int, arriving: Sequence[Slot]) -> None:
        """Evaluate the tick and take in what arrives until the next one."""
        spec = self.spec
        # What an answer at t finds: nothing has been let go of since the last tick.
        held_from_us = [t_us if s.closed(t_us - spec.tick_us) else s.held_from_us for s in self.streams]
        memory_was_full = any(stream.evicted_early for stream in self.streams)
        for i, stream in enumerate(self.streams):
            self.streams[i] = self._observed(stream, t_us)
        if looked := t_us >= self.next_event_us:
            self._look_at_queries(t_us)
        moved = self._moved()
        reason = self._reason(moved, memory_was_full) if looked or moved or memory_was_full else None
        own_plans = self._planned(t_us, reason) if reason else {}
        own_plans |= self._taken_in(t_us, arriving)
        self.plans.extend(_within(spec.memory_budget_bytes, [own_plans[i] for i in sorted(own_plans)]))
        if looked or own_plans:
            self._support_queries(t_us, held_from_us, planned=reason not in (None, "memory"))
        self.tick_us = t_us

    def _observed(self, stream: StreamState, t_us: int) -> StreamState:
        """The stream's estimates after the slot before t, and its row of rates."""
        spec, tuples = self.spec, stream.pending_tuples
        first = stream.first_arrival_us
        if first is None and tuples > 0:
            first = t_us - spec.tick_us
        rate, tuple_bytes = stream.rate, stream.tuple_bytes
        if first is not None:
            newness = spec.newness(stream.stream, (t_us - first) / 1e6)
            rate += newness * (tuples / spec.tick_s - rate)
            if tuples > 0 and stream.pending_bytes > 0:
                tuple_bytes += newness * (stream.pending_bytes / tuples - tuple_bytes)
        self.rates.append(
            RateRow(
                stream.stream, t_us, tuples, rate, tuple_bytes,
                stream.held_tuples, stream.held_bytes, stream.evicted_early,
            )
        )  # fmt: skip
        lower_us = None if stream.width_s is None else stream.lower_before_us(t_us)
        # Less than one tuple in a half-life is as good as none: no relative change is read into it.
        floor = tuple_bytes / spec.half_life_s
        now, planned = max(rate * tuple_bytes, floor), max(stream.plan_byte_rate, floor)
        off = abs(now - planned) > spec.rate_change * planned
        return replace(
            stream,
            rate=rate,
            tuple_bytes=tuple_bytes,
            first_arrival_us=first,
            lower_us=lower_us,
            moved_ticks=stream.moved_ticks + 1 if off else 0,
        )

    def _byte_rates(self) -> dict[str, float]:
        return {stream.stream: stream.byte_rate for stream in self.streams}

    def _look_at_queries(self, t_us: int) -> None:
        """Take note of which queries are active and what they need, and when to look again."""
        self.active = self.spec.active(t_us)
        self.widths = {query.id: self.spec.needs_us(query) for query in self.active}
        self.extremes = extremes_us(list(self.widths.values()))
        changes = [us for us in self.spec.durations_us if us > t_us]
        self.next_event_us = min(changes, default=1 << 62)

    def _moved(self) -> bool:
        """Whether a byte rate has been off, or another level in reach, for some ticks in a row."""
        spec, byte_rates = self.spec, self._byte_rates()
        budget = planning_budget(spec, self.extremes, byte_rates, self.streams)
        another = level_moved(spec, self.state, self.extremes, byte_rates, budget)
        self.level_ticks = self.level_ticks + 1 if another else 0
        return max(self.level_ticks, *(stream.moved_ticks for stream in self.streams)) >= spec.hysteresis_ticks

    def _reason(self, moved: bool, memory_was_full: bool) -> Trigger | None:
        spec = self.spec
        now = replace(self.state, streams=tuple(self.streams), queries=tuple(self.queries.values()))
        reason = trigger(spec, now, self.widths, moved, memory_was_full)
        budget, fingerprint = float(spec.memory_budget_bytes), spec.fingerprint
        self.state = replace(self.state, memory_budget_bytes=budget, fingerprint=fingerprint)
        return reason

    def _planned(self, t_us: int, reason: Trigger) -> dict[int, PlanRow]:
        """Plan all windows anew from t on; the rows of those that change.

        Memory that was full leaves no surplus. Windows take turns at first as declared rates ask for; later only once
        memory has really been full.
        """
        spec, byte_rates = self.spec, self._byte_rates()
        needs = spec.needs(self.active, byte_rates)
        budget = planning_budget(spec, self.extremes, byte_rates, self.streams)
        spared = headroom(spec, self.extremes, byte_rates, self.streams)
        turns = reason in ("start", "budget", "memory")
        plan = live_plan(needs, budget, spec.tick_s, plan_in_effect(self.streams, t_us), spared, turns)
        if reason == "memory" and plan.support_level == "A":
            plan = LivePlan.still("A", needs.max_t)
        waiting = waiting_queries(plan, self.streams, self.active, self.widths, self.queries, t_us)
        rows = plan_rows(in_phase(plan, waiting, spec.tick_s), needs, self.streams, t_us, reason)
        if reason == "memory" and plan.support_level == self.state.support_level != "C":
            rows = {i: row for i, row in rows.items() if row.width_s != self.streams[i].width_s}
        for i, row in rows.items():
            self.streams[i] = replace(_under(self.streams[i], row), plan_byte_rate=row.byte_rate, moved_ticks=0)
        self.level_ticks = 0
        self.state = replace(self.state, support_level=plan.support_level, needed_c_share=plan.needed_c_share)
        return rows

    def _taken_in(self, t_us: int, arriving: Sequence[Slot]) -> dict[int, PlanRow]:
        """Let go of what is planned to go, take in what arrives until t + tick; rows of windows that must give way."""
        spec, until_us = self.spec, t_us + self.spec.tick_us
        lower = [stream.lower_at_us(t_us) for stream in self.streams]
        for lower_us, stream, ledger, slot in zip(lower, self.streams, self.ledgers, arriving, strict=True):
            ledger.evict_before(lower_us)
            ledger.take_in(slot, lower_us, until_us)
            if stream.closed(t_us) or stream.stream not in self.extremes:
                ledger.evict_before(until_us)
        evicted = dict.fromkeys(range(len(self.streams)), 0)
        rows: dict[int, PlanRow] = {}
        if sum(ledger.held_bytes for ledger in self.ledgers) > spec.memory_budget_bytes:
            admitted = self._admitted_widths()
            worths = [Worth.of(s.stream, self.active, admitted, s.plan_byte_rate) for s in self.streams]
            bounds = bounds_within(self.ledgers, worths, spec.memory_budget_bytes, t_us, spec.tick_us)
            for i, bound_us in sorted(bounds.items()):
                # A window that keeps nothing but the present pane cannot be told from one that keeps nothing.
                left_us = max(t_us - bound_us, 0)
                lower[i] = t_us - left_us
                evicted[i] = self.ledgers[i].evict_before(bound_us if left_us else until_us)
                rows[i] = self._narrowed(i, t_us, left_us)
        for i, (stream, ledger, slot) in enumerate(zip(self.streams, self.ledgers, arriving, strict=True)):
            self.streams[i] = replace(
                stream,
                lower_us=lower[i],
                pending_tuples=int(slot.tuples.sum()),
                pending_bytes=int(slot.bytes.sum()),
                held_tuples=ledger.held_tuples,
                held_bytes=ledger.held_bytes,
                evicted_early=evicted[i],
            )
        return rows

    def _admitted_widths(self) -> dict[str, Widths]:
        """What queries need, in order of eviction; of those that are not admitted no width is held for their error."""
        if self.state.support_level != "infeasible":
            return self.widths
        byte_rates = self._byte_rates()
        needs = self.spec.needs(self.active, byte_rates)
        _, refused = admit(needs, planning_budget(self.spec, self.extremes, byte_rates, self.streams))
        lost = {q: {stream: (exact, 0) for stream, (exact, _) in self.widths[q].items()} for q in refused}
        return self.widths | lost

    def _narrowed(self, i: int, t_us: int, width_us: int) -> PlanRow:
        """The stream under a plan of that width from t on, and its row."""
        stream = self.streams[i]
        assert self.state.support_level is not None
        max_t, min_t = self.extremes.get(stream.stream, (0, 0))
        row = PlanRow(
            stream=stream.stream,
            effective_from_us=t_us,
            support_level=_worse(self.state.support_level, width_us, max_t, min_t),
            width_s=width_us / 1e6,
            min_width_s=min_t / 1e6,
            max_width_s=max_t / 1e6,
            byte_rate=stream.plan_byte_rate,
            planned_bytes=float(self.ledgers[i].held_bytes),
            trigger="eviction",
        )
        self.streams[i] = _under(stream, row)
        return row

    def _support_queries(self, t_us: int, held_from_us: Sequence[int], planned: bool) -> None:
        """Say what every query gets from t on, where it is news or all is planned anew."""
        windows = {}
        for stream, before_us in zip(self.streams, held_from_us, strict=True):
            slot = slot_of(stream)
            if slot is not None and stream.plan_from_us is not None:
                slot = (slot[0] - (t_us - stream.plan_from_us), *slot[1:])
            width_us, lower_us = round((stream.width_s or 0.0) * 1e6), stream.lower_at_us(t_us)
            windows[stream.stream] = WindowNow(width_us, slot, lower_us, before_us)
        before, self.queries = self.queries, {}
        for query in self.active:
            state: QueryState = query_support(self.spec, query, windows, before.get(query.id), t_us)
            known = before.get(query.id)
            if planned or known is None or not says_the_same(state, known):
                self.query_plans.append(query_row(query, state))
            else:
                state = going_on(known, state)
            self.queries[query.id] = state
        changes = [q.change_us for q in self.queries.values() if q.change_us is not None and q.change_us > t_us]
        self.next_event_us = min([self.next_event_us, *changes])


def _within(budget_bytes: float, rows: Sequence[PlanRow]) -> Sequence[PlanRow]:
    """The rows of one instant, the bytes of which add up to no more than the budget."""
    total = math.fsum(row.planned_bytes for row in rows)
    if total <= budget_bytes:
        return rows
    share = budget_bytes / total * (1 - 1e-12)
    return [replace(row, planned_bytes=row.planned_bytes * share) for row in rows]


def _worse(planned: SupportLevel, width_us: int, max_us: int, min_us: int) -> SupportLevel:
    """The level that was planned, or what is left of it where a window is narrower than that."""
    if planned == "C":
        return planned
    left: SupportLevel = "A" if width_us >= max_us else "B" if width_us >= min_us else "infeasible"
    return max(planned, left, key=LEVEL_ORDER.__getitem__)


def _under(stream: StreamState, row: PlanRow) -> StreamState:
    return replace(
        stream,
        plan_from_us=row.effective_from_us,
        width_s=row.grows_to_s,
        slot_offset_s=row.slot_offset_s,
        slot_s=row.slot_s,
        period_s=row.period_s,
        group_id=row.group_id,
    )
