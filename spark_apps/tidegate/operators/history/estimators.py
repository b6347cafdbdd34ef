"""Estimates with intervals from the samples of history's leaves.

Leaves are strata with different sampling fractions. Within a leaf every tuple was kept with the same probability
f, independently (Bernoulli sampling by u < f); the exact number of tuples of each leaf is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.aggregates.accumulators import Extreme

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Bounds = tuple[float, float] | None
Known = tuple[Float64s, float] | None

_LEAST_EFFECTIVE_ROWS = 2.0
_LARGEST_QUANTILE = 3.0
_LEAST_REACH = 0.1
_FEW_ROWS = 10.0
_EVEN_FRACTION = 2 / 3
_LEAST_BLOCK_ROWS = 40
_LEAST_REGRESSION_ROWS = 30


@dataclass(frozen=True)
class Estimate:
    """An estimate with its interval. ``estimate`` None: no estimate; ``low``/``high`` None: no bound is known.

    Of conditions all are booleans. A value that is known of all tuples may be of any type.
    """

    estimate: float | None
    low: float | None
    high: float | None
    exact: bool = False

    @classmethod
    def exactly(cls, value: Any) -> Estimate:
        """A value that is known."""
        return cls(value, value, value, True)

    def as_dict(self) -> dict[str, float | bool | None]:
        """As the command and the reports show it."""
        return {"estimate": self.estimate, "low": self.low, "high": self.high, "exact": self.exact}

    def plus(self, constant: float) -> Estimate:
        """The same with a known amount added."""
        shifted = [None if v is None else v + constant for v in (self.estimate, self.low, self.high)]
        return Estimate(shifted[0], shifted[1], shifted[2], self.exact)


@dataclass(frozen=True, eq=False)
class LeafSample:
    """The leaves that a scope touches, and the sampled tuples in them.

    Idea: the inclusion probabilities give Horvitz–Thompson totals; what is exactly known of the leaves calibrates them.
    First the number of tuples: leaves are taken together in blocks of at least 40 sampled rows, and each block's rows
    weigh N/Σw times more (separate ratio estimator). Then, where the leaves know the exact sum of the column that is
    asked for, the estimate moves by B·(exact − estimated sum), B the slope within blocks (generalised regression).
    Variances are linearised Bernoulli over the residuals e: Σ (g·e)²·(1 − f)/f². COUNT is a proportion of N: its
    interval is Jeffreys' with the effective sample size that gives that variance, so that it holds for a handful of
    rows too. SUM and AVG use Student's t with n_eff − 1 degrees of freedom, n_eff = (Σw)²/Σw² over the qualifying rows.

    Args:
        leaf_tuples: int64[L], exact number of tuples of each leaf.
        leaf_fraction: float64[L], its fraction; 0 where the sample is dropped.
        row_fraction: float64[m], inclusion probability of each sampled tuple in those leaves, qualifying or not.
        confidence: level of the intervals, in (0, 1).
        leaf_of_row: int64[m], index of each sampled tuple's leaf; None: all leaves make one block.

    Methods take ``qualifies``: bool[m], which sampled tuples the query selects, and ``values``: float64[m] (read only
    where ``qualifies``), with ``bounds``: least and greatest value that any tuple of these leaves has, if known, and
    ``known``: the column's values in all sampled tuples (0 where NULL) with its exact sum over the sampled leaves.

    Cost: O(m + L log L) each.
    Guarantee: never 0 ± 0. Where no sampled tuple qualifies there is no estimate, only the bound that the fractions
    imply. Where fewer than two effective rows do, or all look alike, the interval comes from exact extremes and from
    how many unlike tuples could have gone unseen. Leaves without a sample add all that they could add. Intervals of
    SUM and AVG are asymptotic: they undercover where few rows of a very skewed column qualify.
    Source: papers/03, "Settled here", "Intervals".

    >>> sample = LeafSample(np.array([1000]), np.array([0.1]), np.full(100, 0.1), confidence=0.95)
    >>> count = sample.count(np.arange(100) < 30)
    >>> round(count.estimate), round(count.low), round(count.high)
    (300, 220, 390)
    >>> nothing = sample.count(np.zeros(100, bool))
    >>> nothing.estimate, nothing.low, round(nothing.high, 1)
    (None, 0.0, 28.4)
    """

    leaf_tuples: Int64s
    leaf_fraction: Float64s
    row_fraction: Float64s
    confidence: float
    leaf_of_row: Int64s | None = None

    def __post_init__(self) -> None:
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must lie between 0 and 1, not {self.confidence}")
        if len(self.row_fraction) and not ((self.row_fraction > 0) & (self.row_fraction <= 1)).all():
            raise ValueError("inclusion probabilities must lie in (0, 1]")

    @cached_property
    def weight(self) -> Float64s:
        """float64[m]: Horvitz–Thompson weights, one over the inclusion probability."""
        return 1 / self.row_fraction

    @cached_property
    def calibrated(self) -> Float64s:
        """float64[m]: the weights, moved so that they add up to the exact number of tuples of each block."""
        blocks = self._blocks
        return self.weight * (blocks.tuples / np.maximum(blocks.weight, 1e-300))[blocks.of_row]

    @cached_property
    def _blocks(self) -> _Blocks:
        return _Blocks.of(self)

    @cached_property
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
        estimated = self._blocks.total(qualifies.astype(np.float64))
        share = estimated.total / tuples
        # What was seen is certain: at least the qualifying, at most all but the others.
        least, most = float(seen), float(max(tuples - (rows - seen), seen))
        if seen == rows:
            low, high = tuples - (self.unseen() - dropped), most
        else:
            variance = float((estimated.parts**2).sum()) / tuples**2
            if variance > 0 and 0 < share < 1:
                effective = share * (1 - share) / variance
                low, high = (tuples * b for b in _jeffreys(share * effective, effective, self.confidence))
            else:
                low, high = least, most
        estimate = min(max(tuples * share, least), most)
        return Estimate(
            estimate + dropped * share, min(max(low, least), estimate), max(min(high, most), estimate) + dropped
        )

    def total(self, qualifies: Bools, values: Float64s, bounds: Bounds, known: Known = None) -> Estimate:
        """SUM of a value over the qualifying tuples."""
        if self.complete:
            return Estimate.exactly(math.fsum(values[qualifies]) if qualifies.any() else None)
        count = self.count(qualifies)
        if count.estimate is None:
            hidden = count.high or 0.0
            low, high = (None, None) if bounds is None else (hidden * min(bounds[0], 0), hidden * max(bounds[1], 0))
            return Estimate(None, low, high)
        tuples, dropped = self.tuples, self.dropped_tuples
        estimated = self._blocks.total(np.where(qualifies, values, 0.0), known)
        estimate, mean = estimated.total, estimated.total / tuples
        below, above = self._reach(qualifies, values, estimated)
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
        self,
        qualifies: Bools,
        values: Float64s,
        bounds: Bounds,
        known_count: float = 0.0,
        known_sum: float = 0.0,
        known: Known = None,
    ) -> Estimate:
        """AVG of a value over the qualifying tuples and, if given, over further tuples with known count and sum."""
        if not qualifies.any() and (known_count == 0 or self.complete):
            alone = known_sum / known_count if known_count else None
            return Estimate.exactly(alone) if self.complete else Estimate(None, None, None)
        if self.complete:
            count = known_count + int(qualifies.sum())
            return Estimate.exactly((known_sum + math.fsum(values[qualifies])) / count)
        counted = self.count(qualifies)
        if counted.estimate is None:
            return self._mean_of_unseen(counted, bounds, known_count, known_sum)
        if bounds is not None and bounds[0] == bounds[1] and known_count == 0:
            return Estimate.exactly(bounds[0])
        own_sum = self._blocks.total(np.where(qualifies, values, 0.0), known).total
        own_count = self._blocks.total(qualifies.astype(np.float64), known).total
        if own_count <= 0:
            # The regression has gone astray; the plain ratio cannot.
            known = None
            own_sum = self._blocks.total(np.where(qualifies, values, 0.0)).total
            own_count = self._blocks.total(qualifies.astype(np.float64)).total
        count = known_count + own_count
        mean = (known_sum + own_sum) / count
        linear = self._blocks.total(np.where(qualifies, values - mean, 0.0), known)
        below, above = (r / count for r in self._reach(qualifies, values, linear))
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

    def variance(
        self, qualifies: Bools, values: Float64s, bounds: Bounds, known_values: Float64s | None = None
    ) -> tuple[float, Estimate]:
        """How many values there are, and their variance about their mean; further values may be known.

        A function of three totals: linearised, each tuple moves it by ((x − mean)² − variance) / count. How far off it
        may be is itself known from few large values: Student's t has Satterthwaite's degrees of freedom. Of values
        between a and b it is at most (b − a)²/4 (Popoviciu).
        """
        known = np.empty(0) if known_values is None else known_values
        seen = np.concatenate([known, values[qualifies]])
        if self.complete:
            return float(len(seen)), Estimate.exactly(float(seen.var()) if len(seen) else None)
        if not len(seen):
            return 0.0, Estimate(None, 0.0, None)
        most = None
        if bounds is not None:
            low, high = min([bounds[0], *known]), max([bounds[1], *known])
            most = (high - low) ** 2 / 4
            if most == 0:
                return float(len(seen)), Estimate.exactly(0.0)
        # About a middle of their own, squares keep their digits.
        middle = float(seen.mean())
        apart = np.where(qualifies, values - middle, 0.0)
        count = len(known) + self._blocks.total(qualifies.astype(np.float64)).total
        mean = (math.fsum(known - middle) + self._blocks.total(apart).total) / count
        squares = math.fsum((known - middle) ** 2) + self._blocks.total(apart**2).total
        variance = max(squares / count - mean**2, 0.0)
        if not qualifies.any():
            return count, Estimate(variance, 0.0, most)
        moved = np.where(qualifies, (apart - mean) ** 2 - variance, 0.0)
        below, above = (reach / count for reach in self._reach(qualifies, moved, self._blocks.total(moved), True))
        if not math.isfinite(above) or above <= 0 or self.dropped_tuples:
            return count, Estimate(variance, 0.0, most if most is None else max(most, variance))
        # On the scale of its logarithm it is nearer to normal, and its own errors grow with it.
        with np.errstate(over="ignore"):
            ends = variance * np.exp([-below / variance, above / variance])
        return count, Estimate(variance, float(ends[0]), float(ends[1]) if np.isfinite(ends[1]) else most)

    def extreme(self, extreme: Extreme, qualifies: Bools, values: Float64s, bounds: Bounds) -> Estimate:
        """MIN or MAX: what the sample shows, and the exact extreme of the leaves as the bound beyond it."""
        if not qualifies.any():
            return Estimate.exactly(None) if self.complete else Estimate(None, None, None)
        seen = float(extreme.pick.reduce(values[qualifies]))
        if self.complete:
            return Estimate.exactly(seen)
        if extreme.sign > 0:
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

    def _reach(
        self, qualifies: Bools, values: Float64s, estimated: _Total, uneven: bool = False
    ) -> tuple[float, float]:
        """How far the total's interval reaches below and above; infinite where too few rows qualify to tell.

        Student's interval is moved towards the long tail by the first Edgeworth term, κ·(1 + 2t²)/6 standard errors,
        where κ is the skewness of the estimated total (Johnson 1978): the rare large value that the sample lacks lies
        on that side. ``uneven``: a few of the rows' parts may be most of the error.
        """
        weight = self.weight[qualifies]
        effective = float(weight.sum() ** 2 / (weight**2).sum())
        if effective < _LEAST_EFFECTIVE_ROWS:
            return math.inf, math.inf
        spread = float((estimated.parts**2).sum())
        # Below rounding the residuals are those of rows that are all alike.
        if spread <= float(self.weight.sum()) ** 2 * 1e-28 * float((values[qualifies] ** 2).max(initial=0.0)):
            return 0.0, 0.0
        # scipy takes longer to import than most questions take, and not all need it.
        from scipy.special import stdtrit

        freedom = effective - 1
        if uneven:
            freedom = min(freedom, 2 / float(((estimated.parts**2 / spread) ** 2).sum()))
        quantile = float(stdtrit(freedom, (1 + self.confidence) / 2))
        skewness = float((estimated.parts**3).sum()) / spread**1.5
        tail = skewness * (1 + 2 * min(quantile, _LARGEST_QUANTILE) ** 2) / 6
        error = math.sqrt(spread)
        # Few rows know too little of the skewness to give anything away on the other side.
        given = min(max(effective / _FEW_ROWS - 1, 0.0), 1.0)
        least = _LEAST_REACH * quantile
        below = quantile - (tail if tail < 0 else given * tail)
        above = quantile + (tail if tail > 0 else given * tail)
        return error * max(below, least), error * max(above, least)


@dataclass(frozen=True, eq=False)
class _Total:
    """A calibrated total; ``parts``: what each row adds to its error, times the deviation of its being sampled."""

    total: float
    parts: Float64s


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Sampled rows in blocks of leaves whose exact numbers of tuples are known."""

    sample: LeafSample
    of_row: Int64s
    tuples: Float64s
    weight: Float64s
    rows: Float64s

    @classmethod
    def of(cls, sample: LeafSample) -> _Blocks:
        known = np.where(sample.leaf_fraction > 0, sample.leaf_tuples, 0).astype(np.float64)
        if sample.leaf_of_row is None or len(known) == 0:
            block_of_leaf = np.zeros(len(known), np.int64)
        else:
            rows = np.bincount(sample.leaf_of_row, minlength=len(known))
            block_of_leaf = _runs_of_at_least(rows, _LEAST_BLOCK_ROWS)
        of_row = (
            np.zeros(len(sample.weight), np.int64) if sample.leaf_of_row is None else block_of_leaf[sample.leaf_of_row]
        )
        count = int(block_of_leaf.max(initial=0)) + 1
        return cls(
            sample,
            of_row,
            np.bincount(block_of_leaf, weights=known, minlength=count).astype(np.float64),
            np.bincount(of_row, weights=sample.weight, minlength=count).astype(np.float64),
            np.bincount(of_row, minlength=count).astype(np.float64),
        )

    def _centred(self, z: Float64s) -> tuple[float, Float64s]:
        """Σ N · block mean, and the residuals about the block means."""
        sums = np.bincount(self.of_row, weights=self.sample.weight * z, minlength=len(self.tuples))
        means = sums / np.maximum(self.weight, 1e-300)
        return float((self.tuples * means).sum()), z - means[self.of_row]

    def total(self, z: Float64s, known: Known = None) -> _Total:
        """The calibrated total of z over all tuples of the leaves."""
        weight, fraction = self.sample.weight, self.sample.row_fraction
        total, residual = self._centred(z)
        if known is not None and len(z) >= _LEAST_REGRESSION_ROWS:
            around, apart = self._centred(known[0])
            with np.errstate(over="ignore"):  # too large to be adjusted by
                square, of_known = float((weight * apart**2).sum()), float((weight * known[0] ** 2).sum())
            if square > of_known * 1e-12:
                slope = float((weight * apart * residual).sum()) / square
                total, residual = total + slope * (known[1] - around), residual - slope * apart
        # A block's own mean takes up one degree of freedom.
        adjusted = self.tuples / np.maximum(self.weight, 1e-300) * np.sqrt(self.rows / np.maximum(self.rows - 1, 1))
        parts = residual * adjusted[self.of_row] * np.sqrt(1 - fraction) / fraction
        return _Total(total, parts)


def _runs_of_at_least(rows: Int64s, least: int) -> Int64s:
    """The number of the run that each leaf belongs to: consecutive leaves with at least so many rows together.

    >>> _runs_of_at_least(np.array([3, 1, 2, 5, 1]), 4).tolist()
    [0, 0, 1, 1, 1]
    """
    run, held, number = np.zeros(len(rows), np.int64), 0, 0
    for index, count in enumerate(rows.tolist()):
        run[index] = number
        held += count
        if held >= least:
            number, held = number + 1, 0
    # What is left over is too little for a run of its own.
    return np.minimum(run, max(number - 1, 0))


def with_uniform_arrivals(found: Estimate, share: float, fraction: float, rows: int) -> Estimate:
    """What lies inside a cut leaf: from its sample, or from its exact aggregates as if tuples arrived evenly.

    Idea: of N tuples a part p lies inside. Counted in the sample their number has the variance N·p(1 − p)·(1 − f)/f,
    taken as the share of N it has N·p(1 − p) if arrivals are uniform; in an average the share's errors cancel besides.
    So below f = 2/3 the share is the better guess, unless a sample of ten rows or more contradicts it: it lies beyond
    twice the interval. The interval remains the sample's, which assumes nothing, widened to hold the guess.

    Args:
        found: by the sample.
        share: by covered length / length.
        fraction: at which the cut leaves are held (the least).
        rows: how many sampled tuples qualify.

    >>> with_uniform_arrivals(Estimate(30.0, 20.0, 40.0), 42.0, 0.1, rows=12)
    Estimate(estimate=42.0, low=20.0, high=42.0, exact=False)
    >>> with_uniform_arrivals(Estimate(30.0, 20.0, 40.0), 55.0, 0.1, rows=12).estimate
    30.0
    """
    if found.exact:
        return found
    low = -math.inf if found.low is None else found.low
    high = math.inf if found.high is None else found.high
    if found.estimate is None:
        return Estimate(min(max(share, low), high), found.low, found.high)
    far = (2 * low - found.estimate, 2 * high - found.estimate)
    contradicted = rows >= _FEW_ROWS and not far[0] <= share <= far[1]
    if fraction >= _EVEN_FRACTION or contradicted:
        return found
    reached = (None if found.low is None else min(low, share), None if found.high is None else max(high, share))
    return Estimate(share, *reached)


def _jeffreys(successes: float, trials: float, confidence: float) -> tuple[float, float]:
    """Jeffreys' interval of a proportion; the numbers need not be whole.

    >>> [round(b, 3) for b in _jeffreys(3, 10, 0.95)]
    [0.093, 0.606]
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    a, b = successes + 0.5, trials - successes + 0.5
    return float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1 - tail))
