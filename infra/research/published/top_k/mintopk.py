"""MinTopK, which takes tuples in order, and GSTopK, which takes them as they come."""

from __future__ import annotations

from collections.abc import Sequence

from infra.research.published.top_k.candidates import Candidates
from infra.research.published.top_k.method import Slidewise
from infra.research.published.top_k.query import Options, Query, Rank


class MinTopK(Slidewise):
    """MinTopK: right only on streams in order; late tuples are dropped.

    **Idea.** Only the candidates are kept (see ``Candidates``): most tuples are refused on arrival, with one look.
    **Needs.** Tuples in order of slides. A tuple is late if its slide's first window is answered already.
    **Time**, **Space.** As ``Candidates``.
    **Guarantee.** As SMA: the truth, if no tuple is late; else the truth of those that were not.
    **Source.** Yang et al. (2011), as ``Candidates``; late tuples as with SMA.
    """

    NAME = "MINTOPK"

    def __init__(self, query: Query, window: int, options: Options) -> None:
        super().__init__(query, window, options)
        self._candidates = Candidates(query.k, self.touched)

    @property
    def held(self) -> int:
        """The candidates, and what was set aside."""
        return len(self._candidates) + self._aside

    def check(self) -> None:
        """Say what always holds."""
        self._candidates.check(self.window)

    def _take(self, rank: Rank, slide: int) -> None:
        self._candidates.insert(rank, max(slide, self.window), slide + self.query.slides - 1)

    def _take_late(self, rank: Rank, slide: int) -> None:
        self.dropped += 1

    def _best(self) -> Sequence[Rank]:
        return self._candidates.first_k()

    def _expire(self) -> None:
        self._candidates.expire(self.window)


class MinTopKLater(MinTopK):
    """MinTopK that counts late tuples in later windows: each as one of the slide in which it arrives.

    **Guarantee.** As MinTopK on a stream in order. Else a late tuple stays as long after its arrival as it should after
    its event time, and can keep out winners of windows that it is not in. **Source.** As MinTopK.
    """

    NAME = "MINTOPK-LATER"

    def _take_late(self, rank: Rank, slide: int) -> None:
        self._take(rank, self.window)


class GsTopK(MinTopK):
    """GSTopK: takes tuples out of order at once, and does not wait.

    **Idea.** MinTopK by event time: a late tuple contributes to those windows not yet answered that hold it.
    **Needs.** Nothing. **Time**, **Space.** As ``Candidates``.
    **Guarantee.** The k best of the window's tuples that have arrived by its end. With delays independent of the
    scores, exponential of mean θ, an accuracy of 1 − (θ/T)·(1 − e^(−T/θ)) for the width T.
    **Source.** GSTopK is known to us only from Wu and Fang: "improves MinTopK so that it gives approximate results at
    once on out-of-order streams", and does not treat the late tuples of a window that has been answered. That late
    tuples count in the later windows that hold them is settled here.
    """

    NAME = "GSTOPK"

    def _take_late(self, rank: Rank, slide: int) -> None:
        if slide + self.query.slides - 1 < self.window:
            self.dropped += 1
        else:
            self._take(rank, slide)
