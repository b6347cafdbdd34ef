"""One common period: how far each window swings and when, so that the peak of all ramps together is low."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from tidegate.operators.window_sizing.needs import Floats

ORDERED_BY_PROGRAM = 16
"""So many windows are arranged by the linear program; more of them by the closed form alone."""

WHOLE_BY_PROGRAM = 3
"""So many windows are arranged in whole quanta by the integer program; more of them by rounding and single steps."""

_ORDERS_TRIED = 24


@dataclass(frozen=True, eq=False)
class Ramps:
    """Windows that swing with one period: ``slot_s`` (D ≥ 0) and ``end_s`` of each slot in (0, period], float64[m].

    ``saved_bytes``: by how much the peak is lower than with all windows held whole.
    """

    period_s: float
    slot_s: Floats
    end_s: Floats
    saved_bytes: float


def ramps_peak_bytes(byte_rate: Floats, slot_s: Floats, end_s: Floats, period_s: float) -> float:
    """The most bytes that the swinging parts hold together, at the end of some slot.

    In between all grow, so there is no need to look at other instants. O(m²).

    >>> ramps_peak_bytes(np.array([1.0, 1.0]), np.array([5.0, 5.0]), np.array([5.0, 10.0]), 10.0)
    5.0
    """
    swings = slot_s > 0
    if not swings.any():
        return 0.0
    rate, slot, end = byte_rate[swings], slot_s[swings], end_s[swings]
    to_end = np.mod(end[None, :] - end[:, None], period_s)
    return max(math.fsum(row) for row in (np.maximum(slot - to_end, 0.0) * rate).tolist())


def saving_estimate(byte_rate: Floats, reach_s: Floats, period_s: float) -> float:
    """About how many bytes a class of windows saves: the mean saved, less half a mean drop for the unevenness.

    Exact for full ramps (D = period) and for equal windows that fill the period one after the other.
    """
    exchange = byte_rate * reach_s
    total = float(exchange.sum())
    if total <= 0:
        return 0.0
    mean = total - float((exchange * reach_s).sum()) / (2 * period_s)
    uneven = float((exchange**2).sum()) / (2 * total)
    return min(mean - uneven, total - float(exchange.max()))


def best_ramps(byte_rate: Floats, reach_s: Floats, period_s: float, quantum_s: float | None = None) -> Ramps:
    """Slots and their phases with a low peak.

    Idea: the peak is reached at the end of some slot. With the cyclic order of the ends given, the gaps between them
    are linear in the ends, so slots and ends together are a linear program (in whole quanta: an integer one). Orders
    are searched: all of them up to five windows, else by swapping neighbours. Where there is no program, the ends are
    spaced in proportion to the drop c·D before, which is the optimum for full ramps.

    Arguments: ``byte_rate`` float64[m]; ``reach_s`` float64[m] ≤ ``period_s``: the farthest that each may swing.

    **Cost**: at most 24 programs of m² rows; beyond 16 windows O(m²), the closed form alone. **Guarantee**:
    0 ≤ D ≤ reach, multiples of the quantum; ``saved_bytes`` ≥ 0 is the exact one of these slots and ends.

    **Source**: papers/01, "C, a better problem".
    """
    m = len(byte_rate)
    start = sorted(range(m), key=lambda w: (-byte_rate[w] * reach_s[w], w))
    best = _evenly(byte_rate, reach_s, period_s, start, quantum_s)
    if m < 2 or m > ORDERED_BY_PROGRAM:
        return best
    if quantum_s is not None and m > WHOLE_BY_PROGRAM:
        smooth = best_ramps(byte_rate, reach_s, period_s)
        return _by_steps(byte_rate, reach_s, quantum_s, max(best, _rounded(byte_rate, smooth, quantum_s), key=_saved))
    least_gain = 1e-9 * period_s * float(byte_rate.min())
    tried = 0

    def better(order: Sequence[int]) -> bool:
        nonlocal best, tried
        tried += 1
        found = _program(byte_rate, reach_s, period_s, order, quantum_s)
        if found.saved_bytes > best.saved_bytes * (1 + 1e-9) + least_gain:
            best = found
            return True
        return False

    better(start)
    if m <= 5:
        for others in permutations(start[1:]):
            if tried < _ORDERS_TRIED and [start[0], *others] != start:
                better([start[0], *others])
        return best
    improved = True
    while improved and tried < _ORDERS_TRIED:
        improved = False
        for i in range(m - 1):
            swapped = [*start[:i], start[i + 1], start[i], *start[i + 2 :]]
            if tried < _ORDERS_TRIED and better(swapped):
                start, improved = swapped, True
    return best


def _measured(byte_rate: Floats, slot_s: Floats, end_s: Floats, period_s: float) -> Ramps:
    whole = math.fsum((byte_rate * slot_s).tolist())
    saved = whole - ramps_peak_bytes(byte_rate, slot_s, end_s, period_s)
    if saved <= 0:
        return Ramps(period_s, np.zeros(len(slot_s)), np.full(len(slot_s), period_s), 0.0)
    return Ramps(period_s, slot_s, end_s, saved)


def _evenly(
    byte_rate: Floats, reach_s: Floats, period_s: float, order: Sequence[int], quantum_s: float | None
) -> Ramps:
    """All swing as far as they may; after each end a gap in proportion to what drops there."""
    drop = byte_rate[list(order)] * reach_s[list(order)]
    end = np.empty(len(order))
    end[list(order)] = period_s * (1.0 - (drop.sum() - np.cumsum(drop) + drop) / max(float(drop.sum()), 1e-300))
    if quantum_s is not None:
        end = np.round(end / quantum_s) * quantum_s
    return _measured(byte_rate, reach_s, np.where(end <= 0, period_s, end), period_s)


def _saved(ramps: Ramps) -> float:
    return ramps.saved_bytes


def _rounded(byte_rate: Floats, smooth: Ramps, quantum_s: float) -> Ramps:
    end = np.maximum(np.round(smooth.end_s / quantum_s), 1.0) * quantum_s
    slot = np.floor(smooth.slot_s / quantum_s + 1e-9) * quantum_s
    return _measured(byte_rate, slot, end, smooth.period_s)


def _by_steps(byte_rate: Floats, reach_s: Floats, quantum_s: float, ramps: Ramps) -> Ramps:
    """Move one window's end and slot at a time to their best multiples of the quantum, while that helps."""
    quanta = round(ramps.period_s / quantum_s)
    ends = np.unique(np.linspace(1, quanta, min(quanta, 12)).round()) * quantum_s
    for _ in range(4):
        before = ramps
        for w in range(len(byte_rate)):
            near = ramps.end_s[w] + quantum_s * np.array([-1.0, 0.0, 1.0])
            reach = reach_s[w]
            slots = {0.0, reach, max(reach - quantum_s, 0.0), max(ramps.slot_s[w] - quantum_s, 0.0)}
            slots |= {min(ramps.slot_s[w] + quantum_s, reach), ramps.slot_s[w]}
            for end in np.unique([*ends, *near[(near > 0) & (near <= ramps.period_s)]]).tolist():
                for slot in sorted(slots):
                    moved_slot, moved_end = ramps.slot_s.copy(), ramps.end_s.copy()
                    moved_slot[w], moved_end[w] = slot, end
                    moved = _measured(byte_rate, moved_slot, moved_end, ramps.period_s)
                    if moved.saved_bytes > ramps.saved_bytes * (1 + 1e-9):
                        ramps = moved
        if ramps is before:
            break
    return ramps


def _program(
    byte_rate: Floats, reach_s: Floats, period_s: float, order: Sequence[int], quantum_s: float | None
) -> Ramps:
    """The best slots and ends whose ends follow one another in this order, the first at the period's end.

    Variables: D_w, e_w, r[w, v] (how much of w's ramp is held when v's slot ends), z (the peak less all static), in
    units of the quantum, or the period.
    """
    m = len(order)
    unit = period_s if quantum_s is None else quantum_s
    period = period_s / unit
    rate = byte_rate[list(order)] / byte_rate.max()
    reach = reach_s[list(order)] / unit
    pairs = [(w, v) for v in range(m) for w in range(m) if w != v]
    d, e, r, z = 0, m, 2 * m, 2 * m + len(pairs)
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    lower: list[float] = []

    def at_least(bound: float, terms: list[tuple[int, float]]) -> None:
        for column, value in terms:
            rows.append(len(lower))
            columns.append(column)
            values.append(value)
        lower.append(bound)

    for i, (w, v) in enumerate(pairs):
        # r ≥ D_w − gap, where the gap from v's end to w's is e_w − e_v, or a period more if w comes before v.
        at_least(-(period if w < v else 0.0), [(r + i, 1.0), (d + w, -1.0), (e + w, 1.0), (e + v, -1.0)])
    for v in range(m):
        held = [(r + i, -float(rate[w])) for i, (w, u) in enumerate(pairs) if u == v]
        at_least(0.0, [(z, 1.0), *((d + w, float(rate[w])) for w in range(m) if w != v), *held])
        if v:
            at_least(0.0, [(e + v, 1.0), (e + v - 1, -1.0)])
    size = z + 1
    matrix = coo_array((values, (rows, columns)), shape=(len(lower), size)).tocsc()
    upper = np.full(size, np.inf)
    upper[:m], upper[e] = reach, 0.0
    upper[e + 1 : e + m] = period
    least = np.zeros(size)
    least[z] = -np.inf
    goal = np.zeros(size)
    goal[z] = 1.0
    whole = np.zeros(size)
    whole[: 2 * m] = quantum_s is not None
    solved = milp(
        goal,
        constraints=LinearConstraint(matrix, lower, np.inf),
        bounds=Bounds(least, upper),
        integrality=whole,
        options={"node_limit": 200, "mip_rel_gap": 0.0},
    )
    if solved.x is None:
        return Ramps(period_s, np.zeros(m), np.full(m, period_s), 0.0)
    slot, end = np.empty(m), np.empty(m)
    slot[list(order)] = solved.x[:m]
    end[list(order)] = solved.x[m : 2 * m]
    if quantum_s is not None:
        slot, end = np.round(slot), np.round(end)
    slot = np.clip(slot * unit, 0.0, reach_s)
    slot[slot < 1e-9 * period_s] = 0.0
    end = end * unit
    return _measured(byte_rate, slot, np.where(end <= 0, period_s, end), period_s)
