"""Estimates of the past against the truth, where the tuples are still there: what each daily pass notes down.

After a pass the past falls into parts, each twice as old as the one before. The tuples of a part are told apart by the
value of one column into slices of different selectivity, and each slice is asked about: COUNT, SUM or AVG, by the same
estimators as ``tidegate history``. Slices share no tuple and tuples are sampled independently of each other, so the
questions are independent, and how many of the 95 % intervals may miss the truth is a matter of the binomial
distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import from_us
from tidegate.history.answers import Question
from tidegate.history.past import Bools, Past, View
from tidegate.history.store import Samples
from tidegate.operators.history.estimators import Estimate
from tidegate.operators.history.laws import Float64s, Int64s
from tidegate.operators.history.query import parse_history_query
from tidegate.operators.history.thinning import latest_us
from tidegate.operators.schedule import instants_us
from tidegate.queries.scan import EventFiles

TABLE = "history_accuracy"
CONFIDENCE = 0.95
# Shares of a part's tuples that the slices take, the lowest values first.
SLICES = (0.3, 0.25, 0.2, 0.15, 0.1)
# With fewer sampled tuples a skewed slice often misses the one tuple that decides (papers/03: intervals hold from an
# effective number of ten on). Expected, not found: to choose by what was found would favour some samples.
LEAST_EXPECTED = 20
# Of a part that holds more, the newest leaves are asked about: a pass reads a bounded number of samples and tuples. Of
# so many samples the smallest slice still holds LEAST_EXPECTED.
MOST_SAMPLED_A_PART, MOST_TUPLES_A_PART = 300, 50_000
_FIRST_PART_LEAVES = 4


def judge(past: Past, pass_us: int) -> pa.Table:
    """Rows of ``history_accuracy``: the questions about a stream's past as it stands after a pass.

    Args:
        past: what had entered history by the pass, with the fractions and leaves that the pass decided.
        pass_us: when the pass happens, µs since 1970.

    Returns:
        A row a question, the newest part first. Leaves some of whose tuples are gone (``events_<stream>`` is no longer
        kept) or have not entered yet (they are still in their windows) are not asked about.

    Cost: reads the partitions of at most ``MOST_SAMPLED_A_PART`` samples and ``MOST_TUPLES_A_PART`` tuples a part (and
    the events that arrived up to ``max_late`` after them), whatever the length of the past; the number of parts grows
    with its logarithm. 1.4 CPU seconds eight weeks into a stream of 900 tuples a day (eight parts, 40 questions).
    """
    columns, rows = past.stream.numeric_columns, []
    labels = past.warehouse.labels(f"events_{past.stream.name}")
    if columns:
        for number, leaves in enumerate(_parts(past.view, pass_us, past.spec.leaf_s * 1_000_000)):
            part = _Part.of(past, leaves, labels, pass_us)
            if part is not None:
                by, of = (columns[(number + shift) % len(columns)] for shift in (0, 1))
                rows += part.judged(by, of)
    return pa.Table.from_pylist(rows, schema=past.warehouse.schema(TABLE))


def _parts(view: View, pass_us: int, leaf_us: int) -> list[Bools]:
    """Which rows of the view each part asks about, the newest part first."""
    strata = view.strata
    age = np.maximum(pass_us - strata.start_us, 1) / (leaf_us * _FIRST_PART_LEAVES)
    # Ages up to 1, 3, 7, 15 … of the first part's length.
    number = np.ceil(np.log2(age + 1)).astype(np.int64)
    found = []
    for own in (number == part for part in np.unique(number)):
        starts, leaf = np.unique(strata.start_us[own], return_inverse=True)
        tuples, fraction = strata.tuples[own], strata.fraction[own]
        newest_first = np.cumsum(np.bincount(leaf, weights=tuples)[::-1])
        sampled = np.cumsum(np.bincount(leaf, weights=tuples * fraction)[::-1])
        # The leaf with which the samples are enough is the last.
        enough = np.append(False, sampled[:-1] >= MOST_SAMPLED_A_PART)
        asked = starts[::-1][(newest_first <= MOST_TUPLES_A_PART) & ~enough]
        if len(asked):
            found.append(own & (strata.start_us >= asked[-1]))
    return found


@dataclass(frozen=True, eq=False)
class _Part(Past):
    """A few adjacent leaves, with all of their tuples: ``event_us``, ``values`` (column → float64, NaN for NULL)."""

    event_us: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    values: dict[str, Float64s] = field(default_factory=dict)
    _read: list[Samples] = field(default_factory=list)

    @classmethod
    def of(cls, past: Past, leaves: Bools, labels: Sequence[str], pass_us: int) -> _Part | None:
        """The complete leaves among some; None if there is none. ``labels``: the partitions of events there are."""
        view = past.view.only(leaves)
        event_us, values = _events(
            past, labels, int(view.strata.start_us.min()), int(view.strata.end_us.max()), pass_us
        )
        starts, leaf = np.unique(view.strata.start_us, return_inverse=True)
        ends = latest_us(leaf, view.strata.end_us, len(starts))
        tuples = np.zeros(len(starts), np.int64)
        np.add.at(tuples, leaf, view.strata.tuples)
        order = np.sort(event_us)
        there = np.searchsorted(order, ends) - np.searchsorted(order, starts)
        complete = tuples == there
        if not complete.any():
            return None
        first = int(np.argmax(complete))
        last = first + int(np.argmin(np.append(complete[first:], False)))
        inside = (event_us >= starts[first]) & (event_us < ends[last - 1])
        view = view.only((leaf >= first) & (leaf < last))
        held = {column: of[inside] for column, of in values.items()}
        return cls(past.warehouse, past.stream, past.labels, view, past.index, event_us[inside], held)

    def samples(self, view: View, columns: Sequence[str]) -> Samples:
        """The sampled tuples of all leaves, read once: every question is about all of them."""
        if not self._read:
            self._read.append(super().samples(self.view, list(self.values)))
        return self._read[0]

    def judged(self, by: str, of: str) -> list[dict[str, Any]]:
        """The questions, an estimate and the truth for each.

        Args:
            by: the column by whose value the tuples are told apart.
            of: the column that SUM and AVG are about.
        """
        strata = self.view.strata
        span = int(strata.start_us.min()), int(strata.end_us.max())
        fraction = float((strata.tuples * strata.fraction).sum() / strata.tuples.sum())
        rows = []
        for number, (condition, chosen) in enumerate(_slices(by, self.values[by])):
            values = self.values[of][chosen]
            values = values[np.isfinite(values)]
            aggregate = ("COUNT(*)", f"SUM(`{of}`)", f"AVG(`{of}`)")[number % 3]
            asked = int(chosen.sum()) if number % 3 == 0 else len(values)
            if asked * fraction < LEAST_EXPECTED:
                continue
            truth = float(asked if number % 3 == 0 else values.sum() if number % 3 == 1 else values.mean())
            sql = f"SELECT {aggregate} AS answer FROM {self.stream.name} WHERE {condition}"
            query = parse_history_query(sql, (self.stream,))
            ((row,), _) = Question(query, self, *span, CONFIDENCE).answer()
            rows.append(
                {
                    "stream": self.stream.name,
                    "part_start": from_us(span[0]),
                    "part_end": from_us(span[1]),
                    "question": sql,
                    "tuples": asked,
                    "fraction": fraction,
                    "truth": truth,
                    **_compared(row["answer"], truth),
                }
            )
        return rows


def _compared(estimate: Estimate, truth: float) -> dict[str, Any]:
    low, high = estimate.low, estimate.high
    # Sums of doubles in another order differ in the last digits.
    slack = 1e-9 * max(abs(truth), 1.0)
    holds = None if low is None or high is None else low - slack <= truth <= high + slack
    return {"estimate": estimate.estimate, "low": low, "high": high, "exact": estimate.exact, "holds": holds}


def _slices(column: str, values: Float64s) -> list[tuple[str, Bools]]:
    """(SQL condition, bool[n]): disjoint ranges of values, about as selective as ``SLICES`` where there are no ties."""
    known = values[np.isfinite(values)]
    if not len(known):
        return []
    inner = np.unique(np.quantile(known, np.cumsum(SLICES)[:-1], method="lower"))
    edges = [-np.inf, *inner[inner > known.min()].tolist(), np.inf]
    found = []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        bounds = [f"`{column}` >= {_literal(low)}"] if np.isfinite(low) else []
        bounds += [f"`{column}` < {_literal(high)}"] if np.isfinite(high) else []
        condition = " AND ".join(bounds) or f"`{column}` IS NOT NULL"
        found.append((condition, np.isfinite(values) & (values >= low) & (values < high)))
    return found


def _literal(value: float) -> str:
    """As SQL takes it and people write it.

    >>> _literal(-5.0), _literal(0.25)
    ('-5', '0.25')
    """
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)


def _events(
    past: Past, labels: Sequence[str], start_us: int, end_us: int, pass_us: int
) -> tuple[Int64s, dict[str, Float64s]]:
    """Event time and numeric values of the accepted tuples of [start, end) that had arrived by the pass."""
    stream = past.stream
    seen_by_us = min(end_us + stream.max_late_s * 1_000_000, pass_us - 1)
    files = EventFiles.between(past.warehouse, stream, labels, start_us, seen_by_us)
    rows = files.table((start_us, end_us, pass_us - 1), ["event_time", *stream.numeric_columns])
    values = {
        name: pc.fill_null(rows.column(name).cast(pa.float64(), safe=False), np.nan).to_numpy()
        for name in stream.numeric_columns
    }
    return instants_us(rows.column("event_time")), values
