"""Tuples in order of arrival, as the windowed operators receive, hold and account for them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.schedule import Int64s

Count = TypeVar("Count", int, Int64s)


def int64s(column: pa.ChunkedArray | pa.Array) -> Int64s:
    """A column without NULLs as int64 numpy values."""
    return np.asarray(column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy())


def received(batch: pa.RecordBatch | pa.Table, schema: pa.Schema, after_us: int) -> pa.Table:
    """The declared columns of a batch, cast to their types.

    Raises:
        ValueError: a column is missing, or rows do not ascend by arrival time, within the batch or from ``after_us``.
    """
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        raise ValueError(f"batch lacks columns {missing}; it has {batch.schema.names}")
    table = pa.table({name: batch.column(name) for name in schema.names}).cast(schema).combine_chunks()
    for name in ("arrival_us", "event_us"):
        if table.column(name).null_count:
            raise ValueError(f"column {name} holds NULLs")
    arrival_us = int64s(table.column("arrival_us"))
    if len(arrival_us) and (arrival_us[0] < after_us or (np.diff(arrival_us) < 0).any()):
        raise ValueError("rows must come in ascending order of arrival_us, across batches too")
    return table


def is_text(kind: pa.DataType) -> bool:
    """Whether values of the type are octets behind an offset."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def layout_bytes(schema: pa.Schema, rows: Count, octets: Count) -> Count:
    """Bytes of so many rows, whose strings have so many octets: values, offsets of strings, a validity bit per value.

    Arrow's layout, but that bits are rounded up to bytes once, not in every column: so any rows take no more than all
    that each of them takes by itself, which is what windows are planned by.

    >>> schema = pa.schema([("x", pa.int64()), ("t", pa.string())])
    >>> layout_bytes(schema, np.array([1, 8]), np.array([3, 24])).tolist()
    [16, 122]
    """
    bits = len(schema)
    for kind in schema.types:
        if is_text(kind):
            bits += 64 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else 32
        elif not pa.types.is_null(kind):
            bits += kind.bit_width
    return octets - (-rows * bits // 8)


def octets(table: pa.Table) -> Int64s:
    """int64[n]: octets of the strings of each row."""
    total = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        if is_text(column.type):
            total += int64s(pc.binary_length(column).fill_null(0).cast(pa.int64()))
    return total


def held_bytes(table: pa.Table) -> int:
    """Bytes that the rows take, by ``layout_bytes``.

    Counted from the contents, not from the buffers at hand, so that the figure depends on neither slicing nor batches.
    """
    return int(layout_bytes(table.schema, table.num_rows, octets(table).sum()))
