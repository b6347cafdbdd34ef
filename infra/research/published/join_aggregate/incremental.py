"""IC and GIC: the answer before, plus the pairs that come, minus the pairs that go."""

from __future__ import annotations

from infra.research.published.join_aggregate.method import Method
from infra.research.published.join_aggregate.query import Answer, Arrival, Query
from infra.research.published.join_aggregate.windows import TUPLE_BYTES, GroupList, HashedWindow, Item, group_of


class Ic(Method):
    """IC, "incremental": COUNT, SUM and AVG of two windows.

    **Idea.** f arrives on A: insert it, remove the expired tuples of both windows (SetA, SetB); then
    count += |{f} ⋈ SW_B| − |SetA ⋈ SW_B| − |SetB ⋈ (SW_A − {f})| − |SetA ⋈ SetB|. Alike for B.
    **Needs.** Tuples in order of time. Widths may differ, and change at any time (``resize``). No MAX and MIN: what
    goes cannot be subtracted. SUM and AVG of integers, for doubles would drift.
    **Time.** Eq. 3: α + β + β/M + |SetA|·β/M + |SetB|·α/M + |SetA|·|SetB| accesses a tuple: all tuples are
    scanned for expired ones, and the two sets are joined by nested loops.
    **Space.** α + β tuples, and the two sets.
    **Source.** Wang et al. (2006), section 1.1. Theorem 1 and the steps are right as printed. Where eq. 2 follows from
    eq. 1, "at the beginning of step 3" must be "at its end": the windows of eq. 2 have lost their expired tuples. The
    paper calls the time nearly flat and |SetA| = |SetB| = 1; by its own eq. 3 it is O(α + β), and at even rates an
    arrival expires one tuple of both windows together.
    """

    NAME = "IC"
    TAKES_CHANGING_WIDTHS = True

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self._pairs = 0
        self._total = 0
        self._last_expired = 0

    def _absorb(self, arrival: Arrival) -> None:
        f = self.windows[arrival.side].insert(arrival)
        expired = self._expired(arrival.event_us)
        self._join([f], self.windows[1 - arrival.side], +1)
        self._leave(expired, f)

    def _leave(self, expired: list[list[Item]], f: Item | None) -> None:
        """Take off the pairs of tuples that are in no window any more; they never paired with ``f``, the new tuple."""
        set_a, set_b = expired
        self._join(set_a, self.windows[1], -1, f)
        self._join(set_b, self.windows[0], -1, f)
        self.touched.nested += len(set_a) * len(set_b)
        for one in set_a:
            for other in set_b:
                if one.key == other.key and one.key is not None:
                    self._count(one, other, -1)
        self._last_expired = len(set_a) + len(set_b)

    def _join(self, items: list[Item], window: HashedWindow, sign: int, without: Item | None = None) -> None:
        for item in items:
            for match in window.probe(item.key):
                if match is not without:
                    self._count(item, match, sign)

    def _count(self, one: Item, other: Item, sign: int) -> None:
        self._pairs += sign
        self._total += sign * self._value(one, other)

    def resize(self, side: int, width_us: int) -> None:
        """Change a width: shrunk, the pairs of what leaves are taken off; grown, the window fills as time passes."""
        super().resize(side, width_us)
        if self.now_us is not None:
            self._leave(self._expired(self.now_us), None)

    def answer(self) -> Answer:
        """The running totals: nothing is read again."""
        return self.query.answer(self._pairs, self._total)

    def _extra_bytes(self) -> int:
        return TUPLE_BYTES * self._last_expired


class Gic(Ic):
    """GIC: IC with GROUP BY and HAVING.

    **Idea.** As IC; every join result that comes or goes is added to or taken off its group in a linked list, which is
    searched from its head. The whole list is the answer.
    **Needs.** As IC.
    **Time.** As IC, and join results × groups / 2, and the groups of an answer.
    **Space.** As IC, and the groups.
    **Source.** Section 2.1, for COUNT. Settled: a group without pairs leaves the list, or it would be emitted with a
    count of 0 and the list would grow for ever.
    """

    NAME = "GIC"
    GROUPED = True

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self._glist = GroupList(self.touched)

    def _count(self, one: Item, other: Item, sign: int) -> None:
        self._glist.add(group_of(self.query.groups, one, other), sign, sign * self._value(one, other))

    def answer(self) -> Answer:
        """The list of groups."""
        return self._emitted(self._glist)
