"""Serial groups for many windows: a covering program whose columns, the groups, are made when they are wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csc_array, diags_array, hstack

from tidegate.operators.window_sizing.needs import Floats
from tidegate.operators.window_sizing.pricing import EPSILON, Group, GroupingProblem, Prices, Pricing


@dataclass(frozen=True)
class LeaderLimits:
    """Limits on how many groups the first k windows lead: k → at least, k → at most."""

    at_least: Mapping[int, int] = field(default_factory=dict)
    at_most: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The relaxed program solved: ``bound`` proved, ``value`` of the columns so far, ``led``: leaders per window.

    ``lagrange``: the bound that the last ``prices`` alone prove.
    """

    bound: float
    value: float
    led: Floats
    prices: Prices
    lagrange: float


class Master:
    """Choose groups of least cost so that each window is covered: relaxed (LP) or over the columns so far (MILP).

    Since a part of a serial group is serial, covering is as good as partitioning. The columns are kept from solve to
    solve. ``costs`` float64[n]: of a group by its leader.
    """

    def __init__(self, problem: GroupingProblem, costs: Floats, groups: Iterable[Group]):
        self.problem, self.costs = problem, costs
        self._pricing = Pricing(problem)
        self.columns: dict[Group, None] = {(w,): None for w in range(len(problem))}
        self.columns.update(dict.fromkeys(groups))
        self.solves = 0

    def relax(self, limits: LeaderLimits, enough: Callable[[float, float], bool]) -> Relaxed:
        """Solve the relaxed program, making columns until none is missing or ``enough(bound, value)``.

        **Guarantee**: ``bound`` ≤ the cost of every partition within the limits (inf: there is none).
        """
        bound = -math.inf
        while True:
            prices, value, dual, led = self._solve(limits)
            found, surplus = self._pricing.best_groups(prices, self.costs)
            # Two ways to mend prices that are too high for some group that is not a column yet: a leader leads at most
            # one group, so the surpluses bound what is missing (Lagrange); or all prices are divided (Farley).
            lagrange = dual - float(np.maximum(surplus, 0.0).sum())
            ratio = 1.0 + max(float(np.max(surplus / self.costs)), 0.0)
            bound = max(bound, lagrange, dual / ratio)
            new = [group for group in found if group not in self.columns]
            self.columns.update(dict.fromkeys(new))
            if not new or value - bound <= EPSILON * value or enough(bound, value):
                return Relaxed(bound, value, led, prices, lagrange)

    def _matrix(self, groups: Sequence[Group], limits: LeaderLimits) -> tuple[csc_array, Floats, Floats]:
        n = len(self.problem)
        floors, ceilings = list(limits.at_least.items()), list(limits.at_most.items())
        rows = []
        for group in groups:
            led = [n + i for i, (k, _) in enumerate([*floors, *ceilings]) if group[0] < k]
            rows.append([*group, *led])
        starts = np.cumsum([0, *map(len, rows)])
        indices = np.fromiter((row for column in rows for row in column), dtype=np.int64, count=int(starts[-1]))
        matrix = csc_array(
            (np.ones(len(indices)), indices, starts), shape=(n + len(floors) + len(ceilings), len(groups))
        )
        lower = np.concatenate([np.ones(n), [float(v) for _, v in floors], np.full(len(ceilings), -np.inf)])
        upper = np.concatenate([np.full(n + len(floors), np.inf), [float(v) for _, v in ceilings]])
        return matrix, lower, upper

    def _solve(self, limits: LeaderLimits) -> tuple[Prices, float, float, Floats]:
        self.solves += 1
        n, groups = len(self.problem), list(self.columns)
        matrix, lower, upper = self._matrix(groups, limits)
        at_least = np.isfinite(lower)
        # Exceeding a limit costs more than any partition, so that the program always has a solution.
        penalty = 2.0 * float(self.costs.sum())
        over = len(limits.at_most)
        excess = csc_array(
            (-np.ones(over), (np.flatnonzero(~at_least), np.arange(over))), shape=(matrix.shape[0], over)
        )
        sign = np.where(at_least, -1.0, 1.0)
        rows = diags_array(sign) @ hstack([matrix, excess], format="csc")
        right = np.where(at_least, -lower, upper)
        leaders = np.array([group[0] for group in groups])
        cost = np.concatenate([self.costs[leaders], np.full(over, penalty)])
        solved = linprog(cost, A_ub=rows, b_ub=right, bounds=(0, None), method="highs-ds")
        dual = np.maximum(-solved.ineqlin.marginals, 0.0)
        leading = np.zeros(n)
        for i, (k, _) in enumerate([*limits.at_least.items(), *limits.at_most.items()]):
            leading[:k] += dual[n + i] if i < len(limits.at_least) else -dual[n + i]
        led = np.bincount(leaders, solved.x[: len(groups)], minlength=n).astype(np.float64)
        return Prices(dual[:n], leading), float(solved.fun), float(-dual @ right), led

    def groups_within(self, relaxed: Relaxed, upper: float, most: int) -> list[Group] | None:
        """All groups of which a partition that costs less than ``upper`` may consist; None if more than ``most``."""
        return self._pricing.groups_within(relaxed.prices, self.costs, upper - relaxed.lagrange, most)

    def choose(
        self, limits: LeaderLimits, groups: Sequence[Group], node_limit: int, seconds: float
    ) -> tuple[list[Group] | None, bool]:
        """The cheapest partition out of parts of these groups, None if none was found, and whether that is proved."""
        matrix, lower, upper = self._matrix(groups, limits)
        solved = milp(
            self.costs[[group[0] for group in groups]],
            constraints=LinearConstraint(matrix, lower, upper),
            integrality=np.ones(len(groups)),
            bounds=Bounds(0, 1),
            options={"node_limit": node_limit, "time_limit": seconds, "mip_rel_gap": 1e-9},
        )
        if solved.x is None:
            return None, solved.status == 2
        return _disjoint([groups[i] for i in np.flatnonzero(solved.x > 0.5).tolist()]), solved.status == 0


def _disjoint(cover: Iterable[Group]) -> list[Group]:
    """A partition out of a cover: each window stays in the first group that holds it; no leader is added."""
    taken: set[int] = set()
    groups = []
    for group in sorted(cover):
        rest = tuple(w for w in group if w not in taken)
        taken.update(rest)
        if rest:
            groups.append(rest)
    return groups
