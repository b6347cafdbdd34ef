"""Arrow columns of nested values: a path followed through them, and single values as records have them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.declarations.models import PathStep
from tidegate.values.base import DAY_US, END_US, LEAST_US, Day, Moment, Nested, RawValue, Untyped, valid
from tidegate.values.clock import moment_text

_PER_US = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # of clocks, whatever their zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_NO_VALUE = pa.binary()
"""Of a path that cannot be followed: bytes are values of no type."""


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def take(values: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """Some of the values, at least one, in their order; neighbours, of any type, without copying."""
    if rows[-1] - rows[0] == len(rows) - 1:
        return values.slice(int(rows[0]), len(rows))
    return values.take(pa.array(rows))


def follow(tops: Mapping[str, pa.Array], steps: Sequence[PathStep]) -> pa.Array | None:
    """The values at a path; None if there is no such field at all. Cost: that of looking at lists, not at values."""
    values = tops.get(str(steps[0]))
    for step in steps[1:]:
        if values is None or pa.types.is_null(values.type):
            return values
        kind = values.type
        if isinstance(step, str) and pa.types.is_struct(kind):
            place = kind.get_field_index(step)
            values = values.flatten()[place] if place >= 0 else None
        elif isinstance(step, int) and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            values = _element(values, step)
        elif isinstance(step, int) and pa.types.is_fixed_size_list(kind):
            values = _element(values.cast(pa.list_(kind.value_type)), step)
        else:
            values = pa.array([b"" if there else None for there in valid(values)], _NO_VALUE)
        if values is not None:
            values = storage(values)
    return values


def _element(lists: pa.Array, number: int) -> pa.Array:
    starts = np.asarray(lists.offsets).astype(np.int64)
    places, there = starts[:-1] + number, (starts[:-1] + number < starts[1:]) & valid(lists)
    return lists.values.take(pa.array(np.where(there, places, 0), mask=~there))


def storage(column: pa.Array) -> pa.Array:
    """The column in a type that has kernels; ArrowException if a damaged dictionary lacks what is looked up in it."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def as_text(column: pa.Array) -> pa.Array | None:
    """Strings of all kinds as ``pa.string()``, anything else as it is; None if a string is no UTF-8."""
    if not _is_text(column.type):
        return column
    try:
        column.validate(full=True)
        return column.cast(pa.string())
    except (pa.ArrowException, UnicodeDecodeError):
        return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def raw_values(column: pa.Array) -> list[RawValue]:
    """The values as records have them."""
    kind = column.type
    if _is_text(kind):
        data = column.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
        return [None if x is None else _decoded(x) for x in data.to_pylist()]
    if pa.types.is_timestamp(kind):
        times, by = _PER_US[kind.unit]
        zoned = kind.tz is not None
        return [None if x is None else Moment(x * times // by, zoned) for x in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_date32(kind):
        return [None if x is None else Day(x) for x in column.cast(pa.int32()).to_pylist()]
    if pa.types.is_date64(kind):
        return [None if x is None else Day(x // _DAY_MS) for x in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return list(column.to_pylist())
    if pa.types.is_floating(kind):
        return list(column.cast(pa.float64()).to_pylist())
    if pa.types.is_nested(kind):
        return [raw_value(value) for value in _python(column)]
    return [Untyped(_shown(value)) if value.is_valid else None for value in column]


def _python(column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    except (ValueError, OverflowError, pa.ArrowException):
        return [Untyped(_shown(value)) if value.is_valid else None for value in column]


def raw_value(value: Any) -> RawValue:
    """A Python value as records have it."""
    if value is None or isinstance(value, str | bool | int | float | Decimal | Untyped):
        return value
    if isinstance(value, datetime):
        zoned = value.tzinfo is not None
        us = (value.replace(tzinfo=None) - _EPOCH - (value.utcoffset() or timedelta())) // timedelta(microseconds=1)
        return Moment(us, zoned)
    if isinstance(value, date):
        return Day(value.toordinal() - _EPOCH_DAY)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict | list | tuple):
        return Nested(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain))
    return Untyped(value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value))


def record_text(values: Mapping[str, RawValue]) -> str:
    """A row as the quarantine shows it: a JSON object of the columns that have a value."""
    there = {name: value for name, value in values.items() if value is not None}
    return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {_json(x)}" for name, x in there.items()) + "}"


def _json(value: RawValue) -> str:
    if isinstance(value, Nested):
        return value.text
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A value that JSON has; what it does not have as text."""
    if isinstance(value, Moment):
        return moment_text(value.us) if LEAST_US <= value.us < END_US else f"{value.us} microseconds after 1970-01-01"
    if isinstance(value, Day):
        within = LEAST_US <= value.days * DAY_US < END_US
        return moment_text(value.days * DAY_US)[:10] if within else f"{value.days} days after 1970-01-01"
    if isinstance(value, Untyped):
        return value.text
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no NaN
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime | date):
        return _plain(raw_value(value))
    return str(value) if isinstance(value, UUID | time | timedelta) else value


def _decoded(data: bytes) -> RawValue:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Untyped(data.decode(errors="backslashreplace"))


def _shown(value: pa.Scalar) -> str:
    try:
        plain = value.as_py()
        return plain.decode(errors="backslashreplace") if isinstance(plain, bytes) else str(plain)
    except (ValueError, OverflowError, pa.ArrowException):
        pass
    try:
        return str(value)
    except (ValueError, OverflowError, pa.ArrowException):
        return "a value out of range"
