"""The grouping problem of level C, and the groups that prices make worth having."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.operators.window_sizing.needs import Floats, Integers

Group = tuple[int, ...]

CELLS = 5040
"""Pricing cuts every period into so many cells; divisible by 2 to 10, so that usual shares of a period are exact."""

EPSILON = 1e-9


@dataclass(frozen=True, eq=False)
class GroupingProblem:
    """The windows in the order in which they lead groups: dearest first.

    Arguments: ``exchange_bytes`` float64[n], falling; ``slot_ns``, ``period_ns`` int64[n], whole nanoseconds, so that
    sums of slots do not depend on their order. A group is a rising tuple of positions, each slot at most its period;
    its first member leads it, and the leader's exchange memory is what the group costs.
    """

    exchange_bytes: Floats
    slot_ns: Integers
    period_ns: Integers

    def __len__(self) -> int:
        return len(self.exchange_bytes)

    def serial(self, group: Sequence[int]) -> bool:
        """Whether the windows can take turns: their slots fit into the shortest of their periods."""
        members = list(group)
        return bool(self.slot_ns[members].sum() <= self.period_ns[members].min())

    def share(self, groups: Iterable[Group]) -> float:
        """What the groups cost, bytes."""
        return math.fsum(float(self.exchange_bytes[group[0]]) for group in groups)

    def first(self, count: int) -> GroupingProblem:
        """The problem of the dearest ``count`` windows alone."""
        return GroupingProblem(self.exchange_bytes[:count], self.slot_ns[:count], self.period_ns[:count])


@dataclass(frozen=True, eq=False)
class Prices:
    """The master's duals: what covering a window is worth, float64[n], and what leading a group is, float64[n]."""

    window: Floats
    leading: Floats


class Pricing:
    """The groups that the prices make worth having: one knapsack per period, all its leaders at once.

    Idea: with the period fixed, the windows whose period is no shorter are the items, their slots the sizes. Filling
    the table from the last window to the first, the best companions of *every* leader come out of one pass. Sizes are
    rounded down to cells, so the table is never too low: bounds derived from it are proved. The groups read off it
    are checked in nanoseconds.

    **Cost**: O(n) vector steps of ``CELLS`` per distinct period.
    """

    def __init__(self, problem: GroupingProblem):
        self._problem = problem
        self._items: list[tuple[int, Integers, list[int]]] = []
        for period in np.unique(problem.period_ns)[::-1].tolist():
            items: Integers = np.flatnonzero(problem.period_ns >= period)
            self._items.append((period, items, (problem.slot_ns[items] * CELLS // max(period, 1)).tolist()))

    def _tables(self, price: Floats) -> Iterator[tuple[int, Integers, list[int], Floats]]:
        """Per period: items, their cells, and table[i, c]: the best price of items from i on within c cells."""
        for period, items, cells in self._items:
            table = np.zeros((len(items) + 1, CELLS + 1))
            for i in range(len(items) - 1, -1, -1):
                later, size, worth = table[i + 1], cells[i], price[items[i]]
                table[i] = later
                if worth > 0 and size <= CELLS:
                    np.maximum(later[size:], later[: CELLS + 1 - size] + worth, out=table[i, size:])
            yield period, items, cells, table

    def best_groups(self, prices: Prices, costs: Floats) -> tuple[list[Group], Floats]:
        """Per leader the serial group found worth most beyond its cost, if any, and a bound on each leader's surplus.

        The bound, float64[n], is at least the worth of any serial group with that leader less its cost.
        """
        bound = np.full(len(costs), -np.inf)
        best: dict[int, tuple[float, Group]] = {}
        for period, items, cells, table in self._tables(prices.window):
            for i, leader in enumerate(items.tolist()):
                if cells[i] > CELLS:
                    continue
                most = prices.window[leader] + prices.leading[leader] + table[i + 1, CELLS - cells[i]] - costs[leader]
                bound[leader] = max(bound[leader], most)
                if most <= EPSILON * costs[leader] or most <= best.get(leader, (0.0, ()))[0]:
                    continue
                group = self._read_off(i, period, items, cells, table)
                worth = float(prices.window[list(group)].sum() + prices.leading[leader] - costs[leader])
                if worth > max(EPSILON * costs[leader], best.get(leader, (0.0, ()))[0]):
                    best[leader] = (worth, group)
        return [group for _, group in best.values()], bound

    def groups_within(self, prices: Prices, costs: Floats, reduced_cost: float, most: int) -> list[Group] | None:
        """All maximal serial groups whose cost less worth is at most ``reduced_cost``; None if more than ``most``."""
        slots, periods = self._problem.slot_ns.tolist(), self._problem.period_ns.tolist()
        worth = prices.window.tolist()
        found: set[Group] = set()
        for period, items, cells, table in self._tables(prices.window):
            windows = items.tolist()
            # The room that each window would need in a group of this period, least first.
            wanted = sorted((slots[w] + max(period - periods[w], 0), w) for w in range(len(slots)))
            for i, leader in enumerate(windows):
                least = costs[leader] - prices.leading[leader] - reduced_cost
                open_groups: list[tuple[int, Group, float, int, int]] = []
                open_groups.append((i + 1, (leader,), worth[leader], CELLS - cells[i], period - slots[leader]))
                while open_groups:
                    j, group, value, room, left = open_groups.pop()
                    if left < 0 or value + table[j, room] < least:
                        continue
                    if j == len(windows):
                        # A group of a shorter period is found with that; one that has room for more is not maximal.
                        if not _fits(wanted, left, leader, group) and period == min(periods[w] for w in group):
                            found.add(group)
                            if len(found) > most:
                                return None
                        continue
                    w = windows[j]
                    open_groups.append((j + 1, group, value, room, left))
                    if cells[j] <= room:
                        open_groups.append((j + 1, (*group, w), value + worth[w], room - cells[j], left - slots[w]))
        return sorted(found)

    def _read_off(self, i: int, period: int, items: Integers, cells: list[int], table: Floats) -> Group:
        """The group behind table[i + 1] with leader i, made serial and maximal."""
        slots = self._problem.slot_ns[items].tolist()
        room, left = CELLS - cells[i], period - slots[i]
        chosen, others = [i], []
        for j in range(i + 1, len(items)):
            if cells[j] <= room and table[j, room] > table[j + 1, room]:
                room -= cells[j]
                if slots[j] <= left:
                    left -= slots[j]
                    chosen.append(j)
                    continue
            others.append(j)
        for j in others:
            if slots[j] <= left:
                left -= slots[j]
                chosen.append(j)
        return tuple(items[sorted(chosen)].tolist())


def _fits(wanted: Sequence[tuple[int, int]], left: int, leader: int, group: Group) -> bool:
    """Whether some window after the leader that is not in the group wants no more room than is left."""
    for room, w in wanted:
        if room > left:
            return False
        if w > leader and w not in group:
            return True
    return False
