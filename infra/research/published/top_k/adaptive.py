"""Wu and Fang's own method: MinTopK that waits, unsorted, and searches how long."""

from __future__ import annotations

import heapq
from bisect import insort
from typing import Any

from infra.research.published.top_k.interval_search import Interval, candidates_us, next_interval
from infra.research.published.top_k.mintopk import GsTopK
from infra.research.published.top_k.query import Arrival, Options, Query, Rank


class Recorded:
    """A window of the round: its k best so far, and what they were when each candidate slack was over."""

    __slots__ = ("best", "snapshots")

    def __init__(self, best: list[Rank]) -> None:
        self.best = best
        self.snapshots: list[frozenset[Rank]] = []


class Adaptive(GsTopK):
    """Modified MinTopK with the interval search for K.

    **Idea.** Candidates C as MinTopK, by event time. While the window waits for its slack, the k best of each slide
    that begins after it collect in a D of its own; when it is answered, the next D is merged into C, its least first.
    Of n windows one after the other the answers that the candidate slacks would have given are recorded, in a copy that
    goes on after the answer, until the horizon gives the truth; then the interval is cut anew (``next_interval``).
    Uses ``slack_us`` (K at first, and the first interval (0, K]), ``target``, ``parts``, ``windows``, ``grain_us``,
    ``horizon_us``.
    **Needs.** Nothing; nothing is sorted but k tuples a slide.
    **Time.** As ``Candidates``; for the search 1 access a tuple and recorded window that holds it.
    **Space.** O(k · (slides + slides that wait + recorded windows · candidates)).
    **Guarantee.** The k best of the window's tuples that have arrived by the answer. Of K none in time: a round lasts
    n slides and the horizon, and moves K by a part at most when no part fits.
    **Source.** Wu and Fang, as papers/04 restates and settles it. Settled beside: a round's windows are those that end
    after the interval was set; K changes with the first arrival after the last truth of the round, also for windows
    that wait; a tuple later than the horizon is in no truth, but counts in the answers that still can hold it.
    """

    NAME = "MINTOPK-ADAPTIVE"

    def __init__(self, query: Query, window: int, options: Options) -> None:
        super().__init__(query, window, options)
        self.interval = Interval(0, max(options.slack_us, options.grain_us))
        self.slack_us = options.slack_us
        self._recorded: dict[int, Recorded] = {}
        self._instants: list[tuple[int, int]] = []
        self._begin_round(window)

    @property
    def held(self) -> int:
        """The candidates, the D of each slide, and the copies with their snapshots."""
        copies = sum(len(one.best) + sum(map(len, one.snapshots)) for one in self._recorded.values())
        return super().held + copies

    def absorb(self, arrival: Arrival) -> None:
        """Take a tuple in, and into the copies of the recorded windows that hold it."""
        self._record_until(arrival.arrival_us - 1)
        super().absorb(arrival)
        slide = arrival.event_us // self.query.slide_us
        for window in range(slide, slide + self.query.slides):
            if window in self._recorded:
                self._keep_best(self._recorded[window].best, arrival.rank)

    def answer(self, emit_us: int) -> tuple[Any, ...]:
        """As MinTopK, once the candidate slacks that are over are recorded."""
        self._record_until(emit_us)
        # With a K below the candidates the window goes before the first of them is over: C knows it no more by then.
        if self.window not in self._recorded and any(window == self.window for _, window in self._instants):
            self._recorded[self.window] = Recorded(self._copy(self.window))
        return super().answer(emit_us)

    def _set_aside(self, slide: int, rank: Rank) -> None:
        self._keep_best(self._early.setdefault(slide, []), rank)

    def _keep_best(self, best: list[Rank], rank: Rank) -> None:
        self.touched.recorded += 1
        if len(best) < self.query.k or rank < best[-1]:
            insort(best, rank)
            del best[self.query.k :]

    def _begin_round(self, window: int) -> None:
        self._tried_us = candidates_us(self.interval, self.options)
        self._hits = [0.0] * len(self._tried_us)
        self._left = self.options.windows
        instants_us = [*self._tried_us, self.options.horizon_us]
        for one in range(window, window + self.options.windows):
            for after_us in instants_us:
                heapq.heappush(self._instants, (self.query.end_us(one) + after_us, one))

    def _record_until(self, now_us: int) -> None:
        while self._instants and self._instants[0][0] <= now_us:
            at_us, window = heapq.heappop(self._instants)
            if window not in self._recorded:
                self._recorded[window] = Recorded(self._copy(window))
            recorded = self._recorded[window]
            if len(recorded.snapshots) < len(self._tried_us):
                recorded.snapshots.append(frozenset(recorded.best))
            else:
                self._judge(window, at_us)

    def _copy(self, window: int) -> list[Rank]:
        """The k best of a window so far, out of C and of the D of the slides that it holds beside."""
        oldest = max(self.window, window - self.query.slides) + 1
        aside = [rank for slide in range(oldest, window + 1) for rank in self._early.get(slide, ())]
        found = sorted([*self._candidates.best(window), *aside])
        self.touched.recorded += len(found)
        return found[: self.query.k]

    def _judge(self, window: int, now_us: int) -> None:
        recorded = self._recorded.pop(window)
        truth = frozenset(recorded.best)
        for index, answer in enumerate(recorded.snapshots):
            self._hits[index] += len(answer & truth) / len(truth) if truth else 1.0
        self._left -= 1
        if self._left == 0:
            accuracies = [hits / self.options.windows for hits in self._hits]
            self.interval, self.slack_us = next_interval(self.interval, accuracies, self.options)
            self._begin_round(now_us // self.query.slide_us)
