"""Pairs of tuples on which a condition over both fails, each counted once: when the later of the two has arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.operators.arrivals import int64s
from tidegate.operators.bounded_join import matches
from tidegate.operators.expressions import Failed, columns_of
from tidegate.operators.schedule import Int64s


@dataclass(frozen=True, eq=False)
class SharedWindows:
    """The windows of two aliases: their ends, ascending, and how far back each reaches on either side; int64[n]."""

    end_us: Int64s
    left_range_us: Int64s
    right_range_us: Int64s

    def hold(self, left_us: Int64s, right_us: Int64s) -> np.ndarray:
        """Whether some window holds both of two event times.

        >>> ends = np.array([10, 20])
        >>> SharedWindows(ends, ends, np.array([5, 5])).hold(np.array([3, 9, 3]), np.array([6, 12, 16])).tolist()
        [True, False, True]
        """
        first = np.searchsorted(self.end_us, np.maximum(left_us, right_us), side="right")
        last = np.minimum(
            np.searchsorted(self.end_us - self.left_range_us, left_us, side="right"),
            np.searchsorted(self.end_us - self.right_range_us, right_us, side="right"),
        )
        return np.asarray(first < last)


@dataclass(frozen=True)
class PairConditions:
    """What is computed of pairs.

    Args:
        keys: slots that both sides have, in which pairs are equal; a NULL equals nothing.
        low_us, high_us: least and greatest event time of the right tuple, less that of the left one.
        conditions: SQL over the slots of both sides, in order: of a pair for which one is not true no more is computed.
        windows: of which one must hold both; None: the distance is all.
    """

    keys: tuple[str, ...]
    low_us: int
    high_us: int
    conditions: tuple[str, ...]
    windows: SharedWindows | None = None


def failed_pairs(spec: PairConditions, left: pa.Table, right: pa.Table, since_us: int) -> int:
    """How many pairs there are on which a condition fails, of which a tuple has arrived since then.

    Args:
        spec: what is computed of which pairs.
        left, right: columns ``event_us``, ``arrival_us``, the keys and the slots of the side.
        since_us: microseconds.

    **Cost**: O(n log n) for n tuples, and O(pairs that match). **Memory**: the tuples, and a million pairs.

    >>> tuples = {"event_us": [0, 1], "arrival_us": [0, 9], "k": ["a", "a"]}
    >>> left, right = pa.table({**tuples, "c0": [1, 2]}), pa.table({**tuples, "c1": [0, 0]})
    >>> spec = PairConditions(("k",), -5, 5, ("(c0 DIV c1) > 0",))
    >>> failed_pairs(spec, left, right, 0), failed_pairs(spec, left, right, 5)
    (4, 3)
    """
    fresh = int64s(left.column("arrival_us")) >= since_us
    fresh_right = right.filter(pa.array(int64s(right.column("arrival_us")) >= since_us))
    count = 0
    for some, others in ((left.filter(pa.array(fresh)), right), (left.filter(pa.array(~fresh)), fresh_right)):
        for from_left, from_right in matches(some, others, spec.keys, spec.low_us, spec.high_us):
            if spec.windows is not None:
                times = int64s(some.column("event_us"))[from_left], int64s(others.column("event_us"))[from_right]
                together = spec.windows.hold(*times)
                from_left, from_right = from_left[together], from_right[together]
            count += _failed(spec.conditions, some, others, from_left, from_right)
    return count


def _failed(conditions: Sequence[str], left: pa.Table, right: pa.Table, from_left: Int64s, from_right: Int64s) -> int:
    names = list(dict.fromkeys([*left.schema.names, *right.schema.names]))
    columns = {}
    for name in dict.fromkeys(name for sql in conditions for name in columns_of(sql, names)):
        table, rows = (left, from_left) if name in left.schema.names else (right, from_right)
        columns[name] = table.column(name).take(pa.array(rows))
    failed = Failed(pa.table(columns))
    for sql in conditions:
        failed.filtered(sql)
    return int(failed.rows.sum())
