"""Values of any Arrow type as integer codes, so that grouping and matching are work on integer arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.arrivals import int64s
from tidegate.operators.schedule import Int64s

NULL = -1


def encode(column: pa.ChunkedArray) -> tuple[Int64s, pa.Array]:
    """Codes that order as the values do (NULL: −1), and the distinct values in ascending order.

    >>> codes, values = encode(pa.chunked_array([["b", None, "a", "b"]]))
    >>> codes.tolist(), values.to_pylist()
    ([1, -1, 0, 1], ['a', 'b'])
    """
    own, values = codes(column)
    order = pc.sort_indices(values).to_numpy()
    rank = np.empty(len(order) + 1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    rank[NULL] = NULL
    return rank[own], values.take(pa.array(order))


def codes(column: pa.ChunkedArray) -> tuple[Int64s, pa.Array]:
    """The same in the order in which the values come first, which takes no sorting.

    >>> own, values = codes(pa.chunked_array([["b", None, "a", "b"]]))
    >>> own.tolist(), values.to_pylist()
    ([0, -1, 1, 0], ['b', 'a'])
    """
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 and 0.0 are one value
    encoded = pa.concat_arrays(column.chunks).dictionary_encode() if column.num_chunks else column.combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        return np.zeros(0, dtype=np.int64), encoded
    return int64s(encoded.indices.cast(pa.int64()).fill_null(NULL)), encoded.dictionary


def decode(codes: Int64s, values: pa.Array) -> pa.Array:
    """The values that the codes stand for."""
    return values.take(pa.array(codes, mask=codes == NULL))


def runs(keys: Sequence[Int64s], rows: int) -> tuple[Int64s, Int64s, Int64s]:
    """How rows group by equal keys.

    Returns:
        The order that sorts by the keys (the first is the weightiest; stable), where each run of equal keys begins in
        that order, and the number of the run that each row of that order is in.

    >>> order, first, run = runs([np.array([7, 5, 7])], 3)
    >>> order.tolist(), first.tolist(), run.tolist()
    ([1, 0, 2], [0, 1], [0, 1, 1])
    """
    if rows == 0:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing
    if not keys:
        return np.arange(rows), np.zeros(1, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    order = np.lexsort(tuple(reversed(keys)))
    begins = np.zeros(rows, dtype=bool)
    begins[0] = True
    for key in keys:
        ordered = key[order]
        begins[1:] |= ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(begins), np.cumsum(begins) - 1


def group_ids(keys: Sequence[Int64s], rows: int) -> Int64s:
    """A number per row: rows have the same one iff all their keys are equal.

    >>> group_ids([np.array([7, 5, 7]), np.array([0, 0, 0])], 3).tolist()
    [1, 0, 1]
    """
    order, _, run = runs(keys, rows)
    ids = np.empty(rows, dtype=np.int64)
    ids[order] = run
    return ids
