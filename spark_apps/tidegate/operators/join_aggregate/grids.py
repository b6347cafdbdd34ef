"""Joins of histories window by window: where most windows bring a change, a row for each change costs more."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.aggregates.accumulators import Extreme
from tidegate.operators.join_aggregate.histories import Histories
from tidegate.operators.schedule import Int64s

# Windows that are worked on at once: few enough that hardly a history changes, and for the processor's cache.
SLAB_WINDOWS = 8
# Cells of the grid that extremes are taken of at once.
CHUNK_CELLS = 1 << 16
# What a cell of a pair, a change of a pair's history, a cell of a group or history, and a pair's row that is found,
# multiplied and added up by itself take, in ns.
CELL_NS, CHANGE_NS, LAID_OUT_NS, ROW_NS = 2, 100, 5, 80


class PairGrid:
    """Pairs of histories of two relations on a grid of groups and windows.

    **Idea.** A group's total at a window is Σ left · right over its pairs. The relation of which fewer histories
    match is laid out as a matrix of histories and windows. Few windows are gone through at a time. Of the other
    relation, the histories that do not change meanwhile are the entries of a sparse matrix of groups and histories,
    and the product of the matrices is their total. Those that change are multiplied cell by cell.

    Args:
        sides: the relations.
        matching: per relation int64[n], which of its histories each pair has.
        group: int64[n], the group that each pair is in.
        groups: how many there are.

    **Cost**: O(pairs · windows), with a small constant.
    **Guarantee**: exact modulo 2^64.
    """

    def __init__(
        self, sides: tuple[Histories, Histories], matching: tuple[Int64s, Int64s], group: Int64s, groups: int
    ) -> None:
        self.sides, self.windows, self.groups, self._group = sides, sides[0].windows, groups, group
        used = [_used(histories, len(side)) for side, histories in zip(sides, matching, strict=True)]
        self._wide = 0 if len(used[0]) <= len(used[1]) else 1
        self._laid_out = used[self._wide]
        place = np.zeros(len(sides[self._wide]), dtype=np.int64)
        place[self._laid_out] = np.arange(len(self._laid_out))
        self._place, self._other = place[matching[self._wide]], matching[1 - self._wide]

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self._group)

    def is_cheaper_than(self, rows: int) -> bool:
        """Than the pairs' own rows, of which there are so many."""
        changes = int(self.sides[1 - self._wide].lengths[self._other].sum()) - len(self)
        laid_out = (len(self._laid_out) + self.groups) * self.windows
        return CELL_NS * len(self) * self.windows + CHANGE_NS * changes + LAID_OUT_NS * laid_out <= ROW_NS * rows

    def sums(self, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Σ left · right, columns of the two relations, for each group and each window."""
        of_wide, of_other = (right, left) if self._wide else (left, right)
        other = self.sides[1 - self._wide]
        matrix = self.sides[self._wide].spread(of_wide, self._laid_out)
        total = np.empty((self.groups, self.windows), dtype=matrix.dtype)
        now = of_other[other.first]
        rows, history, cuts = self._changes
        changes = of_other[rows]
        cell_of = np.empty(len(now), dtype=np.int64)
        for begin in range(0, self.windows, SLAB_WINDOWS):
            end = min(begin + SLAB_WINDOWS, self.windows)
            part = np.ascontiguousarray(matrix[:, begin:end])
            at = slice(cuts[begin], cuts[begin + 1])
            now[history[at]] = changes[at]
            changing = np.zeros(len(now), dtype=bool)
            changing[history[cuts[begin + 1] : cuts[end]]] = True
            steady = np.where(changing, 0, now).take(self._other)
            total[:, begin:end] = self._added(steady, self._group, self._place, len(part)) @ part
            some = np.flatnonzero(changing)
            if not len(some):
                continue
            cells = np.empty((end - begin, len(some)), dtype=matrix.dtype)
            now.take(some, out=cells[0])
            for window in range(begin + 1, end):
                at = slice(cuts[window], cuts[window + 1])
                now[history[at]] = changes[at]
                now.take(some, out=cells[window - begin])
            cell_of[some] = np.arange(len(some))
            pairs = np.flatnonzero(changing.take(self._other))
            product = np.ascontiguousarray(cells.T).take(cell_of.take(self._other.take(pairs)), axis=0)
            product *= part.take(self._place.take(pairs), axis=0)
            ones = np.ones(len(pairs), dtype=matrix.dtype)
            total[:, begin:end] += self._added(ones, self._group[pairs], np.arange(len(pairs)), len(pairs)) @ product
        return total.reshape(-1)

    def extremes(self, extreme: Extreme, side: int, column: Int64s) -> Int64s:
        """The extreme of a column of one relation, for each group and each window; ABSENT without a pair."""
        wide, other = self.sides[self._wide], self.sides[1 - self._wide]
        some = wide.spread(wide.pairs, self._laid_out) > 0
        matrix = wide.spread(column, self._laid_out) if side == self._wide else None
        total = np.full((self.groups, self.windows), extreme.absent, dtype=np.int64)
        for pairs in self._chunks():
            alive = other.spread(other.pairs, self._other[pairs]) > 0
            alive &= some[self._place[pairs]]
            cells = other.spread(column, self._other[pairs]) if matrix is None else matrix[self._place[pairs]]
            group = self._group[pairs]
            begins = np.flatnonzero(np.diff(group, prepend=-1))
            best = extreme.pick.reduceat(np.where(alive, cells, extreme.absent), begins, axis=0)
            total[group[begins]] = extreme.pick(total[group[begins]], best)
        return total.reshape(-1)

    @cached_property
    def _changes(self) -> tuple[Int64s, Int64s, Int64s]:
        """The other relation's rows but for the first ones, by window; whose they are; where each window's begin."""
        other = self.sides[1 - self._wide]
        follows = np.ones(len(other.window), dtype=bool)
        follows[other.first] = False
        rows = np.flatnonzero(follows)
        history = np.repeat(np.arange(len(other)), other.lengths - 1)
        order = np.argsort(_narrow(other.window[rows], self.windows), kind="stable")
        rows, history = rows[order], history[order]
        return rows, history, np.searchsorted(other.window[rows], np.arange(self.windows + 1))

    def _chunks(self) -> Iterator[Int64s]:
        order = np.argsort(_narrow(self._group, self.groups), kind="stable")
        size = max(1, CHUNK_CELLS // self.windows)
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]

    def _added(self, entries: npt.NDArray[Any], group: Int64s, column: Int64s, columns: int) -> Any:
        """The matrix that multiplies columns of cells with the entries and adds them up by group."""
        # Most queries do without these imports, which take half a second.
        from scipy.sparse import coo_array

        return coo_array((entries, (group, column)), shape=(self.groups, columns))


def _narrow(numbers: Int64s, limit: int) -> npt.NDArray[Any]:
    """Numbers below the limit, if possible in 16 bits: these are sorted by counting."""
    return numbers.astype(np.uint16) if limit <= 1 << 16 else numbers


def _used(histories: Int64s, count: int) -> Int64s:
    flags = np.zeros(count, dtype=bool)
    flags[histories] = True
    return np.flatnonzero(flags)
