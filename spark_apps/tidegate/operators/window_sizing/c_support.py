"""C-Support: windows take turns at the memory that their widest query needs only once every delay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidegate.operators.window_sizing.branch_and_price import least_share
from tidegate.operators.window_sizing.needs import Floats, Needs, floor_to
from tidegate.operators.window_sizing.pricing import EPSILON, GroupingProblem

Method = Literal["dp", "ap", "exact", "joint"]
Grouping = tuple[tuple[int, ...], ...]

MOST_WINDOWS = 20
"""The dynamic program takes so many windows that exchange memory, and refuses more."""


class TooManyWindowsError(ValueError):
    """More windows than the chosen way of grouping can take."""


@dataclass(frozen=True, eq=False)
class Swings:
    """How each window can swing: ``min_d_s`` (Min_D), ``period_s`` (T_P), ``static_bytes``, ``exchange_bytes``.

    ``period_s`` is inf where no query reads the window. All float64[d].
    """

    min_d_s: Floats
    period_s: Floats
    static_bytes: Floats
    exchange_bytes: Floats

    def slot_ns(self, window: int) -> int:
        """Min_D in whole nanoseconds: sums of integers do not depend on their order."""
        return round(float(self.min_d_s[window]) * 1e9)

    def period_ns(self, window: int) -> int:
        """T_P in whole nanoseconds."""
        return round(float(self.period_s[window]) * 1e9)

    def load(self, window: int) -> float:
        """The share of its period that the window's slot takes."""
        return self.slot_ns(window) / self.period_ns(window) if self.period_ns(window) else 1.0

    def serial(self, group: Sequence[int]) -> bool:
        """Whether the windows can take turns: their slots fit into the shortest of their periods."""
        return sum(self.slot_ns(w) for w in group) <= min(self.period_ns(w) for w in group)


@dataclass(frozen=True)
class SerialGroups:
    """A partition into serial groups; ``share_bound_bytes`` is a proved lower bound on every partition's share."""

    groups: Grouping
    share_bytes: float
    share_bound_bytes: float


def swings(needs: Needs, always: NDArray[np.bool_] | None = None, quantum_s: float | None = None) -> Swings:
    """The swing of every window.

    Arguments: ``always`` bool[e]: the pairs of query and window whose tolerable width must be held at all times;
    ``quantum_s``: swings and periods are rounded down to multiples of it (the needs are multiples already).

    **Cost**: O(e). **Guarantee**: 0 ≤ Min_D ≤ min(Min_T, T_P), static + exchange bytes = Min_T·byte_rate.
    Queries tied at Min_T are one base query with the smallest delay.
    """
    min_t = needs.min_t
    at_top = needs.tolerable_s == min_t[needs.entry_window]
    period = np.full(len(min_t), np.inf)
    np.minimum.at(period, needs.entry_window[at_top], needs.delay_s[needs.entry_query[at_top]])
    second = np.zeros(len(min_t))
    below = ~at_top if always is None else ~at_top | always
    np.maximum.at(second, needs.entry_window[below], needs.tolerable_s[below])
    min_d = np.minimum(min_t - second, np.minimum(period, min_t))
    if quantum_s is not None:
        min_d, period = floor_to(min_d, quantum_s), floor_to(period, quantum_s)
    return Swings(min_d, period, (min_t - min_d) * needs.byte_rate, min_d * needs.byte_rate)


def serial_groups(swing: Swings, method: Method) -> SerialGroups:
    """Partition the windows that exchange memory into serial groups of little total share.

    Arguments: ``method`` "ap": sort by exchange memory, first fit; "dp": the optimum by dynamic programming over
    subsets, up to 20 windows; "exact": dp up to 20 windows, beyond them branch and price (:func:`least_share`).

    **Cost**: ap O(d²); dp at worst O(3^d), in practice far less: see :func:`_optimal_groups`; exact: seconds.
    **Guarantee**: every group is serial; dp: no partition has less share (TooManyWindowsError beyond 20); exact: none
    has less than ``share_bound_bytes``, which mostly is the share itself; ap: no ratio, but the gap to a proved bound
    is known. Windows that are read but exchange nothing come out as groups of their own with share 0.

    >>> swing = Swings(*map(np.array, ([2.0, 2.0], [5.0, 4.0], [1.0, 1.0], [6.0, 4.0])))
    >>> serial_groups(swing, "dp")
    SerialGroups(groups=((0, 1),), share_bytes=6.0, share_bound_bytes=6.0)

    **Source**: papers/01, "C-Support" (Li & Zhang 2004, 4.3) and "Beyond the paper" (leader form).
    """
    exchange = swing.exchange_bytes
    movers = sorted(np.flatnonzero(exchange > 0).tolist(), key=lambda w: (-exchange[w], w))
    still = np.flatnonzero((exchange <= 0) & np.isfinite(swing.period_s)).tolist()
    bound = _share_bound((float(exchange[w]), swing.load(w)) for w in movers)
    if method == "ap":
        groups = _first_fit(swing, movers)
    elif len(movers) <= MOST_WINDOWS:
        groups = _optimal_groups(swing, movers)
        bound = math.inf
    elif method == "exact":
        groups, proved = _proved_groups(swing, movers)
        bound = max(bound, proved)
    else:
        raise TooManyWindowsError(
            f"level C with method {method} takes at most {MOST_WINDOWS} windows that exchange memory,"
            f" here are {len(movers)}; method ap, exact or joint takes any number"
        )
    share = math.fsum(max(exchange[w] for w in group) for group in groups)
    whole = tuple(sorted((*(tuple(sorted(group)) for group in groups), *((w,) for w in still))))
    return SerialGroups(whole, share, min(bound, share))


def _proved_groups(swing: Swings, movers: Sequence[int]) -> tuple[list[list[int]], float]:
    """Branch and price from first fit on; a bound within rounding of the share is the share."""
    position = {w: i for i, w in enumerate(movers)}
    problem = GroupingProblem(
        swing.exchange_bytes[list(movers)],
        np.array([swing.slot_ns(w) for w in movers], dtype=np.int64),
        np.array([swing.period_ns(w) for w in movers], dtype=np.int64),
    )
    start = [tuple(sorted(position[w] for w in group)) for group in _first_fit(swing, movers)]
    groups, bound = least_share(problem, start)
    if bound >= problem.share(groups) * (1 - EPSILON):
        bound = math.inf
    return [[movers[i] for i in group] for group in groups], bound


def _first_fit(swing: Swings, movers: Sequence[int]) -> list[list[int]]:
    """C-Support-AP: each window, dearest exchange first, joins the first group that stays serial."""
    groups: list[list[int]] = []
    for window in movers:
        for group in groups:
            if swing.serial([*group, window]):
                group.append(window)
                break
        else:
            groups.append([window])
    return groups


def _share_bound(movers: Iterable[tuple[float, float]]) -> float:
    """A lower bound on the total share of any partition of (exchange bytes, load), dearest exchange first.

    A window's load is slot / period. In a serial group Σ slots ≤ least period, so its loads sum to at most 1, two loads
    above 1/2 never meet, nor do three above 1/3. So many groups at least have their leader among the k dearest windows;
    each step down in exchange counts that often.
    """
    bound = total = previous = 0.0
    halves = thirds = 0
    groups = 0
    for exchange, load in movers:
        bound += (previous - exchange) * groups
        previous = exchange
        total += load
        halves += load > 0.5 + 1e-9
        thirds += load > 1 / 3 + 1e-9
        groups = max(math.ceil(total - 1e-9), halves, (thirds + 1) // 2, 1)
    return bound + previous * groups


def _optimal_groups(swing: Swings, movers: Sequence[int]) -> list[list[int]]:
    """C-Support-DP in leader form: cost[S] = exchange of S's leader + least cost[S − G] over G that hold the leader.

    The leader is the window of S with the dearest exchange, whose group costs just that, so only maximal groups
    matter; of two windows the one that is harder in every way goes first (see :func:`_candidate_groups`); subsets whose
    bound cannot beat what is known are not opened. Masks number the windows from 0, dearest exchange first.
    """
    exchange = [float(swing.exchange_bytes[w]) for w in movers]
    costs = [(float(swing.exchange_bytes[w]), swing.load(w)) for w in movers]
    slot = [swing.slot_ns(w) for w in movers]
    period = [swing.period_ns(w) for w in movers]
    cost: dict[int, tuple[float, int]] = {0: (0.0, 0)}
    bounds: dict[int, float] = {0: 0.0}

    def bound_of(mask: int) -> float:
        if mask not in bounds:
            bounds[mask] = _share_bound([costs[i] for i in _bits(mask)])
        return bounds[mask]

    def solve(mask: int) -> float:
        if mask in cost:
            return cost[mask][0]
        least, chosen = math.inf, 0
        leader = (mask & -mask).bit_length() - 1
        target = bound_of(mask)
        for group in _candidate_groups(mask, slot, period, exchange):
            rest = mask & ~group
            if exchange[leader] + bound_of(rest) >= least:
                continue
            total = exchange[leader] + solve(rest)
            if total < least:
                least, chosen = total, group
                if least <= target:
                    break
        cost[mask] = (least, chosen)
        return least

    everything = (1 << len(movers)) - 1
    solve(everything)
    groups = []
    while everything:
        group = cost[everything][1]
        groups.append([movers[i] for i in _bits(group)])
        everything &= ~group
    return groups


def _candidate_groups(
    mask: int, slot: Sequence[int], period: Sequence[int], exchange: Sequence[float]
) -> Iterator[int]:
    """Serial groups within ``mask`` that hold its leader, maximal and undominated, dearest members first.

    A group is dominated if it holds j, leaves out k, k needs at least as much exchange, slot and haste as j, and k
    could take j's place: swapping them leaves an easier rest, so the group with k does at least as well.
    """
    leader, *others = _bits(mask)
    harder = _harder_than(others, slot, period, exchange)

    def undominated(group: int, filled: int, shortest: int) -> bool:
        for k in others:
            if group >> k & 1:
                continue
            if filled + slot[k] <= min(shortest, period[k]):
                return False  # not maximal
            for j in harder[k]:
                if group >> j & 1:
                    rest = group & ~(1 << j) | 1 << k
                    if filled - slot[j] + slot[k] <= min(period[i] for i in _bits(rest)):
                        return False
        return True

    def extend(position: int, group: int, filled: int, shortest: int) -> Iterator[int]:
        if position == len(others):
            if undominated(group, filled, shortest):
                yield group
            return
        window = others[position]
        tighter = min(shortest, period[window])
        if filled + slot[window] <= tighter:
            yield from extend(position + 1, group | 1 << window, filled + slot[window], tighter)
        yield from extend(position + 1, group, filled, shortest)

    yield from extend(0, 1 << leader, slot[leader], period[leader])


def _harder_than(
    windows: Sequence[int], slot: Sequence[int], period: Sequence[int], exchange: Sequence[float]
) -> dict[int, list[int]]:
    """Maps k to the windows j that are easier than k in every way; of equals the later one is the easier."""

    def harder(k: int, j: int) -> bool:
        weakly = exchange[k] >= exchange[j] and slot[k] >= slot[j] and period[k] <= period[j]
        equal = exchange[k] == exchange[j] and slot[k] == slot[j] and period[k] == period[j]
        return weakly and (k < j or not equal)

    return {k: [j for j in windows if j != k and harder(k, j)] for k in windows}


def _bits(mask: int) -> list[int]:
    """Positions of the set bits, ascending."""
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return positions
