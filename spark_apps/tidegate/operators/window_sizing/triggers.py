"""When the live controller plans anew: Table 4, rates with hysteresis, what was learnt, memory that was full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tidegate.operators.window_sizing.rows import Trigger
from tidegate.operators.window_sizing.spec import ControllerSpec
from tidegate.operators.window_sizing.state import ControllerState, QueryState, StreamState

Widths = Mapping[str, tuple[int, int]]

LEVEL_ORDER = {"A": 0, "B": 1, "C": 2, "infeasible": 3}


def trigger(
    spec: ControllerSpec, state: ControllerState, active: Mapping[str, Widths], moved: bool, memory_was_full: bool
) -> Trigger | None:
    """Which reason there is to plan anew at this tick; None: the plan stays.

    Idea: the first that holds of: the first tick or an edited declaration, another budget, a query that starts or ends,
    needs that were learnt anew (as if the query ended and began), a byte rate that has moved or another level in reach
    for some ticks in a row, memory that was full. Whether a query matters is Table 4's question, asked with the
    extremes from before the event: at level A only a start beyond Max_T does, at level B all that reaches Min_T, at
    level C all that reaches what its window always holds, below that everything.

    Arguments: ``state`` as at the tick before. ``active``: query → stream → its widths now, µs (exact, within its
    error). ``moved``: whether a byte rate or the level has been off long enough.

    **Source**: papers/01, "When to adjust" (Li & Zhang 2004, Table 4).
    """
    if state.support_level is None or state.fingerprint != spec.fingerprint:
        return "start"
    if state.memory_budget_bytes != float(spec.memory_budget_bytes):
        return "budget"
    before = {query.id: widths_of(query) for query in state.queries}
    starting = [widths for query_id, widths in active.items() if query_id not in before]
    ending = [widths for query_id, widths in before.items() if query_id not in active]
    learnt = [query_id for query_id, widths in active.items() if before.get(query_id, widths) != widths]
    if starting or ending or learnt:
        thresholds = _Thresholds(state, list(before.values()))
        if any(thresholds.start_matters(widths) for widths in starting):
            return "query_start"
        if any(thresholds.end_matters(widths) for widths in ending):
            return "query_end"
        if any(thresholds.end_matters(before[q]) or thresholds.start_matters(active[q]) for q in learnt):
            return "calibration"
    if moved:
        return "rate"
    return "memory" if memory_was_full else None


def widths_of(query: QueryState) -> Widths:
    """Stream → widths that the query needed at the last tick, µs."""
    return dict(zip(query.streams, zip(query.need_us, query.tolerable_need_us, strict=True), strict=True))


def extremes_us(queries: Sequence[Widths]) -> dict[str, tuple[int, int]]:
    """Stream → Max_T and Min_T of these queries, µs; streams that none reads are missing."""
    extremes: dict[str, tuple[int, int]] = {}
    for query in queries:
        for stream, (exact, least) in query.items():
            max_t, min_t = extremes.get(stream, (0, 0))
            extremes[stream] = max(max_t, exact), max(min_t, least)
    return extremes


class _Thresholds:
    """Table 4's columns, for the level planned and the queries from before the event."""

    def __init__(self, state: ControllerState, before: Sequence[Widths]) -> None:
        self.level = state.support_level
        self.extremes = extremes_us(before)
        self.static = {s.stream: round((s.width_s or 0.0) * 1e6) for s in state.streams}

    def start_matters(self, query: Widths) -> bool:
        if self.level == "A":
            return any(exact > self.extremes.get(stream, (0, 0))[0] for stream, (exact, _) in query.items())
        return self._reaches(query)

    def end_matters(self, query: Widths) -> bool:
        return self.level != "A" and self._reaches(query)

    def _reaches(self, query: Widths) -> bool:
        for stream, (exact, least) in query.items():
            min_t = self.extremes.get(stream, (0, 0))[1]
            if self.level == "B" and exact >= min_t:
                return True
            if self.level == "C" and least >= min(min_t, self.static.get(stream, 0)):
                return True
        return self.level == "infeasible"


def planning_budget(
    spec: ControllerSpec,
    extremes: Mapping[str, tuple[int, int]],
    byte_rates: Mapping[str, float],
    streams: Sequence[StreamState],
) -> float:
    """The bytes to plan with: M less what arrives in a tick.

    Windows let go at ticks, so they hold up to a tick's arrivals more than planned. A stream that no query reads holds
    nothing.
    """
    tick_bytes = math.fsum(byte_rates[s.stream] * spec.tick_s for s in streams if s.stream in extremes)
    return max(spec.memory_budget_bytes - tick_bytes, 0.0)


def headroom(
    spec: ControllerSpec,
    extremes: Mapping[str, tuple[int, int]],
    byte_rates: Mapping[str, float],
    streams: Sequence[StreamState],
) -> float:
    """The bytes that chance may add to what windows hold.

    Of n tuples expected, n ± √n come if they come independently: held bytes h made of tuples of b bytes vary by √(h·b),
    h at most M, b the mean over the windows at Max_T.
    """
    read = [s for s in streams if s.stream in extremes]
    held = [(extremes[s.stream][0] * byte_rates[s.stream], s.tuple_bytes) for s in read]
    total = math.fsum(size for size, _ in held)
    mean = math.fsum(size * tuple_bytes for size, tuple_bytes in held) / total if total > 0 else 0.0
    return spec.headroom_sd * math.sqrt(max(spec.memory_budget_bytes, 0.0) * mean)


def level_moved(
    spec: ControllerSpec,
    state: ControllerState,
    extremes: Mapping[str, tuple[int, int]],
    byte_rates: Mapping[str, float],
    budget_bytes: float,
) -> bool:
    """Whether the byte rates of now give another level than the planned one, by more than the margin.

    What level C needs is reckoned as a share of what level B does, the same as at the last plan.
    """
    if state.support_level is None:
        return False
    need_a = math.fsum(max_t / 1e6 * byte_rates[stream] for stream, (max_t, _) in extremes.items())
    need_b = math.fsum(min_t / 1e6 * byte_rates[stream] for stream, (_, min_t) in extremes.items())
    needed = (need_a, need_b, need_b * state.needed_c_share)

    def level(available_bytes: float) -> int:
        return next((i for i, need in enumerate(needed) if available_bytes >= need), len(needed))

    planned = LEVEL_ORDER[state.support_level]
    worse = level(budget_bytes * (1 + spec.level_margin)) > planned
    return worse or level(budget_bytes * (1 - spec.level_margin)) < planned
