"""What windows like the coming ones have needed: the slacks to expect, from the time of the period and recent delays.

**Idea.** How long winners must be waited for depends on the hour and on how late tuples are now. Past moments are alike
if their place in the period is near and the delays known at them were about as long. What their windows needed, each
counted by its likeness, is a distribution. Two scales of slacks come of it: its quantiles, and multiples of its
(geometric) mean. A place on a scale is no promise: it is a unit, in which what past periods needed is measured
(``promise``), so that the same promise is kept with less waiting: longer where and when windows need longer. Quantiles
do better where some times are much less certain than others, multiples where moments like now are few.

**Source.** Nadaraya 1964, Watson 1964 (kernel weights); as scores for conformal prediction: Chernozhukov, Wüthrich, Zhu
2021, "Distributional conformal prediction", and Lei, G'Sell, Rinaldo, Tibshirani, Wasserman 2018, 5.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tidegate.operators.accuracy.slack import ROUNDING, Float64s, Int64s

SLOTS = 24
"""A period is told apart into so many times of it."""
LEVELS = 1 - np.append(np.geomspace(1, 0.001, 34), 0.0)
"""The levels at which quantiles are told, finer the nearer to all: from 0 to 1."""
MULTIPLES = np.geomspace(0.1, 40, len(LEVELS))
SCALES = 2
_LEAST_KNOWN = 5
_LEAST_RECENT = 5
_NEAR_SLOTS = 3
_NEAR_LOG_DELAY = 0.25
# So much a moment counts whose delays are far from those of now, so that there is always something to expect.
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class Moments:
    """Past moments.

    ``at_us`` int64[n], ascending; float64[n] seconds: ``needed_s``, slack that kept the promise over the windows ending
    from there to the next moment, NaN where that is not known; ``recent_s``, mean delay of the tuples that arrived just
    before it, NaN where there were too few.
    """

    at_us: Int64s
    needed_s: Float64s
    recent_s: Float64s


def recent_delay(arrival_us: Int64s, delay_s: Float64s, now_us: int, range_s: float, horizon_s: float) -> float | None:
    """The mean delay, at most the horizon, of the tuples that arrived within twice the range; None if too few have.

    >>> at = np.arange(10) * 1_000_000
    >>> recent_delay(at, np.arange(10.0), 10_000_000, 2.5, 8.0), recent_delay(at, np.arange(10.0), 10_000_000, 1.0, 8.0)
    (6.8, None)
    """
    first = int(np.searchsorted(arrival_us, now_us - round(2e6 * range_s)))
    if len(arrival_us) - first < _LEAST_RECENT:
        return None
    return float(np.clip(delay_s[first:], 0.0, horizon_s).mean())


def scales(
    past: Moments, now_us: int, recent_s: float | None, known_until_us: int, period_us: int, offset_s: float
) -> Float64s | None:
    """The slacks to expect of the windows that end from now on; None before enough is known.

    Args:
        past: what has been learnt.
        now_us, recent_s: the moment.
        known_until_us: moments count whose windows ended by then; the first of them must be some periods back.
        period_us: of the promise.
        offset_s: added to slacks and delays before they are compared as ratios, positive.

    Returns:
        float64[SCALES, len(LEVELS)], each ascending: the quantiles at ``LEVELS``, and ``MULTIPLES`` of the mean.

    **Cost.** O(n log n). **Guarantee.** A function of its arguments alone.

    >>> at = np.arange(0, 144, 12)
    >>> moments = Moments(at, np.tile([90.0, 0.0], 6), np.full(12, 5.0))
    >>> for now in (144, 156):
    ...     print(scales(moments, now, 5.0, known_until_us=144, period_us=24, offset_s=10.0)[0, [0, -1]])
    [90. 90.]
    [0. 0.]
    """
    known = ~np.isnan(past.needed_s)
    known[np.searchsorted(past.at_us, known_until_us, side="right") - 1 :] = False
    if not known.any() or known_until_us - past.at_us[known][0] < _LEAST_KNOWN * period_us:
        return None
    slots = (past.at_us[known] % period_us - now_us % period_us) * (SLOTS / period_us)
    slots = np.abs((slots + SLOTS / 2) % SLOTS - SLOTS / 2)
    apart = np.zeros(len(slots))
    if recent_s is not None:
        recent = np.nan_to_num(past.recent_s[known], nan=recent_s)
        apart = (np.log(recent + offset_s) - math.log(recent_s + offset_s)) / _NEAR_LOG_DELAY
    near = slots <= _NEAR_SLOTS if (slots <= _NEAR_SLOTS).any() else np.ones(len(slots), dtype=bool)
    weight = np.exp(-(slots[near] ** 2 + apart[near] ** 2) / 2) + _LEAST
    needed_s = past.needed_s[known][near]
    mean_s = math.exp(float((weight * np.log(needed_s + offset_s)).sum() / weight.sum()))
    order = np.argsort(needed_s, kind="stable")
    covered = np.cumsum(weight[order])
    first = np.searchsorted(covered, covered[-1] * (LEVELS - ROUNDING), side="left")
    quantiles_s = needed_s[order[np.minimum(first, len(order) - 1)]]
    return np.stack([quantiles_s, np.maximum(mean_s * MULTIPLES - offset_s, 0.0)])


def slack_at(slacks_s: Float64s, place: float, offset_s: float) -> float:
    """The slack at a place on a scale, between two in proportion, beyond the last in proportion to the largest.

    >>> slack_at(np.array([0.0, 60.0]), 0.5, 6.0), slack_at(np.array([0.0, 60.0]), 1.5, 6.0)
    (30.0, 93.0)
    """
    last = len(slacks_s) - 1
    if place > last:
        return float((slacks_s[-1] + offset_s) * (1 + place - last) - offset_s)
    return float(np.interp(place, np.arange(last + 1), slacks_s))


def places_of(slacks_s: Float64s, needed_s: Float64s, offset_s: float) -> Float64s:
    """Of each needed slack the least place whose slack covers it: the inverse of :func:`slack_at`.

    >>> places_of(np.array([0.0, 0.0, 60.0]), np.array([0.0, 30.0, 93.0]), 6.0).tolist()
    [0.0, 1.5, 2.5]
    """
    last = len(slacks_s) - 1
    above = np.searchsorted(slacks_s, needed_s, side="left")
    upper = np.clip(above, 1, last)
    below_s, upper_s = slacks_s[upper - 1], slacks_s[upper]
    between = upper - 1 + (needed_s - below_s) / np.where(upper_s > below_s, upper_s - below_s, 1.0)
    beyond = last + (needed_s + offset_s) / (slacks_s[-1] + offset_s) - 1
    return np.where(above > last, beyond, np.where(above == 0, 0.0, between))
