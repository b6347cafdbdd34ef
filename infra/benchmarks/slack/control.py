"""The controller run over a stream, choice by choice, and what its slacks were worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from infra.benchmarks.generator.randomness import Floats
from infra.benchmarks.slack.replay import by_arrival, replayed
from infra.benchmarks.slack.stream import HOUR_S, RANGE_S, Stream, Winners, hours_of, known_law_slack_s

from tidegate.operators.accuracy import Needed, Promise
from tidegate.operators.accuracy.slack import least_covering
from tidegate.operators.schedule import Int64s

HORIZON_S = 180
CHOSEN_EVERY_S = 60
EVIDENCE_S = 12 * 3600


@dataclass(frozen=True, eq=False)
class Course:
    """Choices by instant: ``at_s``, ``slack_s`` float64[n], and how each was made."""

    at_s: Floats
    slack_s: Floats
    methods: list[str]

    def of_windows(self, end_us: Int64s) -> Floats:
        """K of each window: the newest choice's at its end."""
        return self.slack_s[np.maximum(np.searchsorted(self.at_s, end_us / 1e6, side="right") - 1, 0)]


def course(of: Stream, found: Winners, promise: Promise) -> Course:
    """A choice a minute from the tuples that have arrived and the windows that are final."""
    arrival_us = ((of.event_s + of.delay_s) * 1e6).astype(np.int64)
    # One window, one vote: all have k winners.
    needed = Needed(found.end_us, found.needed_s, np.ones(len(found.end_us)))
    at_s = np.arange(CHOSEN_EVERY_S, len(of.theta_s) * HOUR_S, CHOSEN_EVERY_S)
    choices = replayed(promise, RANGE_S, by_arrival(arrival_us, of.delay_s), needed, at_s * 1_000_000, EVIDENCE_S)
    return Course(at_s.astype(np.float64), np.array([c.slack_s for c in choices]), [c.method for c in choices])


def kept_by_hour(found: Winners, slack_s: Floats, hours: int) -> Floats:
    """Measured mean accuracy of the windows of each hour, their slacks given per winner."""
    hour = hours_of(found.end_us / 1e6)
    hits = np.bincount(hour, found.needed_s <= slack_s, hours + 1)
    return (hits / np.maximum(np.bincount(hour, minlength=hours + 1), 1))[:hours]


def matching_factor(of: Stream, found: Winners, correlation: float, target: float) -> Floats:
    """Hour by hour the least factor by which the K of one who knows the law keeps the target in that hour."""
    hours = len(of.theta_s)
    hour = hours_of(found.end_us / 1e6)
    known_s = known_law_slack_s(correlation, target, of.theta_s[np.minimum(hour, hours - 1)])
    ratio = np.where(found.needed_s > 0, found.needed_s / np.maximum(known_s, 1e-9), 0.0)
    return np.array([least_covering(ratio[hour == h], target) for h in range(hours)])
