"""Streams whose mean delay steps by up to 30 % an hour, the winners of their windows, and what their law asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from infra.benchmarks.generator.lateness import Exponential, Lateness
from infra.benchmarks.generator.randomness import Floats, uniforms

from tidegate.operators.accuracy import DelayLaw
from tidegate.operators.schedule import Int64s

HOUR_S = 3600
RANGE_S, SLIDE_S, K_BEST = 60, 5, 5
LEAST_THETA_S, LARGEST_THETA_S, LARGEST_STEP = 4.0, 20.0, 0.3
TUPLES_A_SECOND = 20
_PANES = RANGE_S // SLIDE_S
_LAW_TUPLES = 2_000_000
_GRID = 400


@dataclass(frozen=True, eq=False)
class Stream:
    """Tuples by event time: ``event_s``, ``delay_s``, ``score`` float64[n]; the mean delay of each hour."""

    event_s: Floats
    delay_s: Floats
    score: Floats
    theta_s: Floats


@dataclass(frozen=True, eq=False)
class Winners:
    """The true top k of every whole window: ``end_us``, ``needed_s``, ``delay_s`` [windows · k]."""

    end_us: Int64s
    needed_s: Floats
    delay_s: Floats


def stepping_thetas(seed: int, hours: int) -> Floats:
    """Mean delays, seconds: each hour's is the one before, up to 30 % more or less, between 4 and 20 s."""
    share = uniforms(seed, "slack/theta", hours)
    theta = [LEAST_THETA_S + share[0] * (LARGEST_THETA_S - LEAST_THETA_S)]
    for step in share[1:]:
        after = theta[-1] * (1 + LARGEST_STEP * (2 * step - 1))
        theta.append(min(max(after, LEAST_THETA_S), LARGEST_THETA_S))
    return np.array(theta)


def stream(
    theta_s: Floats,
    seed: int,
    correlation: float = 0.0,
    law: Lateness = Exponential(1.0),  # noqa: B008 (it cannot change)
    tuples_a_second: int = TUPLES_A_SECOND,
) -> Stream:
    """Delays of a law of mean 1, times the hour's mean; event times uniform.

    ``correlation``: the score is so much the delay's rank, the rest chance; 0: independent of it.
    """
    rows = len(theta_s) * HOUR_S * tuples_a_second
    event_s = np.sort(uniforms(seed, "slack/events", rows)) * len(theta_s) * HOUR_S
    rank = uniforms(seed, "slack/delays", rows)
    delay_s = law.quantile_s(rank) * theta_s[(event_s // HOUR_S).astype(np.int64)]
    score = correlation * rank + (1 - correlation) * uniforms(seed, "slack/scores", rows)
    return Stream(event_s, delay_s, score, theta_s)


def winners(of: Stream) -> Winners:
    """The k best of each window, of the k best of each of its slides."""
    slide = (of.event_s // SLIDE_S).astype(np.int64)
    order = np.lexsort((-of.score, slide))
    first = np.searchsorted(slide[order], np.arange(slide[-1] + 2))
    position = first[:-1, None] + np.arange(K_BEST)
    inside = position < first[1:, None]
    best = order[np.where(inside, position, 0)]
    score = np.where(inside, of.score[best], -np.inf)
    windows = len(best) - _PANES + 1
    panes = np.arange(windows)[:, None] + np.arange(_PANES)
    pool, scores = best[panes].reshape(windows, -1), score[panes].reshape(windows, -1)
    top = np.take_along_axis(pool, np.argpartition(-scores, K_BEST, axis=1)[:, :K_BEST], axis=1).ravel()
    end_s = np.repeat((np.arange(windows) + _PANES) * SLIDE_S, K_BEST)
    needed_s = np.maximum(of.event_s[top] + of.delay_s[top] - end_s, 0.0)
    return Winners(end_s * 1_000_000, needed_s, of.delay_s[top])


@lru_cache
def unit_law(correlation: float) -> DelayLaw:
    """The winners' delays in units of their mean delay; by a large sample where the score depends on them."""
    if correlation == 0:
        share = (np.arange(_LAW_TUPLES // 10) + 0.5) / (_LAW_TUPLES // 10)
        return DelayLaw(-np.log1p(-share), np.ones(len(share)))
    hours = _LAW_TUPLES // (HOUR_S * TUPLES_A_SECOND)
    found = winners(stream(np.ones(hours), 0, correlation))
    return DelayLaw(found.delay_s, np.ones(len(found.delay_s)))


def expected_accuracy(correlation: float, slack_s: Floats, theta_s: Floats) -> Floats:
    """By the law of the winners' delays, for each slack and mean delay."""
    law = unit_law(correlation)
    pairs = zip(slack_s.tolist(), theta_s.tolist(), strict=True)
    return np.array([law.accuracy_at(slack / theta, RANGE_S / theta) for slack, theta in pairs])


def known_law_slack_s(correlation: float, target: float, theta_s: Floats) -> Floats:
    """The least slack that the law of the winners' delays asks for, by mean delay."""
    grid = np.linspace(LEAST_THETA_S, LARGEST_THETA_S, _GRID)
    return np.interp(theta_s, grid, _slacks_of_grid(correlation, target))


@lru_cache
def _slacks_of_grid(correlation: float, target: float) -> Floats:
    law = unit_law(correlation)
    grid = np.linspace(LEAST_THETA_S, LARGEST_THETA_S, _GRID)
    return np.array([theta * law.slack_s(target, RANGE_S / theta) for theta in grid])


def hours_of(at_s: Floats | Sequence[float]) -> Int64s:
    """The hour that each instant falls into."""
    return (np.asarray(at_s) // HOUR_S).astype(np.int64)
