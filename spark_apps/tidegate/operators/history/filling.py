"""A window that reaches back less far than its range, filled from history: what it holds, and samples of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.operators.history.estimating import Estimating, Sampled, estimating
from tidegate.operators.history.estimators import Estimate, Float64s

_STEP = 1e-6
"""Relative step of the numeric derivatives: the third root of a double's precision balances both errors."""
Expression = Callable[[Float64s], Float64s]


@dataclass(frozen=True, eq=False)
class FilledAggregate:
    """One aggregate over the tuples that a window holds and those of its range that it has let go.

    Idea: the held part is known; of the rest, history's leaves are strata with samples (``LeafSample``). A count or a
    sum adds the known one to the estimated one; an average weighs the two; an extreme is the better of both.

    Args:
        function: one that history estimates.
        held: float64[h], the values of the held tuples that qualify and are not NULL (ones for a count).
        rest: the samples of the leaves that the missing part of the range touches; what lies in it, qualifies, and is
            not NULL counts.

    Cost: O(h + m + L log L).
    Guarantee: that of ``LeafSample``; exact where the missing part's leaves are empty or wholly sampled.
    Source: papers/01, "Widening takes time"; papers/03, "Intervals".

    >>> from tidegate.operators.history.estimators import LeafSample
    >>> sample = LeafSample(np.array([1000]), np.array([0.1]), np.full(100, 0.1), confidence=0.95)
    >>> part = FilledAggregate("count", np.ones(500), Sampled(sample, np.arange(100) < 30, np.ones(100)))
    >>> filled = part.estimate()
    >>> round(filled.estimate), round(filled.low), round(filled.high)
    (800, 720, 890)
    """

    function: str
    held: Float64s
    rest: Sampled

    @property
    def of(self) -> Estimating:
        """What history says of the aggregate."""
        return estimating(self.function)

    def estimate(self) -> Estimate:
        """The aggregate over the whole range, with its interval."""
        return self.of.filled(self.held, self.rest)

    def influence(self, estimated: float, count: float) -> Float64s:
        """float64[m]: how far each sampled tuple, per unit of its weight, moves the aggregate; not of extremes.

        ``estimated``: the aggregate's estimate, ``count``: that of the tuples it is over.
        """
        return self.of.influence(self.rest, estimated, count)


def filled_expression(expression: Expression, parts: Sequence[FilledAggregate]) -> Estimate:
    """An expression over aggregates, such as a ratio of averages, with the interval of its linear approximation.

    Idea: to first order the expression moves with each sampled tuple as the sum of what its aggregates do, weighed by
    the expression's derivatives (Taylor linearisation). That is one value a tuple, and its total has an interval.

    Args:
        expression: float64[n, aggregates] → float64[n]; NaN for NULL.
        parts: the aggregates, over one sample.

    Returns: no estimate if an aggregate has none; no bounds if one is an inexact extreme, or too few rows qualify.
    """
    found = [part.estimate() for part in parts]
    if any(estimate.estimate is None for estimate in found):
        exact = all(estimate.exact for estimate in found)
        return Estimate.exactly(None) if exact else Estimate(None, None, None)
    at = np.array([float(estimate.estimate or 0.0) for estimate in found])
    value = float(expression(at[None, :])[0])
    if all(estimate.exact for estimate in found):
        return Estimate.exactly(None if np.isnan(value) else value)
    if np.isnan(value):
        return Estimate(None, None, None)
    if any(not part.of.linear and not e.exact for part, e in zip(parts, found, strict=True)):
        return Estimate(value, None, None)
    steps = _STEP * np.maximum(np.abs(at), 1.0)
    slopes = (expression(at + np.diag(steps)) - expression(at - np.diag(steps))) / (2 * steps)
    if not np.isfinite(slopes).all():
        return Estimate(value, None, None)
    sample, moved = parts[0].rest.sample, np.zeros(len(parts[0].rest.values))
    for part, estimate, slope in zip(parts, found, slopes.tolist(), strict=True):
        if not estimate.exact:
            count = sample.count(part.rest.qualifies).estimate or 0.0
            moved += slope * part.influence(estimate.estimate or 0.0, count + len(part.held))
    qualifies = np.logical_or.reduce([part.rest.qualifies for part in parts])
    total = sample.total(qualifies, moved, None)
    if total.estimate is None or total.low is None or total.high is None:
        return Estimate(value, None, None)
    return Estimate(value, value - (total.estimate - total.low), value + (total.high - total.estimate))
