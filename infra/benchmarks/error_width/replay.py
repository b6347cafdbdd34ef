"""What the pipeline would have held, hour by hour: the share chosen from past windows, judged on the next ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from infra.benchmarks.error_width.errors import EVERY, Question, errors_over, window_ends
from infra.benchmarks.error_width.panes import DAY, TICK_S, Floats, Ints, Panes

from tidegate.operators.accuracy import MISS_RATE, choose_share, evidence_s, sample_stride, widths_to_try

INTERVAL = 3600 // TICK_S
HORIZON = 6 * 3600 // TICK_S
NORMAL_95 = 1.96
FINENESS = 288
"""Hindsight tries every tick, or where the range has more, so many widths."""


@dataclass(frozen=True)
class Kept:
    """How a way of choosing widths did. All windows count, those before there was anything to learn from included.

    ``coverage``: share of the windows within ERROR; ``worst_month``: of the month in which it was least; ``width``:
    mean width as a share of the range.
    """

    coverage: float
    worst_month: float
    width: float


@dataclass(frozen=True)
class Study:
    """One query with one ERROR. ``hindsight``: the smallest fixed width that keeps 95 % of all windows;
    ``monthly``: the smallest for each month that keeps 95 % of that month, on average over the windows."""

    learnt: Kept
    formula: Kept | None
    hindsight: float
    monthly: float


def study(stream: Panes, question: Question, tolerated: float, evidence_days: float | None = None) -> Study:
    """Replay a stream under a query; ``evidence_days`` None: as the pipeline does."""
    ends = window_ends(stream, question)
    month = pd.to_datetime((ends + stream.first) * TICK_S - 1, unit="s").month.to_numpy()
    fine = np.unique(np.ceil(np.linspace(0, question.range_ticks, FINENESS + 1)[1:]).astype(np.int64))
    within_fine = errors_over(stream, question, fine) <= tolerated
    monthly = sum(_hindsight(within_fine[month == m], fine) * (month == m).mean() for m in np.unique(month))
    widths = widths_to_try(question.range_ticks)
    errors = errors_over(stream, question, widths)

    def judged(chosen: Ints) -> Kept:
        kept = errors[np.arange(len(ends)), chosen] <= tolerated
        worst = min(kept[month == m].mean() for m in np.unique(month))
        return Kept(float(kept.mean()), float(worst), float(widths[chosen].mean() / question.range_ticks))

    hours = np.arange(ends[0] // INTERVAL, ends[-1] // INTERVAL + 1) * INTERVAL
    in_effect = np.searchsorted(hours, ends, side="right") - 1
    learnt = _learnt(ends + stream.first, errors, widths, question, tolerated, hours + stream.first, evidence_days)
    formula = _formula(stream, widths, question, tolerated, hours)
    return Study(
        judged(learnt[in_effect]),
        None if formula is None else judged(formula[in_effect]),
        _hindsight(within_fine, fine) / question.range_ticks,
        monthly / question.range_ticks,
    )


def _hindsight(within: Floats, widths: Ints) -> int:
    """The smallest width from which on all wider ones keep the error in 95 % of the windows."""
    enough = np.logical_and.accumulate((within.mean(axis=0) >= 1 - MISS_RATE)[::-1])[::-1]
    return int(widths[np.argmax(enough)])


def _learnt(
    ends: Ints,
    errors: Floats,
    widths: Ints,
    question: Question,
    tolerated: float,
    hours: Ints,
    evidence_days: float | None,
) -> Ints:
    """Position of the width chosen at each hour, as the pipeline does it."""
    range_s, every_s = question.range_ticks * TICK_S, EVERY * TICK_S
    days = evidence_s(range_s, every_s) / 86400 if evidence_days is None else evidence_days
    sampled = ends // EVERY % sample_stride(range_s, every_s) == 0
    ends, errors, shares = ends[sampled], errors[sampled], widths / widths[-1]
    chosen = np.empty(len(hours), dtype=np.int64)
    for position, hour in enumerate(hours):
        first, last = np.searchsorted(ends + HORIZON, [hour - days * DAY, hour], side="left")
        share = choose_share(errors[first:last], shares, tolerated).share
        chosen[position] = np.searchsorted(shares, (1 - tolerated if share is None else share) - 1e-9)
    return chosen


def _formula(stream: Panes, widths: Ints, question: Question, tolerated: float, hours: Ints) -> Ints | None:
    """The width by mean and variance, as if tuples were independent; None where there is no such formula.

    A sum over the share φ of n tuples, scaled by 1/φ, misses the whole by (1/φ − 1) · (σ² + μ²) · n in variance, a mean
    by (1/φ − 1) · σ² / n. Moments are those of the two weeks before.
    """
    if question.by_group or question.function not in ("count", "sum", "avg"):
        return None
    counts = stream.counts.sum(axis=0)
    shares = widths / widths[-1]
    chosen = np.full(len(hours), len(widths) - 1)
    if question.function == "count":
        relative_variance = np.ones(len(hours))
    else:
        mean, variance = _moments(stream, question.columns[0], hours)
        relative_variance = variance / mean**2 + (question.function == "sum")
    upto = np.append(0.0, np.cumsum(counts))
    since = np.maximum(hours - 14 * DAY, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_range = (upto[hours] - upto[since]) / (hours - since) * question.range_ticks
        spread = np.sqrt((1 / shares - 1) * (relative_variance / per_range)[:, None])
    within = NORMAL_95 * spread <= tolerated
    known = hours >= DAY
    chosen[known] = np.where(within.any(axis=1), np.argmax(within, axis=1), len(widths) - 1)[known]
    return chosen


def _moments(stream: Panes, column: str, hours: Ints) -> tuple[Floats, Floats]:
    """Mean and variance of the tuples' values in the two weeks before each hour."""
    since = np.maximum(hours - 14 * DAY, 0)
    totals = [stream.counts, stream.sums[column], stream.squares[column]]
    upto = [np.append(0.0, np.cumsum(cells.sum(axis=0))) for cells in totals]
    count, total, squares = (u[hours] - u[since] for u in upto)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        return mean, squares / count - mean**2
