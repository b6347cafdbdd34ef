"""PC, GPC and MPC: a tree of joins under an aggregate, every join result kept until it expires."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from infra.research.published.join_aggregate.method import ADDITIVE, EXTREME, Method
from infra.research.published.join_aggregate.query import Answer, Arrival, Group, Query
from infra.research.published.join_aggregate.windows import RESULT_BYTES, GroupList, group_of

Result = tuple[int, Any, Group]
Partial = tuple[Hashable, int]


class Pc(Method):
    """PC, "pipelined": any aggregate of two windows, the paper's baseline.

    **Idea.** f joins the other window; the results are queued until their first tuple expires. The queue is scanned for
    expired results, and again to aggregate.
    **Needs.** Tuples in order of time. Widths may differ, but not change: a result is queued with the instant at which
    it expires. SUM and AVG of integers, as with IC.
    **Time.** α + β + β/M + 2·results accesses a tuple (the paper gives no formula).
    **Space.** α + β tuples and α·β·σ results, σ the selectivity.
    **Source.** Sections 1 and 3.1, which describe it in one sentence each; that the queue is read and written for
    every tuple is said in 3.1.1, how is not. Settled: expired results are searched for, as expired tuples are.
    """

    NAME = "PC"
    FUNCTIONS = (*ADDITIVE, *EXTREME)

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self._results: list[Result] = []

    def _absorb(self, arrival: Arrival) -> None:
        f = self.windows[arrival.side].insert(arrival)
        now_us, results, groups = arrival.event_us, self._results, self.query.groups
        self._expired(now_us)
        self.touched.scanned += len(results)
        self._results = results = [result for result in results if result[0] > now_us]
        matches = self.windows[1 - arrival.side].probe(f.key)
        self.touched.written += len(matches)
        for g in matches:
            results.append((min(f.expires_us, g.expires_us), self._value(f, g), group_of(groups, f, g)))

    def answer(self) -> Answer:
        """The aggregate of all results queued."""
        query, pairs, total, extreme = self.query, 0, 0, None
        self.touched.summed += len(self._results)
        if query.function in EXTREME:
            for _, value, _ in self._results:
                extreme = query.better(extreme, value)
            return extreme
        for _, value, _ in self._results:
            pairs += 1
            total += value
        return query.answer(pairs, total)

    def _extra_bytes(self) -> int:
        return RESULT_BYTES * len(self._results)


class Gpc(Pc):
    """GPC: PC with GROUP BY and HAVING.

    **Idea.** As PC; to answer, every result is added to its group in a linked list, as in GIC.
    **Needs.** As PC; COUNT, SUM and AVG.
    **Time.** As PC, and results × groups / 2.
    **Space.** As PC, and the groups.
    **Source.** Section 3.2.1 names it; that it has GIC's list is settled here.
    """

    NAME = "GPC"
    FUNCTIONS = ADDITIVE
    GROUPED = True

    def answer(self) -> Answer:
        """The groups of all results queued."""
        glist = GroupList(self.touched)
        self.touched.summed += len(self._results)
        for _, value, group in self._results:
            glist.add(group, 1, value)
        return self._emitted(glist)


class Mpc(Method):
    """MPC: COUNT of two windows or more, joined by a left-deep tree.

    **Idea.** The join of the first k windows is kept for every k; f joins what is kept to its left, and the result
    joins the windows to its right one after the other. Answered by a scan of the last.
    **Needs.** As PC; all windows are joined on the same key, in the order in which they are declared.
    **Time.** Tuples held + partial results, twice for the last join, and partial results × tuples / M.
    **Space.** All tuples and all partial results: the product of the windows' lengths times the selectivities.
    **Source.** Section 3.2.2 names it; the tree is settled here. That it "explodes" with n needs keys that come often
    in all windows at once: of independent streams with the paper's rate and selectivity the joins even become smaller
    with n, since a tuple has 10 s · 100 bytes/s / 18 bytes · 0.01 = 0.56 partners in a window.
    """

    NAME = "MPC"
    FUNCTIONS = ("count",)
    MANY_WINDOWS = True

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        # Level k holds the join of windows 0 … k + 1, hashed like them.
        self._levels: list[list[list[Partial]]] = [[[] for _ in range(query.buckets)] for _ in query.widths_us[1:]]

    def _absorb(self, arrival: Arrival) -> None:
        side, now_us, touched = arrival.side, arrival.event_us, self.touched
        f = self.windows[side].insert(arrival)
        self._expired(now_us)
        for level in self._levels:
            for index, bucket in enumerate(level):
                touched.scanned += len(bucket)
                level[index] = [partial for partial in bucket if partial[1] > now_us]
        if f.key is None:
            return
        at = hash(f.key) % self.query.buckets
        found: list[Partial] = [(f.key, f.expires_us)]
        if side == 1:
            found = [(f.key, min(f.expires_us, g.expires_us)) for g in self.windows[0].probe(f.key)]
        elif side > 1:
            left = self._levels[side - 2][at]
            touched.probed += len(left)
            found = [(key, min(f.expires_us, expires_us)) for key, expires_us in left if key == f.key]
        for right in range(max(side, 1), len(self.windows)):
            if right > side:
                found = [
                    (key, min(expires_us, g.expires_us))
                    for key, expires_us in found
                    for g in self.windows[right].probe(key)
                ]
            touched.written += len(found)
            self._levels[right - 1][at] += found

    def answer(self) -> Answer:
        """How many results the last join holds, counted one by one."""
        pairs = 0
        for bucket in self._levels[-1]:
            for _ in bucket:
                pairs += 1
        self.touched.summed += pairs
        return pairs

    def _extra_bytes(self) -> int:
        return RESULT_BYTES * sum(len(bucket) for level in self._levels for bucket in level)
