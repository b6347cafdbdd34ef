"""Tuples in order of arrival, as the windowed operators receive, hold and account for them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.schedule import Int64s


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


def held_bytes(table: pa.Table) -> int:
    """Bytes that the rows take in Arrow's layout: values, 4-byte offsets of strings, one validity bit per value.

    Counted from the contents, not from the buffers at hand, so that the figure depends on neither slicing nor batches.
    """
    rows, total_bytes = table.num_rows, 0
    for column in table.columns:
        total_bytes += -(-rows // 8)
        kind = column.type
        if pa.types.is_null(kind):
            continue
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            total_bytes += 4 * rows + int(pc.sum(pc.binary_length(column)).as_py() or 0)
        elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            total_bytes += 8 * rows + int(pc.sum(pc.binary_length(column)).as_py() or 0)
        else:
            total_bytes += -(-rows * kind.bit_width // 8)
    return total_bytes
