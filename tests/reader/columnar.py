"""Rows of Parquet and Avro files as members; their own types as `tests.reader.raw` has them."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from tests.reader.raw import DAY_US, EPOCH, BrokenError, Day, Items, Members, Moment, Nothing, Raw

_PER_US = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
_AVRO_FAULTS = (ValueError, LookupError, EOFError, StopIteration, TypeError, OverflowError, AttributeError, OSError)


def parquet_rows(content: bytes) -> tuple[list[str], list[Members]]:
    """The names of a Parquet file's columns, and its rows.

    Raises:
        BrokenError: it is none, is damaged, or has a column twice.
    """
    try:
        table = pq.read_table(io.BytesIO(content), use_threads=False)
        names = table.column_names
        if len(set(names)) != len(names):
            raise BrokenError
        columns = [column_values(chunk) for name in names for chunk in [_whole(table.column(name))]]
    except (pa.ArrowException, OSError, ValueError, NotImplementedError):
        raise BrokenError from None
    rows = zip(*columns, strict=True) if columns else ([()] * table.num_rows)
    return names, [Members(zip(names, row, strict=True)) for row in rows]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def column_values(column: pa.Array) -> Sequence[Raw]:
    """The values of an array."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return column_values(column.storage)
    if pa.types.is_dictionary(kind):
        return column_values(column.dictionary_decode())
    if pa.types.is_struct(kind):
        return _structs(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [None if not x.is_valid else Items(column_values(x.values)) for x in column]
    if pa.types.is_map(kind):
        return [None if not x.is_valid else _map(x.values) for x in column]
    if pa.types.is_timestamp(kind):
        times, by = _PER_US[kind.unit]
        zoned = kind.tz is not None
        return [None if x is None else Moment(x * times // by, zoned) for x in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_date32(kind):
        return [None if x is None else Day(x) for x in column.cast(pa.int32()).to_pylist()]
    if pa.types.is_date64(kind):
        return [None if x is None else Day(x * 1000 // DAY_US) for x in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        octets = column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column
        octets = octets.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
        return [None if x is None else _decoded(x) for x in octets.to_pylist()]
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return list(column.cast(pa.float64()).to_pylist())
    plain = pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null, pa.types.is_float64
    if any(test(kind) for test in plain):
        return list(column.to_pylist())
    return [Nothing() if x.is_valid else None for x in column]


def _structs(column: pa.StructArray) -> list[Raw]:
    names = [column.type.field(i).name for i in range(column.type.num_fields)]
    fields = [column_values(column.field(i)) for i in range(column.type.num_fields)]
    return [
        Members((name, values[row]) for name, values in zip(names, fields, strict=True)) if valid else None
        for row, valid in enumerate(column.is_valid().to_pylist())
    ]


def _map(entries: pa.StructArray) -> Members:
    keys, values = (column_values(entries.field(i)) for i in (0, 1))
    return Members(zip(keys, values, strict=True))


def _decoded(octets: bytes) -> Raw:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return Nothing()


def avro_rows(content: bytes) -> tuple[list[str], list[Members]]:
    """The names of an Avro container's fields, and its records.

    Raises:
        BrokenError: it is none, or is damaged.
    """
    import fastavro

    try:
        reader = fastavro.reader(io.BytesIO(content))
        schema: Any = reader.writer_schema
        names = [field["name"] for field in schema["fields"]]
        return names, [Members((name, avro_value(row[name])) for name in names) for row in reader]
    except (*_AVRO_FAULTS, struct.error, zlib.error):
        raise BrokenError from None


def avro_value(value: Any) -> Raw:
    """A value as fastavro reads it, by its logical type."""
    if isinstance(value, dict):
        return Members((name, avro_value(one)) for name, one in value.items())
    if isinstance(value, list):
        return Items(map(avro_value, value))
    if isinstance(value, datetime):
        shown = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return Moment((shown - EPOCH) // timedelta(microseconds=1), value.tzinfo is not None)
    if isinstance(value, date):
        return Day((value - EPOCH.date()).days)
    if isinstance(value, UUID):
        return str(value)
    return value if value is None or isinstance(value, str | bool | int | float | Decimal) else Nothing()
