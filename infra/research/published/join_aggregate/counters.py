"""TC-COUNT, TC-MAX, GTC and MTC: every pair is charged to the tuple that takes it along when it expires."""

from __future__ import annotations

from typing import Any

from infra.research.published.join_aggregate.method import EXTREME, Method
from infra.research.published.join_aggregate.query import Answer, Arrival
from infra.research.published.join_aggregate.windows import COUNTER_BYTES, GroupList, Item, group_of


class TcCount(Method):
    """TC-COUNT: COUNT, SUM and AVG of two windows.

    **Idea.** A tuple's CV counts its matches that arrived later. A new tuple adds 1 to the CV of every match in the
    other window; the answer is the sum of all CVs. A pair dies with its older tuple, and so does its count.
    **Needs.** Tuples in order of time, and windows of one and the same fixed width: else the older tuple is not the
    one that expires first. ``TC-COUNT-UNEQUAL`` charges the one that does, by event time + width, and takes unequal
    fixed widths. Both refuse widths that change. SUM and AVG of integers, as with IC.
    **Time.** Eq. 6: 2(α + β) + β/M accesses a tuple: a scan for the expired, and one to sum the counters. Neither is
    needed (the total falls by f.CV when f expires, off a queue), but so it is published, and measured in the paper.
    **Space.** α + β tuples with a counter each (eq. 7); two for SUM and AVG.
    **Source.** Section 1.2. Definition and algorithm differ on ties: CV is defined by a strict ">" of times, and the
    algorithm counts whoever comes later; settled as the algorithm has it, by order of arrival, or pairs of equal time
    would be lost. The proof of Theorem 2 expires a tuple when T is exceeded; settled: the window is (t − T, t].
    """

    NAME = "TC-COUNT"
    NEEDS_EQUAL_WIDTHS = True

    def _absorb(self, arrival: Arrival) -> None:
        f = self.windows[arrival.side].insert(arrival)
        self._expired(arrival.event_us)
        for g in self.windows[1 - arrival.side].probe(f.key):
            self._charge(self._charged(f, g), f, g)

    def _charged(self, f: Item, g: Item) -> Item:
        """Who holds the pair of the new tuple f and g: as published g, the older."""
        return g

    def _charge(self, holder: Item, f: Item, g: Item) -> None:
        holder.pairs += 1
        holder.total += self._value(f, g)

    def answer(self) -> Answer:
        """The sum of all counters."""
        pairs = total = 0
        for window in self.windows:
            self.touched.summed += len(window)
            for item in window:
                pairs += item.pairs
                total += item.total
        return self.query.answer(pairs, total)

    def _extra_bytes(self) -> int:
        return COUNTER_BYTES * sum(map(len, self.windows))


class TcMax(TcCount):
    """TC-MAX: MAX and MIN of two windows.

    **Idea.** As TC-COUNT, with the extreme of the charged pairs' values (MV) for their number.
    **Needs.** As TC-COUNT; ``TC-MAX-UNEQUAL`` alike. Values of any comparable type, but no NULL.
    **Time**, **Space.** As TC-COUNT.
    **Source.** Section 1.2. The print starts MV and the answer from 0, and assumes values of [0, U]; settled: from
    "none", so that values may be negative, and a join without pairs has no maximum instead of 0.
    """

    NAME = "TC-MAX"
    FUNCTIONS = EXTREME

    def _charge(self, holder: Item, f: Item, g: Item) -> None:
        holder.extreme = self.query.better(holder.extreme, self._value(f, g))

    def answer(self) -> Answer:
        """The extreme of all MVs."""
        extreme: Any = None
        for window in self.windows:
            self.touched.summed += len(window)
            for item in window:
                if item.extreme is not None:
                    extreme = self.query.better(extreme, item.extreme)
        return extreme


class Gtc(TcCount):
    """GTC: TC-COUNT with GROUP BY and HAVING.

    **Idea.** A tuple has a CV for each group of its later matches; to answer, all CVs are added to their groups in a
    linked list, as in GIC.
    **Needs.** As TC-COUNT; ``GTC-UNEQUAL`` alike.
    **Time.** As TC-COUNT, and counters × groups / 2.
    **Space.** A counter for each tuple and group of its later matches: O(α + β) only where the older tuple (or the key)
    says the group; otherwise it grows like the join.
    **Source.** Section 2.1 says only that GIC's list also suits TC. One CV a tuple would not do: where the newer tuple
    has the group attribute, the matches of one tuple are of several groups.
    """

    NAME = "GTC"
    GROUPED = True

    def _charge(self, holder: Item, f: Item, g: Item) -> None:
        sums = holder.by_group.setdefault(group_of(self.query.groups, f, g), [0, 0])
        sums[0] += 1
        sums[1] += self._value(f, g)

    def answer(self) -> Answer:
        """The groups of all counters."""
        glist = GroupList(self.touched)
        for window in self.windows:
            self.touched.summed += len(window)
            for item in window:
                for group, (pairs, total) in item.by_group.items():
                    glist.add(group, pairs, total)
        return self._emitted(glist)

    def _extra_bytes(self) -> int:
        return COUNTER_BYTES * sum(len(item.by_group) for window in self.windows for item in window)


class Mtc(TcCount):
    """MTC: COUNT of two windows or more, all joined on the same key.

    **Idea.** f probes the other windows one after the other (MJoin), with all partial results so far, those with the
    fewest tuples first; each result adds 1 to the CV of the one of its tuples that expires first.
    **Needs.** As TC-COUNT; ``MTC-UNEQUAL`` alike.
    **Time.** Twice the tuples held, and partial results × tuples / M: every result is formed, if not kept.
    **Space.** The tuples with a counter each.
    **Source.** Section 2.2, for COUNT. The print charges the oldest of the *other* tuples g₂ … gₙ, so never f; with
    unequal widths f itself can expire first. "Falling selectivity": fewest matches first; on one key and with one
    selectivity these are the windows with the fewest tuples. MJoin over different keys is not built.
    """

    NAME = "MTC"
    FUNCTIONS = ("count",)
    MANY_WINDOWS = True

    def _absorb(self, arrival: Arrival) -> None:
        f = self.windows[arrival.side].insert(arrival)
        self._expired(arrival.event_us)
        others = sorted((window for window in self.windows if window.side != arrival.side), key=len)
        # Of a partial result only the tuple that is to be charged matters: none yet.
        partials: list[Item | None] = [None]
        for window in others:
            partials = [
                g if first is None or g.expires_us < first.expires_us else first
                for first in partials
                for g in window.probe(f.key)
            ]
        for first in partials:
            if first is not None:
                self._charged(f, first).pairs += 1


class ByExpiry(TcCount):
    """What corrects TC for unequal fixed widths: a pair is charged to the tuple that expires first."""

    NEEDS_EQUAL_WIDTHS = False

    def _charged(self, f: Item, g: Item) -> Item:
        return f if f.expires_us < g.expires_us else g


class TcCountUnequal(ByExpiry, TcCount):
    """TC-COUNT corrected for unequal fixed widths."""

    NAME = "TC-COUNT-UNEQUAL"


class TcMaxUnequal(ByExpiry, TcMax):
    """TC-MAX corrected for unequal fixed widths."""

    NAME = "TC-MAX-UNEQUAL"


class GtcUnequal(ByExpiry, Gtc):
    """GTC corrected for unequal fixed widths."""

    NAME = "GTC-UNEQUAL"


class MtcUnequal(ByExpiry, Mtc):
    """MTC corrected for unequal fixed widths."""

    NAME = "MTC-UNEQUAL"
