"""The relative error of a query's answers over narrower widths, for every window of a stream, from its panes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from infra.benchmarks.error_width.panes import Floats, Ints, Panes

EVERY = 2
"""Windows end at every second tick: EVERY 10 MINUTES."""


@dataclass(frozen=True)
class Question:
    """An aggregate over a sliding range; ``by`` groups, or all in one. A ratio is SUM(columns[0]) / SUM(columns[1])."""

    function: Literal["count", "sum", "avg", "max", "ratio"]
    range_ticks: int
    columns: tuple[str, ...] = ()
    by_group: bool = False

    def __str__(self) -> str:
        """The question as one would write it."""
        called = f"{self.function.upper()}({', '.join(self.columns) or '*'})"
        return f"{called} {'by group ' if self.by_group else ''}[{self.range_ticks / 12:g} h]"


def relative_error(answer: Floats, truth: Floats) -> Floats:
    """As `tidegate.operators.accuracy.relative_error` of one value, NaN for NULL."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(answer - truth) / np.abs(truth)
    error = np.where(answer == truth, 0.0, np.where(truth == 0, 1.0, ratio))
    known = ~np.isnan(answer), ~np.isnan(truth)
    return np.where(known[0] & known[1], error, np.where(known[0] == known[1], 0.0, 1.0))


def window_ends(stream: Panes, question: Question) -> Ints:
    """The ends of the windows that lie within the stream, in panes since its first."""
    ends = np.arange(question.range_ticks, len(stream) + 1)
    return ends[(ends + stream.first) % EVERY == 0]


def errors_over(stream: Panes, question: Question, widths: Sequence[int] | Ints) -> Floats:
    """float64[windows, widths]: the largest error of any group of each window."""
    ends = window_ends(stream, question)
    truth = _answer(stream, question, ends, question.range_ticks)
    columns = [relative_error(_answer(stream, question, ends, int(w)), truth).max(axis=0) for w in widths]
    return np.array(columns).T


def _answer(stream: Panes, question: Question, ends: Ints, width: int) -> Floats:
    """float64[groups, windows]; NaN for NULL, and for a group that the answer has no row of."""
    counts = _total(_grouped(stream.counts, question), ends, width)
    scale = question.range_ticks / width
    if question.function == "count":
        return np.where(counts > 0, counts * scale, np.nan if question.by_group else 0.0)
    if question.function == "max":
        largest = stream.largest[question.columns[0]]
        largest = largest if question.by_group else largest.max(axis=0, keepdims=True)
        found = _sliding_max(largest, width)[:, ends - width]
        return np.where(np.isinf(found), np.nan, found)
    sums = [_total(_grouped(stream.sums[column], question), ends, width) for column in question.columns]
    over = {"sum": 1 / scale, "avg": counts, "ratio": sums[-1]}[question.function]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(counts > 0, sums[0] / over, np.nan)


def _grouped(cells: Floats, question: Question) -> Floats:
    return cells if question.by_group else cells.sum(axis=0, keepdims=True)


def _total(cells: Floats, ends: Ints, width: int) -> Floats:
    upto = np.concatenate([np.zeros((len(cells), 1)), np.cumsum(cells, axis=1)], axis=1)
    # Sums of whole numbers are exact; of others a rest of rounding is no value.
    return upto[:, ends] - upto[:, ends - width]


def _sliding_max(cells: Floats, width: int) -> Floats:
    """Element i is the largest of the cells i … i + width − 1: by doubling, since a maximum may count a cell twice."""
    reached, largest = 1, cells
    while reached * 2 <= width:
        largest = np.maximum(largest[:, :-reached], largest[:, reached:])
        reached *= 2
    ahead = width - reached
    return np.maximum(largest[:, : largest.shape[1] - ahead], largest[:, ahead:])
