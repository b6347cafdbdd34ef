"""Histories put together: at which rows the sum of many changes, and the columns of that sum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.aggregates.accumulators import Extreme
from tidegate.operators.join_aggregate.rows import added, extreme_over, rows_for, running
from tidegate.operators.schedule import Int64s


class Summing:
    """Histories summed up by group, a column at a time.

    Args:
        first: int64[h], each history's first row.
        window: int64[r], each row's window.
        group: int64[h], the group that each history is in; None if each is one of its own.
        groups: how many there are.
        windows: how many windows the block has.

    **Cost**: O(rows) per column, and once what ``rows_for`` takes.
    """

    def __init__(self, first: Int64s, window: Int64s, group: Int64s | None, groups: int, windows: int) -> None:
        self._first, self._apart = first, group is None
        if group is None:
            self.first, self.window = first, window
            return
        if groups == 1:
            self.first, self.window, self._row = np.zeros(1, dtype=np.int64), np.arange(windows), window
        else:
            owner = np.repeat(group, np.diff(first, append=len(window)))
            self.first, self.window, (self._row,) = rows_for([owner * windows + window], groups, windows)
        self._last_of = np.append(self.first[1:], len(self.window))[group]

    def totals(self, column: Int64s) -> Int64s:
        """The groups' totals of a column of totals."""
        if self._apart:
            return column
        changes = np.empty_like(column)
        np.subtract(column[1:], column[:-1], out=changes[1:])
        changes[self._first] = column[self._first]
        return running(added(self._row, changes, len(self.window)), self.first)[0]

    def rough_totals(self, column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The same of doubles, rounded."""
        if self._apart:
            return column
        changes = np.diff(column, prepend=0.0)
        changes[self._first] = column[self._first]
        totals = np.bincount(self._row, changes, len(self.window))
        totals[self.first[1:]] -= np.add.reduceat(totals, self.first)[:-1]
        return np.cumsum(totals)

    def extreme(self, extreme: Extreme, column: Int64s, alive: npt.NDArray[np.bool_]) -> Int64s:
        """The groups' extremes of a column of extremes, where they are of anything."""
        if self._apart:
            return np.where(alive, column, extreme.absent)
        some = np.flatnonzero(alive & (column != extreme.absent))
        end = np.append(self._row[1:], 0)
        end[np.append(self._first[1:], len(self._row))[: len(self._first)] - 1] = self._last_of
        return extreme_over(extreme, self._row[some], end[some], column[some], len(self.window))
