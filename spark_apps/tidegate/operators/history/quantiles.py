"""Percentiles from the samples of history's leaves, with intervals that reach from one sampled value to another."""

from __future__ import annotations

import math

import numpy as np

from tidegate.operators.history.estimators import Bools, Bounds, Estimate, Float64s, LeafSample

# Its multiples have parts that are spread evenly, and fall apart from every order of the rows.
_GOLDEN = (math.sqrt(5) - 1) / 2


def quantile(
    sample: LeafSample,
    qualifies: Bools,
    values: Float64s,
    bounds: Bounds,
    share: float,
    interpolated: bool,
    known: Float64s | None = None,
) -> Estimate:
    """The value at a share of the qualifying values in order, and of further ones that are known.

    Idea: the values below the quantile are a share of all, whose estimate has a variance; a variance of that size is
    one of a binomial number out of n tuples. A sampled value is a bound if the number of them up to it would come out
    as small, or as large, in half of what the confidence leaves over (Woodruff 1952, with the binomial's tails for the
    normal's: the rank bounds of order statistics where all tuples weigh the same). Nothing is assumed of how the values
    are distributed, and equal ones do no harm: they are put in an order that is nobody's.

    Args:
        sample, qualifies, values, bounds: as the methods of ``LeafSample`` have them.
        share: in (0, 1).
        interpolated: whether between two values is what lies between them; else the value of rank ⌈share · n⌉.
        known: float64[h], values that are not sampled but known, such as those that a window holds.

    Cost: O(n log n).
    Guarantee: the interval holds the quantile at least at the confidence, up to the normal approximation of unequal
    weights: more often by up to the chance of a single rank on either side, and where values drift from leaf to leaf,
    since the variance is taken about the share in all leaves. Beyond the last value that can be a bound it reaches to
    the leaves' exact extreme, or is open. Leaves without a sample may hold anything on either side.
    Source: Woodruff, "Confidence intervals for medians and other position measures", JASA 47 (1952); Korn and Graubard,
    "Confidence intervals for proportions with small expected number of positive counts", Survey Methodology 24 (1998).

    >>> sample = LeafSample(np.array([1000]), np.array([0.1]), np.full(100, 0.1), confidence=0.95)
    >>> quantile(sample, np.ones(100, bool), np.arange(100.0), None, 0.5, interpolated=False)
    Estimate(estimate=49.0, low=40.0, high=59.0, exact=False)
    """
    certain = np.empty(0) if known is None else known
    points = np.concatenate([certain, values[qualifies]])
    if sample.complete:
        return Estimate.exactly(_exact(points, share, interpolated))
    if not len(points):
        return Estimate(None, None, None)
    if bounds is not None:
        bounds = min([bounds[0], *certain]), max([bounds[1], *certain])
        if bounds[0] == bounds[1]:
            return Estimate.exactly(bounds[0])
    weights = np.concatenate([np.ones(len(certain)), sample.calibrated[qualifies]])
    errors = np.concatenate([np.zeros(len(certain)), 1 - sample.row_fraction[qualifies]]) * weights**2
    order = np.lexsort((np.arange(len(points)) * _GOLDEN % 1, points))
    points, weights, errors = points[order], weights[order], errors[order]
    total = float(weights.sum())
    weights = weights / total
    reached = np.cumsum(weights)
    reached /= reached[-1]
    before = np.append(0.0, reached[:-1])
    # The tuple at the quantile is partly below it.
    below = np.clip((share - before) / weights, 0.0, 1.0)
    variance = float((errors * (below * (1 - share) ** 2 + (1 - below) * share**2)).sum()) / total**2
    hidden = float(sample.dropped_tuples if qualifies.any() else sample.count(qualifies).high or 0.0) / total
    least, most = max(share - (1 - share) * hidden, 0.0), min(share + share * hidden, 1.0)
    number = share * (1 - share) / variance if variance > 0 else math.inf
    tail = (1 - sample.confidence) / 2
    lows = np.flatnonzero(_up_to(before, number, least) <= tail)
    highs = np.flatnonzero(_up_to(1 - reached, number, 1 - most) <= tail)
    low, high = bounds or (None, None)
    low = float(points[lows[-1]]) if len(lows) else low
    high = float(points[highs[0]]) if len(highs) else high
    at = points[min(int(np.searchsorted(reached, share * (1 - 1e-12))), len(points) - 1)]
    if interpolated:
        between = np.interp(share, (before + reached) / 2, points)
        at = between if np.isfinite(between) else at
    estimate = float(at)
    return Estimate(
        estimate, None if low is None else min(low, estimate), None if high is None else max(high, estimate)
    )


def _up_to(shares: Float64s, number: float, chance: float) -> Float64s:
    """float64[n]: how likely at most such shares of so many tuples are of a kind that each is of by a chance."""
    if chance <= 0:
        return np.ones(len(shares))
    if math.isinf(number):
        return np.where(shares < chance, 0.0, 1.0)
    if chance >= 1:
        return np.where(shares < 1, 0.0, 1.0)
    # scipy takes longer to import than most questions take, and not all need it.
    from scipy.special import betainc

    count = np.clip(shares, 0.0, 1.0) * number
    return np.where(count >= number, 1.0, betainc(np.maximum(number - count, 1e-300), count + 1, 1 - chance))


def _exact(values: Float64s, share: float, interpolated: bool) -> float | None:
    """The quantile of all values there are."""
    if not len(values):
        return None
    ordered = np.sort(values)
    if not interpolated:
        return float(ordered[max(math.ceil(share * len(values)) - 1, 0)])
    position = share * (len(values) - 1)
    low, high = float(ordered[math.floor(position)]), float(ordered[math.ceil(position)])
    part = position - math.floor(position)
    return low if low == high else low * (1 - part) + high * part
