"""What has changed or left from one state of an answer to the next.

**Idea.** A window is answered several times; the rows of each time are a state. Of a state only those rows matter
that the state before has not, or has otherwise, and the keys that the state before had and this one has not. Put on top
of the first state they give every state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidegate.operators.codes import codes, group_ids
from tidegate.operators.schedule import Int64s


def changes(
    rows: pa.Table, keys: Sequence[str], state: Int64s, before: Int64s, after: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Which rows of some states are new or otherwise than before, and which left.

    Args:
        rows: n rows, several states together; those of a state have keys that differ.
        keys: columns that tell a state's rows apart; none where a state has one row at most.
        state: int64[n], the number of each row's state.
        before: int64[m], the state before each, −1: none, so that all its rows are new.
        after: int64[m], the state after each, −1: none, or one that is not known yet.

    Returns:
        The rows that are new or otherwise in their state; the rows that left, and the states in which they did.

    **Cost.** O(n log n) time, O(n) space.

    >>> rows = pa.table({"k": ["a", "b", "b", "c"], "v": [1, 2, 2, 3]})
    >>> result = changes(rows, ["k"], np.array([0, 0, 1, 1]), np.array([-1, 0]), np.array([1, -1]))
    >>> [part.tolist() for part in result]
    [[0, 1, 3], [0], [1]]
    """
    key = group_ids([codes(rows.column(name))[0] for name in keys], rows.num_rows)
    content = group_ids([codes(column)[0] for column in rows.columns], rows.num_rows)
    count = int(key.max(initial=0)) + 1
    place = state * count + key
    order = np.argsort(place, kind="stable")
    placed = place[order]

    def rows_at(wanted: Int64s) -> Int64s:
        """The rows at these places, −1: none."""
        index = np.minimum(np.searchsorted(placed, wanted), max(len(placed) - 1, 0))
        at = order[index] if len(order) else np.zeros(len(wanted), dtype=np.int64)
        return np.where(placed[index] == wanted, at, -1) if len(order) else np.full(len(wanted), -1)

    earlier = np.where(before[state] >= 0, rows_at(before[state] * count + key), -1)
    is_new = (earlier < 0) | (content[earlier] != content)
    later = rows_at(after[state] * count + key)
    left = np.flatnonzero((after[state] >= 0) & (later < 0))
    return np.flatnonzero(is_new), left, after[state[left]]
