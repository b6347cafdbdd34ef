"""The least share of serial groups for many windows, with a proof: branch and price over who leads a group."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tidegate.operators.window_sizing.column_generation import LeaderLimits, Master, Relaxed
from tidegate.operators.window_sizing.needs import Floats
from tidegate.operators.window_sizing.pricing import EPSILON, Group, GroupingProblem

WORK = 400_000_000
"""Relaxed programs times windows^3.5 after which the search ends: 988 programs of 40 windows, 40 of 100."""

_FEW, _MANY = 600, 6000
_NODES = 300
_SECONDS = 5.0


def least_share(problem: GroupingProblem, start: Sequence[Group], work: int = WORK) -> tuple[list[Group], float]:
    """Serial groups of least total share, and a proved lower bound on it.

    Idea: the cost of a partition depends only on who leads. The relaxed covering program (:class:`Master`) is tightened
    by counting: if the dearest k windows need more than v groups even when relaxed, v + 1 of them lead. Where the
    number of leaders among the dearest k is still a fraction, one branch rounds it up, one down; the branch of the
    least bound goes first. Once few groups could be part of a better partition, an integer program over all of
    them settles the branch.

    Arguments: ``start``: any partition. ``work``: see ``WORK``.

    **Cost**: as much as ``work`` allows; NP-hard. **Guarantee**: every group is serial; bound ≤ least share ≤ share of
    the groups; equal bound and share are a proof. Deterministic, unless an integer program runs into its limit of 5 s,
    which a smaller bound or a dearer partition may follow from, never a wrong one.

    >>> problem = GroupingProblem(np.array([9.0, 8.0, 7.0, 7.0]), np.array([4, 3, 6, 7]), np.full(4, 10))
    >>> least_share(problem, [(0, 1), (2,), (3,)])
    ([(0, 2), (1, 3)], 17.0)

    **Source**: papers/01, "C, exact"; Gilmore & Gomory 1961 (columns), Farley 1990 (bounds).
    """
    search = _Search(problem, list(start), work)
    search.run()
    return sorted(search.best), search.bound


class _Search:
    """The best partition so far (``best``, ``share``), and the least that any may cost (``bound``)."""

    def __init__(self, problem: GroupingProblem, start: list[Group], work: int):
        self.problem = problem
        self.best, self.share, self.bound = start, problem.share(start), 0.0
        self.master = Master(problem, problem.exchange_bytes, start)
        self._most_solves = max(int(work / max(len(problem), 1) ** 3.5), 1)
        self._counted: dict[int, int] = {}

    def run(self) -> None:
        floors: dict[int, int] = {}
        root = self._relax(LeaderLimits(floors))
        while not self._hopeless(root.bound) and self._count_leaders(root.led, floors):
            root = self._relax(LeaderLimits(floors))
        self.bound = min(root.bound, self.share)
        unsettled = math.inf
        queue = [(self.bound, 0, LeaderLimits(floors))]
        for number in range(1, 10**9, 2):
            self.bound = min([self.share, unsettled, *(bound for bound, _, _ in queue[:1])])
            if not queue or self._hopeless(self.bound) or self.master.solves >= self._most_solves:
                break
            bound, depth, limits = heapq.heappop(queue)
            node = self._relax(limits)
            bound = max(bound, node.bound)
            self._offer(packed(self.problem, node.led))
            if self._hopeless(bound):
                continue
            at = self._fraction(node.led)
            if self._settled(node, limits, _FEW if depth and at else _MANY):
                continue
            if at is None or depth == 0:
                self._offer(self.master.choose(limits, list(self.master.columns), _NODES, _SECONDS)[0])
            if at is None:
                unsettled = min(unsettled, bound)
                continue
            count = float(node.led[:at].sum())
            up = LeaderLimits({**limits.at_least, at: math.ceil(count)}, limits.at_most)
            down = LeaderLimits(limits.at_least, {**limits.at_most, at: math.floor(count)})
            heapq.heappush(queue, (bound, number, up))
            heapq.heappush(queue, (bound, number + 1, down))

    def _hopeless(self, bound: float) -> bool:
        return bound >= self.share * (1 - EPSILON)

    def _relax(self, limits: LeaderLimits) -> Relaxed:
        return self.master.relax(limits, lambda bound, _: self._hopeless(bound))

    def _offer(self, groups: list[Group] | None) -> None:
        if groups is not None and self.problem.share(groups) < self.share * (1 - EPSILON):
            self.best, self.share = groups, self.problem.share(groups)

    def _settled(self, node: Relaxed, limits: LeaderLimits, most: int) -> bool:
        """Whether the branch is done with, since all groups of a better partition could be looked at."""
        groups = self.master.groups_within(node, self.share, most)
        if groups is None:
            return False
        found, sure = self.master.choose(limits, groups, _NODES, _SECONDS) if groups else (None, True)
        self._offer(found)
        return sure

    def _fraction(self, led: Floats) -> int | None:
        """The k whose number of leaders is a fraction that weighs most in the cost; None if all are whole."""
        counts = np.cumsum(led)
        fraction = np.abs(counts - np.round(counts))
        if float(fraction.max()) < 1e-6:
            return None
        exchange = self.problem.exchange_bytes
        step = np.maximum(exchange - np.append(exchange[1:], 0.0), 1e-6 * exchange[0])
        return int(np.argmax(np.where(fraction >= 1e-6, fraction * step, -1.0))) + 1

    def _count_leaders(self, led: Floats, floors: dict[int, int]) -> bool:
        """Raise ``floors`` where the dearest k windows alone need more groups than they lead; whether any rose."""
        counts, rose = np.cumsum(led), False
        for k in range(1, len(self.problem) + 1):
            below = math.floor(counts[k - 1] + 1e-6)
            if counts[k - 1] - below < 1e-6 or self._counted.get(k, -1) >= below:
                continue
            self._counted[k] = below
            known = {tuple(w for w in group if w < k) for group in self.master.columns if group[0] < k}
            alone = Master(self.problem.first(k), np.ones(k), sorted(known))
            limit = below + 1e-6
            if alone.relax(LeaderLimits(), partial(_decided, limit)).bound > limit:
                floors[k], rose = below + 1, True
        return rose


def _decided(limit: float, bound: float, value: float) -> bool:
    return bound > limit or value <= limit


def packed(problem: GroupingProblem, led: Floats) -> list[Group]:
    """A partition led by about the windows that lead in the relaxed program: best fit, longest share of period first.

    Of three roundings of the leaders the cheapest partition.
    """
    return min((_packed_by(problem, led, rounding) for rounding in (0.5, 0.1, 0.9)), key=problem.share)


def _packed_by(problem: GroupingProblem, led: Floats, rounding: float) -> list[Group]:
    slots, periods = problem.slot_ns.tolist(), problem.period_ns.tolist()
    leads = np.diff(np.floor(np.cumsum(led) + rounding), prepend=0.0) > 0
    groups = {leader: [leader] for leader in np.flatnonzero(leads).tolist()}
    filled = {leader: slots[leader] for leader in groups}
    shortest = {leader: periods[leader] for leader in groups}
    others = [w for w in range(len(problem)) if not leads[w]]
    left = []
    for w in sorted(others, key=lambda w: -slots[w] / periods[w]):
        fits = [
            # Least room left, and least of the period lost.
            ((tighter - filled[leader] - slots[w]) / tighter + (shortest[leader] - tighter) / shortest[leader], leader)
            for leader in groups
            if leader < w and filled[leader] + slots[w] <= (tighter := min(shortest[leader], periods[w]))
        ]
        if fits:
            leader = min(fits)[1]
            groups[leader].append(w)
            filled[leader] += slots[w]
            shortest[leader] = min(shortest[leader], periods[w])
        else:
            left.append(w)
    whole = [tuple(sorted(group)) for group in groups.values()]
    for w in sorted(left):
        for i, group in enumerate(whole):
            if problem.serial((*group, w)):
                whole[i] = tuple(sorted((*group, w)))
                break
        else:
            whole.append((w,))
    return whole
