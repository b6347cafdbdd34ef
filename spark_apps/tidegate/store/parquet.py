"""Parquet wherever it is: pyarrow's functions, given a place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.store.places import Place, located, output, place

if TYPE_CHECKING:
    import pyarrow.dataset as ds

# What is smaller is read at once: pyarrow asks a file for a column at a time, and each time costs more than its bytes.
_SMALL_BYTES = 1 << 18
# Dictionaries of fewer rows save no bytes, and cost a quarter of what writing the file does.
_FEW_ROWS = 1000


def footer(where: str | Place) -> pq.FileMetaData:
    """A file's metadata."""
    path, system = located(where)
    return pq.read_metadata(path, filesystem=system)


def opened(where: str | Place) -> pq.ParquetFile:
    """A file to read."""
    path, system = located(where)
    if system is None and os.stat(path).st_size <= _SMALL_BYTES:
        with pa.OSFile(path) as file:  # its buffer is Arrow's: a thread that drops Python's bytes at exit aborts
            return pq.ParquetFile(pa.BufferReader(file.read_buffer()))
    return pq.ParquetFile(path, filesystem=system)


def write(rows: pa.Table, where: str | Place, **options: Any) -> None:
    """Write a file of these rows; ``options`` as pyarrow has them."""
    if rows.num_rows < _FEW_ROWS:
        options = {"use_dictionary": False, **options}
    with output(place(where)) as file:  # given a path, pyarrow does a fifth more where rows are few
        pq.write_table(rows, file, **options)


def writer(where: str | Place, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
    """A file to write piece by piece."""
    path, system = located(where)
    return pq.ParquetWriter(path, schema, filesystem=system, **options)


def dataset(paths: Sequence[str], schema: pa.Schema, **options: Any) -> ds.Dataset:
    """Files of one store as a dataset, with the columns of ``schema``; at least one."""
    import pyarrow.dataset

    places = [located(path) for path in paths]
    return pyarrow.dataset.dataset(
        [path for path, _ in places], schema=schema, format="parquet", filesystem=places[0][1], **options
    )
