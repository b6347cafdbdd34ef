"""One plan out of needs and a budget: which level of support can be had, and the widths that give it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from tidegate.operators.window_sizing.a_support import a_support
from tidegate.operators.window_sizing.b_support import b_support
from tidegate.operators.window_sizing.c_support import (
    Method,
    TooManyWindowsError,
    serial_groups,
    swings,
)
from tidegate.operators.window_sizing.joint import Reaches
from tidegate.operators.window_sizing.needs import Floats, Needs
from tidegate.operators.window_sizing.slots import SlotSchedule, joint_schedule, serial_schedule

SupportLevel = Literal["A", "B", "C", "infeasible"]


@dataclass(frozen=True)
class NeededBytes:
    """The least budgets of the three levels; A ≥ B ≥ C."""

    A: float
    B: float
    C: float


@dataclass(frozen=True)
class WindowPlan:
    """The plan of one window.

    ``width_s``: what it holds at all times (at level C it swings from there up to ``min_width_s`` and back).
    ``min_width_s``, ``max_width_s``: Min_T and Max_T. ``group``: index of its group at level C, else None. ``slot_s``,
    ``slot_offset_s``, ``period_s``: when it swings (:class:`SlotSchedule`), else None.
    """

    id: str
    width_s: float
    min_width_s: float
    max_width_s: float
    static_bytes: float
    exchange_bytes: float
    group: int | None
    slot_s: float | None = None
    slot_offset_s: float | None = None
    period_s: float | None = None


@dataclass(frozen=True)
class GroupPlan:
    """Windows that are planned together at level C, in a cycle of ``period_s``.

    ``share_bytes``: the most exchange memory that they hold at one instant. The windows of a serial group take turns,
    so that is its dearest window's; those of method joint overlap.
    """

    id: int
    windows: tuple[str, ...]
    share_bytes: float
    period_s: float


@dataclass(frozen=True)
class Plan:
    """A whole plan.

    ``planned_bytes`` never exceeds the budget. ``unsupported``: queries that lose support (infeasible only);
    ``needed.C`` is then the smallest budget that would do. ``optimal``: no plan of this level is better (level C: needs
    less memory); ``gap``: otherwise by how much of its proved lower bound the memory needed may be too large.
    """

    support_level: SupportLevel
    planned_bytes: float
    accumulated_error_s: float
    windows: tuple[WindowPlan, ...]
    groups: tuple[GroupPlan, ...]
    unsupported: tuple[str, ...]
    optimal: bool
    gap: float
    least: _Least = field(repr=False, compare=False)

    @property
    def needed(self) -> NeededBytes:
        """The least budgets; at levels A and B that of C is worked out when it is first asked for."""
        return self.least.needed


@dataclass(frozen=True, eq=False)
class _Least:
    """Level C's schedule of least memory as the method finds it, worked out when it is first asked for."""

    needs: Needs
    method: Method

    @cached_property
    def schedule(self) -> SlotSchedule:
        swing = swings(self.needs)
        method: Method = self.method
        if method == "joint":
            better = joint_schedule(self.needs, swing, Reaches.of(self.needs, None, None))
            if better is not None:
                return better
            method = "exact"
        return serial_schedule(self.needs, swing, serial_groups(swing, method))

    @cached_property
    def needed(self) -> NeededBytes:
        b = self.needs.bytes_of(self.needs.min_t)
        try:
            c = self.schedule.peak_bytes
        except TooManyWindowsError:
            c = _Least(self.needs, "ap").schedule.peak_bytes
        return NeededBytes(self.needs.bytes_of(self.needs.max_t), b, min(b, c))


def support_level(needs: Needs, budget_bytes: float) -> Literal["A", "B"] | None:
    """The level that the budget gives without taking turns: A, B, or None if it takes level C at best."""
    if budget_bytes >= needs.bytes_of(needs.max_t):
        return "A"
    return "B" if budget_bytes >= needs.bytes_of(needs.min_t) else None


def plan(needs: Needs, budget_bytes: float, method: Method = "joint") -> Plan:
    """Plan all windows within the budget.

    Idea: the level follows from the budget alone; each level has its own algorithm. If even level C does not fit,
    queries are admitted at level B in order of priority (largest first, then smaller id), each if it still fits, and
    what is left is spent as at level B on all queries.

    Arguments: ``method``: how level C is planned: as the paper's serial groups (:func:`serial_groups`: dp, ap, exact),
    or "joint": with free swings and staggered ramps (:func:`joint_ramps`), if that takes less memory than the paper's
    optimum, else that.

    **Cost**: that of the level's algorithm; ``needed.C``, when it is asked for, one grouping. **Guarantee**: planned
    bytes ≤ budget; at levels A and B width ≥ Min_T. Beyond 20 windows ``dp`` raises TooManyWindowsError if level C is
    needed; at levels A and B ``needed.C`` is then the upper bound that ``ap`` gives. Deterministic.

    >>> from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed
    >>> needs = Needs.of([WindowNeed("w", 2.0)], [QueryNeed("q", {"w": 60.0}, 10.0, delay_s=20.0)])
    >>> [plan(needs, budget).support_level for budget in (120.0, 119.0, 99.0)]
    ['A', 'B', 'infeasible']

    **Source**: papers/01, "Levels of support", "Settled here" and "Beyond the paper".
    """
    level: SupportLevel | None = support_level(needs, budget_bytes)
    least = _Least(needs, method)
    refused: tuple[str, ...] = ()
    if level == "A":
        widths = a_support(needs, budget_bytes)
    elif level == "B":
        widths = b_support(needs, budget_bytes, needs.min_t)
    elif budget_bytes >= (peak := least.schedule.peak_bytes):
        level, widths = "C", least.schedule.static_s
    else:
        level = "infeasible"
        floors, refused = admit(needs, budget_bytes)
        widths = b_support(needs, budget_bytes, floors)
    proved, gap = True, 0.0
    if level in ("C", "infeasible"):
        bound = min(least.schedule.bound_bytes, least.schedule.peak_bytes)
        proved = bound >= least.needed.C
        gap = 0.0 if proved or bound <= 0 else (least.needed.C - bound) / bound
    return Plan(
        support_level=level,
        planned_bytes=peak if level == "C" else needs.bytes_of(widths),
        accumulated_error_s=needs.accumulated_error_s(widths),
        windows=_window_plans(needs, widths, least.schedule if level == "C" else None),
        groups=_group_plans(needs, least.schedule) if level == "C" else (),
        unsupported=refused,
        optimal=proved,
        gap=gap,
        least=least,
    )


def admit(needs: Needs, budget_bytes: float) -> tuple[Floats, tuple[str, ...]]:
    """Min_T of the queries that are admitted at level B, and the ids of those that are not.

    By priority, largest first, then smaller id; each if it still fits.
    """
    floors = np.zeros(len(needs.window_ids))
    refused = []
    begins = np.searchsorted(needs.entry_query, np.arange(len(needs.query_ids) + 1))
    for q in sorted(range(len(needs.query_ids)), key=lambda q: (-needs.priority[q], needs.query_ids[q])):
        entries = slice(begins[q], begins[q + 1])
        windows, wanted = needs.entry_window[entries], needs.tolerable_s[entries]
        if not np.any(wanted > floors[windows]):
            continue
        raised = floors.copy()
        raised[windows] = np.maximum(floors[windows], wanted)
        if needs.bytes_of(raised) > budget_bytes:
            refused.append(needs.query_ids[q])
        else:
            floors = raised
    return floors, tuple(sorted(refused))


def _window_plans(needs: Needs, widths: Floats, schedule: SlotSchedule | None) -> tuple[WindowPlan, ...]:
    swing = swings(needs)
    static, exchange = swing.static_bytes.tolist(), swing.exchange_bytes.tolist()
    slots: list[tuple[float, float, float] | tuple[None, None, None]] = [(None, None, None)] * len(static)
    groups: list[int | None] = [None] * len(static)
    if schedule is not None:
        exchange = (schedule.slot_s * needs.byte_rate).tolist()
        static = ((needs.min_t - schedule.slot_s) * needs.byte_rate).tolist()
        groups = [g if g >= 0 else None for g in schedule.group.tolist()]
        for w in schedule.swinging.tolist():
            slot, offset, period = schedule.slot_s[w], schedule.slot_offset_s[w], schedule.period_s[w]
            slots[w] = (float(slot), float(offset), float(period))
    return tuple(
        WindowPlan(*columns, *slot)
        for *columns, slot in zip(
            needs.window_ids,
            widths.tolist(),
            needs.min_t.tolist(),
            needs.max_t.tolist(),
            static,
            exchange,
            groups,
            slots,
            strict=True,
        )
    )


def _group_plans(needs: Needs, schedule: SlotSchedule) -> tuple[GroupPlan, ...]:
    plans = []
    for g in sorted({g for g in schedule.group.tolist() if g >= 0}):
        members = np.flatnonzero(schedule.group == g)
        plans.append(
            GroupPlan(
                id=g,
                windows=tuple(needs.window_ids[w] for w in members.tolist()),
                share_bytes=schedule.exchange_peak_bytes(needs, members),
                period_s=float(schedule.group_period_s[g]),
            )
        )
    return tuple(plans)
