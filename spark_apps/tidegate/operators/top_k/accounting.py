"""Bytes of candidates, at once and over the windows of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.arrivals import held_bytes, int64s
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
    (28, 28)
    """
    here = comes < goes

    def at_windows(weight: Int64s | None) -> Int64s:
        weight = np.ones(len(comes), dtype=np.int64) if weight is None else weight
        change = np.zeros(windows + 1, dtype=np.int64)
        np.add.at(change, np.minimum(comes[here], windows), weight[here])
        np.subtract.at(change, np.minimum(goes[here], windows), weight[here])
        return np.cumsum(change[:windows])

    rows = at_windows(None)
    total = np.zeros(windows, dtype=np.int64)
    for column in table.columns:
        kind = column.type
        total += -(-rows // 8)
        if pa.types.is_null(kind):
            continue
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            total += 4 * rows + at_windows(int64s(pc.binary_length(column).fill_null(0).cast(pa.int64())))
        else:
            total += -(-rows * kind.bit_width // 8)
    return int(total.max(initial=0))
