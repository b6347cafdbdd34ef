"""Decimals of Arrow as numpy columns of two limbs of 64 bits, as whole numbers of Python, and back.

A decimal is a whole number (unscaled) over a power of ten that the column's type names.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

LIMBS = np.dtype([("low", "<u8"), ("high", "<i8")])
"""128 bits in two's complement, as Arrow lays them out."""
SMALL_PRECISION = 18
"""Decimals of so many digits fit into the lower limb, with their sign."""
WIDE = 76
"""The most digits that Arrow has, in 256 bits."""
_EXACT = Context(prec=1000, rounding=ROUND_HALF_UP)
_LARGEST_EXACT = 2**53
_LARGEST_POWER = 22  # 10^22 is the last power of ten that is a double
Column = npt.NDArray[Any]


def is_decimal(kind: pa.DataType) -> bool:
    """Whether a type is a decimal of 128 bits, which all declared ones are."""
    return bool(pa.types.is_decimal128(kind))


def limbs(column: pa.Array) -> Column:
    """The unscaled numbers as ``LIMBS``[n], 0 for NULL."""
    if column.null_count:
        column = column.fill_null(0)
    _, content = column.buffers()
    if not len(column):
        return np.zeros(0, dtype=LIMBS)
    return np.frombuffer(content, LIMBS, len(column), column.offset * LIMBS.itemsize)


def from_limbs(column: Column, kind: pa.DataType, mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The decimals of a type that have these unscaled numbers; NULL where the mask is set.

    >>> kind = pa.decimal128(5, 2)
    >>> from_limbs(limbs(pa.array([Decimal("-1.50"), None], kind)), kind, np.array([False, True])).to_pylist()
    [Decimal('-1.50'), None]
    """
    return _array(np.ascontiguousarray(column), kind, mask)


def small(column: pa.Array) -> npt.NDArray[np.int64]:
    """int64[n], the unscaled numbers of decimals of at most ``SMALL_PRECISION`` digits."""
    return np.ascontiguousarray(limbs(column)["low"]).view(np.int64)


def from_small(
    numbers: npt.NDArray[np.int64], kind: pa.DataType, mask: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """The decimals of a type that have these unscaled numbers; NULL where the mask is set."""
    column = np.empty(len(numbers), dtype=LIMBS)
    column["low"], column["high"] = numbers.view(np.uint64), numbers >> 63
    return _array(column, kind, mask)


def unscaled(column: pa.Array) -> list[int]:
    """The unscaled numbers as Python has them; whatever for NULL. Also of decimals of 256 bits."""
    if pa.types.is_decimal256(column.type):
        try:
            return unscaled(column.cast(pa.decimal128(38, column.type.scale)))
        except pa.ArrowInvalid:  # some number needs more than 38 digits
            values = column.to_pylist()
            return [0 if value is None else int(value.scaleb(column.type.scale, _EXACT)) for value in values]
    pairs = limbs(column)
    low, high = pairs["low"], pairs["high"]
    if (high == np.ascontiguousarray(low).view(np.int64) >> 63).all():
        numbers: list[int] = np.ascontiguousarray(low).view(np.int64).tolist()
        return numbers
    return [(h << 64) | n for n, h in zip(low.tolist(), high.tolist(), strict=True)]


def from_unscaled(numbers: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """The decimals of a type that have these unscaled numbers; NULL for None and for what has too many digits.

    >>> from_unscaled([-150, None, 10**5], pa.decimal128(5, 2)).to_pylist()
    [Decimal('-1.50'), None, None]
    """
    bound = 10**kind.precision
    mask = np.array([n is None or not -bound < n < bound for n in numbers], dtype=bool)
    size = kind.bit_width // 8
    content = b"".join(
        (0 if lost or n is None else n).to_bytes(size, "little", signed=True)
        for n, lost in zip(numbers, mask.tolist(), strict=True)
    )
    return _array(np.frombuffer(content, np.uint8), kind, mask)


def _array(content: Column, kind: pa.DataType, mask: npt.NDArray[np.bool_] | None) -> pa.Array:
    rows = content.nbytes // (kind.bit_width // 8)
    validity = None
    if mask is not None and mask.any():
        validity = pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(content)])


def divided(numerator: int, denominator: int) -> int:
    """The nearest whole number to a quotient, away from zero where two are as near (HALF_UP).

    >>> divided(5, 2), divided(-5, 2), divided(-5, -3)
    (3, -3, 2)
    """
    whole, rest = divmod(abs(numerator), abs(denominator))
    whole += 2 * rest >= abs(denominator)
    return whole if (numerator < 0) == (denominator < 0) else -whole


def moved(number: int, places: int) -> int:
    """An unscaled number at a scale of so many more digits, or fewer: then rounded HALF_UP."""
    return int(number * 10**places) if places >= 0 else divided(number, 10**-places)


def as_doubles(column: pa.Array) -> npt.NDArray[np.float64]:
    """float64[n], the nearest doubles; NULL is 0.

    **Cost**: O(n); a division in Python for each number of more than 53 bits.
    """
    scale: int = column.type.scale
    pairs = limbs(column)
    low = np.ascontiguousarray(pairs["low"]).view(np.int64)
    sure = (pairs["high"] == low >> 63) & (np.abs(low) <= _LARGEST_EXACT) & (low != np.iinfo(np.int64).min)
    if scale <= _LARGEST_POWER:
        doubles: npt.NDArray[np.float64] = low / 10.0**scale
    else:
        doubles, sure = np.zeros(len(column)), low != low
    others = np.flatnonzero(~sure)
    if len(others):
        doubles[others] = [number / 10**scale for number in unscaled(column.take(pa.array(others)))]
    return doubles


def read(text: str, scale: int) -> int | None:
    """The unscaled number at a scale that a text is nearest to (HALF_UP); None if it has more than 76 digits before it.

    >>> read("-1.005", 2), read("1e2", 0), read("1e400", 0)
    (-101, 100, None)
    """
    number = Decimal(text)
    if number and number.adjusted() > WIDE:
        return None
    if not number or number.adjusted() < -WIDE:
        return 0
    return int(number.scaleb(scale, _EXACT).to_integral_value(ROUND_HALF_UP, _EXACT))
