"""SMA: the tuples that fewer than k better ones outlive."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from infra.research.published.top_k.method import Slidewise
from infra.research.published.top_k.query import Options, Query, Rank


class Sma(Slidewise):
    """SMA, the skyband monitoring algorithm: right only on streams in order; late tuples are dropped.

    **Idea.** A tuple that k better ones outlive can be in no answer any more. A new tuple outlives all others: it adds
    1 to the dominance counter of every worse one, and those that reach k leave the skyband. The answer are the first k
    of it. Only tuples at least as good as a threshold are in it, the k-th of the last answer from scratch; when
    expiry leaves fewer than k, the answer is found from scratch again, from all tuples of the window.
    **Needs.** Tuples in order of slides. A tuple is late if its slide's first window is answered already.
    **Time.** O(skyband) a tuple, O(window) for an answer from scratch. **Space.** All tuples of the window.
    **Guarantee.** The truth, if no tuple is late. Else the truth of the tuples that were not: with delays independent
    of the scores, exponential of mean θ, an accuracy of 1 − (θ/S)·(1 − e^(−S/θ)) for the slide S.
    **Source.** Mouratidis, Bakiras, Papadias, "Continuous Monitoring of Top-k Queries over Sliding Windows", SIGMOD
    2006. Its grid serves queries with different preferences; here the score is given, and a scan takes its place.
    Tuples of one slide expire together; the later to come counts as outliving, which keeps more but is right. What it
    does with late tuples it does not say: by papers/04 they are "dropped or counted in the next window"; both are here.
    """

    NAME = "SMA"

    def __init__(self, query: Query, window: int, options: Options) -> None:
        super().__init__(query, window, options)
        self._by_slide: dict[int, list[Rank]] = {}
        self._ranks: list[Rank] = []  # The skyband, best first; beside each its slide and dominance counter.
        self._slides: list[int] = []
        self._dominated: list[int] = []
        self._threshold: Rank | None = None

    @property
    def held(self) -> int:
        """The window, the skyband beside, and what was set aside."""
        return sum(map(len, self._by_slide.values())) + len(self._ranks) + self._aside

    def _take(self, rank: Rank, slide: int) -> None:
        self._by_slide.setdefault(slide, []).append(rank)
        self.touched.written += 1
        if self._threshold is None or rank <= self._threshold:
            self._enter(rank, slide)

    def _take_late(self, rank: Rank, slide: int) -> None:
        self.dropped += 1

    def _enter(self, rank: Rank, slide: int) -> None:
        at = bisect_left(self._ranks, rank)
        self.touched.compared += len(self._ranks) - at
        self.touched.written += 1
        kept = [index for index in range(at, len(self._ranks)) if self._dominated[index] + 1 < self.query.k]
        self._ranks[at:] = [rank, *(self._ranks[index] for index in kept)]
        self._slides[at:] = [slide, *(self._slides[index] for index in kept)]
        self._dominated[at:] = [0, *(self._dominated[index] + 1 for index in kept)]

    def _best(self) -> Sequence[Rank]:
        if len(self._ranks) < self.query.k and self._threshold is not None:
            self._from_scratch()
        return self._ranks[: self.query.k]

    def _from_scratch(self) -> None:
        k = self.query.k
        valid = [(rank, slide) for slide, ranks in self._by_slide.items() for rank in ranks]
        self.touched.searched += len(valid)
        best = set(sorted(rank for rank, _ in valid)[:k])
        self._threshold = max(best) if len(best) == k else None
        self._ranks, self._slides, self._dominated = [], [], []
        for rank, slide in valid:  # Slide by slide in the order of coming, so that the counters come right.
            if rank in best:
                self._enter(rank, slide)

    def _expire(self) -> None:
        gone = self.window - self.query.slides + 1
        self._by_slide.pop(gone, None)
        self.touched.expired += len(self._ranks)
        among = len(self._ranks)
        if self._threshold is None and among >= self.query.k:
            among = self.query.k
            self._threshold = self._ranks[among - 1]
        kept = [index for index in range(among) if self._slides[index] > gone]
        self._ranks = [self._ranks[index] for index in kept]
        self._slides = [self._slides[index] for index in kept]
        self._dominated = [self._dominated[index] for index in kept]


class SmaLater(Sma):
    """SMA that counts late tuples in later windows: each as one of the slide in which it arrives.

    **Guarantee.** As SMA on a stream in order. Else a late tuple stays as long after its arrival as it should after its
    event time, and can keep out winners of windows that it is not in. **Source.** As SMA.
    """

    NAME = "SMA-LATER"

    def _take_late(self, rank: Rank, slide: int) -> None:
        self._take(rank, self.window)
