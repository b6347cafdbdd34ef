"""The K-slack family: a buffer that sorts by event time, K long, and an operator behind it."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from typing import Any

from infra.research.published.top_k.method import Method
from infra.research.published.top_k.mintopk import GsTopK
from infra.research.published.top_k.query import Arrival, Options, Query


class KSlack(Method):
    """K-slack: K is fixed (``Options.slack_us``).

    **Idea.** A tuple waits until K after its event time, and leaves the buffer in order; one that comes later than that
    leaves at once, out of order. The operator behind lags K behind the clock: a window is answered K after its end.
    **Needs.** Nothing. **Time.** O(log b) a tuple to sort a buffer of b, and the operator. **Space.** Rate · K more.
    **Guarantee.** The k best of the window's tuples that have arrived by its end + K; so accuracy(K) is the share of
    the true winners whose needed slack is at most K.
    **Source.** Babu, Srivastava, Widom, "Exploiting k-Constraints to Reduce Memory Overhead in Continuous Queries over
    Data Streams", TODS 2004, as Wu and Fang tell of it. Settled here: the clock is arrival time (published is the
    latest event time seen, which stands still with the stream); the operator behind is GSTopK, so that the tuples later
    than K, which some drop, count wherever they still can: as in papers/04, and the kindest reading.
    """

    NAME = "K-SLACK"

    def __init__(self, query: Query, window: int, options: Options) -> None:
        super().__init__(query, window, options)
        self._behind = GsTopK(query, window, options)
        self._behind.touched = self._behind._candidates._touched = self.touched
        self._buffer: list[tuple[int, Arrival]] = []
        self.slack_us = self._first_slack_us()

    def _first_slack_us(self) -> int:
        return self.options.slack_us

    @property
    def held(self) -> int:
        """The buffer, and what the operator behind holds."""
        return len(self._buffer) + self._behind.held

    def absorb(self, arrival: Arrival) -> None:
        """Buffer a tuple, or pass it on if it is too late to be sorted."""
        self._observe(arrival)
        if arrival.event_us + self.slack_us <= arrival.arrival_us:
            self._behind.absorb(arrival)
        else:
            self.touched.buffered += 1 + len(self._buffer).bit_length()
            heapq.heappush(self._buffer, (arrival.event_us, arrival))
        self._release(arrival.arrival_us)

    def answer(self, emit_us: int) -> tuple[Any, ...]:
        """What the operator behind answers, once all that has waited long enough has left the buffer."""
        self._release(emit_us)
        ids = self._behind.answer(emit_us)
        self.window, self.dropped = self._behind.window, self._behind.dropped
        self._adapt(emit_us)
        return ids

    def _release(self, now_us: int) -> None:
        upto_us = now_us - self.slack_us
        while self._buffer and self._buffer[0][0] <= upto_us:
            self.touched.buffered += 1 + len(self._buffer).bit_length()
            self._behind.absorb(heapq.heappop(self._buffer)[1])

    def _observe(self, arrival: Arrival) -> None:
        """Learn from a tuple that arrives."""

    def _adapt(self, now_us: int) -> None:
        """Learn from a window that was answered."""


class MpKSlack(KSlack):
    """MP-K-slack: K follows the largest delay seen so far.

    **Idea.** K-slack whose K, at first 0, becomes the delay of any tuple that is later than K; also for a window that
    waits. **Needs**, **Time**, **Space.** As K-slack; with a heavy tail the buffer grows as long as the stream runs.
    **Guarantee.** As K-slack: at K = the largest delay the truth, but for what comes later than anything before.
    **Source.** Mutschler, Philippsen, "Distributed Low-Latency Out-of-Order Event Processing for High Data Rate Sensor
    Streams", IPDPS 2013, as Wu and Fang tell of it: "K follows the changes of the delay". Settled here: it never
    falls (they write that it wastes when delays shrink), and a delay is arrival minus event time.
    """

    NAME = "MP-K-SLACK"

    def _first_slack_us(self) -> int:
        return 0

    def _observe(self, arrival: Arrival) -> None:
        self.slack_us = max(self.slack_us, arrival.arrival_us - arrival.event_us)


class AqKSlack(KSlack):
    """AQ-K-slack: K is driven by the quality of the answers, by way of the windows' coverage.

    **Idea.** K = α · the largest delay of late. After every answer a window in the past is found whose late tuples are
    in; its coverage is the share of its tuples that K as it is now would have waited for. With e = target − coverage,
    α changes by 0.5·e + 0.8·(e − e before) (a controller of proportional and derivative terms), within [0, 1].
    Uses ``target``, ``horizon_us``, ``gain``, ``damping``.
    **Needs.** Delays independent of the scores: only then the expected accuracy of a top-k is the coverage. If the
    winners come later than others, it promises too much, and does not see it.
    **Time.** As K-slack, and O(slides · log) an answer. **Space.** As K-slack, and the arrival time of every tuple of
    the windows within the horizon.
    **Guarantee.** None in time; the mean coverage goes to the target if delays do not change.
    **Source.** Ji, Zhou, Jerzak, Nica, Hackenbroich, Fetzer, "Quality-Driven Processing of Sliding Window Aggregates
    over Out-of-Order Data Streams", DEBS 2015 (also US patent 10 311 061: "a sliding window prior to a current time is
    identified, … its runtime quality measured"); the gains are those of the implementation in Siddhi's extension
    "reorder". The paper derives the coverage that is needed from the tolerated error of SUM, COUNT, AVG; Wu and Fang
    object that a top-k is too complex for that. Settled here: the coverage needed is the target itself, by the
    argument above; "of late" is within the last horizon, and no delay counts as longer; a window counts as in a
    largest delay after its end; an empty one says nothing.
    """

    NAME = "AQ-K-SLACK"

    def __init__(self, query: Query, window: int, options: Options) -> None:
        super().__init__(query, window, options)
        self._alpha = 0.0
        self._error_before = 0.0
        self._largest: deque[tuple[int, int]] = deque()  # (arrival, delay), delays falling: the front is the largest.
        self._arrivals: dict[int, list[int]] = {}
        self._measured = window - 1

    @property
    def held(self) -> int:
        """As K-slack; the arrival times, which are no tuples, are not counted."""
        return super().held

    def _first_slack_us(self) -> int:
        return 0

    def _observe(self, arrival: Arrival) -> None:
        now_us = arrival.arrival_us
        delay_us = min(now_us - arrival.event_us, self.options.horizon_us)
        while self._largest and self._largest[-1][1] <= delay_us:
            self._largest.pop()
        self._largest.append((now_us, delay_us))
        while self._largest[0][0] < now_us - self.options.horizon_us:
            self._largest.popleft()
        self.touched.recorded += 1
        slide = arrival.event_us // self.query.slide_us
        if slide > self._measured - self.query.slides:
            self._arrivals.setdefault(slide, []).append(now_us)

    def _adapt(self, now_us: int) -> None:
        if not self._largest:
            return
        largest_us, slides = self._largest[0][1], self.query.slides
        latest = (now_us - largest_us) // self.query.slide_us - 1
        if latest <= self._measured:
            return
        for slide in [one for one in self._arrivals if one <= latest - slides]:
            del self._arrivals[slide]
        self._measured = latest
        known = covered = 0
        for slide in range(latest - slides + 1, latest + 1):
            of_slide = self._arrivals.get(slide, [])
            known += len(of_slide)
            covered += bisect_right(of_slide, self.query.end_us(latest) + self.slack_us)
            self.touched.recorded += len(of_slide).bit_length()
        if known:
            error = self.options.target - covered / known
            change = self.options.gain * error + self.options.damping * (error - self._error_before)
            self._alpha = min(1.0, max(0.0, self._alpha + change))
            self._error_before = error
            self.slack_us = round(self._alpha * largest_us)
