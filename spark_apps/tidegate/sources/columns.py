"""Whole columns in their declared types; ``values`` defines what comes out, this only gets there faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.types import TIMESTAMP, ColumnType, arrow_type
from tidegate.sources.values import END_US, LEAST_US, NotFiniteError, NotOfTypeError, Typed, read

Mask = npt.NDArray[np.bool_]
_DAY_US = 86_400_000_000
_WHOLE = np.isin(np.arange(256), np.frombuffer(b"0123456789-", np.uint8))
_REAL = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE", np.uint8))


def typed(kind: ColumnType, given: pa.Array) -> tuple[pa.Array, Mask]:
    """The values in the declared type, and which rows need a closer look: their value here is NULL.

    ``given`` is text, or of a type of Parquet's. **Cost**: tens of nanoseconds a value where all have a usual form,
    else a few microseconds for each different one.
    """
    fine = np.zeros(len(given), dtype=bool)
    try:
        found = _text(kind, given) if pa.types.is_string(given.type) else _native(kind, given)
        if found is not None and found.null_count == given.null_count:
            return found, fine
    except (pa.ArrowException, UnicodeDecodeError):
        pass
    if pa.types.is_string(given.type):
        return _one_by_one(kind, given)
    return pa.nulls(len(given), arrow_type(kind)), valid(given)


def valid(given: pa.Array) -> Mask:
    """Which values are not NULL."""
    return np.asarray(given.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def from_values(kind: ColumnType, values: Sequence[Typed]) -> pa.Array:
    """Values of ``values.read`` as a column."""
    if kind == "timestamp":
        return pa.array(values, pa.int64()).cast(TIMESTAMP)
    if kind == "date":
        return pa.array(values, pa.int32()).cast(pa.date32())
    return pa.array(values, arrow_type(kind))


def _one_by_one(kind: ColumnType, given: pa.Array) -> tuple[pa.Array, Mask]:
    coded = given.dictionary_encode()
    values: list[Typed] = []
    for text in coded.dictionary.to_pylist():
        try:
            values.append(read(kind, text))
        except (NotOfTypeError, NotFiniteError):
            values.append(None)
    found = from_values(kind, values).take(coded.indices)
    return found, valid(given) & ~valid(found)


def _text(kind: ColumnType, given: pa.Array) -> pa.Array | None:
    if kind == "string":
        return given
    octets, starts, lengths = _octets(given)
    if kind == "integer":
        return given.cast(pa.int64()) if _WHOLE[octets].all() else None
    if kind == "double":
        return given.cast(pa.float64()) if _REAL[octets].all() else None
    if kind == "date":
        return _dated(given.cast(pa.date32()))
    if kind == "timestamp":
        # pyarrow also reads hours without minutes: what follows the hour must be a colon.
        longer = starts[lengths > 10]
        if len(longer) and (longer.max() + 13 >= len(octets) or (octets[longer + 13] != ord(":")).any()):
            return None
        return _timed(_parsed(given))
    return None


def _parsed(given: pa.Array) -> pa.Array:
    try:
        return given.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        return given.cast(pa.timestamp("us")).cast(pa.int64()).cast(TIMESTAMP)


def _octets(given: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The text's octets, and where each value that is not NULL starts and how long it is."""
    _, places, content = given.buffers()
    offsets = np.frombuffer(places, np.int32)[given.offset : given.offset + len(given) + 1].astype(np.int64)
    octets = np.frombuffer(content or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    if given.null_count:
        there = valid(given)
        starts, lengths = starts[there], lengths[there]
    return octets, starts, lengths


def _timed(found: pa.Array) -> pa.Array | None:
    """None if an instant is near the ends of the years that are allowed: text may say another year than UTC."""
    span = pc.min_max(found.cast(pa.int64()))
    least, largest = span["min"].as_py(), span["max"].as_py()
    return found if least is None or (least >= LEAST_US + _DAY_US and largest < END_US - _DAY_US) else None


def _dated(found: pa.Array) -> pa.Array | None:
    span = pc.min_max(found.cast(pa.int32()))
    least, largest = span["min"].as_py(), span["max"].as_py()
    within = least is None or (least * _DAY_US >= LEAST_US and largest * _DAY_US < END_US)
    return found if within else None


def _native(kind: ColumnType, given: pa.Array) -> pa.Array | None:
    own = given.type
    if pa.types.is_null(own):
        return pa.nulls(len(given), arrow_type(kind))
    if kind == "integer" and pa.types.is_integer(own):
        return given.cast(pa.int64())
    if kind == "double" and (pa.types.is_floating(own) or pa.types.is_integer(own)):
        return given.cast(pa.float64())
    if kind == "boolean" and pa.types.is_boolean(own):
        return given
    if kind == "string" and pa.types.is_integer(own):
        return given.cast(pa.string())
    if kind == "date" and pa.types.is_date32(own):
        return _dated(given)
    if kind == "timestamp" and pa.types.is_timestamp(own):
        if own.unit != "ns":
            return _timed(given.cast(pa.timestamp("us", own.tz)).cast(pa.int64()).cast(TIMESTAMP))
        fine = pc.fill_null(given.cast(pa.int64()), 0).to_numpy()
        return _timed(pa.array(fine // 1000, mask=~valid(given)).cast(TIMESTAMP))
    return None
