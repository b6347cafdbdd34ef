"""The slack that answers would have needed, and the slack to choose from it.

**Idea.** A member of the true top k that has arrived by window end + K is in the answer for K, and nothing else in that
answer is a hit. So the needed slacks of the true winners give the accuracy of every K at once:
accuracy(K) = share of winners with needed slack ≤ K. For an aggregate, a window's needed slack is the least K from
which on its error stays within what is tolerated.

**Source.** papers/04, "Beyond the paper: all slacks at once, exactly".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
MICROSECONDS = 1_000_000
# Shares are compared with this much room, so that a rounded sum of weights does not cost a whole rank.
ROUNDING = 1e-9
_SIGNIFICANT_DIGITS = 3


@dataclass(frozen=True)
class SlackChoice:
    """A chosen slack.

    ``slack_s``: K in whole seconds. ``accuracy_expected``: accuracy that K would have had on the given needed slacks
    (None if there were none). ``needed``: how many there were. ``method``: how it was chosen.
    """

    slack_s: float
    accuracy_expected: float | None
    needed: int
    method: str


def rounded_up(slack_s: npt.ArrayLike) -> Float64s:
    """To three significant digits, upwards, and to whole microseconds.

    >>> rounded_up([12.0301, 0.0, 13176.2]).tolist()
    [12.1, 0.0, 13200.0]
    """
    slacks_s = np.maximum(np.asarray(slack_s, dtype=np.float64), 0.0)
    with np.errstate(divide="ignore"):
        digits = np.clip(_SIGNIFICANT_DIGITS - 1 - np.floor(np.log10(slacks_s)), -6, 6)
    scale = 10.0**digits
    rounded: Float64s = np.maximum(np.ceil(slacks_s * scale - 1e-6), 0.0) / scale
    return rounded


def needed_slack(arrival_us: Int64s, window_end_us: Int64s) -> Float64s:
    """How many seconds after the end of its window each winner arrived; 0 if before.

    >>> needed_slack(np.array([5_000_000, 2_500_000]), np.array([3_000_000, 3_000_000])).tolist()
    [2.0, 0.0]
    """
    late_us = np.asarray(arrival_us, dtype=np.int64) - np.asarray(window_end_us, dtype=np.int64)
    return np.maximum(late_us, 0) / MICROSECONDS


def needed_slack_on_grid(errors: Float64s, grid_s: Float64s, tolerated: float) -> Float64s:
    """Per window the least K of the grid from which on the error stays within the tolerated.

    Args:
        errors: float64[windows, candidates], the relative error that the answer with slack ``grid_s[j]`` had; NaN
            counts as too large.
        grid_s: float64[candidates], ascending, seconds.
        tolerated: largest error that is tolerated, as a fraction.

    Returns:
        float64[windows], seconds; the largest K of the grid where even that is not enough.

    >>> needed_slack_on_grid(np.array([[0.5, 0.0, 0.1, 0.0]]), np.array([0.0, 60.0, 120.0, 180.0]), 0.05).tolist()
    [180.0]
    """
    grid_s = np.asarray(grid_s, dtype=np.float64)
    errors = np.asarray(errors, dtype=np.float64).reshape(-1, len(grid_s))
    if len(grid_s) == 0 or (np.diff(grid_s) <= 0).any():
        raise ValueError("grid_s must hold at least one K and ascend")
    stays_within = np.logical_and.accumulate((errors <= tolerated)[:, ::-1], axis=1)[:, ::-1]
    first = (~stays_within).sum(axis=1)
    needed_s: Float64s = grid_s[np.minimum(first, len(grid_s) - 1)]
    return needed_s


def accuracy_at(needed_s: Float64s, slack_s: float, weights: Float64s | None = None) -> float:
    """Share of the needed slacks that the slack covers; 1 if there are none (an empty truth is met by any answer).

    With weights 1/|truth of its window| it is the mean accuracy of the windows, also where some have fewer than k
    winners.

    >>> accuracy_at(np.array([0.0, 30.0, 90.0, 600.0]), 90)
    0.75
    """
    needed_s = np.asarray(needed_s, dtype=np.float64)
    if len(needed_s) == 0:
        return 1.0
    weights = _weights(needed_s, weights)
    return float(weights[needed_s <= slack_s].sum() / weights.sum())


def choose_slack(
    needed_s: Float64s,
    target: float,
    *,
    confidence: float | None = None,
    weights: Float64s | None = None,
    fallback_s: float = 0.0,
) -> SlackChoice:
    """The least K, in whole seconds, that promises the target share for what comes next.

    **Idea.** Of n needed slacks the one of rank ceil((n + 1) · target) is, if the next one comes from the same law,
    at least as large as it with probability ≥ target (the conformal quantile): the plain quantile is biased low. With a
    ``confidence`` the rank is raised to the least r with P(Binomial(n, target) < r) ≥ confidence: then the *share* that
    K covers is at least the target with that confidence (an order-statistic tolerance bound), not only on average.

    Args:
        needed_s: float64[n], needed slacks of past winners or windows, seconds ≥ 0, any order.
        target: least share to cover, in (0, 1].
        confidence: in (0, 1), or None for the conformal rank alone.
        weights: float64[n], positive, or None for equal ones; then the rank's share is taken of the weight.
        fallback_s: what to choose if there are no needed slacks.

    Returns:
        The choice; ``method`` is ``conformal``, ``tolerance``, ``largest`` (n too small for the rank: the maximum), or
        ``fallback`` (n = 0).

    **Cost.** O(n log n). **Guarantee.** P(next needed ≤ K) ≥ target if the needed slacks are exchangeable and n ≥
    target / (1 − target). Winners of overlapping windows are not independent, and delays change: then it is a rule of
    good measure, and what it reached is recorded.

    >>> needed = np.arange(100.0)
    >>> choose_slack(needed, 0.95)
    SlackChoice(slack_s=95.0, accuracy_expected=0.96, needed=100, method='conformal')
    >>> choose_slack(needed, 0.95, confidence=0.95).slack_s
    98.0
    >>> choose_slack(needed[:5], 0.95).method
    'largest'
    """
    _check_target(target)
    needed_s = np.asarray(needed_s, dtype=np.float64)
    n = len(needed_s)
    if n == 0:
        return SlackChoice(float(fallback_s), None, 0, "fallback")
    rank = math.ceil((n + 1) * target - ROUNDING)
    method = "conformal"
    if confidence is not None:
        rank, method = max(rank, _tolerance_rank(n, target, confidence)), "tolerance"
    if rank > n:
        rank, method = n, "largest"
    slack_s = float(math.ceil(least_covering(needed_s, rank / n, weights)))
    return SlackChoice(slack_s, accuracy_at(needed_s, slack_s, weights), n, method)


def oracle_slack(needed_s: Float64s, target: float, weights: Float64s | None = None) -> float:
    """The least K, in whole seconds, that would have met the target over exactly these; 0 if there are none.

    Nobody can choose it beforehand: it is what a chosen slack is compared with.

    >>> oracle_slack(np.array([0.0, 0.0, 7.2, 100.0]), 0.75)
    8.0
    """
    _check_target(target)
    needed_s = np.asarray(needed_s, dtype=np.float64)
    return float(math.ceil(least_covering(needed_s, target, weights))) if len(needed_s) else 0.0


def least_covering(needed_s: Float64s, share: float, weights: Float64s | None = None) -> float:
    """The least of the needed slacks that covers the share of the weight; n ≥ 1."""
    order = np.argsort(needed_s)
    covered = np.cumsum(_weights(needed_s, weights)[order])
    position = int(np.searchsorted(covered, covered[-1] * (share - ROUNDING), side="left"))
    return float(needed_s[order[min(position, len(order) - 1)]])


def least_covering_groups(
    needed_s: Float64s, group: Int64s, share: float, weights: Float64s, groups_within: float
) -> float:
    """The least of the needed slacks that covers the share of the weight of so many of the groups; n ≥ 1.

    Args:
        needed_s: float64[n], seconds.
        group: int64[n], the group that each belongs to.
        share: of each group's weight.
        weights: float64[n], positive.
        groups_within: the share of the groups.

    **Cost.** O(n log n).

    >>> needed, group = np.array([0.0, 9.0, 0.0, 60.0]), np.array([7, 7, 8, 8])
    >>> [least_covering_groups(needed, group, share, np.ones(4), 0.5) for share in (0.5, 1.0)]
    [0.0, 9.0]
    """
    order = np.lexsort((needed_s, group))
    slack_s, weight = needed_s[order], weights[order]
    _, first, count = np.unique(group[order], return_index=True, return_counts=True)
    total = np.add.reduceat(weight, first)
    covered = np.cumsum(weight)
    before = covered[first] - weight[first]
    reached = covered - np.repeat(before, count) >= np.repeat(total * (share - ROUNDING), count)
    place = np.where(reached, np.arange(len(order)), len(order))
    # By rounding a group's last may seem to fall short.
    least = np.minimum(np.minimum.reduceat(place, first), first + count - 1)
    return least_covering(slack_s[least], groups_within)


def share_of_groups(within: npt.NDArray[np.bool_], group: Int64s, share: float, weights: Float64s) -> float:
    """The share of the groups of whose weight at least that share is within.

    >>> share_of_groups(np.array([True, False, True]), np.array([7, 7, 8]), 0.9, np.ones(3))
    0.5
    """
    _, of = np.unique(group, return_inverse=True)
    reached = np.bincount(of, weights * within) >= np.bincount(of, weights) * (share - ROUNDING)
    return float(reached.mean())


def _tolerance_rank(n: int, target: float, confidence: float) -> int:
    """The least r with P(Binomial(n, target) < r) ≥ confidence; n + 1 if no order statistic is enough."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), not {confidence}")
    if target == 1:
        return n + 1
    hits = np.arange(n + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    log_choose = log_factorial[n] - log_factorial[hits] - log_factorial[n - hits]
    below = np.cumsum(np.exp(log_choose + hits * math.log(target) + (n - hits) * math.log1p(-target)))
    # below[r − 1] = P(Binomial < r); at r = n + 1 it is 1, which no order statistic reaches.
    return int(np.searchsorted(below[:-1], confidence, side="left")) + 1


def _weights(needed_s: Float64s, weights: Float64s | None) -> Float64s:
    if weights is None:
        return np.ones(len(needed_s))
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != needed_s.shape or not (weights > 0).all():
        raise ValueError("weights must be positive, one per needed slack")
    return weights


def _check_target(target: float) -> None:
    if not 0 < target <= 1:
        raise ValueError(f"target must lie in (0, 1], not {target}")
