"""One plan out of needs and a budget: which level of support can be had, and the widths that give it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tidegate.operators.window_sizing.a_support import a_support
from tidegate.operators.window_sizing.b_support import b_support
from tidegate.operators.window_sizing.c_support import (
    Method,
    SerialGroups,
    Swings,
    TooManyWindowsError,
    serial_groups,
    swings,
)
from tidegate.operators.window_sizing.needs import Floats, Needs, floor_to

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
    ``min_width_s``, ``max_width_s``: Min_T and Max_T. ``group``: index of its serial group at level C, else None.
    """

    id: str
    width_s: float
    min_width_s: float
    max_width_s: float
    static_bytes: float
    exchange_bytes: float
    group: int | None


@dataclass(frozen=True)
class GroupPlan:
    """One serial group: its windows take turns in a cycle of ``period_s`` at ``share_bytes`` of exchange memory."""

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
    needed: NeededBytes
    planned_bytes: float
    accumulated_error_s: float
    windows: tuple[WindowPlan, ...]
    groups: tuple[GroupPlan, ...]
    unsupported: tuple[str, ...]
    optimal: bool
    gap: float


def support_level(needs: Needs, budget_bytes: float) -> Literal["A", "B"] | None:
    """The level that the budget gives without taking turns: A, B, or None if it takes level C at best."""
    if budget_bytes >= needs.bytes_of(needs.max_t):
        return "A"
    return "B" if budget_bytes >= needs.bytes_of(needs.min_t) else None


def plan(needs: Needs, budget_bytes: float, method: Method = "exact") -> Plan:
    """Plan all windows within the budget.

    Idea: the level follows from the budget alone; each level has its own algorithm. If even level C does not fit,
    queries are admitted at level B in order of priority (largest first, then smaller id), each if it still fits, and
    what is left is spent as at level B on all queries.

    Arguments: ``method``: how level C groups its windows (:func:`serial_groups`).

    **Cost**: that of the level's algorithm; ``needed.C`` always costs one grouping. **Guarantee**: planned bytes ≤
    budget; at levels A and B width ≥ Min_T. Beyond 20 windows ``dp`` raises TooManyWindowsError if level C is needed;
    at levels A and B ``needed.C`` is then the upper bound that ``ap`` gives.

    >>> from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed
    >>> needs = Needs.of([WindowNeed("w", 2.0)], [QueryNeed("q", {"w": 60.0}, 10.0, delay_s=20.0)])
    >>> [plan(needs, budget).support_level for budget in (120.0, 119.0, 99.0)]
    ['A', 'B', 'infeasible']

    **Source**: papers/01, "Levels of support" and "Settled here".
    """
    level: SupportLevel | None = support_level(needs, budget_bytes)
    swing = swings(needs)
    try:
        groups = serial_groups(swing, method)
    except TooManyWindowsError:
        if level is None:
            raise
        groups = serial_groups(swing, "ap")
    needed_b = needs.bytes_of(needs.min_t)
    static_bytes = math.fsum(swing.static_bytes.tolist())
    needed_c = min(static_bytes + groups.share_bytes, needed_b)
    least_c = min(static_bytes + groups.share_bound_bytes, needed_c)
    needed = NeededBytes(needs.bytes_of(needs.max_t), needed_b, needed_c)
    refused: tuple[str, ...] = ()
    if level == "A":
        widths = a_support(needs, budget_bytes)
    elif level == "B":
        widths = b_support(needs, budget_bytes, needs.min_t)
    elif budget_bytes >= needed_c:
        level, widths = "C", needs.min_t - swing.min_d_s
        widths = np.where(needs.byte_rate > 0, widths, needs.max_t)
    else:
        level = "infeasible"
        floors, refused = _admit(needs, budget_bytes)
        widths = b_support(needs, budget_bytes, floors)
    proved = level in ("A", "B") or least_c >= needed_c
    return Plan(
        support_level=level,
        needed=needed,
        planned_bytes=needed_c if level == "C" else needs.bytes_of(widths),
        accumulated_error_s=needs.accumulated_error_s(widths),
        windows=_window_plans(needs, swing, widths, groups if level == "C" else None),
        groups=_group_plans(needs, swing, groups) if level == "C" else (),
        unsupported=refused,
        optimal=proved,
        gap=0.0 if proved else (needed_c - least_c) / least_c if least_c > 0 else 0.0,
    )


def live_widths(needs: Needs, budget_bytes: float, quantum_s: float) -> tuple[SupportLevel, Floats]:
    """Level and widths of a running pipeline, multiples of the quantum.

    Levels A and B as in :func:`plan`, for needs rounded up to the quantum. Where level C would be needed, widths are
    scaled down from Min_T by one factor and rounded down, and the level is "infeasible": the schedule of level C over
    time is not built yet.

    **Guarantee**: Σ width·byte_rate ≤ budget; at A and B width ≥ Min_T.
    """
    rounded = needs.in_quanta(quantum_s)
    level = support_level(rounded, budget_bytes)
    if level == "A":
        return "A", a_support(rounded, budget_bytes, quantum_s)
    if level == "B":
        return "B", b_support(rounded, budget_bytes, rounded.min_t, quantum_s)
    # Zero-rate windows cost nothing, so they need not shrink.
    share = budget_bytes / rounded.bytes_of(rounded.min_t)
    scaled = floor_to(rounded.min_t * share, quantum_s)
    return "infeasible", np.where(rounded.byte_rate > 0, scaled, rounded.max_t)


def _admit(needs: Needs, budget_bytes: float) -> tuple[Floats, tuple[str, ...]]:
    """Min_T of the queries that are admitted, and the ids of those that are not."""
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


def _window_plans(needs: Needs, swing: Swings, widths: Floats, groups: SerialGroups | None) -> tuple[WindowPlan, ...]:
    group_of = {w: g for g, group in enumerate(groups.groups) for w in group} if groups else {}
    return tuple(
        WindowPlan(
            id=window,
            width_s=float(widths[w]),
            min_width_s=float(needs.min_t[w]),
            max_width_s=float(needs.max_t[w]),
            static_bytes=float(swing.static_bytes[w]),
            exchange_bytes=float(swing.exchange_bytes[w]),
            group=group_of.get(w),
        )
        for w, window in enumerate(needs.window_ids)
    )


def _group_plans(needs: Needs, swing: Swings, groups: SerialGroups) -> tuple[GroupPlan, ...]:
    return tuple(
        GroupPlan(
            id=g,
            windows=tuple(needs.window_ids[w] for w in group),
            share_bytes=max(float(swing.exchange_bytes[w]) for w in group),
            period_s=min(float(swing.period_s[w]) for w in group),
        )
        for g, group in enumerate(groups.groups)
    )
