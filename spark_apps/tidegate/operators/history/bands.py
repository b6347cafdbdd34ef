"""Geometric bands of priority: thinning that deletes whole bands and rewrites nothing.

A tuple's priority u never changes. Band j holds u in [f_max·q^(j+1), f_max·q^j), the last one everything below. A
period's sample stands at a *level* k: bands k, k + 1, … are there, so its fraction is f_max·q^k. Levels only rise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.declarations.models import History
from tidegate.operators.history.laws import Float64s, Int64s, ages, law_of_age

_HALVINGS_OF_SCALE = 200
_SLACK_DEVIATIONS = 4.0
_SPREAD_OVER = 8


@dataclass(frozen=True)
class Bands:
    """The bands of one stream: ``count`` of them, ``per_halving`` for every factor of two, below ``max_fraction``.

    >>> bands = Bands(0.8, per_halving=1, count=3)
    >>> bands.fractions.tolist()
    [0.8, 0.4, 0.2, 0.0]
    >>> bands.of_priority(np.array([0.79, 0.4, 0.1, 0.8])).tolist()
    [0, 0, 2, -1]
    >>> bands.level_at_most(np.array([0.9, 0.4, 0.39, 0.1])).tolist()
    [0, 1, 2, 3]
    """

    max_fraction: float
    per_halving: int
    count: int

    @classmethod
    def of(cls, spec: History) -> Bands:
        """The bands that a stream's history settings imply: the thinnest fraction is the last at least f_min."""
        halvings = math.log2(spec.max_fraction / spec.min_fraction) if spec.min_fraction > 0 else 40.0
        return cls(spec.max_fraction, spec.bands, max(1, 1 + int(spec.bands * halvings + 1e-9)))

    @property
    def fractions(self) -> Float64s:
        """float64[count + 1]: the fraction at each level; at the last level the sample is gone."""
        levels = np.arange(self.count)
        return np.append(self.max_fraction * 2.0 ** (-levels / self.per_halving), 0.0)

    def of_priority(self, u: Float64s) -> Int64s:
        """The band of each priority; −1 for what no level keeps."""
        return self.count - 1 - np.searchsorted(self.fractions[:-1][::-1], u, side="right")

    def level_at_most(self, fraction: Float64s) -> Int64s:
        """The least level whose fraction is at most this one."""
        return len(self.fractions) - np.searchsorted(self.fractions[::-1], fraction, side="right")


def initial_levels(tuples: Int64s, room: float, left: Int64s, bands: Bands) -> tuple[Int64s, Float64s]:
    """The level at which each period enters: lower fractions where the rate presses, higher where it does not.

    Idea: between two passes the samples that enter share a room of so many tuples. A period may take its part of what
    is left, one of the periods to come (at most one of eight, lest a quiet night be kept for a burst that may not
    come): p = min(f_max, part / tuples), rounded down to a level.

    Args:
        tuples: int64[n], exact number of tuples of consecutive periods.
        room: tuples that may be sampled from the first period to the next pass; renewed by whoever calls.
        left: int64[n], periods from each one to the next pass, itself included.

    Returns:
        int64[n] levels, and float64[n] the room left after each.

    Cost: O(n).
    Guarantee: the expected number of tuples sampled stays within the room, however the rate behaves.
    Source: papers/03, "Sampling" (initial).

    >>> bands = Bands(0.9, per_halving=2, count=20)
    >>> levels, room = initial_levels(np.array([10, 10, 5000, 10]), 100.0, np.array([4, 3, 2, 1]), bands)
    >>> bands.fractions[levels].round(3).tolist(), room.round().tolist()
    ([0.9, 0.9, 0.007, 0.9], [91.0, 82.0, 47.0, 38.0])
    """
    levels, after = np.zeros(len(tuples), np.int64), np.zeros(len(tuples))
    for index, (count, periods) in enumerate(zip(tuples.tolist(), left.tolist(), strict=True)):
        part = max(room, 0.0) / min(periods, _SPREAD_OVER)
        share = part / count if count else 1.0
        level = int(bands.level_at_most(np.array([min(share, bands.max_fraction)]))[0])
        room -= count * float(bands.fractions[level])
        levels[index], after[index] = level, room
    return levels, after


def room_wanted(spec: History, newest_tuples: int) -> float:
    """How much of the store a pass leaves free for what is sampled until the next.

    As much as what entered since the pass before would take at f_max, that tomorrow may be sampled as today; at least
    the reserve, at most half of capacity and reserve, that yesterday may stay.
    """
    store = spec.capacity_tuples * (1 + spec.reserve)
    return min(max(spec.max_fraction * newest_tuples, spec.capacity_tuples * spec.reserve), store / 2)


def pass_capacity(spec: History, newest_tuples: int) -> int:
    """How many sampled tuples a pass lets stay, if so many tuples have entered since the pass before."""
    store = spec.capacity_tuples * (1 + spec.reserve)
    return min(spec.capacity_tuples, int(store - room_wanted(spec, newest_tuples)))


def room_between_passes(spec: History, entered_tuples: int, newest_tuples: int) -> float:
    """How many tuples may be sampled until the next pass, if so many had entered by the last one.

    What that pass has left free, and what the store has not yet been filled with: at most f_max of all that entered is
    in it. Four standard deviations are kept as slack, for the number that is sampled is random.
    """
    held = min(float(pass_capacity(spec, newest_tuples)), spec.max_fraction * entered_tuples)
    room = spec.capacity_tuples * (1 + spec.reserve) - held
    return max(room - _SLACK_DEVIATIONS * math.sqrt(room), room / 2)


def plan_levels(
    tuples: Int64s, rows: npt.NDArray[np.int64], level: Int64s, spec: History, capacity_tuples: int | None = None
) -> Int64s:
    """Decide one pass: the level at which each period is held from now on.

    Idea: the level of the period's target, rounded down to a fraction that bands make, and never a lower level than
    now, for a sample can only be thinned. The law's scale is the largest at which the rows that are really there fit
    the capacity, so rounding and chance leave no budget unused.

    Args:
        tuples: int64[n], exact number of tuples that entered in each period, the oldest first.
        rows: int64[n, bands.count], sampled tuples of each period and band.
        level: int64[n], the level at which each period stands.
        spec: D, law, f_max, f_min, bands.
        capacity_tuples: how many rows may stay; None: D.

    Cost: O(n), 200 times.
    Guarantee: at most so many rows remain; levels never fall; planning again changes nothing.
    Source: papers/03, "Sampling" (recursive), "Thinning without rewriting", "The fraction can only fall".
    """
    bands, age = Bands.of(spec), ages(tuples)
    # What is left of a period at each level.
    remaining = np.append(np.cumsum(rows[:, ::-1], axis=1)[:, ::-1], np.zeros((len(rows), 1), np.int64), axis=1)
    every = np.arange(len(rows))

    def at(scale: float) -> Int64s:
        wanted = np.minimum(law_of_age(age, spec.law, scale), spec.max_fraction)
        return np.maximum(level, bands.level_at_most(wanted))

    def held(levels: Int64s) -> int:
        return int(remaining[every, levels].sum())

    most = spec.capacity_tuples if capacity_tuples is None else capacity_tuples
    if held(level) <= most:
        return level
    # Levels are constant between scales, so a few dozen halvings on a logarithmic scale tell all of them apart.
    low, high = 1e-6, 1e3 * (float(age.max(initial=1.0)) + spec.capacity_tuples)
    for _ in range(_HALVINGS_OF_SCALE):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if held(at(middle)) <= most else (low, middle)
    return at(low)
