"""What windows like the coming ones have needed: the slack to expect, from the time of the period and recent delays.

**Idea.** How long winners must be waited for depends on the hour and on how late tuples are now. Past moments are alike
if their place in the period is near and the delays known at them were about as long; the slack to expect is the mean of
what their windows needed, each counted by its likeness. It promises nothing: it is a unit, in which the slacks that
past periods needed are measured (``promise``), so that the same promise is kept with less waiting.

**Source.** Nadaraya 1964, Watson 1964 (kernel regression), here of log slacks; as a score for conformal prediction:
Lei, G'Sell, Rinaldo, Tibshirani, Wasserman 2018, "Distribution-free predictive inference for regression", 5.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tidegate.operators.accuracy.slack import Float64s, Int64s

SLOTS = 24
"""A period is told apart into so many times of it."""
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


def expected_slack(past: Moments, now_us: int, recent_s: float | None, period_us: int, offset_s: float) -> float | None:
    """The slack to expect of the windows that end from now on, offset included; None if nothing is known.

    Args:
        past: what has been learnt.
        now_us, recent_s: the moment.
        period_us: of the promise.
        offset_s: added to slacks and delays before their logarithms are taken, positive.

    **Cost.** O(n). **Guarantee.** A function of its arguments alone.

    >>> noon, night = Moments(np.array([0, 12]), np.array([90.0, 0.0]), np.array([5.0, 5.0])), 24
    >>> round(expected_slack(noon, 24, 5.0, night, 10.0)), round(expected_slack(noon, 36, 5.0, night, 10.0))
    (100, 10)
    """
    known = ~np.isnan(past.needed_s)
    if not known.any():
        return None
    slots = (past.at_us[known] % period_us - now_us % period_us) * (SLOTS / period_us)
    slots = np.abs((slots + SLOTS / 2) % SLOTS - SLOTS / 2)
    apart = np.zeros(len(slots))
    if recent_s is not None:
        recent = np.nan_to_num(past.recent_s[known], nan=recent_s)
        apart = (np.log(recent + offset_s) - math.log(recent_s + offset_s)) / _NEAR_LOG_DELAY
    near = slots <= _NEAR_SLOTS if (slots <= _NEAR_SLOTS).any() else np.ones(len(slots), dtype=bool)
    weight = (np.exp(-(slots**2 + apart**2) / 2) + _LEAST) * near
    return math.exp(float((weight * np.log(past.needed_s[known] + offset_s)).sum() / weight.sum()))
