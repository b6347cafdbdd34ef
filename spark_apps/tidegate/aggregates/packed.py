"""A value and what it is chosen by, as octets that order as the latter do, and then as the values do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.values.limbs import LIMBS, from_limbs, limbs
from tidegate.values.ordered import as_ordered_integers, from_ordered_integers, orders_as_integers

_SIGN = np.uint64(1 << 63)
_END = b"\0\0"
Octets = npt.NDArray[np.uint8]


def pack(by: pa.Array, values: pa.Array, null_is_less: bool) -> pa.Array:
    """Binary: NULL where there is nothing to choose by; a value that is NULL is less than others, or greater.

    >>> by, values = pa.array([2, 1, None, 1]), pa.array(["b", "c", "d", None])
    >>> packed = pack(by, values, null_is_less=False)
    >>> pc.sort_indices(packed).to_pylist(), unpack(packed, pa.string()).to_pylist()
    ([1, 3, 0, 2], ['b', 'c', None, None])
    """
    null = values.is_null().to_numpy(zero_copy_only=False)
    flag = _binary((null != null_is_less).astype(np.uint8).reshape(-1, 1))
    nothing = pa.scalar(b"", pa.binary())
    octets = pc.if_else(pa.array(null), nothing, _octets(values))
    lengths = pc.binary_length(octets).to_numpy(zero_copy_only=False).astype(">u4").view(np.uint8)
    packed = pc.binary_join_element_wise(_octets(by), flag, octets, _binary(lengths.reshape(-1, 4)), nothing)
    return pc.if_else(by.is_valid(), packed, pa.scalar(None, pa.binary()))


def unpack(packed: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of a type that were packed; NULL also for NULL."""
    values = [b"" if one is None else _value(one) for one in packed.to_pylist()]
    null = np.array([not one for one in values], dtype=bool)
    if pa.types.is_string(kind):
        texts = [one[: -len(_END)].replace(b"\0\xff", b"\0") if one else None for one in values]
        return pa.array(texts, pa.binary()).cast(kind)
    width = 8 if orders_as_integers(kind) else 16
    words = np.frombuffer(b"".join(one or bytes(width) for one in values), ">u8").astype(np.uint64)
    if width == 8:
        return from_ordered_integers((words ^ _SIGN).view(np.int64), kind, null)
    pairs = words.reshape(-1, 2)
    limbs_ = np.empty(len(pairs), dtype=LIMBS)
    limbs_["high"], limbs_["low"] = (pairs[:, 0] ^ _SIGN).view(np.int64), pairs[:, 1]
    return from_limbs(limbs_, kind, null)


def _value(packed: bytes) -> bytes:
    """A value's octets: their number comes last."""
    length = int.from_bytes(packed[-4:], "big")
    return packed[len(packed) - 4 - length : len(packed) - 4]


def _octets(column: pa.Array) -> pa.Array:
    """Octets that order as values do, no value's being the beginning of another's; whatever for NULL."""
    kind = column.type
    if pa.types.is_string(kind):
        octets = column.cast(pa.binary()).fill_null(b"")
        if pc.any(pc.match_substring(column, "\0")).as_py():
            octets = pa.array([one.replace(b"\0", b"\0\xff") for one in octets.to_pylist()], pa.binary())
        return pc.binary_join_element_wise(octets, pa.scalar(_END, pa.binary()), pa.scalar(b"", pa.binary()))
    if orders_as_integers(kind):
        return _binary(_big_endian(as_ordered_integers(column).view(np.uint64) ^ _SIGN))
    pairs = limbs(column)
    high, low = pairs["high"].astype(np.int64).view(np.uint64) ^ _SIGN, pairs["low"].astype(np.uint64)
    return _binary(np.hstack([_big_endian(high), _big_endian(low)]))


def _big_endian(words: npt.NDArray[Any]) -> Octets:
    return np.ascontiguousarray(words).astype(">u8").view(np.uint8).reshape(-1, 8)


def _binary(octets: Octets) -> pa.Array:
    """Each row of octets as a value."""
    rows, width = octets.shape
    fixed = pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(np.ascontiguousarray(octets))])
    return fixed.cast(pa.binary())
