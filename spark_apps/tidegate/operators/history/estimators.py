"""Estimates with intervals from the samples of history's leaves.

Leaves are strata with different sampling fractions. Within a leaf every tuple was kept with the same probability
f, independently (Bernoulli sampling by u < f); the exact number of tuples of each leaf is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, stdtrit

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Bounds = tuple[float, float] | None

_LEAST_EFFECTIVE_ROWS = 2.0
_LARGEST_QUANTILE = 3.0


@dataclass(frozen=True)
class Estimate:
    """An estimate with its interval. ``estimate`` None: no estimate; ``low``/``high`` None: no bound is known."""

    estimate: float | None
    low: float | None
    high: float | None
    exact: bool = False

    @classmethod
    def exactly(cls, value: float | None) -> Estimate:
        """A value that is known."""
        return cls(value, value, value, True)

    def plus(self, constant: float) -> Estimate:
        """The same with a known amount added."""
        shifted = [None if v is None else v + constant for v in (self.estimate, self.low, self.high)]
        return Estimate(shifted[0], shifted[1], shifted[2], self.exact)


@dataclass(frozen=True, eq=False)
class LeafSample:
    """The leaves that a scope touches, and the sampled tuples in them.

    Idea: the inclusion probabilities give Horvitz–Thompson totals; the exact number of tuples calibrates them (combined
    ratio estimator N · Σwz / Σw), which never hurts and takes away most of the variance of unselective queries.
    Variances are linearised Bernoulli: Σ (z − R)²·(1 − f)/f². COUNT is a proportion of N: its interval is Jeffreys'
    with the effective sample size that gives that variance, so that it holds for a handful of rows too. SUM and AVG use
    Student's t with n_eff − 1 degrees of freedom, n_eff = (Σw)²/Σw² over the qualifying rows.

    Args:
        leaf_tuples: int64[L], exact number of tuples of each leaf.
        leaf_fraction: float64[L], its fraction; 0 where the sample is dropped.
        row_fraction: float64[m], inclusion probability of each sampled tuple in those leaves, qualifying or not.
        confidence: level of the intervals, in (0, 1).

    Methods take ``qualifies``: bool[m], which sampled tuples the query selects, and ``values``: float64[m] (read only
    where ``qualifies``), with ``bounds``: least and greatest value that any tuple of these leaves has, if known.

    Cost: O(m + L log L) each.
    Guarantee: never 0 ± 0. Where no sampled tuple qualifies there is no estimate, only the bound that the fractions
    imply. Where fewer than two effective rows do, or all look alike, the interval comes from exact extremes and from
    how many unlike tuples could have gone unseen. Leaves without a sample add all that they could add. Intervals of
    SUM and AVG are asymptotic: they undercover where few rows of a very skewed column qualify.
    Source: papers/03, "Settled here", "Intervals".

    >>> sample = LeafSample(np.array([1000]), np.array([0.1]), np.full(100, 0.1), confidence=0.95)
    >>> count = sample.count(np.arange(100) < 30)
    >>> round(count.estimate), round(count.low), round(count.high)
    (300, 221, 390)
    >>> nothing = sample.count(np.zeros(100, bool))
    >>> nothing.estimate, nothing.low, round(nothing.high, 1)
    (None, 0.0, 28.4)
    """

    leaf_tuples: Int64s
    leaf_fraction: Float64s
    row_fraction: Float64s
    confidence: float

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must lie between 0 and 1, not {self.confidence}")
        if len(self.row_fraction) and not ((self.row_fraction > 0) & (self.row_fraction <= 1)).all():
            raise ValueError("inclusion probabilities must lie in (0, 1]")

    @property
    def tuples(self) -> int:
        """Exact number of tuples of the leaves that have a sample."""
        return int(self.leaf_tuples[self.leaf_fraction > 0].sum())

    @property
    def dropped_tuples(self) -> int:
        """Exact number of tuples of the leaves whose sample is gone."""
        return int(self.leaf_tuples[self.leaf_fraction <= 0].sum())

    @property
    def complete(self) -> bool:
        """Whether the sample holds every tuple."""
        return not ((self.leaf_fraction < 1) & (self.leaf_tuples > 0)).any()

    def unseen(self) -> float:
        """The most tuples of some kind that these leaves may hold, at the confidence, if the sample shows none.

        n tuples of a leaf all stay unseen with probability (1 − f)^n: Σ n·(−ln(1 − f)) ≤ −ln(1 − confidence). The worst
        case fills the thinnest leaves first.
        """
        room, most = -math.log(1 - self.confidence), float(self.dropped_tuples)
        for fraction, tuples in sorted(zip(self.leaf_fraction.tolist(), self.leaf_tuples.tolist(), strict=True)):
            if 0 < fraction < 1 and room > 0:
                surprise = -math.log1p(-fraction)
                hidden = min(float(tuples), room / surprise)
                most, room = most + hidden, room - hidden * surprise
        return most

    def count(self, qualifies: Bools) -> Estimate:
        """COUNT of the qualifying tuples."""
        seen, rows = int(qualifies.sum()), len(qualifies)
        if self.complete:
            return Estimate.exactly(float(seen))
        tuples, dropped = self.tuples, self.dropped_tuples
        if seen == 0:
            return Estimate(None, 0.0, min(self.unseen(), float(tuples - rows + dropped)))
        weight = 1 / self.row_fraction
        share = float(weight[qualifies].sum() / weight.sum())
        # What was seen is certain: at least the qualifying, at most all but the others.
        least, most = float(seen), float(max(tuples - (rows - seen), seen))
        if seen == rows:
            low, high = tuples - (self.unseen() - dropped), most
        else:
            residual = np.where(qualifies, 1 - share, -share)
            variance = self._spread(residual) / float(weight.sum()) ** 2
            if variance > 0:
                effective = share * (1 - share) / variance
                low, high = (tuples * b for b in _jeffreys(share * effective, effective, self.confidence))
            else:
                low, high = least, most
        estimate = min(max(tuples * share, least), most)
        return Estimate(
            estimate + dropped * share, min(max(low, least), estimate), max(min(high, most), estimate) + dropped
        )

    def total(self, qualifies: Bools, values: Float64s, bounds: Bounds) -> Estimate:
        """SUM of a value over the qualifying tuples."""
        if self.complete:
            return Estimate.exactly(math.fsum(values[qualifies]) if qualifies.any() else None)
        count = self.count(qualifies)
        if count.estimate is None:
            hidden = count.high or 0.0
            low, high = (None, None) if bounds is None else (hidden * min(bounds[0], 0), hidden * max(bounds[1], 0))
            return Estimate(None, low, high)
        tuples, dropped = self.tuples, self.dropped_tuples
        weight = 1 / self.row_fraction
        taken = np.where(qualifies, values, 0.0)
        mean = float((weight * taken).sum() / weight.sum())
        below, above = (r * tuples / float(weight.sum()) for r in self._reach(qualifies, taken - mean))
        estimate = tuples * mean
        if math.isfinite(below) and below > 0:
            low, high = estimate - below, estimate + above
        elif bounds is None:
            return Estimate(estimate + dropped * mean, None, None)
        elif math.isfinite(below):
            # All rows look alike: as many as can have gone unseen may differ as far as the extremes allow.
            hidden = self.unseen() - dropped
            low = estimate - hidden * max(mean - min(bounds[0], 0.0), 0.0)
            high = estimate + hidden * max(max(bounds[1], 0.0) - mean, 0.0)
        else:
            counts = (count.low or 0.0, (count.high or 0.0) - dropped)
            low, high = min(c * bounds[0] for c in counts), max(c * bounds[1] for c in counts)
            low, high = min(low, estimate), max(high, estimate)
        if dropped:
            if bounds is None:
                return Estimate(estimate + dropped * mean, None, None)
            low, high = low + dropped * min(bounds[0], 0.0), high + dropped * max(bounds[1], 0.0)
        return Estimate(estimate + dropped * mean, low, high)

    def mean(
        self, qualifies: Bools, values: Float64s, bounds: Bounds, known_count: float = 0.0, known_sum: float = 0.0
    ) -> Estimate:
        """AVG of a value over the qualifying tuples and, if given, over further tuples with known count and sum."""
        if not qualifies.any() and (known_count == 0 or self.complete):
            known = known_sum / known_count if known_count else None
            return Estimate.exactly(known) if self.complete else Estimate(None, None, None)
        if self.complete:
            count = known_count + int(qualifies.sum())
            return Estimate.exactly((known_sum + math.fsum(values[qualifies])) / count)
        counted = self.count(qualifies)
        if counted.estimate is None:
            return self._mean_of_unseen(counted, bounds, known_count, known_sum)
        weight = 1 / self.row_fraction
        if bounds is not None and bounds[0] == bounds[1] and known_count == 0:
            return Estimate.exactly(bounds[0])
        # Σwy/Σw over the qualifying is what N·Σwz/Σw makes of the sum and of the count alike.
        own = float((weight * np.where(qualifies, values, 0.0)).sum() / weight[qualifies].sum())
        count = known_count + counted.estimate
        mean = (known_sum + own * counted.estimate) / count
        residual = np.where(qualifies, values - mean, 0.0)
        residual = residual - float((weight * residual).sum() / weight.sum())
        scale = self.tuples / float(weight.sum()) / count
        below, above = (r * scale for r in self._reach(qualifies, residual))
        dropped = self.dropped_tuples > 0
        if math.isfinite(below) and below > 0 and not dropped:
            low, high = mean - below, mean + above
            if bounds is not None and known_count == 0:
                low, high = max(low, bounds[0]), min(high, bounds[1])
            return Estimate(mean, min(low, mean), max(high, mean))
        if bounds is None:
            return Estimate(mean, None, None)
        # Few rows, rows that all look alike, or leaves without a sample: anything unseen may lie at the extremes.
        alike = below == 0 and not dropped
        hidden = self.unseen() if alike else counted.high or 0.0
        share = hidden / (count + hidden) if alike or known_count else 1.0
        low, high = mean - share * max(mean - bounds[0], 0.0), mean + share * max(bounds[1] - mean, 0.0)
        return Estimate(mean, low, high)

    def extreme(self, function: Literal["min", "max"], qualifies: Bools, values: Float64s, bounds: Bounds) -> Estimate:
        """MIN or MAX: what the sample shows, and the exact extreme of the leaves as the bound beyond it."""
        if not qualifies.any():
            return Estimate.exactly(None) if self.complete else Estimate(None, None, None)
        seen = float(values[qualifies].min() if function == "min" else values[qualifies].max())
        if self.complete:
            return Estimate.exactly(seen)
        if function == "min":
            low = None if bounds is None else min(bounds[0], seen)
            return Estimate(seen, low, seen, exact=low == seen)
        high = None if bounds is None else max(bounds[1], seen)
        return Estimate(seen, seen, high, exact=high == seen)

    def _mean_of_unseen(self, counted: Estimate, bounds: Bounds, known_count: float, known_sum: float) -> Estimate:
        mean, hidden = known_sum / known_count, counted.high or 0.0
        if bounds is None:
            return Estimate(mean, None, None)
        ends = [(known_sum + hidden * bound) / (known_count + hidden) for bound in bounds]
        return Estimate(mean, min(mean, *ends), max(mean, *ends))

    def _spread(self, residual: Float64s) -> float:
        """Variance of the total Σ residual/f under Bernoulli sampling."""
        return float((residual**2 * (1 - self.row_fraction) / self.row_fraction**2).sum())

    def _reach(self, qualifies: Bools, residual: Float64s) -> tuple[float, float]:
        """How far the total's interval reaches below and above; infinite where too few rows qualify to tell.

        Student's t is widened on the side of the long tail by the first Edgeworth term, κ·(1 + 2t²)/6, where κ is the
        skewness of the estimated total: the rare large value that the sample lacks lies on that side.
        """
        weight = 1 / self.row_fraction[qualifies]
        effective = float(weight.sum() ** 2 / (weight**2).sum())
        if effective < _LEAST_EFFECTIVE_ROWS:
            return math.inf, math.inf
        parts = residual * np.sqrt(1 - self.row_fraction) / self.row_fraction
        spread = float((parts**2).sum())
        # Below rounding the residuals are those of rows that are all alike.
        if spread <= float(weight.sum()) ** 2 * 1e-28 * float((residual**2).max(initial=0.0)):
            return 0.0, 0.0
        quantile = float(stdtrit(effective - 1, (1 + self.confidence) / 2))
        skewness = float((parts**3).sum()) / spread**1.5
        tail = skewness * (1 + 2 * min(quantile, _LARGEST_QUANTILE) ** 2) / 6
        error = math.sqrt(spread)
        return error * (quantile + max(-tail, 0.0)), error * (quantile + max(tail, 0.0))


def _jeffreys(successes: float, trials: float, confidence: float) -> tuple[float, float]:
    """Jeffreys' interval of a proportion; the numbers need not be whole.

    >>> [round(b, 3) for b in _jeffreys(3, 10, 0.95)]
    [0.093, 0.606]
    """
    tail = (1 - confidence) / 2
    a, b = successes + 0.5, trials - successes + 0.5
    return float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1 - tail))
