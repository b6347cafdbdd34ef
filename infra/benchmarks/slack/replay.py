"""The controller as `calibrate` runs it, over tuples and winners that are known beforehand."""

from __future__ import annotations

import numpy as np
from infra.benchmarks.generator.randomness import Floats

from tidegate.operators.accuracy import (
    SAMPLE_TUPLES,
    Choice,
    Needed,
    Promise,
    PromiseState,
    newest_law,
    promise_step,
    recent_delay,
)
from tidegate.operators.schedule import Int64s


def replayed(
    promise: Promise,
    range_s: float,
    tuples: tuple[Int64s, Floats],
    needed: Needed,
    at_us: Int64s,
    evidence_s: float,
    first_s: float = 0.0,
) -> list[Choice]:
    """The choice at each instant, from what was known by then.

    Args:
        tuples: arrival, microseconds, and delay, seconds, of every tuple, in any order.
        needed: of all true winners; a window counts once its horizon is over, if it became final within ``evidence_s``.
        at_us: ascending.
        first_s: K as long as nothing is known.
    """
    order = np.argsort(tuples[0], kind="stable")
    arrival_us, delay_s = (column[order] for column in tuples)
    state, choices = PromiseState.initial(promise), []
    for now_us in at_us.tolist():
        upto = int(np.searchsorted(arrival_us, now_us, side="right"))
        newest = slice(max(0, upto - SAMPLE_TUPLES), upto)
        law = newest_law(arrival_us[newest], delay_s[newest], range_s, promise.target)
        unit_s = None if law is None else law.slack_s(promise.target, range_s)
        final_us = now_us - round(promise.horizon_s * 1e6)
        known = needed.between(final_us - round(evidence_s * 1e6), final_us)
        recent_s = recent_delay(arrival_us[newest], delay_s[newest], now_us, range_s, promise.horizon_s)
        state, choice = promise_step(promise, state, now_us, known, unit_s, first_s, recent_s)
        choices.append(choice)
    return choices
