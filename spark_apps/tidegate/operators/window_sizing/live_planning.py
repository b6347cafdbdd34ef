"""The plan of a running pipeline: level, widths and slots in whole ticks, and what carries over from plan to plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidegate.operators.window_sizing.a_support import a_support
from tidegate.operators.window_sizing.b_support import b_support
from tidegate.operators.window_sizing.joint import Reaches, mean_bound_bytes
from tidegate.operators.window_sizing.needs import Floats, Integers, Needs
from tidegate.operators.window_sizing.planning import SupportLevel, admit, support_level
from tidegate.operators.window_sizing.slots import SlotSchedule, slot_schedule


@dataclass(frozen=True, eq=False)
class LivePlan:
    """Widths and slots of all windows from one instant on.

    float64[d] in s, multiples of the tick: ``width_s``, always held; ``slot_s`` (0: does not swing), ``slot_offset_s``
    from the plan's instant (negative: running by then) and ``period_s``. ``group`` int64[d], −1: none. At level B and
    below, ``width_s`` is what the budget is reckoned to hold; windows may hold more as long as it fits (``targets_s``).
    ``needed_c_share``: bytes that level C takes as a share of those of level B; 1 where level C was not looked at.
    """

    support_level: SupportLevel
    width_s: Floats
    slot_s: Floats
    slot_offset_s: Floats
    period_s: Floats
    group: Integers
    needed_c_share: float = 1.0

    @classmethod
    def still(cls, level: SupportLevel, width_s: Floats, needed_c_share: float = 1.0) -> LivePlan:
        """A plan in which no window swings."""
        nothing = np.zeros(len(width_s))
        group = np.full(len(width_s), -1, dtype=np.int64)
        return cls(level, width_s, nothing, nothing, np.full(len(width_s), np.inf), group, needed_c_share)

    def targets_s(self, needs: Needs) -> Floats:
        """float64[d]: how wide windows may become.

        Windows that take turns must keep to their widths. Otherwise nothing that is held and would serve is let go of
        for the sake of a forecast: windows may hold all that queries need until memory is really full.
        """
        return self.width_s if self.support_level == "C" else np.maximum(self.width_s, needs.max_t)

    def planned_bytes(self, byte_rate: Floats) -> Floats:
        """float64[d]: what the windows take at most, together: static widths, and a part each of the slots' peak."""
        static = self.width_s * byte_rate
        exchange = self.slot_s * byte_rate
        if not exchange.any():
            return static
        held: Floats = static + exchange * (self._ramps_bytes(byte_rate) / exchange.sum())
        return held

    def peak_bytes(self, byte_rate: Floats) -> float:
        """The most bytes held at any time at these byte rates."""
        return math.fsum([*(self.width_s * byte_rate).tolist(), self._ramps_bytes(byte_rate)])

    def _ramps_bytes(self, byte_rate: Floats) -> float:
        """The most that the slots take together: at some slot's end; windows of different periods add up."""
        total = []
        for period in np.unique(self.period_s[self.slot_s > 0]):
            own = (self.slot_s > 0) & (self.period_s == period)
            end, slot, rate = self.slot_offset_s[own] + self.slot_s[own], self.slot_s[own], byte_rate[own]
            to_end = np.mod(end[None, :] - end[:, None], period)
            total.append(float((np.maximum(slot - to_end, 0.0) @ rate).max()))
        return math.fsum(total)

    def carries(self, needs: Needs) -> bool:
        """Whether the slots do for these needs: every tolerable width always held, or at slot ends often enough."""
        window, query = needs.entry_window, needs.entry_query
        free = needs.byte_rate <= 0
        if (self.width_s[free] < needs.max_t[free]).any():
            return False
        short = needs.tolerable_s > self.width_s[window] + 1e-9
        reached = needs.tolerable_s <= self.width_s[window] + self.slot_s[window] + 1e-9
        in_time = self.period_s[window] <= needs.delay_s[query] + 1e-9
        swings = np.bincount(query[short], minlength=len(needs.query_ids))
        return bool((reached & in_time)[short].all()) and bool((swings <= 1).all())

    def shifted(self, windows: Integers, shift_s: float) -> LivePlan:
        """The same with the slots of these windows, all of one period, later by so much; first ends in (0, period]."""
        end = (self.slot_offset_s + self.slot_s)[windows] + shift_s
        offset = self.slot_offset_s.copy()
        period = self.period_s[windows]
        offset[windows] = end - (np.ceil(end / period - 1e-9) - 1) * period - self.slot_s[windows]
        return replace(self, slot_offset_s=offset)


def live_plan(
    needs: Needs,
    budget_bytes: float,
    tick_s: float,
    current: LivePlan | None = None,
    headroom_bytes: float = 0.0,
    turns: bool = True,
) -> LivePlan:
    """Level, widths and slots for needs in whole ticks.

    Idea: levels A and B as in :func:`plan`, in whole ticks. Level C: the slots in effect stay (``current``, offsets
    from now) as long as they do for the needs and fit; else :func:`slot_schedule`'s, if they fit. Otherwise queries are
    admitted at level B in order of priority, and what is left is spent as at level B.

    Arguments: ``headroom_bytes``: of the budget, not for surplus at level A, nor for level C and below. ``turns``:
    whether windows may be narrowed to take turns; those that do already go on.

    **Cost**: that of the level's algorithm: milliseconds, but for a new schedule of level C, which takes 0.03 s (two
    windows) to 0.4 s (twelve). **Guarantee**: the windows' peak ≤ budget at these byte rates; at A and B width ≥ Min_T;
    surplus never passes a stream's greatest width.

    >>> from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed
    >>> queries = [QueryNeed("p", {"a": 60.0}, delay_s=120.0), QueryNeed("q", {"b": 60.0}, delay_s=120.0)]
    >>> needs = Needs.of([WindowNeed("a", 1.0), WindowNeed("b", 1.0)], queries)
    >>> [live_plan(needs, budget, 10.0).support_level for budget in (120.0, 100.0, 50.0)]
    ['A', 'C', 'infeasible']
    """
    level = support_level(needs, budget_bytes)
    if level == "A":
        spare = max(budget_bytes - headroom_bytes, needs.bytes_of(needs.max_t))
        return LivePlan.still("A", a_support(needs, spare, tick_s))
    if level == "B":
        return LivePlan.still("B", b_support(needs, budget_bytes, needs.min_t, tick_s))
    needed_b = needs.bytes_of(needs.min_t)
    budget_bytes = max(budget_bytes - headroom_bytes, 0.0)
    if current is not None and current.support_level == "C" and current.carries(needs):
        peak = current.peak_bytes(needs.byte_rate)
        if peak <= budget_bytes:
            return replace(current, needed_c_share=peak / needed_b)
    # A schedule costs much more than a bound, which most often says already that there is none.
    needed_c = mean_bound_bytes(Reaches.of(needs, None, tick_s))
    if turns and needed_c <= budget_bytes:
        schedule = slot_schedule(needs, "joint", quantum_s=tick_s, single_swing=True)
        needed_c = schedule.peak_bytes
        found = _of_schedule(schedule, needed_c / needed_b)
        if found.peak_bytes(needs.byte_rate) <= budget_bytes:
            return found
    floors, _ = admit(needs, budget_bytes)
    return LivePlan.still("infeasible", b_support(needs, budget_bytes, floors, tick_s), needed_c / needed_b)


def _of_schedule(schedule: SlotSchedule, needed_c_share: float) -> LivePlan:
    swings = schedule.slot_s > 0
    return LivePlan(
        "C",
        schedule.static_s,
        schedule.slot_s,
        np.where(swings, schedule.slot_offset_s, 0.0),
        schedule.period_s,
        np.where(swings, schedule.group, -1),
        needed_c_share,
    )


@dataclass(frozen=True)
class SwingingQuery:
    """When a query that swings on a window needs its next answer, seconds from the plan's instant.

    ``ready_s``: from then on the windows can hold its tolerable widths at all, for evicted tuples do not come back.
    ``deadline_s``: its last valid answer and its delay.
    """

    window: int
    ready_s: float
    deadline_s: float


def in_phase(plan: LivePlan, waiting: Sequence[SwingingQuery], tick_s: float) -> LivePlan:
    """The plan with its slots shifted such that as many queries as can be get their next valid answer in time.

    Idea: the windows of one period are shifted together, which leaves the memory as it is. A query is in time if a slot
    of its window ends within [ready, deadline]: an arc of shifts. Some shift at which an arc begins lies in most arcs;
    of several the least is taken, none at all if that is among them.

    **Cost**: O(q²) for q queries. **Guarantee**: no other common shift serves more of them.
    """
    for period in np.unique(plan.period_s[plan.slot_s > 0]).tolist():
        windows = np.flatnonzero((plan.slot_s > 0) & (plan.period_s == period))
        own = [q for q in waiting if plan.slot_s[q.window] > 0 and plan.period_s[q.window] == period]
        if not own:
            continue
        end = np.array([plan.slot_offset_s[q.window] + plan.slot_s[q.window] for q in own])
        ready = np.array([max(q.ready_s, tick_s) for q in own])  # what ends now counted for the plan before
        deadline = np.array([q.deadline_s for q in own])
        shifts = np.unique([0.0, *np.mod(ready - end, period).tolist()])
        first = end[None, :] + shifts[:, None]
        first -= (np.ceil(first / period - 1e-9) - 1) * period  # in (0, period]
        first += np.maximum(np.ceil((ready - first) / period - 1e-9), 0.0) * period
        in_time = (first <= deadline + 1e-9).sum(axis=1)
        plan = plan.shifted(windows, float(shifts[int(np.argmax(in_time))]))
    return plan
