"""The map from a query's ERROR to the width that it can miss (f_q), learnt from its own past windows.

**Idea.** For windows whose truth is known, compare the answer over a share of the range with the truth, for every share
of a grid. Per share, a conformal order statistic of those errors bounds the next window's error; the smallest share
whose bound is within the ERROR is what the query must hold, the rest of its range is slack width. No law of the stream
is assumed: a formula from mean and variance takes the tuples for independent, and under-covers where they are not.

**Source.** papers/01, "Beyond the paper: f_q, from data". The order statistic is that of split conformal prediction:
Papadopoulos, Proedrou, Vovk, Gammerman, "Inductive Confidence Machines for Regression", ECML 2002.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.declarations.promises import DIGITS, WINDOWS_WITHIN
from tidegate.operators.schedule import Int64s

Float64s = npt.NDArray[np.float64]

MISS_RATE = round(1 - WINDOWS_WITHIN, DIGITS)
"""ERROR e promises that the relative error is at most e in all but this share of the windows."""
EVIDENCE_S = 14 * 24 * 3600
"""For so many seconds a window is evidence after it became final: every hour of the week twice, yet the seasons are
followed. Chosen by measurement (`infra/benchmarks/error_width`), as is its reach: ranges of up to two days."""
_FEWEST_WINDOWS = 40
"""For queries that answer so seldom that the period above holds fewer sampled windows it is longer."""
# One window of so many is sampled. 5 has no factor in common with the hours of a day or the days of a week, so that
# every time of the week gets its turn.
_STRIDES = (5, 3, 2)
_ENOUGH_WINDOWS = 100
# How finely widths are tried: in steps of at most a 24th of the range, and of at most a tenth of the width itself.
_STEPS_PER_RANGE = 24
_STEPS_PER_WIDTH = 10
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ShareChoice:
    """The share of its ranges that a query must hold.

    ``share``: in (0, 1], None if there is too little evidence. ``coverage``: in which share of the evidence's windows
    the error was within the tolerated at that share (None likewise); below 1 − miss rate only if even the whole range
    does not do. ``windows``: how many windows of evidence there were.
    """

    share: float | None
    coverage: float | None
    windows: int


def widths_to_try(range_ticks: int) -> Int64s:
    """The widths at which errors are measured, in ticks.

    **Idea.** Memory saved is linear in the width, the relative excess over the best width geometric: so steps of a 24th
    of the range while the width is large, of a tenth of the width while it is small, down to a 24th of the range.

    Args:
        range_ticks: the range of the query (of its widest window), in ticks of the pipeline, at least 1.

    Returns:
        int64[g], ascending, the last is the range; g is at most 46.

    >>> widths_to_try(12).tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    >>> widths_to_try(288)[-3:].tolist()
    [264, 276, 288]
    """
    if range_ticks < 1:
        raise ValueError(f"range_ticks must be at least 1, not {range_ticks}")
    widths, least = [range_ticks], math.ceil(range_ticks / _STEPS_PER_RANGE)
    while widths[-1] > least:
        step = max(1, min(range_ticks // _STEPS_PER_RANGE, widths[-1] // _STEPS_PER_WIDTH))
        widths.append(max(widths[-1] - step, least))
    return np.array(widths[::-1], dtype=np.int64)


def sample_stride(range_s: float, every_s: float) -> int:
    """Of how many windows one is taken as evidence: those that share more than half their range say much the same.

    >>> sample_stride(range_s=3600, every_s=600), sample_stride(range_s=21600, every_s=600)
    (3, 5)
    """
    most = min(range_s / 2, EVIDENCE_S / _ENOUGH_WINDOWS) / every_s
    return next((stride for stride in _STRIDES if stride <= most), 1)


def evidence_s(range_s: float, every_s: float) -> float:
    """For how many seconds after it became final a window is evidence.

    >>> evidence_s(range_s=3600, every_s=600) / 86400, evidence_s(range_s=7 * 86400, every_s=86400) / 86400
    (14.0, 40.0)
    """
    return float(max(EVIDENCE_S, _FEWEST_WINDOWS * sample_stride(range_s, every_s) * every_s))


def least_evidence(miss_rate: float = MISS_RATE) -> int:
    """How many windows it takes before any order statistic can promise so rare a miss.

    >>> least_evidence(0.05)
    19
    """
    _check(miss_rate)
    return math.ceil(1 / miss_rate - _ROUNDING) - 1


def error_bounds(errors: Float64s, miss_rate: float = MISS_RATE) -> Float64s:
    """What the error of the next window stays within, for every share: the error-to-width map, read the other way.

    Args:
        errors: float64[n, g], relative error of n windows answered over g shares of their range, shares ascending;
            NaN counts as infinite.
        miss_rate: α, in (0, 1): how often the bound may be missed.

    Returns:
        float64[g], falling (not strictly): per share the order statistic of rank ceil((1 − α)(n + 1)), +inf if that
        exceeds n; a narrower width is never called better than a wider one.

    **Cost.** O(n g) time and space.

    **Guarantee.** If the next window is exchangeable with the n, its error is within the bound of a given share with
    probability ≥ 1 − α, whatever the law of the stream. Windows of a stream are not exchangeable: they overlap, and the
    stream drifts. What is reached nevertheless is measured, `infra/benchmarks/error_width`.

    >>> errors = np.column_stack([np.arange(19) / 100, np.zeros(19)])
    >>> error_bounds(errors).tolist()
    [0.18, 0.0]
    >>> error_bounds(errors[1:]).tolist()
    [inf, inf]
    """
    _check(miss_rate)
    errors = np.where(np.isnan(errors), np.inf, errors)
    n, shares = errors.shape
    rank = math.ceil((1 - miss_rate) * (n + 1) - _ROUNDING)
    if rank > n:
        return np.full(shares, np.inf)
    bounds = np.partition(errors, rank - 1, axis=0)[rank - 1]
    return np.maximum.accumulate(bounds[::-1])[::-1]


def choose_share(errors: Float64s, shares: Float64s, tolerated: float, miss_rate: float = MISS_RATE) -> ShareChoice:
    """The smallest share of its ranges that a query can hold and still keep its ERROR.

    Args:
        errors: float64[n, g], as for `error_bounds`.
        shares: float64[g], ascending, the last is 1.
        tolerated: the ERROR, a fraction.
        miss_rate: as for `error_bounds`.

    Returns:
        The choice. With fewer than `least_evidence` windows nothing is chosen; if even the whole range is not within
        the ERROR often enough, the whole range.

    **Cost.** O(n g). **Guarantee.** That of `error_bounds`; among the shares tried, the smallest that has it.

    >>> errors = np.column_stack([np.arange(19) / 100, np.arange(19) / 200, np.zeros(19)])
    >>> choose_share(errors, np.array([0.25, 0.5, 1.0]), 0.1)
    ShareChoice(share=0.5, coverage=1.0, windows=19)
    >>> choose_share(errors[:7], np.array([0.25, 0.5, 1.0]), 0.1)
    ShareChoice(share=None, coverage=None, windows=7)
    """
    shares = np.asarray(shares, dtype=np.float64)
    if errors.ndim != 2 or errors.shape[1] != len(shares):
        raise ValueError(f"errors must be float64[n, {len(shares)}], not {errors.dtype}{list(errors.shape)}")
    if len(shares) == 0 or shares[0] <= 0 or shares[-1] != 1 or (np.diff(shares) <= 0).any():
        raise ValueError("shares must lie in (0, 1], ascend, and end with 1")
    if len(errors) < least_evidence(miss_rate):
        return ShareChoice(None, None, len(errors))
    within = error_bounds(errors, miss_rate) <= tolerated
    chosen = int(np.argmax(within)) if within.any() else len(shares) - 1
    return ShareChoice(float(shares[chosen]), float((errors[:, chosen] <= tolerated).mean()), len(errors))


def _check(miss_rate: float) -> None:
    if not 0 < miss_rate < 1:
        raise ValueError(f"miss_rate must lie in (0, 1), not {miss_rate}")
