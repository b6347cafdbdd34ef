"""Values as integers that order as they do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.values.limbs import SMALL_PRECISION, from_small, is_decimal, small

Int64s = npt.NDArray[np.int64]


def orders_as_integers(kind: pa.DataType) -> bool:
    """Whether values of the type are compared as numbers at hand, not through a codebook."""
    integer = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
    if is_decimal(kind):
        return bool(kind.precision <= SMALL_PRECISION)
    return bool(integer or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def as_ordered_integers(column: pa.Array) -> Int64s:
    """Numbers and times as integers that order as they do (NaN is the largest); NULLs become anything.

    >>> doubles = pa.array([2.5, -0.0, -1e300, 0.0])
    >>> keys = as_ordered_integers(doubles)
    >>> bool(keys[2] < keys[1] == keys[3] < keys[0])
    True
    >>> from_ordered_integers(keys, pa.float64()).to_pylist()
    [2.5, 0.0, -1e+300, 0.0]
    """
    kind = column.type
    if is_decimal(kind):
        return small(column)
    if pa.types.is_floating(kind):
        doubles = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        bits: Int64s = np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)
        return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
    if pa.types.is_temporal(kind) and kind.bit_width == 32:
        column = column.cast(pa.int32())
    numbers: Int64s = column.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


def from_ordered_integers(keys: Int64s, kind: pa.DataType, mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The values that ``as_ordered_integers`` made the integers of; NULL where the mask is set."""
    if is_decimal(kind):
        return from_small(keys, kind, mask)
    if pa.types.is_floating(kind):
        bits = np.where(keys < 0, keys ^ np.iinfo(np.int64).max, keys)
        return pa.array(bits.view(np.float64), mask=mask).cast(kind)
    narrow = pa.types.is_temporal(kind) and kind.bit_width == 32
    numbers = pa.array(keys, mask=mask)
    return (numbers.cast(pa.int32()) if narrow else numbers).cast(kind)
