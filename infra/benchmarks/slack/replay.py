"""The controller as `calibrate` runs it, over tuples and winners that are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from infra.benchmarks.generator.randomness import Floats

from tidegate.operators.accuracy import (
    SAMPLE_TUPLES,
    Choice,
    DelaySample,
    Needed,
    Promise,
    PromiseState,
    promise_step,
    recent_delay,
)
from tidegate.operators.schedule import Int64s

Tuples = tuple[Int64s, Floats]
"""Arrival, microseconds, ascending, and delay, seconds."""


def by_arrival(arrival_us: Int64s, delay_s: Floats) -> Tuples:
    """Tuples in the order in which they arrive."""
    order = np.argsort(arrival_us, kind="stable")
    return arrival_us[order], delay_s[order]


def asked_by_law(tuples: Tuples, range_s: float, target: float, at_us: Int64s) -> list[float | None]:
    """The slack that the delays of all tuples that have arrived ask for at each instant; None: unknown."""
    found = []
    for now_us in at_us.tolist():
        upto = int(np.searchsorted(tuples[0], now_us, side="right"))
        newest = slice(max(0, upto - SAMPLE_TUPLES), upto)
        law = DelaySample(tuples[0][newest], tuples[1][newest]).newest_law(range_s, target)
        found.append(None if law is None else law.slack_s(target, range_s))
    return found


def replayed(
    promise: Promise,
    range_s: float,
    tuples: Tuples,
    needed: Needed,
    at_us: Int64s,
    evidence_s: float,
    first_s: float = 0.0,
    units_s: Sequence[float | None] | None = None,
) -> list[Choice]:
    """The choice at each instant, from what was known by then.

    Args:
        tuples: by arrival.
        needed: of all true winners; a window counts once its horizon is over, if it became final within ``evidence_s``.
        at_us: ascending.
        first_s: K as long as nothing is known.
        units_s: of each instant, :func:`asked_by_law`; None: for the promise's target.
    """
    if units_s is None:
        units_s = asked_by_law(tuples, range_s, promise.target, at_us)
    state, choices = PromiseState.initial(promise), []
    for now_us, unit_s in zip(at_us.tolist(), units_s, strict=True):
        upto = int(np.searchsorted(tuples[0], now_us, side="right"))
        newest = slice(max(0, upto - SAMPLE_TUPLES), upto)
        final_us = now_us - round(promise.horizon_s * 1e6)
        known = needed.between(final_us - round(evidence_s * 1e6), final_us)
        recent_s = recent_delay(tuples[0][newest], tuples[1][newest], now_us, range_s, promise.horizon_s)
        state, choice = promise_step(promise, state, now_us, known, unit_s, first_s, recent_s)
        choices.append(choice)
    return choices
