"""The law of all tuples' delays, since it last changed, and the slack that it asks for.

**Idea.** The true winners' needed slacks are few and known late, a horizon after their window's end. Every tuple has a
delay, known as soon as it arrives. If delays do not depend on the score, a winner is late as any tuple is: with event
times even over a window of range T, a tuple of delay d misses the answer given K after the end in the share
min(max(d − K, 0), T)/T of its windows, so

    accuracy(K) = 1 − mean(min(max(d − K, 0), T))/T = 1 − (1/T)·∫ from K to K + T of (1 − F(v)) dv.

**Source.** papers/04, "Beyond the paper: all slacks at once, exactly". The change of regime: a two-sample test at every
split of the newest tuples, taken again on what is left. Truncation: of tuples that happened within the last L seconds
one with delay d has arrived with probability (L − d)/L, so it counts L/(L − d).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
MICROSECONDS = 1_000_000

SAMPLE_TUPLES = 20_000
"""So many of the newest tuples are enough: K errs by hundredths, whatever came before."""
LEAST_TUPLES = 200
"""Fewer tells nothing about one tuple in twenty."""
_SPLIT_GROWTH = 1.3
_CHANGED_AT_SD = 4.0
_SEEN_SHARE = 0.8
_HALVINGS = 50


@dataclass(frozen=True, eq=False)
class DelayLaw:
    """Delays with weights.

    Args:
        delay_s: float64[n], n ≥ 1, seconds; below 0 counts as 0.
        weight: float64[n], positive.

    **Cost.** O(n log n) once, then O(log n) an accuracy. **Guarantee.** ``accuracy_at`` is exact for tuples whose event
    times are even over the window; ``slack_s`` is its inverse, to the least double.

    >>> law = DelayLaw(np.array([0.0, 30.0, 90.0, 600.0]), np.ones(4))
    >>> law.accuracy_at(0.0, 60.0), law.accuracy_at(60.0, 60.0)
    (0.375, 0.625)
    >>> round(law.slack_s(0.625, 60.0), 6)
    60.0
    """

    delay_s: Float64s
    weight: Float64s

    @cached_property
    def _sorted(self) -> tuple[Float64s, Float64s, Float64s]:
        """Delays ascending; running sums of the weights and of weight times delay, from 0."""
        delay_s = np.maximum(self.delay_s, 0.0)
        order = np.argsort(delay_s)  # equal delays have equal weights
        weight = self.weight[order]
        weights, sums = (np.concatenate([[0.0], np.cumsum(x)]) for x in (weight, weight * delay_s[order]))
        return delay_s[order], weights, sums

    def accuracy_at(self, slack_s: float, range_s: float) -> float:
        """The share of a window's tuples that have arrived ``slack_s`` after its end."""
        delay_s, weights, sums = self._sorted
        first = delay_s.searchsorted(slack_s, side="right")
        whole = delay_s.searchsorted(slack_s + range_s, side="left")
        part = sums[whole] - sums[first] - slack_s * (weights[whole] - weights[first])
        return 1.0 - float(part + range_s * (weights[-1] - weights[whole])) / float(range_s * weights[-1])

    def slack_s(self, target: float, range_s: float) -> float:
        """The least slack, in seconds, whose accuracy is at least the target."""
        if self.accuracy_at(0.0, range_s) >= target:
            return 0.0
        low, high = 0.0, float(self._sorted[0][-1])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self.accuracy_at(middle, range_s) >= target:
                high = middle
            else:
                low = middle
        return high


@dataclass(frozen=True, eq=False)
class DelaySample:
    """The newest tuples of a stream, of whose delays any number of laws are asked for.

    Args:
        arrival_us: int64[n], ascending, microseconds.
        delay_s: float64[n], arrival − event time, seconds; below 0 counts as 0.
    """

    arrival_us: Int64s
    delay_s: Float64s
    _unweighted: dict[int, DelayLaw] = field(default_factory=dict, init=False)
    _since: dict[int, DelayLaw | None] = field(default_factory=dict, init=False)

    def newest_law(self, range_s: float, target: float) -> DelayLaw | None:
        """The law of the delays since it last changed; None as long as fewer than ``LEAST_TUPLES`` have arrived.

        Args:
            range_s, target: of the query: a change is one that matters at its slack.

        **Cost.** O(n log n) time, O(n) space; what several queries ask alike is computed once. **Guarantee.** None for
        finite samples. A law that does not change is cut short with a probability of about 10⁻⁴ a split tried; a change
        that takes the missed share from p to p + δ is seen after some 16·p/δ² tuples, and biases the estimate by less
        than 4 standard deviations until then.
        """
        first = self._changed_at(range_s, target)
        if first not in self._since:
            self._since[first] = self._law_since(first)
        return self._since[first]

    def _law_since(self, first: int) -> DelayLaw | None:
        used = len(self.delay_s) - first
        if used < LEAST_TUPLES:
            return None
        arrival_us, delay_s = self.arrival_us[first:], np.maximum(self.delay_s[first:], 0.0)
        span_s = float(arrival_us[-1] - arrival_us[0]) / MICROSECONDS
        happened_since = arrival_us - delay_s * MICROSECONDS >= arrival_us[0]
        kept = happened_since & (delay_s < _SEEN_SHARE * span_s)
        if kept.sum() < LEAST_TUPLES:
            # All at once, or later than the span is long: what cannot be weighted is taken as it came.
            return self._law_of(first)
        return DelayLaw(delay_s[kept], span_s / (span_s - delay_s[kept]))

    def _law_of(self, first: int) -> DelayLaw:
        """The law of all from a position on, each counted once."""
        if first not in self._unweighted:
            own = self.delay_s[first:]
            self._unweighted[first] = DelayLaw(own, np.ones(len(own)))
        return self._unweighted[first]

    def _changed_at(self, range_s: float, target: float) -> int:
        """The position from which on the tuples follow one law."""
        first, last = 0, len(self.delay_s)
        while last - first >= 2 * LEAST_TUPLES:
            own = np.maximum(self.delay_s[first:], 0.0)
            at_s = self._law_of(first).slack_s(target, range_s)
            missed = np.clip(own - at_s, 0.0, range_s) / range_s
            tries = np.arange(np.log((len(own) - LEAST_TUPLES) / LEAST_TUPLES) / np.log(_SPLIT_GROWTH))
            newest = np.unique(np.append(LEAST_TUPLES, LEAST_TUPLES * _SPLIT_GROWTH**tries)).astype(np.int64)
            older = len(own) - newest
            total, squares = (np.concatenate([[0.0], np.cumsum(x)]) for x in (missed, missed**2))
            new, old = (total[-1] - total[older]) / newest, total[older] / older
            spread = np.maximum((squares[-1] - squares[older]) / newest - new**2, squares[older] / older - old**2)
            differs = np.abs(new - old) / np.sqrt(np.maximum(spread, 1e-12) * (1 / newest + 1 / older))
            split = int(differs.argmax())
            if differs[split] < _CHANGED_AT_SD:
                break
            first += int(older[split])
        return first
