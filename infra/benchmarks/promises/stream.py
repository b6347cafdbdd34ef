"""Streams as the benchmark takes them, and what their windows would have needed: the truth of past windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from infra.benchmarks.generator.randomness import Floats

from tidegate.operators.accuracy import Needed
from tidegate.operators.schedule import Int64s

HOUR_S, DAY_S = 3600, 86_400


@dataclass(frozen=True, eq=False)
class Stream:
    """Tuples by event time, seconds: ``event_s``, ``arrival_s`` float64[n]; an arrival is never before its event."""

    name: str
    event_s: Floats
    arrival_s: Floats

    @classmethod
    def of(cls, name: str, event_s: Floats, arrival_s: Floats) -> tuple[Stream, Int64s]:
        """The stream, counted from the day of its first tuple on, and the order in which it has its tuples."""
        order = np.argsort(event_s, kind="stable")
        origin_s = event_s[order[0]] // DAY_S * DAY_S
        event_s = event_s[order] - origin_s
        return cls(name, event_s, np.maximum(arrival_s[order] - origin_s, event_s)), order

    @property
    def arrival_us(self) -> Int64s:
        """When each arrived, microseconds."""
        return (self.arrival_s * 1e6).astype(np.int64)

    @property
    def delay_s(self) -> Floats:
        """How late each was."""
        return self.arrival_s - self.event_s


@dataclass(frozen=True)
class Asked:
    """A continuous query with its promise.

    ``target``: hit rate on average, or share of windows within ``error`` (None: a top-k). ``grid_s``: the slacks that
    are tried for ERROR; () for a top-k. ``chosen_every_s``: how often K is chosen, an interval. ``initial_s``: K as
    long as nothing is known. ``law_target``: what the law of all delays is asked for.
    """

    name: str
    target: float
    range_s: int
    every_s: int
    horizon_s: int
    period_s: int
    chosen_every_s: int
    initial_s: float
    error: float | None = None

    @property
    def law_target(self) -> float:
        """What the law of all delays is asked for."""
        return self.target if self.error is None else 1 - self.error


NeededOf = Callable[[Stream, Asked], Needed]


def _windows(of: Stream, asked: Asked) -> list[tuple[float, int, int]]:
    """End of each window that holds a tuple, and the positions of its tuples."""
    end_s = np.arange(asked.every_s, of.event_s[-1] + asked.range_s, asked.every_s, dtype=np.float64)
    first, last = np.searchsorted(of.event_s, end_s - asked.range_s), np.searchsorted(of.event_s, end_s)
    own = last > first
    return list(zip(end_s[own].tolist(), first[own].tolist(), last[own].tolist(), strict=True))


def _as_needed(ends: list[float], needed: list[Floats]) -> Needed:
    counts = [len(one) for one in needed]
    end_us = np.repeat(np.round(np.array(ends) * 1e6).astype(np.int64), counts)
    return Needed(end_us, np.concatenate(needed), np.repeat(1 / np.array(counts, dtype=np.float64), counts))


def winners(score: Floats, k: int, group: Int64s | None = None, counts: np.ndarray | None = None) -> NeededOf:
    """Needed slacks of the k with the highest score of each window, or of each group of it.

    ``counts``: which tuples a WHERE lets through. The truth is what has arrived by the horizon, as in the product.
    """

    def found(of: Stream, asked: Asked) -> Needed:
        ends, needed = [], []
        for end_s, first, last in _windows(of, asked):
            late_s = of.arrival_s[first:last] - end_s
            own = late_s <= asked.horizon_s
            if counts is not None:
                own &= counts[first:last]
            which = first + np.flatnonzero(own)
            if len(which) == 0:
                continue
            if group is None:
                best = which[np.lexsort((which, -score[which]))[:k]]
            else:
                order = which[np.lexsort((which, -score[which], group[which]))]
                _, begins, sizes = np.unique(group[order], return_index=True, return_counts=True)
                best = order[np.arange(len(order)) - np.repeat(begins, sizes) < k]
            ends.append(end_s)
            needed.append(np.maximum(of.arrival_s[best] - end_s, 0.0))
        return _as_needed(ends, needed)

    return found


def grid_s(tick_s: int, horizon_s: int) -> Floats:
    """The slacks that ``calibrate`` tries for a query with ERROR."""
    ticks = [1]
    while (ticks[-1] + 1) * tick_s < horizon_s:
        ticks.append(max(ticks[-1] + 1, round(ticks[-1] * 1.25)))
    return np.array([0.0, *(t * tick_s for t in ticks if t * tick_s < horizon_s), horizon_s])


def totals(tick_s: int, values: tuple[Floats, ...] = (), group: Int64s | None = None) -> NeededOf:
    """Least slack of the grid from which on an aggregate stays within ERROR, of every group of each window.

    COUNT(*) without ``values``, AVG of one, SUM / SUM of two.
    """

    def found(of: Stream, asked: Asked) -> Needed:
        assert asked.error is not None
        tried_s, ends, needed = grid_s(tick_s, asked.horizon_s), [], []
        columns = (*values, *(np.ones(len(of.event_s)) for _ in range(2 - len(values))))[:2]
        for end_s, first, last in _windows(of, asked):
            late_s = np.maximum(of.arrival_s[first:last] - end_s, 0.0)
            own = np.flatnonzero(late_s <= asked.horizon_s)
            if len(own) == 0:
                continue
            own = own[np.argsort(late_s[own], kind="stable")]
            groups = np.zeros(len(own), np.int64) if group is None else group[first + own]
            most_s = 0.0
            for one in np.unique(groups).tolist():
                which = own[groups == one]
                sums = [np.cumsum(column[first + which]) for column in columns]
                with np.errstate(divide="ignore", invalid="ignore"):
                    answer = sums[0] / sums[1] if values else sums[0]
                    error = np.abs(answer - answer[-1]) / np.abs(answer[-1])
                error[answer == answer[-1]] = 0.0
                # Of tuples that come at once only the last shows; before the first there is no answer at all.
                last_of = np.append(late_s[which][1:] > late_s[which][:-1], True)
                bad = np.flatnonzero(~(error[last_of] <= asked.error))
                at_s = late_s[which][last_of]
                most_s = max(most_s, at_s[bad[-1] + 1] if len(bad) else at_s[0])
            ends.append(end_s)
            needed.append(tried_s[[min(int(np.searchsorted(tried_s, most_s)), len(tried_s) - 1)]])
        return _as_needed(ends, needed)

    return found
