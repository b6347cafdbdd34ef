"""Which value of a group is the one of a rank, at any window of a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.operators.schedule import Int64s

# Histories, changes and questions that are worked on at once: few enough for the processor's cache.
BATCH = 1 << 17


@dataclass(frozen=True, eq=False)
class Ranking:
    """How many there are of each value of each group, window by window.

    **Idea.** The values of a group are numbered in ascending order. Which has a rank at a window is found bit by bit
    of its number: so many of the values whose next bit is 0 are there, by how many there were before the first window
    (a running total over the values) and by the changes up to this window (a running total over the changes, in order
    of their windows). A stable partition of the changes by that bit makes the running total of the next one: a wavelet
    matrix, of which one level is held at a time.

    Args:
        group, value: int64[h], of each history its group and its value's place in the order of all values; two
            histories of one group have different values.
        first: int64[h], each history's first row, which is of window 0.
        window, number: int64[r], of each row from which window on there are how many of the value.
        groups, windows: how many there are.

    **Cost**: O((values + changes + questions) · log values of a group): no list of a window's values is made.
    **Source**: Claude, Navarro, "The wavelet matrix" (2012); Gagie, Puglisi, Turpin, "Range quantile queries" (2009).
    """

    group: Int64s
    value: Int64s
    first: Int64s
    window: Int64s
    number: Int64s
    groups: int
    windows: int

    def histories_of(self, group: Int64s, window: Int64s, rank: Int64s) -> Int64s:
        """int64[q], the history whose value has a rank (from 0) in a group at a window; any where there is none."""
        result = np.zeros(len(group), dtype=np.int64)
        if not len(self.group) or not len(group):
            return result
        order = np.argsort(self.group * (int(self.value.max()) + 1) + self.value)
        lengths = np.diff(self.first, append=len(self.window))[order]
        begin = np.searchsorted(self.group[order], np.arange(self.groups + 1))
        by_group = np.argsort(group * self.windows + window)
        first_question = np.searchsorted(group[by_group], np.arange(self.groups + 1))
        rows = np.append(0, np.cumsum(lengths))
        for g0, g1 in _batches(begin + rows[begin] + first_question):
            some = by_group[first_question[g0] : first_question[g1]]
            histories = order[begin[g0] : begin[g1]]
            if len(some) and len(histories):
                bounds = begin[g0 : g1 + 1] - begin[g0]
                result[some] = self._chosen(histories, bounds, group[some] - g0, window[some], rank[some], g0)
        return result

    def _chosen(
        self, histories: Int64s, begin: Int64s, group: Int64s, window: Int64s, rank: Int64s, first_group: int
    ) -> Int64s:
        """Each question's history, of some groups whose histories these are, in the order of their values.

        ``begin``: where each group's histories begin. ``group``: each question's, from 0 on.
        """
        sizes = np.diff(begin)
        before = np.append(0, np.cumsum(self.number[self.first[histories]]))
        index, when, change = self._changes(histories, begin, first_group)
        lo = np.searchsorted(when, group * self.windows)
        hi = np.searchsorted(when, group * self.windows + window, side="right")
        base, size = begin[group], sizes[group]
        value, left = np.zeros(len(group), dtype=np.int64), rank.copy()
        for bit in reversed(range(max(1, int(sizes.max() - 1).bit_length()))):
            low = (index >> bit) & 1 == 0
            zeros, added = np.append(0, np.cumsum(low)), np.append(0, np.cumsum(np.where(low, change, 0)))
            half = before[base + np.minimum(value + (1 << bit), size)] - before[base + np.minimum(value, size)]
            half += added[hi] - added[lo]
            above = left >= half
            left -= np.where(above, half, 0)
            value += above.astype(np.int64) << bit
            lo = np.where(above, zeros[-1] + lo - zeros[lo], zeros[lo])
            hi = np.where(above, zeros[-1] + hi - zeros[hi], zeros[hi])
            index = np.concatenate([index[low], index[~low]])
            change = np.concatenate([change[low], change[~low]])
        chosen: Int64s = histories[base + np.minimum(value, np.maximum(size - 1, 0))]
        return chosen

    def _changes(self, histories: Int64s, begin: Int64s, first_group: int) -> tuple[Int64s, Int64s, Int64s]:
        """The changes of some histories by group and window: the value's number in its group, when, by how many."""
        lengths = np.diff(self.first, append=len(self.window))[histories] - 1
        history = np.repeat(np.arange(len(histories)), lengths)
        row = self.first[histories][history] + 1 + np.arange(len(history)) - (np.cumsum(lengths) - lengths)[history]
        change = self.number[row] - self.number[row - 1]
        group = self.group[histories][history] - first_group
        when = group * self.windows + self.window[row]
        order = np.argsort(when, kind="stable")
        order = order[change[order] != 0]
        return (history - begin[group])[order], when[order], change[order]


def _batches(weight: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """[first, last) groups with about ``BATCH`` of weight together, by what all groups before each weigh."""
    first, groups = 0, len(weight) - 1
    while first < groups:
        last = int(np.searchsorted(weight, weight[first] + BATCH, side="right")) - 1
        last = min(max(last, first + 1), groups)
        yield first, last
        first = last
