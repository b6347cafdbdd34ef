"""Bytes of candidates, at once and over the windows of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.arrivals import held_bytes, int64s, is_text, layout_bytes
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

    def at_windows(weight: Int64s | None) -> Int64s:
        weight = np.ones(len(comes), dtype=np.int64) if weight is None else weight
        change = np.zeros(windows + 1, dtype=np.int64)
        np.add.at(change, np.minimum(comes[here], windows), weight[here])
        np.subtract.at(change, np.minimum(goes[here], windows), weight[here])
        return np.cumsum(change[:windows])

    texts = [column for column in table.columns if is_text(column.type)]
    lengths = [pc.binary_length(column).fill_null(0).cast(pa.int64()) for column in texts]
    octets = sum((at_windows(int64s(length)) for length in lengths), start=np.zeros(windows, dtype=np.int64))
    return int(layout_bytes(table.schema, at_windows(None), octets).max(initial=0))
