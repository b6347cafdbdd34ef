"""What history says of each kind of aggregate: from samples, from whole leaves, and of windows that it fills."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

import numpy as np

from tidegate.aggregates import AGGREGATES
from tidegate.aggregates.accumulators import GREATEST, LEAST, Extreme
from tidegate.aggregates.base import Estimated
from tidegate.operators.history.estimators import (
    Bools,
    Bounds,
    Estimate,
    Float64s,
    Known,
    LeafSample,
    with_uniform_arrivals,
)
from tidegate.operators.history.quantiles import quantile
from tidegate.operators.history.tree import COUNT, MAX, MAX_TIME, MIN, MIN_TIME, SUM

_MANY = 30


@dataclass(frozen=True, eq=False)
class Sampled:
    """The sampled tuples that an aggregate looks at.

    Args:
        sample: of the leaves that they lie in.
        qualifies: bool[m], which of them count: inside the period, chosen, not NULL.
        values: float64[m], read where ``qualifies``; ones for a count.
        bounds, known: as ``LeafSample`` has them.
        parameters: the aggregate's numbers.
    """

    sample: LeafSample
    qualifies: Bools
    values: Float64s
    bounds: Bounds = None
    known: Known = None
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Leaves:
    """Leaves that a period holds whole, and those that it cuts.

    Args:
        tuples: how many the whole ones have.
        whole: float64[leaf aggregates] of the whole ones' column; None: of no column.
        cut_tuples, share: float64[l], of each cut leaf how many it has, and how much of its length lies inside.
        cut: float64[l, leaf aggregates] of the cut ones' column; None: of no column.
        fraction: the least share of a cut leaf's tuples that is sampled.
        start_us, end_us: the period.
    """

    tuples: int
    whole: Float64s | None
    cut_tuples: Float64s
    share: Float64s
    cut: Float64s | None
    fraction: float
    start_us: int
    end_us: int

    @property
    def count(self) -> float:
        """How many values the whole leaves have."""
        return float(self.tuples if self.whole is None else self.whole[COUNT])

    @property
    def even_count(self) -> float:
        """How many values of the cut leaves lie inside, if they came evenly."""
        return float(((self.cut_tuples if self.cut is None else self.cut[:, COUNT]) * self.share).sum())

    @property
    def sum(self) -> float:
        """What the whole leaves' values add up to."""
        return 0.0 if self.whole is None else float(self.whole[SUM])

    @property
    def even_sum(self) -> float:
        """What the values of the cut leaves inside add up to, if they came evenly."""
        return 0.0 if self.cut is None else float((self.cut[:, SUM] * self.share).sum())

    @property
    def bounds(self) -> Bounds:
        """Least and greatest value of the cut leaves."""
        if self.cut is None:
            return None
        low, high = float(self.cut[:, MIN].min(initial=np.inf)), float(self.cut[:, MAX].max(initial=-np.inf))
        return (low, high) if low <= high else None


class Estimating(ABC):
    """One kind of aggregate.

    ``linear``: whether each tuple moves it by itself, so that expressions have intervals. ``in_leaves``: whether whole
    leaves answer it exactly. ``of_conditions``: whether its values are conditions, 1 or 0, and it is one.
    """

    linear = True
    counts_rows = False
    in_leaves = True
    of_conditions = False

    @abstractmethod
    def filled(self, held: Float64s, rest: Sampled) -> Estimate:
        """Over tuples that are known, and those that samples stand for."""

    @abstractmethod
    def sampled(self, seen: Sampled) -> Estimate:
        """From samples alone."""

    def over_leaves(self, leaves: Leaves, seen: Sampled) -> Estimate:
        """Exact over whole leaves; over cut ones from their samples. Asked where ``in_leaves`` says so."""
        raise NotImplementedError

    def of_leaves(self, tuples: int, totals: Float64s | None) -> float | None:
        """Of whole leaves, exactly. Asked where ``in_leaves`` says so."""
        raise NotImplementedError

    def influence(self, seen: Sampled, estimated: float, count: float) -> Float64s:
        """float64[m]: how far each sampled tuple, per unit of its weight, moves the aggregate."""
        raise NotImplementedError


class Counting(Estimating):
    """How many."""

    counts_rows = True

    def filled(self, held: Float64s, rest: Sampled) -> Estimate:
        """The known ones, and the estimated ones."""
        return rest.sample.count(rest.qualifies).plus(float(len(held)))

    def sampled(self, seen: Sampled) -> Estimate:
        """By the samples' weights."""
        return seen.sample.count(seen.qualifies)

    def over_leaves(self, leaves: Leaves, seen: Sampled) -> Estimate:
        """As the class says."""
        rows = int(seen.qualifies.sum())
        found = with_uniform_arrivals(seen.sample.count(seen.qualifies), leaves.even_count, leaves.fraction, rows)
        return found.plus(leaves.count)

    def of_leaves(self, tuples: int, totals: Float64s | None) -> float | None:
        """Tuples, or values."""
        return float(tuples if totals is None else totals[COUNT])

    def influence(self, seen: Sampled, estimated: float, count: float) -> Float64s:
        """One for each."""
        return np.where(seen.qualifies, 1.0, 0.0)


class Adding(Estimating):
    """What they add up to."""

    def filled(self, held: Float64s, rest: Sampled) -> Estimate:
        """The known sum, and the estimated one."""
        found = rest.sample.total(rest.qualifies, rest.values, rest.bounds, rest.known)
        if found.exact and found.estimate is None:
            return Estimate.exactly(fsum(held) if len(held) else None)
        return found.plus(fsum(held))

    def sampled(self, seen: Sampled) -> Estimate:
        """By the samples' weights."""
        return seen.sample.total(seen.qualifies, seen.values, seen.bounds, seen.known)

    def over_leaves(self, leaves: Leaves, seen: Sampled) -> Estimate:
        """As the class says."""
        found = self.sampled(seen)
        if found.exact and found.estimate is None:
            return Estimate.exactly(leaves.sum if leaves.count else None)
        rows = int(seen.qualifies.sum())
        return with_uniform_arrivals(found, leaves.even_sum, leaves.fraction, rows).plus(leaves.sum)

    def of_leaves(self, tuples: int, totals: Float64s | None) -> float | None:
        """NULL without values."""
        return None if totals is None or totals[COUNT] == 0 else float(totals[SUM])

    def influence(self, seen: Sampled, estimated: float, count: float) -> Float64s:
        """Its value."""
        return np.where(seen.qualifies, seen.values, 0.0)


class Averaging(Estimating):
    """What they are on average."""

    def filled(self, held: Float64s, rest: Sampled) -> Estimate:
        """The known and the estimated ones, by their weights."""
        known = float(len(held)), fsum(held)
        return rest.sample.mean(rest.qualifies, rest.values, rest.bounds, *known, known=rest.known)

    def sampled(self, seen: Sampled) -> Estimate:
        """By the samples' weights."""
        return seen.sample.mean(seen.qualifies, seen.values, seen.bounds, known=seen.known)

    def over_leaves(self, leaves: Leaves, seen: Sampled) -> Estimate:
        """As the class says."""
        counted, added, even = leaves.count, leaves.sum, leaves.even_count
        found = seen.sample.mean(seen.qualifies, seen.values, seen.bounds, counted, added, seen.known)
        if counted + even <= 0:
            return found
        if found.estimate is None and not found.exact and not counted:
            found = Estimate(None, *(seen.bounds or (None, None)))
        mean, rows = (added + leaves.even_sum) / (counted + even), int(seen.qualifies.sum())
        return with_uniform_arrivals(found, mean, leaves.fraction, rows)

    def of_leaves(self, tuples: int, totals: Float64s | None) -> float | None:
        """NULL without values."""
        return None if totals is None or totals[COUNT] == 0 else float(totals[SUM] / totals[COUNT])

    def influence(self, seen: Sampled, estimated: float, count: float) -> Float64s:
        """How far it lies from the average, over how many there are."""
        return np.where(seen.qualifies, (seen.values - estimated) / max(count, 1.0), 0.0)


@dataclass(frozen=True)
class Best(Estimating):
    """The least or the largest of them. ``at``, ``happened``: where leaves hold it, and when it was."""

    extreme: Extreme
    at: int
    happened: int
    linear = False

    def filled(self, held: Float64s, rest: Sampled) -> Estimate:
        """The better of both; the leaves' own extreme is the bound beyond it."""
        sign, bounds = float(self.extreme.sign), rest.bounds
        seen = np.concatenate([held, rest.values[rest.qualifies]])
        if rest.sample.complete:
            return Estimate.exactly(float(sign * (sign * seen).min()) if len(seen) else None)
        ends = None if bounds is None else sorted(sign * bound for bound in bounds)
        if not len(seen):
            return Estimate(None, *(bounds or (None, None)))
        best = float((sign * seen).min())
        reach = None if ends is None else min(best, ends[0])
        low, high = (reach, best) if sign > 0 else (-best, None if reach is None else -reach)
        return Estimate(sign * best, low, high, exact=reach == best)

    def sampled(self, seen: Sampled) -> Estimate:
        """What the sample shows, and the exact extreme of the leaves as the bound beyond it."""
        return seen.sample.extreme(self.extreme, seen.qualifies, seen.values, seen.bounds)

    def over_leaves(self, leaves: Leaves, seen: Sampled) -> Estimate:
        """A cut leaf's extreme counts if it happened inside the period.

        If it happened outside, it bounds what may lie inside; the sample shows what certainly does.
        """
        assert leaves.cut is not None and leaves.whole is not None
        sign, happened = float(self.extreme.sign), leaves.cut[:, self.happened]
        inside = (happened >= leaves.start_us) & (happened < leaves.end_us)
        candidates = sign * leaves.cut[:, self.at]
        shown = sign * seen.values[seen.qualifies]
        best = min([sign * float(leaves.whole[self.at]), *candidates[inside], *shown])
        open_ = candidates[~inside & (leaves.cut[:, COUNT] > 0)]
        reach = min([best, *open_]) if not seen.sample.complete else best
        if not np.isfinite(best):
            if not np.isfinite(reach):
                return Estimate.exactly(None)
            return Estimate(None, *(leaves.bounds or (None, None)))
        low, high = sorted((sign * best, sign * reach))
        return Estimate(sign * best, low, high, exact=best == reach)

    def of_leaves(self, tuples: int, totals: Float64s | None) -> float | None:
        """NULL without values."""
        return None if totals is None or totals[COUNT] == 0 else float(totals[self.at])


@dataclass(frozen=True)
class Varying(Estimating):
    """How far they lie apart: a variance, or with ``root`` a deviation. ``freedom``: what is taken off their number.

    Leaves do not answer: their sums of squares are doubles, which lose the digits of large values near each other.
    """

    freedom: int
    root: bool
    linear = False
    in_leaves = False

    def filled(self, held: Float64s, rest: Sampled) -> Estimate:
        """Of both together."""
        found = rest.sample.variance(rest.qualifies, rest.values, rest.bounds, held)
        return self._of(*found, len(held) + int(rest.qualifies.sum()))

    def sampled(self, seen: Sampled) -> Estimate:
        """By the samples' weights."""
        found = seen.sample.variance(seen.qualifies, seen.values, seen.bounds)
        return self._of(*found, int(seen.qualifies.sum()))

    def _of(self, count: float, variance: Estimate, shown: int) -> Estimate:
        """The same of the population's variance, of so many values, some of them ``shown``."""
        if variance.estimate is None or count <= self.freedom:
            return Estimate.exactly(None) if variance.exact else Estimate(None, 0.0, None)
        scale = count / (count - self.freedom)
        # There may be no more than are shown, and of few the freedom is much.
        most = scale if shown >= _MANY else shown / (shown - self.freedom) if shown > self.freedom else math.inf
        low, high = variance.low, variance.high
        scaled = [
            None if value is None or math.isinf(by) else value * by
            for value, by in ((variance.estimate, scale), (low, scale), (high, most))
        ]
        if self.root:
            scaled = [None if value is None else math.sqrt(value) for value in scaled]
        return Estimate(scaled[0], scaled[1], scaled[2], variance.exact)


@dataclass(frozen=True)
class Ranked(Estimating):
    """The value at a share of them in order, the first of the parameters. ``interpolated``: or between two of them."""

    interpolated: bool
    linear = False
    in_leaves = False

    def filled(self, held: Float64s, rest: Sampled) -> Estimate:
        """Of both together."""
        share = rest.parameters[0]
        if not 0 < share < 1:
            return _KINDS["greatest" if share else "least"].filled(held, rest)
        return quantile(rest.sample, rest.qualifies, rest.values, rest.bounds, share, self.interpolated, held)

    def sampled(self, seen: Sampled) -> Estimate:
        """By the samples' weights."""
        return self.filled(np.empty(0), seen)


@dataclass(frozen=True)
class Deciding(Estimating):
    """Whether one of them is as it says, or without ``decisive`` whether all are true.

    ``decisive``: the value of which one decides. A sample that shows none says nothing for certain: a single tuple that
    it lacks may decide otherwise.
    """

    decisive: bool
    linear = False
    in_leaves = False
    of_conditions = True

    def filled(self, held: Float64s, rest: Sampled) -> Estimate:
        """Of both together: known if one of either decides, or there are no others."""
        seen = np.concatenate([held, rest.values[rest.qualifies]]) != 0
        if (seen == self.decisive).any():
            return Estimate.exactly(self.decisive)
        if rest.sample.complete:
            return Estimate.exactly(not self.decisive if len(seen) else None)
        return Estimate(not self.decisive, False, True) if len(seen) else Estimate(None, None, None)

    def sampled(self, seen: Sampled) -> Estimate:
        """What the sample shows."""
        return self.filled(np.empty(0), seen)


_KINDS: Mapping[Estimated, Estimating] = {
    "count": Counting(),
    "sum": Adding(),
    "average": Averaging(),
    "least": Best(LEAST, MIN, MIN_TIME),
    "greatest": Best(GREATEST, MAX, MAX_TIME),
    "var_pop": Varying(0, root=False),
    "var_samp": Varying(1, root=False),
    "stddev_pop": Varying(0, root=True),
    "stddev_samp": Varying(1, root=True),
    "percentile": Ranked(interpolated=True),
    "percentile_approx": Ranked(interpolated=False),
    "every": Deciding(False),
    "some": Deciding(True),
}


def estimating(function: str) -> Estimating:
    """What history says of an aggregate; KeyError if it says nothing of it.

    >>> estimating("avg").of_leaves(4, np.array([3.0, 12.0, 0.0, 9.0]))
    4.0
    """
    estimated = AGGREGATES[function].estimated
    if estimated is None:
        raise KeyError(function)
    return _KINDS[estimated]
