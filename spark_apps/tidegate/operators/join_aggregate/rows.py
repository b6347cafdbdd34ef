"""The rows at which histories change: where they are, and how numbers are added up, run up and spread over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.aggregates.accumulators import Extreme
from tidegate.operators.schedule import Int64s

# A double holds every integer up to here.
DOUBLE_LIMIT = 2**53
# Up to so many places of the grid for each mark, going over the grid is cheaper than sorting the marks.
PLACES_PER_MARK = 16


def rows_for(marks: Sequence[Int64s], histories: int, windows: int) -> tuple[Int64s, Int64s, list[Int64s]]:
    """Rows for histories that change at the marks (history · windows + window): one for every window if marks abound.

    Returns:
        Where each history begins, each row's window, and for each array of marks the rows that the marks fall on.

    **Cost**: O(marks + histories · windows / 16) or O(marks · log marks), whichever is less.
    """
    grid, begins = histories * windows, np.arange(histories, dtype=np.int64) * windows
    if grid <= sum(map(len, marks)):
        return begins, np.tile(np.arange(windows), histories), list(marks)
    if grid <= PLACES_PER_MARK * (sum(map(len, marks)) + histories):
        marked = np.zeros(grid, dtype=bool)
        marked[::windows] = True
        for places in marks:
            marked[places] = True
        cells = np.flatnonzero(marked)
        row_at = np.empty(grid, dtype=np.int32)  # half the bytes, more of it in the processor's cache
        row_at[cells] = np.arange(len(cells), dtype=np.int32)
        first = row_at[begins].astype(np.int64)
        window = cells - np.repeat(begins, np.diff(first, append=len(cells)))
        return first, window, [row_at[places].astype(np.int64) for places in marks]
    every = np.concatenate([begins, *marks])
    order = np.argsort(every)
    ordered = every[order]
    new = np.ones(len(every), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    row = np.empty(len(every), dtype=np.int64)
    row[order] = np.cumsum(new) - 1
    cuts = np.cumsum([histories, *(len(places) for places in marks)])
    first, *rows = np.split(row, cuts[:-1])
    return first, ordered[new] % windows, rows


def added(rows: Int64s, values: npt.NDArray[Any], size: int) -> Int64s:
    """Values added up by row, exactly (modulo 2^64)."""
    if not len(values):
        return np.zeros(size, dtype=np.int64)
    if max(-float(values.min()), float(values.max())) * len(values) <= DOUBLE_LIMIT:
        return np.bincount(rows, values, size).astype(np.int64)
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, rows, values.astype(np.int64, copy=False))
    return total


def running(changes: Int64s, first: Int64s) -> tuple[Int64s, Int64s]:
    """Changes, the first of each history from 0, as totals (in place); and the last total of each history."""
    last = np.add.reduceat(changes, first) if len(first) else changes[:0]
    changes[first[1:]] -= last[:-1]
    return np.cumsum(changes, out=changes), last


def extreme_over(extreme: Extreme, begin: Int64s, end: Int64s, values: Int64s, size: int) -> Int64s:
    """For each row the extreme of the values whose interval of rows [begin, end) it lies in.

    **Idea.** An interval is two overlapping ones whose length is a power of two. The values are put where these begin,
    one level for each length; then each level is handed down to the next as two halves.
    **Cost**: O(values + rows · log(longest interval)).
    """
    pick, absent = extreme.pick, extreme.absent
    if not len(values):
        return np.full(size, absent, dtype=np.int64)
    level = np.frexp((end - begin).astype(np.float64))[1].astype(np.int64) - 1
    table = np.full((int(level.max()) + 1) * size, absent, dtype=np.int64)
    pick.at(table, level * size + begin, values)
    pick.at(table, level * size + end - (1 << level), values)
    levels = table.reshape(-1, size)
    for upper in range(len(levels) - 1, 0, -1):
        lower, half = levels[upper - 1], 1 << (upper - 1)
        pick(lower, levels[upper], out=lower)
        pick(lower[half:], levels[upper][:-half], out=lower[half:])
    whole: Int64s = levels[0]
    return whole
