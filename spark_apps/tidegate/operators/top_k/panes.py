"""The k best of each pane, of many tuples, most of which are looked at once and forgotten."""

from __future__ import annotations

import numpy as np

from tidegate.operators.schedule import Int64s
from tidegate.operators.top_k.ranking import Floats, stable_order

_SORTED_AS_ONE = 4096
"""Of so few tuples no sample is taken first."""
_COARSEST_SAMPLE = 64


def contenders(
    unit: Int64s, units: int, lag: Int64s | None, merit: Floats, k: int, known: Floats | None = None
) -> Int64s:
    """The tuples that may be among the k best of their unit at some time, with few others.

    **Idea.** A tuple is of no use if k better ones of its unit are seen no later than it is. Any part of
    those seen by then tells from below how good the k-th best is: first every n-th tuple, which leaves few, then those.
    Lags are put into levels that double in length, and a tuple is compared with the lower levels alone, so that a
    table of log2(lags) rows has all that is to be compared with.

    Args:
        unit: int64[n] in 0 … ``units`` − 1, the pane (and group) of each tuple.
        units: how many there are.
        lag: int64[n], when the tuple is first seen, as a number of windows since the pane was; None: all at once.
        merit: float64[n], see ``ranking.merits``. No NaN.
        k: how many of each unit are wanted.
        known: float64[units], merit of the k-th best of what was there before, −inf if there were fewer.

    Returns:
        int64[m], ascending places. Who is as good as the k-th best is kept.

    **Cost.** O(n + √(n · k · units)) expected, for tuples in no particular order; O(n log n) at worst.

    >>> contenders(np.array([0, 0, 0, 1]), 2, None, np.array([5.0, 9.0, 7.0, 1.0]), 2).tolist()
    [1, 2, 3]
    """
    levels = 1
    level = None
    if lag is not None and len(lag) and (most := int(lag.max())):
        level_of = np.log2(np.arange(1, most + 2)).astype(np.int64)
        levels = int(level_of[-1]) + 1
        level = level_of[lag]
    rows: Int64s | None = None
    stride = min(int(np.sqrt(len(unit) / (k * units))), _COARSEST_SAMPLE) if len(unit) > _SORTED_AS_ONE else 1
    if known is not None or stride > 1:
        least = np.full((levels, units), -np.inf) if known is None else np.tile(known, (levels, 1))
        if stride > 1:
            every = slice(None, None, stride)
            sampled = None if level is None else level[every]
            least = np.maximum(least, _least_merits(unit[every], units, sampled, levels, merit[every], k))
        rows = np.flatnonzero(merit >= _of_each(least, unit, level))
        unit, merit, level = unit[rows], merit[rows], None if level is None else level[rows]
    left = np.flatnonzero(merit >= _of_each(_least_merits(unit, units, level, levels, merit, k), unit, level))
    return left if rows is None else rows[left]


def kth_best(unit: Int64s, units: int, merit: Floats, k: int) -> Floats:
    """float64[units], merit of the k-th best of each unit, −inf where there are fewer."""
    least: Floats = _least_merits(unit, units, None, 1, merit, k)[0]
    return least


def _of_each(least: Floats, unit: Int64s, level: Int64s | None) -> Floats:
    found: Floats = least[0, unit] if level is None else least[level, unit]
    return found


def _least_merits(unit: Int64s, units: int, level: Int64s | None, levels: int, merit: Floats, k: int) -> Floats:
    """float64[levels, units], merit of the k-th best among those up to each level, −inf where there are fewer.

    Level j holds the lags from 2^j − 1 on. Whoever is in it has seen all lower levels, but of its own not every lag:
    it is compared with the lower ones. Level 0 is one lag, compared with itself.
    """
    least = np.full((levels, units), -np.inf)
    order = np.argsort(-merit)
    order = order[stable_order(unit[order], units)]
    for number in range(levels):
        own = order if level is None else order[level[order] <= max(number - 1, 0)]
        of = unit[own]
        begins = np.flatnonzero(np.append(True, of[1:] != of[:-1])) if len(of) else np.zeros(0, dtype=np.int64)
        full = np.diff(np.append(begins, len(of))) >= k
        least[number, of[begins[full]]] = merit[own[begins[full] + k - 1]]
    return least
