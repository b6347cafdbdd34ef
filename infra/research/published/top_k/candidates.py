"""The candidates of MinTopK: who can still be in an answer, and in the answers to which windows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from infra.research.published.top_k.method import Touched
from infra.research.published.top_k.query import Rank


class Candidate:
    """A tuple with the windows to which it contributes: ``first`` … ``last``."""

    __slots__ = ("first", "last", "rank")

    def __init__(self, rank: Rank, first: int, last: int) -> None:
        self.rank, self.first, self.last = rank, first, last


class Candidates:
    """The minimal set of candidates, best first, with a pointer to the least of each window.

    **Idea.** Of the tuples known, the next window holds all but those of its oldest slide, and so on: going on to later
    windows a tuple's rank can only improve. So it contributes to a run of windows that ends with its last, and whoever
    is pushed out of one begins to contribute one later.
    **Needs.** No tuple of a slide that begins after the window to answer: it would be missing from that window and
    displace others from the next, and the runs would get holes.
    **Time.** O(windows · walk) a tuple that contributes, O(1) for one that does not, the insertion aside.
    **Space.** At most k tuples a window; often about 2 k.
    **Guarantee.** Exact: the first k of it are the k best tuples inserted that the next window holds.
    **Source.** Yang, Shastri, Rundensteiner, Ward, "An Optimal Strategy for Monitoring Top-k Queries in Streaming
    Windows", EDBT 2011: MTK set, super-top-k list, lower bound pointers. A tuple of an older slide, which that paper
    does not have, contributes from the first window not answered to its own last.

    >>> found = Candidates(1, Touched())
    >>> [found.insert((-score, 0, key), 0, last) for score, key, last in ((9, "a", 1), (5, "b", 3), (4, "c", 2))]
    [True, True, False]
    >>> [(one.rank[2], one.first, one.last) for one in found]
    [('a', 0, 1), ('b', 2, 3)]
    """

    def __init__(self, k: int, touched: Touched) -> None:
        self._k = k
        self._touched = touched
        self._ranks: list[Rank] = []
        self._found: list[Candidate] = []
        self._counts: dict[int, int] = {}
        self._least: dict[int, Candidate] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Candidate]:
        """Best first."""
        return iter(self._found)

    def insert(self, rank: Rank, first: int, last: int) -> bool:
        """Take in a tuple that the windows ``first`` … ``last`` hold; False if it contributes to none."""
        begins, k = last + 1, self._k
        for window in range(last, first - 1, -1):
            self._touched.compared += 1
            if self._counts.get(window, 0) == k and self._least[window].rank < rank:
                break
            begins = window
        if begins > last:
            return False
        new = Candidate(rank, begins, last)
        at = bisect_left(self._ranks, rank)
        self._ranks.insert(at, rank)
        self._found.insert(at, new)
        self._touched.written += 1
        for window in range(begins, last + 1):
            count = self._counts.get(window, 0)
            if count == k:
                self._push_out(window)
                continue
            self._counts[window] = count + 1
            if count == 0 or self._least[window].rank < rank:
                self._least[window] = new
        return True

    def _push_out(self, window: int) -> None:
        """The least of a window contributes from the next one on; the one before it is the least now."""
        out = self._least[window]
        out.first = window + 1
        place = at = bisect_left(self._ranks, out.rank)
        while True:
            at -= 1
            self._touched.walked += 1
            if self._found[at].first <= window <= self._found[at].last:
                break
        self._least[window] = self._found[at]
        if out.first > out.last:
            del self._ranks[place], self._found[place]

    def best(self, window: int) -> Sequence[Rank]:
        """The winners of a window, best first; for the window to answer these are simply the first k."""
        return [one.rank for one in self._found if one.first <= window <= one.last]

    def first_k(self) -> Sequence[Rank]:
        """The winners of the window to answer."""
        return self._ranks[: self._k]

    def expire(self, window: int) -> None:
        """The window is answered: its winners contribute from the next one on, or leave."""
        winners = self._found[: self._k]
        self._touched.expired += len(winners)
        self._counts.pop(window, None)
        self._least.pop(window, None)
        for one in winners:
            one.first = max(one.first, window + 1)
        kept = [one for one in winners if one.first <= one.last]
        self._found[: self._k] = kept
        self._ranks[: self._k] = [one.rank for one in kept]

    def check(self, window: int) -> None:
        """Say what always holds, the next window to answer given."""
        assert self._ranks == sorted(one.rank for one in self._found) == [one.rank for one in self._found]
        assert all(window <= one.first <= one.last for one in self._found)
        for later in {w for one in self._found for w in range(one.first, one.last + 1)}:
            members = self.best(later)
            assert len(members) == self._counts[later] <= self._k
            assert self._least[later].rank == members[-1]
        assert list(self.best(window)) == list(self.first_k())
