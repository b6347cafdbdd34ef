"""K by Tidegate's own rule, and by one who knows the law of the delays; needed slacks are all that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from infra.benchmarks.generator.randomness import Floats

from tidegate.operators.accuracy import choose_slack
from tidegate.operators.top_k.published import Query

SECOND_US = 1_000_000
CONFIDENCE = 0.95
"""As the calibrate stage has it."""
STEPS, HALVINGS = 120, 40


def learnt_slack_s(
    query: Query,
    needed_us: Mapping[int, Sequence[int]],
    target: float,
    *,
    first_s: float,
    horizon_s: float,
    pool_s: float,
    every_s: float,
) -> Floats:
    """K of every window, ascending: ``choose_slack`` over the windows that became final within the pool.

    Args:
        query: gives the windows' ends.
        needed_us: per window, without a gap, the needed slacks of its true winners.
        target: ε_min.
        first_s: K as long as nothing is known, and its place when the pool is empty.
        horizon_s: a window is final so long after its end; K is never more.
        pool_s: how far back, from now, windows became final that count.
        every_s: how often K is chosen anew; a window waits for the K in force at its end.
    """
    windows = np.fromiter(needed_us, dtype=np.int64)
    final_s = (windows + 1) * query.slide_us / SECOND_US + horizon_s
    end_s = final_s - horizon_s
    counts = np.array([len(found) for found in needed_us.values()])
    upto = np.concatenate([[0], np.cumsum(counts)])
    needed_s = np.array([us for found in needed_us.values() for us in found], dtype=np.float64) / SECOND_US
    weights = np.repeat(1 / np.maximum(counts, 1), counts)
    slack_s, chosen_at, now_slack_s = np.empty(len(windows)), -1.0, first_s
    for index, now_s in enumerate(end_s):
        tick = now_s // every_s
        if tick != chosen_at:
            chosen_at = tick
            first, last = np.searchsorted(final_s, [tick * every_s - pool_s, tick * every_s], side="right")
            own = slice(upto[first], upto[last])
            if upto[last] > upto[first]:
                choice = choose_slack(needed_s[own], target, confidence=CONFIDENCE, weights=weights[own])
                now_slack_s = min(choice.slack_s, horizon_s)
        slack_s[index] = now_slack_s
    return slack_s


def known_law_slack_s(query: Query, windows: range, theta_before_s: float, theta_s: float, step_s: float) -> Floats:
    """The least K that promises the accuracy 0.95 if delays are exponential, of one mean before an event time.

    By papers/04: with scores independent of the delays accuracy(K) is the mean over the window's event times of
    P(delay ≤ end + K − event time); solved for K by halving.
    """
    end_s = (np.asarray(windows, dtype=np.float64) + 1)[:, None] * query.slide_us / SECOND_US
    ages_s = (np.arange(STEPS) + 0.5) / STEPS * query.width_us / SECOND_US
    theta = np.where(end_s - ages_s < step_s, theta_before_s, theta_s)
    low, high = np.zeros(len(windows)), np.full(len(windows), 20 * max(theta_before_s, theta_s))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        short = (1 - np.exp(-(ages_s + middle[:, None]) / theta)).mean(axis=1) < TARGET
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


TARGET = 0.95


def accuracies(needed_us: Mapping[int, Sequence[int]], slack_s: Floats) -> Floats:
    """Per window the accuracy that its K gives: the share of its winners that needed no more."""
    return np.array(
        [
            sum(us <= own_s * SECOND_US for us in found) / len(found) if found else 1.0
            for found, own_s in zip(needed_us.values(), slack_s, strict=True)
        ]
    )
