"""Level C as a function of time: which window holds how much at every instant, and the most bytes that takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tidegate.operators.window_sizing.c_support import Method, SerialGroups, Swings, serial_groups, swings
from tidegate.operators.window_sizing.joint import Reaches, joint_ramps, mean_bound_bytes
from tidegate.operators.window_sizing.needs import Floats, Integers, Needs
from tidegate.operators.window_sizing.ramps import ramps_peak_bytes


@dataclass(frozen=True, eq=False)
class SlotSchedule:
    """The widths of all windows over time, from the instant 0 at which the schedule takes effect.

    Idea: window w always holds ``static_s``. During its slots [o + kP, o + kP + D], k = 0, 1, …, nothing is evicted,
    so its width grows to ``static_s + D`` at the slot's end, when its widest queries answer; then it shrinks back.

    Arguments: float64[d] each: ``static_s``; ``slot_s`` (D; 0: the window does not swing); ``slot_offset_s`` (o);
    ``period_s`` (P; inf where it does not swing). ``group`` int64[d]: windows that are planned together, −1: none.
    ``peak_bytes``: the most bytes held at any instant; windows of different periods drift against each other, so their
    peaks add up. ``bound_bytes``: no schedule that the method looks for takes less (proved). ``group_period_s``: P of
    each group.

    **Guarantee**: D ≤ P; −D < o ≤ P − D, so the first slot ends in (0, P]. A *negative offset* means that the first
    slot is already under way at instant 0: there the window starts with ``static_s − o`` and evicts nothing.
    """

    static_s: Floats
    slot_s: Floats
    slot_offset_s: Floats
    period_s: Floats
    group: Integers
    peak_bytes: float
    bound_bytes: float
    group_period_s: tuple[float, ...]

    @property
    def swinging(self) -> Integers:
        """The windows that swing, ascending."""
        windows: Integers = np.flatnonzero(self.slot_s > 0)
        return windows

    def exchange_peak_bytes(self, needs: Needs, windows: Integers) -> float:
        """The most bytes above the static ones that these windows, all of one period, hold at one instant."""
        own = windows[self.slot_s[windows] > 0]
        if not len(own):
            return 0.0
        end = self.slot_offset_s[own] + self.slot_s[own]
        return ramps_peak_bytes(needs.byte_rate[own], self.slot_s[own], end, float(self.period_s[own[0]]))

    def width_s(self, window: int, t_s: Floats) -> Floats:
        """The window's width at each instant, float64 s; at a slot's end the width before it shrinks."""
        t = np.asarray(t_s, dtype=np.float64)
        if self.slot_s[window] <= 0:
            return np.full(t.shape, self.static_s[window])
        to_end = np.mod(self.slot_offset_s[window] + self.slot_s[window] - t, self.period_s[window])
        width_s: Floats = self.static_s[window] + np.maximum(self.slot_s[window] - to_end, 0.0)
        return width_s


def slot_schedule(
    needs: Needs, method: Method = "joint", quantum_s: float | None = None, single_swing: bool = False
) -> SlotSchedule:
    """The schedule of level C that takes the least memory, as ``method`` looks for it.

    Arguments: ``quantum_s``: slots, offsets, periods and widths are multiples of it (needs must be, too:
    :meth:`Needs.in_quanta`; delays are rounded down to it). ``single_swing``: a query that reads several windows is
    carried by the slots of one of them at most, the dearest; on the others its tolerable width is always held.

    **Cost**: that of the method. **Guarantee**: every query finds its tolerable width on each window that it reads at
    all times or at slot ends at most its delay apart. Windows of byte rate 0 get their Max_T. Method joint takes no
    more than the paper's optimum (as far as method exact knows it), and holds windows whole that would share with none.

    >>> from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed
    >>> queries = [QueryNeed(q, {w: 10.0}, delay_s=12.0) for q, w in (("p", "a"), ("q", "b"))]
    >>> needs = Needs.of([WindowNeed("a", 1.0), WindowNeed("b", 1.0)], queries)
    >>> [round(slot_schedule(needs, method).peak_bytes, 9) for method in ("dp", "joint")]
    [20.0, 14.0]

    **Source**: papers/01, "C-Support" and "C, a better problem".
    """
    always = _held_for_good(needs, quantum_s) if single_swing else None
    swing = swings(needs, always, quantum_s)
    if method != "joint":
        return serial_schedule(needs, swing, serial_groups(swing, method))
    better = joint_schedule(needs, swing, Reaches.of(needs, always, quantum_s))
    if better is not None:
        return better
    return _singles_held_whole(needs, serial_schedule(needs, swing, serial_groups(swing, "exact")))


def joint_schedule(needs: Needs, swing: Swings, reaches: Reaches) -> SlotSchedule | None:
    """The schedule of free swings and staggered ramps; None if the paper's optimum is as good."""
    found = joint_ramps(reaches)
    whole = needs.bytes_of(needs.min_t)
    peak = whole - math.fsum(ramps.saved_bytes for _, ramps in found)
    static_bytes = math.fsum(swing.static_bytes.tolist())
    # The optimum itself is worth its trouble only if a bound does not already say that it is dearer.
    if peak >= static_bytes + serial_groups(swing, "ap").share_bound_bytes:
        least = static_bytes + serial_groups(swing, "exact").share_bytes
        if peak >= least * (1 - 1e-12):
            return None
    count = len(needs.window_ids)
    slot, offset, period = np.zeros(count), np.zeros(count), np.full(count, np.inf)
    group = np.full(count, -1, dtype=np.int64)
    for g, (windows, ramps) in enumerate(found):
        for w, slot_s, end_s in zip(windows, ramps.slot_s.tolist(), ramps.end_s.tolist(), strict=True):
            if slot_s > 0:
                slot[w], offset[w], period[w], group[w] = slot_s, end_s - slot_s, ramps.period_s, g
    static = np.where(needs.byte_rate > 0, needs.min_t - slot, needs.max_t)
    return SlotSchedule(
        static,
        slot,
        offset,
        period,
        group,
        peak,
        min(mean_bound_bytes(reaches), peak),
        tuple(r.period_s for _, r in found),
    )


def serial_schedule(needs: Needs, swing: Swings, groups: SerialGroups) -> SlotSchedule:
    """The paper's schedule: the windows of a group take turns, one slot after the other in the group's period."""
    count = len(needs.window_ids)
    offset, period, group_of = np.zeros(count), np.full(count, np.inf), np.full(count, -1)
    slot = np.where(swing.exchange_bytes > 0, swing.min_d_s, 0.0)
    for g, group in enumerate(groups.groups):
        group_of[list(group)] = g
        begin = 0.0
        for w in group:
            if slot[w] > 0:
                offset[w], period[w] = begin, min(swing.period_s[v] for v in group)
                begin += slot[w]
    static_bytes = math.fsum(swing.static_bytes.tolist())
    return SlotSchedule(
        static_s=np.where(needs.byte_rate > 0, needs.min_t - slot, needs.max_t),
        slot_s=slot,
        slot_offset_s=offset,
        period_s=period,
        group=group_of,
        peak_bytes=static_bytes + groups.share_bytes,
        bound_bytes=static_bytes + groups.share_bound_bytes,
        group_period_s=tuple(min(float(swing.period_s[w]) for w in group) for group in groups.groups),
    )


def _singles_held_whole(needs: Needs, schedule: SlotSchedule) -> SlotSchedule:
    """A window that shares with no other saves nothing by swinging: it is held whole, and its queries always answer."""
    members = np.bincount(schedule.group + 1, schedule.slot_s > 0, minlength=len(schedule.group) + 2)
    single = (members[schedule.group + 1] <= 1) & (schedule.slot_s > 0)
    return replace(
        schedule,
        static_s=np.where(single, needs.min_t, schedule.static_s),
        slot_s=np.where(single, 0.0, schedule.slot_s),
        slot_offset_s=np.where(single, 0.0, schedule.slot_offset_s),
        period_s=np.where(single, np.inf, schedule.period_s),
        group=np.where(schedule.slot_s > 0, np.where(single, -1, schedule.group), -1),
    )


def _held_for_good(needs: Needs, quantum_s: float | None) -> NDArray[np.bool_]:
    """Which of the pairs of query and window are always held: bool[e].

    The windows choose in the order of their exchange memory, dearest first; a query that reads several windows goes to
    the first that could swing for it.
    """
    reads = np.bincount(needs.entry_query, minlength=len(needs.query_ids))
    joins = reads[needs.entry_query] > 1
    always = np.zeros(len(needs.entry_window), dtype=bool)
    carried = np.zeros(len(needs.query_ids), dtype=bool)
    exchange = swings(needs, quantum_s=quantum_s).exchange_bytes
    for w in sorted(range(len(exchange)), key=lambda w: (-exchange[w], needs.id_rank[w])):
        mine = (needs.entry_window == w) & joins
        always |= mine & carried[needs.entry_query]
        least = needs.min_t[w] - Reaches.of(needs, always, quantum_s).farthest_s(w)
        carried[needs.entry_query[mine & (needs.tolerable_s > least)]] = True
    return always
