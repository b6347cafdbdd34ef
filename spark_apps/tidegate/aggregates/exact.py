"""Sums without rounding: a number as a few integers of 32 bits on a fixed grid, rounded once when it is read.

Decimals are the whole numbers that they are over a power of ten, and are not rounded at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.values.limbs import LIMBS

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
PART_BITS = 32
_LOW = (1 << PART_BITS) - 1
_SHIFT = np.uint64(PART_BITS)
# The smallest double is two to this power.
_LEAST_EXPONENT = -1074
_WIDE_DIGITS = 256 // PART_BITS
# Squares of numbers between this and 1 over it, and the errors of their rounding, are doubles.
_SAFELY_SQUARED = 2.0**400
_MOVED = 608
_VELTKAMP = 2.0**27 + 1
# Parts of a sum: an exponent of two, or what no finite number expresses.
Part = int | str
NAN, INFINITY, MINUS_INFINITY = "nan", "inf", "-inf"


# Σ units · 2^exponent.
PARTS = pa.list_(pa.struct([pa.field("exponent", pa.int32()), pa.field("units", pa.int64())]))
# Beyond the exponents of all doubles: what a part that is no power of two is called in a column of integers.
_NAMED: Mapping[Part, int] = {NAN: 1 << 20, INFINITY: 1 << 21, MINUS_INFINITY: 1 << 22}
_NAMES = {number: name for name, number in _NAMED.items()}


def split(values: Int64s | Float64s) -> dict[Part, Int64s | Float64s]:
    """Numbers as whole multiples of powers of two: value = Σ part · 2^exponent.

    **Idea.** The exponents are multiples of 32, and each part takes 32 bits of the number, with its sign. A part of a
    number depends on that number alone, so that adding parts is adding integers: in any order, with any subtracted
    again later, and without an error. Numbers of one magnitude have two or three parts, integers below 2^32 one.

    Args:
        values: int64[n], float64[n] or ``LIMBS``[n].

    Returns:
        exponent → int64[n] or float64[n] of integers below 2^32 in magnitude; exponents whose parts are all 0 are
        left out. NaN and infinities are counted under their own names.

    **Cost**: O(n) for each 32 bits between the largest and the smallest bit in use.
    **Guarantee**: exact for every int64, double and decimal.

    >>> {part: numbers.tolist() for part, numbers in split(np.array([3.5, -(2.0**33)])).items()}
    {32: [0.0, -2.0], 0: [3.0, 0.0], -32: [2147483648.0, 0.0]}

    **Source**: the small superaccumulator of Neal, "Fast exact summation using small and large superaccumulators"
    (2015), with columns for rows.
    """
    if not len(values):
        return {}
    if values.dtype == LIMBS:
        return _split_limbs(values)
    return _split_integers(values) if values.dtype == np.int64 else _split_doubles(np.asarray(values, np.float64))


def _split_integers(values: npt.NDArray[Any]) -> dict[Part, Int64s | Float64s]:
    if max(-int(values.min()), int(values.max())) <= _LOW:
        return {0: values} if values.any() else {}
    high, low = values >> PART_BITS, values & _LOW
    # Both parts get the number's sign: part by part a sum is then bounded by 2^32 times its terms.
    borrow = (values < 0) & (low != 0)
    return {0: low - (borrow.astype(np.int64) << PART_BITS), PART_BITS: high + borrow}


def _split_limbs(values: npt.NDArray[Any]) -> dict[Part, Int64s | Float64s]:
    low, high = np.ascontiguousarray(values["low"]), np.ascontiguousarray(values["high"])
    if (high == low.view(np.int64) >> 63).all():
        return _split_integers(low.view(np.int64))
    # As with 64 bits, all parts get the number's sign.
    negative = high < 0
    low = np.where(negative, ~low + np.uint64(1), low)
    upper = np.where(negative, ~high + (low == 0), high).view(np.uint64)
    sign = np.where(negative, np.int64(-1), np.int64(1))
    parts: dict[Part, Int64s | Float64s] = {}
    for place, limb in enumerate((low & np.uint64(_LOW), low >> _SHIFT, upper & np.uint64(_LOW), upper >> _SHIFT)):
        if limb.any():
            parts[place * PART_BITS] = limb.astype(np.int64) * sign
    return parts


def _split_doubles(values: Float64s) -> dict[Part, Int64s | Float64s]:
    parts: dict[Part, Int64s | Float64s] = {}
    largest = float(np.abs(values).max())
    if not np.isfinite(largest):
        for name, where in ((NAN, np.isnan(values)), (INFINITY, values == np.inf), (MINUS_INFINITY, values == -np.inf)):
            if where.any():
                parts[name] = where.astype(np.int64)
        values = np.where(np.isfinite(values), values, 0.0)
        largest = float(np.abs(values).max())
    left = values
    while largest:
        exponent = (int(np.frexp(largest)[1]) - 1) // PART_BITS * PART_BITS
        part = np.trunc(np.ldexp(left, -exponent) if exponent else left)
        parts[exponent] = part
        left = left - (np.ldexp(part, exponent) if exponent else part)
        largest = float(np.abs(left).max())
    return parts


def split_squares(values: Float64s) -> dict[Part, Int64s | Float64s]:
    """The squares of doubles as ``split`` has numbers: a square is its rounding and the error of that, both doubles.

    Numbers whose squares are beyond the doubles are squared nearer to 1.

    >>> {part: numbers.tolist() for part, numbers in split_squares(np.array([3.0, 2.0**27 + 1])).items()}
    {32: [0.0, 4194304.0], 0: [9.0, 268435457.0]}

    **Cost**: O(n) for each 32 bits between the largest and the smallest bit in use. **Guarantee**: exact.
    **Source**: Dekker, "A floating-point technique for extending the available precision" (1971).
    """
    parts: dict[Part, Int64s | Float64s] = {}
    finite = np.isfinite(values)
    if not finite.all():
        for name, where in ((NAN, np.isnan(values)), (INFINITY, np.isinf(values))):
            if where.any():
                parts[name] = where.astype(np.int64)
        values = np.where(finite, values, 0.0)
    size = np.abs(values)
    far, near = size >= _SAFELY_SQUARED, (size < 1 / _SAFELY_SQUARED) & (size > 0)
    for chosen, moved in ((far, _MOVED), (near, -_MOVED), (~far & ~near, 0)):
        if not chosen.any():
            continue
        own = np.ldexp(np.where(chosen, values, 0.0), -moved)
        square = own * own
        wide = own * _VELTKAMP
        high = wide - (wide - own)
        low = own - high
        error = ((high * high - square) + 2 * high * low) + low * low
        for term in (square, error):
            for part, numbers in _split_doubles(term).items():
                assert isinstance(part, int)
                place = part + 2 * moved
                parts[place] = np.add(parts[place], numbers) if place in parts else numbers
    return parts


def narrowed(parts: Mapping[Part, Int64s], from_bits: int, to_bits: int) -> dict[Part, Int64s]:
    """The same sums with ``to_bits`` where each unit of count had ``from_bits``; both are powers of two.

    If every part is at most 2^from_bits times some count, every new one is at most about 2^to_bits times that count.
    """
    finer: dict[Part, Int64s] = {}
    for part, numbers in parts.items():
        if isinstance(part, str):
            finer[part] = numbers
            continue
        left = numbers
        for exponent in range(part, part + from_bits - to_bits, to_bits):
            finer[exponent] = left & ((1 << to_bits) - 1)
            left = left >> to_bits
        finer[part + from_bits - to_bits] = left
    return finer


def rounded(parts: Mapping[Part, Int64s], rows: int) -> Float64s:
    """The sums as the nearest doubles (ties to even), whatever parts they were left in."""
    negative, digits = _digits(parts, rows)
    high, low = np.zeros(rows), np.zeros(rows)
    depth, more = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        # The first three digits that are not 0 fit into two doubles; of the others it matters whether there are any.
        for exponent, digit in sorted(digits.items(), reverse=True):
            depth += (depth > 0) | (digit != 0)
            more |= (depth > 3) & (digit != 0)
            term = np.where(depth > 3, 0.0, np.ldexp(digit.astype(np.float64), exponent))
            total = high + term
            low += term - (total - high)
            high = total
        total = high + np.where(more, np.nextafter(low, np.inf), low)
    total = np.where(np.isinf(high), high, total)
    # Below the doubles ldexp has rounded, digit by digit.
    tiny = [digit != 0 for exponent, digit in digits.items() if exponent < _LEAST_EXPONENT]
    for row in np.flatnonzero(np.any(tiny, axis=0) & ~np.isinf(high)) if tiny else ():
        exact = sum(int(digit[row]) * Fraction(2) ** exponent for exponent, digit in digits.items())
        total[row] = float(exact) if exact < Fraction(2) ** 1000 else total[row]
    total = np.where(negative, -total, total)
    none = np.zeros(rows, dtype=np.int64)
    up, down = parts.get(INFINITY, none) > 0, parts.get(MINUS_INFINITY, none) > 0
    total = np.where(up, np.inf, np.where(down, -np.inf, total))
    return np.where((parts.get(NAN, none) > 0) | (up & down), np.nan, total)


def integers(parts: Mapping[Part, Int64s], rows: int) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Sums of integers as int64, and which of them do not fit."""
    if set(parts) <= {0}:
        return parts.get(0, np.zeros(rows, dtype=np.int64)), np.zeros(rows, dtype=bool)
    negative, digits = _digits(parts, rows)
    none = np.zeros(rows, dtype=np.int64)
    low, high = digits.get(0, none), digits.get(PART_BITS, none)
    least = negative & (high == 1 << (PART_BITS - 1)) & (low == 0)  # −2^63, which wraps to itself below
    beyond = (high >= 1 << (PART_BITS - 1)) & ~least
    for exponent, digit in digits.items():
        if exponent > PART_BITS:
            beyond |= digit != 0
    total = (high << PART_BITS) | low
    return np.where(negative, -total, total), beyond


def variation(parts: Mapping[Part, Int64s], squares: Mapping[Part, Int64s], counts: Int64s) -> Float64s:
    """n · Σx² − (Σx)², of the exact sums, as the nearest doubles; NaN where a number was NaN or infinite.

    >>> variation({0: np.array([6])}, {0: np.array([14])}, np.array([3])).tolist()
    [6.0]

    **Cost**: O(rows · digits of 16 bits in a sum, squared).
    """
    rows = len(counts)
    terms: dict[Part, Int64s] = {}

    def add(exponent: int, numbers: Int64s) -> None:
        terms[exponent] = terms[exponent] + numbers if exponent in terms else numbers

    halves = _halves(_digits(parts, rows)[1])
    for place, (exponent, digit) in enumerate(halves):
        add(2 * exponent, -digit * digit)
        for other_exponent, other in halves[:place]:
            add(exponent + other_exponent, -2 * digit * other)
    for exponent, digit in _halves(_digits(squares, rows)[1]):
        add(exponent, digit * counts)
    none = np.zeros(rows, dtype=np.int64)
    lost = [columns.get(name, none) > 0 for columns in (parts, squares) for name in (NAN, INFINITY, MINUS_INFINITY)]
    return np.where(np.any(lost, axis=0), np.nan, rounded(terms, rows))


def _halves(digits: Mapping[int, Int64s]) -> list[tuple[int, Int64s]]:
    """Digits of 32 bits as digits of 16, without those that are 0 in every row."""
    halves = ((e + 16 * part, (digit >> 16 * part) & 0xFFFF) for e, digit in digits.items() for part in (0, 1))
    return [(exponent, half) for exponent, half in halves if half.any()]


def totals(parts: Mapping[Part, Int64s], rows: int, kind: pa.DataType, none: npt.NDArray[np.bool_]) -> pa.Array:
    """The sums as a column of a ``Spec.sum_type``; NULL where ``none`` is set, and where an integer does not fit."""
    if pa.types.is_decimal(kind):
        return _decimals(parts, rows, kind, none)
    if pa.types.is_integer(kind):
        numbers, beyond = integers(parts, rows)
        return pa.array(numbers, mask=none | beyond)
    return pa.array(rounded(parts, rows), mask=none)


def as_lists(parts: Mapping[Part, Int64s], rows: int) -> pa.Array:
    """Sums in parts as a column of lists of (exponent, units)."""
    exponents = np.array([_NAMED.get(part, part) for part in parts], dtype=np.int32)
    units = np.stack(list(parts.values()), axis=1).ravel() if parts else np.zeros(0, dtype=np.int64)
    pairs = pa.StructArray.from_arrays(
        [pa.array(np.tile(exponents, rows)), pa.array(units)], fields=list(PARTS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * len(parts)), pairs, type=PARTS)


def from_lists(lists: pa.Array, group: Int64s, groups: int) -> dict[Part, Int64s]:
    """The parts of each group's sum, ``group``: of each list the one that it is of; each unit is taken
    in two halves, so that no addition overflows.
    """
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    owner = np.repeat(group, lengths)
    pairs = lists.flatten()
    exponent = pairs.field("exponent").cast(pa.int64()).to_numpy()
    units = pairs.field("units").to_numpy()
    parts: dict[Part, Int64s] = {}
    for number in np.unique(exponent).tolist():
        own = exponent == number
        name: Part = _NAMES.get(number, number)
        halves = {name: units[own]}
        if isinstance(name, int):
            halves = {name: units[own] & ((1 << PART_BITS) - 1), name + PART_BITS: units[own] >> PART_BITS}
        for part, values in halves.items():
            np.add.at(parts.setdefault(part, np.zeros(groups, dtype=np.int64)), owner[own], values)
    return parts


def _decimals(parts: Mapping[Part, Int64s], rows: int, kind: pa.DataType, none: npt.NDArray[np.bool_]) -> pa.Array:
    """Sums of unscaled numbers as decimals of 256 bits."""
    negative, digits = _digits(parts, rows)
    words = np.zeros((rows, _WIDE_DIGITS), dtype="<u4")
    for exponent, digit in digits.items():
        if exponent < 256:
            words[:, exponent // PART_BITS] = digit
    # Of a negative number the complement, and one more.
    words[negative] = ~words[negative]
    carry = negative.copy()
    for place in range(_WIDE_DIGITS):
        words[:, place] += carry
        carry &= words[:, place] == 0
    validity = pa.py_buffer(np.packbits(~none, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(words)])


def _digits(parts: Mapping[Part, Int64s], rows: int) -> tuple[npt.NDArray[np.bool_], dict[int, Int64s]]:
    """Sign and magnitude of each sum, the magnitude in digits of 32 bits: one form only for every number."""
    numbers = {part: column for part, column in parts.items() if isinstance(part, int)}
    if not numbers:
        return np.zeros(rows, dtype=bool), {}
    first = min(numbers) // PART_BITS * PART_BITS
    last = max(numbers) // PART_BITS * PART_BITS + 3 * PART_BITS
    digits = {exponent: np.zeros(rows, dtype=np.int64) for exponent in range(first, last + 1, PART_BITS)}
    for part, column in numbers.items():
        base, shift = part // PART_BITS * PART_BITS, part % PART_BITS
        for piece, exponent in ((column & _LOW, base), (column >> PART_BITS, base + PART_BITS)):
            moved = piece << shift
            digits[exponent] += moved & _LOW
            digits[exponent + PART_BITS] += moved >> PART_BITS
    carry = _carried(digits, rows)
    negative = carry < 0
    if negative.any():
        for exponent, digit in digits.items():
            digits[exponent] = np.where(negative, _LOW - digit, digit)
        digits[first] += negative
        _carried(digits, rows)
    return negative, digits


def _carried(digits: dict[int, Int64s], rows: int) -> Int64s:
    """Bring every digit into [0, 2^32), in place; what is carried out of the last one is −1 for a negative number."""
    carry = np.zeros(rows, dtype=np.int64)
    for exponent in sorted(digits):
        total = digits[exponent] + carry
        digits[exponent], carry = total & _LOW, total >> PART_BITS
    return carry
