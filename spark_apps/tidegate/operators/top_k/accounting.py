"""Bytes of candidates, at once and over the windows of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.operators.arrivals import held_bytes, layout_bytes, octets
from tidegate.operators.schedule import Int64s

__all__ = ["held_bytes", "peak_bytes"]


def peak_bytes(table: pa.Table, comes: Int64s, goes: Int64s, windows: int) -> int:
    """The most bytes that the rows take at any of the windows, where each is held from one window to another.

    Args:
        table: the rows.
        comes: int64[n], the first window at whose answer the row is held.
        goes: int64[n], the first at whose answer it is no longer held.
        windows: how many there are; later ones do not count.

    >>> rows = pa.table({"x": [1, 2, 3], "t": ["a", "bb", ""]})
    >>> peak_bytes(rows, np.array([0, 1, 1]), np.array([1, 3, 2]), 2), held_bytes(rows.slice(1))
    (27, 27)
    """
    here = comes < goes

    def at_windows(weight: Int64s) -> Int64s:
        change = np.zeros(windows + 1, dtype=np.int64)
        np.add.at(change, np.minimum(comes[here], windows), weight[here])
        np.subtract.at(change, np.minimum(goes[here], windows), weight[here])
        return np.cumsum(change[:windows])

    rows = at_windows(np.ones(len(comes), dtype=np.int64))
    return int(layout_bytes(table.schema, rows, at_windows(octets(table))).max(initial=0))
