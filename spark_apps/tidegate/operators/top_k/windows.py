"""The k best of each of many windows, from candidates that each lie in a run of windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidegate.operators.schedule import Int64s
from tidegate.operators.top_k.ranking import stable_order


def monotone_runs(first: int, last: int, *bounds: Int64s) -> Iterator[tuple[int, int]]:
    """The longest runs within [first, last) over which no bound falls.

    >>> list(monotone_runs(0, 4, np.array([1, 2, 2, 5]), np.array([3, 4, 1, 1])))
    [(0, 2), (2, 4)]
    """
    if first >= last:
        return
    falls = np.zeros(last - first - 1, dtype=bool)
    for bound in bounds:
        falls |= np.diff(bound[first:last]) < 0
    edges = [first, *(np.flatnonzero(falls) + first + 1).tolist(), last]
    yield from zip(edges[:-1], edges[1:], strict=True)


def best_of_windows(first: Int64s, last: Int64s, group: Int64s, windows: int, k: int) -> tuple[Int64s, Int64s]:
    """The k best candidates of every group in every window.

    **Idea.** Halve the windows again and again. A candidate is in no answer of a range of windows if k better ones of
    its group lie in all of them; so few are handed down to the halves, and at single windows the answers are left.

    Args:
        first: int64[n], the first window that the candidate is in.
        last: int64[n], the one after its last.
        group: int64[n], ascending; within a group the candidates are in order, the best first.
        windows: how many; those before 0 and from ``windows`` on are not answered.
        k: how many.

    Returns:
        Window and candidate of each answer, ascending by window, group and order.

    **Cost.** O(n + a · log ``windows``) expected for a answers, if candidates lie in windows regardless of their order;
    O(n log ``windows``) at worst, each step times a sort of what is left.

    >>> window, row = best_of_windows(np.array([1, 0, 0]), np.array([2, 2, 1]), np.array([0, 0, 0]), 2, 1)
    >>> window.tolist(), row.tolist()
    ([0, 1], [1, 0])
    """
    size = 1 << max(windows - 1, 0).bit_length()
    row = np.flatnonzero((first < last) & (first < windows) & (last > 0))
    node = np.zeros(len(row), dtype=np.int64)
    while True:
        begin = node * size
        end = np.minimum(begin + size, windows)
        throughout = (first[row] <= begin) & (last[row] >= end)
        kept = _better(throughout, node, group[row]) < k
        row, node = row[kept], node[kept]
        if size == 1:
            return node, row
        size //= 2
        middle = (2 * node + 1) * size
        left, right = first[row] < middle, (last[row] > middle) & (middle < windows)
        node = np.concatenate([2 * node[left], 2 * node[right] + 1])
        row = np.concatenate([row[left], row[right]])
        order = stable_order(node, windows // size + 1)
        row, node = row[order], node[order]


def _better(throughout: np.ndarray, node: Int64s, group: Int64s) -> Int64s:
    """How many of those that are in all windows of the node come before each row, in its node and group."""
    total = np.cumsum(throughout) - throughout
    begins = np.ones(len(node), dtype=bool)
    begins[1:] = (node[1:] != node[:-1]) | (group[1:] != group[:-1])
    starts = np.flatnonzero(begins)
    before: Int64s = total - np.repeat(total[starts], np.diff(np.append(starts, len(node))))
    return before
