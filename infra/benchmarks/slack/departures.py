"""A year of departures: each hour's ten most delayed, every ten minutes; K chosen every hour as `calibrate` does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from infra.benchmarks.generator.randomness import Floats
from infra.benchmarks.slack.replay import replayed

from tidegate.examples.land_flights import data_folder, departures
from tidegate.operators.accuracy import Needed, Promise
from tidegate.operators.accuracy.slack import least_covering
from tidegate.operators.schedule import Int64s

RANGE_S, SLIDE_S, K_BEST = 3600, 600, 10
HOUR_S, DAY_S, HORIZON_S = 3600, 86_400, 6 * 3600
FIRST_SLACK_S = 7200.0
WARM_UP_DAYS = 7


@dataclass(frozen=True, eq=False)
class Year:
    """Tuples, by time since the first day began; the needed slacks of all true winners."""

    arrival_us: Int64s
    delay_s: Floats
    needed: Needed
    days: int


def year() -> Year:
    """The departures of 2013, by scheduled time; the score is the delay."""
    found = departures(data_folder())
    event_s, arrival_s = (
        found[name].astype("datetime64[ns, UTC]").astype("int64").to_numpy() / 1e9 for name in ("scheduled", "arrival")
    )
    origin_s = event_s.min() // DAY_S * DAY_S
    event_s, arrival_s, score = event_s - origin_s, arrival_s - origin_s, found["dep_delay"].to_numpy(dtype=float)
    order = np.argsort(event_s, kind="stable")
    event_s, arrival_s, score = event_s[order], arrival_s[order], score[order]
    end_s = np.arange(SLIDE_S, event_s[-1] + RANGE_S, SLIDE_S)
    ends, needed, weights = [], [], []
    for end, first, last in zip(
        end_s, np.searchsorted(event_s, end_s - RANGE_S), np.searchsorted(event_s, end_s), strict=True
    ):
        if first == last:
            continue
        best = first + np.lexsort((event_s[first:last], -score[first:last]))[:K_BEST]
        ends.append(np.full(len(best), round(end * 1e6), np.int64))
        needed.append(np.maximum(arrival_s[best] - end, 0.0))
        weights.append(np.full(len(best), 1 / len(best)))
    return Year(
        (arrival_s * 1e6).astype(np.int64),
        np.maximum(arrival_s - event_s, 0.0),
        Needed(np.concatenate(ends), np.concatenate(needed), np.concatenate(weights)),
        int(event_s[-1] // DAY_S) + 1,
    )


@dataclass(frozen=True)
class Kept:
    """Days after the first week: share that kept the promise; mean accuracy, K, oracle slack of a day.

    ``expected``: the mean of the accuracies that were expected, over the same windows as ``accuracy``.
    """

    days: float
    accuracy: float
    expected: float
    slack_h: float
    oracle_h: float


def kept(of: Year, target: float) -> Kept:
    """What the controller reaches with a promise for each day."""
    promise = Promise(target, DAY_S, HORIZON_S, offset_s=RANGE_S / 10)
    hours = of.days * 24
    at_us = np.arange(hours) * HOUR_S * 1_000_000
    tuples = of.arrival_us, of.delay_s
    choices = replayed(promise, RANGE_S, tuples, of.needed, at_us, DAY_S + HOUR_S, FIRST_SLACK_S)
    slack_s = np.array([choice.slack_s for choice in choices])
    expected = np.array([choice.accuracy_expected or np.nan for choice in choices])
    hour = np.minimum(of.needed.end_us // (HOUR_S * 1_000_000), hours - 1)
    day = of.needed.end_us // (DAY_S * 1_000_000)
    told = np.bincount(day, of.needed.weight * expected[hour])
    hits = of.needed.weight * (of.needed.slack_s <= slack_s[hour])
    all_, hit = np.bincount(day, of.needed.weight), np.bincount(day, hits)
    own = (np.arange(len(all_)) >= WARM_UP_DAYS) & (all_ > 0)
    oracle_s = [
        least_covering(of.needed.slack_s[day == d], target, of.needed.weight[day == d]) for d in np.flatnonzero(own)
    ]
    return Kept(
        float((hit[own] / all_[own] >= target - 1e-9).mean()),
        float(hit[own].sum() / all_[own].sum()),
        float(told[own].sum() / all_[own].sum()),
        float(slack_s[WARM_UP_DAYS * 24 :].mean() / HOUR_S),
        float(np.mean(oracle_s) / HOUR_S),
    )
