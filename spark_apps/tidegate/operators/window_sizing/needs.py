"""What windows cost and what queries ask of them: the input of every planner, as columns.

Idea: a planner sees a window as a byte rate and a query as a range, a tolerable width and a delay on each window that
it reads. :class:`Needs` holds these as numpy columns, so that 100 000 queries are planned in one sort.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST = 1e15
"""No number of an instance may be larger, and no surplus widens a window past so many seconds."""


@dataclass(frozen=True)
class WindowNeed:
    """One window: ``byte_rate`` bytes that a second of width costs; surplus never widens it past ``max_width_s``."""

    id: str
    byte_rate: float
    max_width_s: float | None = None


@dataclass(frozen=True)
class QueryNeed:
    """What one query asks.

    ``ranges_s``: window → seconds needed for an exact answer (Q_t). ``slack_width_s``: seconds that it can miss (Q_e),
    one number for every window or window → seconds. ``delay_s``: the longest gap between two valid answers (Q_d).
    ``weight``: how much a second of missing width counts. ``priority``: who is admitted first (largest) when not all
    can be.
    """

    id: str
    ranges_s: Mapping[str, float]
    slack_width_s: float | Mapping[str, float] = 0.0
    delay_s: float = LARGEST
    weight: float = 1.0
    priority: int = 0


@dataclass(frozen=True, eq=False)
class Needs:
    """All windows and queries of one planning problem, columnar.

    Arguments: d windows: ``byte_rate`` float64[d] in bytes/s, ``cap_s`` float64[d] in s (inf: no cap). n queries:
    ``delay_s``, ``weight`` float64[n], ``priority`` int64[n]. e pairs of a query and a window that it reads:
    ``entry_window``, ``entry_query`` int64[e], ``range_s`` and ``tolerable_s`` float64[e] in s (Q_t and Q_t − Q_e).

    **Cost**: O(d + n + e) to build. **Guarantee**: ids are unique, ranges name known windows, else ValueError.

    >>> needs = Needs.of([WindowNeed("w", 2.0)], [QueryNeed("q", {"w": 60.0}, slack_width_s=10.0)])
    >>> needs.max_t.tolist(), needs.min_t.tolist()
    ([60.0], [50.0])

    **Source**: papers/01, "Terms".
    """

    window_ids: tuple[str, ...]
    byte_rate: Floats
    cap_s: Floats
    query_ids: tuple[str, ...]
    delay_s: Floats
    weight: Floats
    priority: Integers
    entry_window: Integers
    entry_query: Integers
    range_s: Floats
    tolerable_s: Floats

    @classmethod
    def of(cls, windows: Sequence[WindowNeed], queries: Sequence[QueryNeed]) -> Needs:
        """The columns of these windows and queries."""
        index = {window.id: i for i, window in enumerate(windows)}
        query_ids = tuple([query.id for query in queries])
        if len(index) != len(windows) or len(set(query_ids)) != len(query_ids):
            raise ValueError("ids of windows and of queries must be unique")
        n = len(queries)
        reads = [query.ranges_s for query in queries]
        lengths = np.fromiter(map(len, reads), dtype=np.int64, count=n)
        entries = int(lengths.sum())
        try:
            places = map(index.__getitem__, chain.from_iterable(reads))
            entry_window = np.fromiter(places, dtype=np.int64, count=entries)
        except KeyError as missing:
            raise ValueError(f"a query reads the unknown window {missing}") from None
        values: Any = dict.values if set(map(type, reads)) == {dict} else methodcaller("values")
        ranges = np.fromiter(chain.from_iterable(map(values, reads)), dtype=np.float64, count=entries)
        entry_query = np.repeat(np.arange(n, dtype=np.int64), lengths)
        slack_widths = [query.slack_width_s for query in queries]
        if set(map(type, slack_widths)) <= {float, int}:
            slack = np.array(slack_widths, dtype=np.float64)[entry_query]
        else:
            slack = np.array([_slack_of(query, window) for query in queries for window in query.ranges_s])
        caps = [math.inf if window.max_width_s is None else window.max_width_s for window in windows]
        return cls(
            window_ids=tuple(index),
            byte_rate=np.array([window.byte_rate for window in windows], dtype=np.float64),
            cap_s=np.array(caps, dtype=np.float64),
            query_ids=query_ids,
            delay_s=np.fromiter(map(attrgetter("delay_s"), queries), dtype=np.float64, count=n),
            weight=np.fromiter(map(attrgetter("weight"), queries), dtype=np.float64, count=n),
            priority=np.fromiter(map(attrgetter("priority"), queries), dtype=np.int64, count=n),
            entry_window=entry_window,
            entry_query=entry_query,
            range_s=ranges,
            tolerable_s=np.maximum(ranges - slack, 0.0),
        )

    @cached_property
    def max_t(self) -> Floats:
        """Max_T per window: the width at which every query on it is exact; 0 if no query reads it."""
        return self._widest(self.range_s)

    @cached_property
    def min_t(self) -> Floats:
        """Min_T per window: the width at which every query on it is within its error; 0 if no query reads it."""
        return self._widest(self.tolerable_s)

    @cached_property
    def id_rank(self) -> Integers:
        """Place of each window in the order of ids, which breaks ties."""
        ranks = np.empty(len(self.window_ids), dtype=np.int64)
        ranks[sorted(range(len(self.window_ids)), key=self.window_ids.__getitem__)] = np.arange(len(self.window_ids))
        return ranks

    def _widest(self, widths: Floats) -> Floats:
        widest = np.zeros(len(self.window_ids))
        np.maximum.at(widest, self.entry_window, widths)
        return widest

    def bytes_of(self, widths_s: Floats) -> float:
        """Bytes that the windows hold at these widths (correctly rounded sum)."""
        return math.fsum((widths_s * self.byte_rate).tolist())

    def accumulated_error_s(self, widths_s: Floats) -> float:
        """Σ over windows of E(w): the seconds of range that the queries miss, each times its query's weight."""
        missing = np.maximum(self.range_s - widths_s[self.entry_window], 0.0)
        return math.fsum((missing * self.weight[self.entry_query]).tolist())

    def in_quanta(self, quantum_s: float) -> Needs:
        """The same needs with ranges and tolerable widths rounded up to multiples of the quantum.

        A plan for the rounded needs keeps the promises of the original ones; caps are rounded down.
        """
        return replace(
            self,
            cap_s=floor_to(self.cap_s, quantum_s),
            range_s=ceil_to(self.range_s, quantum_s),
            tolerable_s=ceil_to(self.tolerable_s, quantum_s),
        )


def _slack_of(query: QueryNeed, window: str) -> float:
    slack = query.slack_width_s
    return slack.get(window, 0.0) if isinstance(slack, Mapping) else slack


def ceil_to(widths_s: Floats, quantum_s: float) -> Floats:
    """Round up to multiples of the quantum; 1e-9 of a quantum above a multiple counts as that multiple."""
    return np.ceil(widths_s / quantum_s - 1e-9) * quantum_s


def floor_to(widths_s: Floats, quantum_s: float) -> Floats:
    """Round down to multiples of the quantum, never up."""
    quanta = np.floor(widths_s / quantum_s)
    return np.where(quanta * quantum_s > widths_s, quanta - 1, quanta) * quantum_s


def within_budget(needs: Needs, widths_s: Floats, floors_s: Floats, budget_bytes: float) -> Floats:
    """The widths, less the few units in the last place by which rounding may have overrun the budget.

    Nothing is cut below ``floors_s``, which fit by the caller's own check.
    """
    widths = widths_s.copy()
    while (excess := math.fsum([*(widths * needs.byte_rate).tolist(), -budget_bytes])) > 0:
        spare = (widths - floors_s) * needs.byte_rate
        widest = int(np.argmax(spare))
        if spare[widest] <= 0:
            break
        cut = widths[widest] - 2 * excess / needs.byte_rate[widest]
        widths[widest] = max(floors_s[widest], min(cut, np.nextafter(widths[widest], -np.inf)))
    return widths
