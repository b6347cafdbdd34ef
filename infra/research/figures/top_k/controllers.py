"""K by Tidegate's own rule, and by one who knows the law of the delays; needed slacks are all that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from infra.benchmarks.generator.randomness import Floats
from infra.benchmarks.slack.replay import by_arrival, replayed
from infra.research.published.top_k import Arrival, Query

from tidegate.operators.accuracy import Needed, Promise

SECOND_US = 1_000_000
STEPS, HALVINGS = 120, 40


def learnt_slack_s(
    query: Query,
    stream: Sequence[Arrival],
    needed_us: Mapping[int, Sequence[int]],
    target: float,
    *,
    first_s: float,
    horizon_s: float,
    pool_s: float,
    every_s: float,
    confidence: float | None = None,
) -> Floats:
    """K of every window, ascending, as ``calibrate`` would choose it to keep the target.

    Args:
        query: gives the windows' ends.
        stream: the tuples; their delays are known once they have arrived.
        needed_us: per window, without a gap, the needed slacks of its true winners.
        target: ε_min.
        first_s: K as long as nothing is known.
        horizon_s: a window is final so long after its end; K is never more.
        pool_s: how far back, from now, windows became final that count; the promise's period.
        every_s: how often K is chosen anew; a window waits for the K in force at its end.
        confidence: share of the periods in which the target is to be reached; None: on average.
    """
    windows = np.fromiter(needed_us, dtype=np.int64)
    end_s = (windows + 1) * query.slide_us / SECOND_US
    counts = np.array([len(found) for found in needed_us.values()])
    needed = Needed(
        np.repeat((end_s * SECOND_US).astype(np.int64), counts),
        np.array([us for found in needed_us.values() for us in found], dtype=np.float64) / SECOND_US,
        np.repeat(1 / np.maximum(counts, 1), counts),
    )
    range_s = query.width_us / SECOND_US
    promise = Promise(target, pool_s, horizon_s, confidence, range_s / 10)
    event_us, arrival_us = (np.array([getattr(t, name) for t in stream]) for name in ("event_us", "arrival_us"))
    ticks, chosen = np.unique(end_s // every_s, return_inverse=True)
    at_us = np.round(ticks * every_s * SECOND_US).astype(np.int64)
    tuples = by_arrival(arrival_us, (arrival_us - event_us) / SECOND_US)
    # A period that ended within the interval counts as a whole.
    evidence_s = pool_s if confidence is None else pool_s + every_s
    choices = replayed(promise, range_s, tuples, needed, at_us, evidence_s, first_s)
    return np.array([choice.slack_s for choice in choices])[chosen]


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
