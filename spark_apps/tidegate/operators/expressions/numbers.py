"""Arithmetic and functions of numbers. What does not fit the type is NULL."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.operators.expressions import decimals
from tidegate.operators.expressions.columns import DOUBLE, INTEGER, Value, computed, each_distinct
from tidegate.values.limbs import is_decimal

_LEAST = np.iinfo(np.int64).min
_MOST_SCALE = 400  # no double has a digit further away from the point
_EXACT = decimal.Context(prec=1200, rounding=decimal.ROUND_HALF_UP)


def added(kind: type[exp.Expression], one: Value, other: Value) -> Value:
    """``+ − *`` of numbers of one type."""
    if one.type == DOUBLE:
        plain = {exp.Add: pc.add, exp.Sub: pc.subtract, exp.Mul: pc.multiply}
        return plain[kind](one, other)
    checked = {exp.Add: pc.add_checked, exp.Sub: pc.subtract_checked, exp.Mul: pc.multiply_checked}
    try:
        return checked[kind](one, other)
    except pa.ArrowInvalid:  # some row overflows
        return computed(_WITHIN[kind], INTEGER, one, other)


def _add(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = a + b
    return found, ((a ^ found) & (b ^ found)) >= 0


def _subtract(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = a - b
    return found, ((a ^ b) & (a ^ found)) >= 0


def _multiply(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = a * b
    divisor = np.where((a == 0) | (a == -1), 1, a)
    whole = (a == 0) | np.where(a == -1, b != _LEAST, (found // divisor == b) & (found % divisor == 0))
    return found, whole


_WITHIN: Mapping[type[exp.Expression], Callable[..., Any]] = {exp.Add: _add, exp.Sub: _subtract, exp.Mul: _multiply}


def negated(value: Value) -> Value:
    """−x."""
    if value.type == DOUBLE or is_decimal(value.type):
        return pc.negate(value)
    return computed(lambda n: (-n, n != _LEAST), INTEGER, value)


def absolute(value: Value) -> Value:
    """ABS."""
    if value.type == DOUBLE or is_decimal(value.type):
        return pc.abs(value)
    return computed(lambda n: (np.abs(n), n != _LEAST), INTEGER, value)


def divided(one: Value, other: Value) -> Value:
    """``/`` of doubles."""
    return computed(lambda a, b: (a / b, b != 0), DOUBLE, one, other)


def whole_quotient(one: Value, other: Value) -> Value:
    """``DIV`` of whole numbers, towards zero."""

    def quotient(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        good = (b != 0) & ~((a == _LEAST) & (b == -1))
        a, b = np.broadcast_arrays(a, b)
        b = np.where(good, b, 1)
        floor = a // b
        return floor + ((floor < 0) & (floor * b != a)), good

    return computed(quotient, INTEGER, one, other)


def remainder(one: Value, other: Value) -> Value:
    """``%``, with the sign of the dividend."""
    if one.type == DOUBLE:
        return computed(lambda a, b: (np.fmod(a, b), b != 0), DOUBLE, one, other)

    def rest(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Nothing remains of a division by -1, which of the least number overflows.
        return np.where(b == -1, 0, np.fmod(a, np.where((b == 0) | (b == -1), 1, b))), b != 0

    return computed(rest, INTEGER, one, other)


def rounded_to_whole(upwards: bool, value: Value) -> Value:
    """CEIL (upwards) and FLOOR: whole numbers, NULL for what is too large for one; 0 of NaN, as in Spark."""
    if value.type == INTEGER:
        return value
    if is_decimal(value.type):
        return decimals.whole(upwards, value)
    towards = np.ceil if upwards else np.floor
    return computed(lambda x: _whole(np.where(np.isnan(x), 0, towards(x))), INTEGER, value)


def as_whole(value: Value) -> Value:
    """CAST of a double to a whole number, towards zero; NULL for what is too large for one, and of NaN."""
    return computed(lambda x: _whole(np.trunc(x)), INTEGER, value)


def _whole(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    good = (x >= -(2.0**63)) & (x < 2.0**63)
    return np.where(good, x, 0).astype(np.int64), good


def rounded(value: Value, scale: int) -> Value:
    """ROUND, half away from zero, of the number as it is written in decimal."""
    scale = max(min(scale, _MOST_SCALE), -_MOST_SCALE)
    if is_decimal(value.type):
        return decimals.rounded(value, scale)
    if value.type == INTEGER:
        return value if scale >= 0 else each_distinct(lambda n: _rounded_integer(n, scale), INTEGER, value)
    return computed(lambda x: _rounded_doubles(x, scale), DOUBLE, value)


def _rounded_integer(number: int, scale: int) -> int | None:
    found = int(decimal.Decimal(number).quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT))
    return found if -(2**63) <= found < 2**63 else None


def _rounded_doubles(x: np.ndarray, scale: int) -> np.ndarray:
    factor = 10.0 ** min(abs(scale), 300)
    shifted = x * factor if scale >= 0 else x / factor
    nearest = np.rint(shifted)
    found = (nearest / factor if scale >= 0 else nearest * factor) + 0.0
    # Away from ties, and below 2^30, neither the shift nor the binary form of x can have moved it past one.
    sure = (abs(scale) <= 15) & (np.abs(shifted) < 2.0**30) & (np.abs(np.abs(shifted - nearest) - 0.5) > 1e-6)
    for index in np.flatnonzero(~sure):
        found[index] = _rounded_double(float(x[index]), scale)
    return found


def _rounded_double(x: float, scale: int) -> float:
    if not np.isfinite(x):
        return x
    return float(decimal.Decimal(repr(x)).quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT)) + 0.0


def sign(value: Value) -> Value:
    """SIGN: −1, 0, 1; NaN of NaN, −0 of −0."""
    return computed(lambda x: np.where((x == 0) | np.isnan(x), x, np.sign(x)), DOUBLE, value)


def logarithm(value: Value) -> Value:
    """LN: NULL up to 0."""
    return computed(lambda x: (_libm(pc.ln, x), ~(x <= 0)), DOUBLE, value)


def logarithm_to(base: Value, value: Value) -> Value:
    """LOG(base, x): NULL up to 0."""
    return computed(lambda b, x: (_libm(pc.ln, x) / _libm(pc.ln, b), ~(x <= 0) & ~(b <= 0)), DOUBLE, base, value)


def power(base: Value, exponent: Value) -> Value:
    """POW: NaN of a NaN exponent, and of ±1 to an infinite one, as in Java."""

    def raised(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = _libm(pc.power, *np.broadcast_arrays(x, y))
        return np.where(np.isnan(y) | ((np.abs(x) == 1) & np.isinf(y)), np.nan, found)

    return computed(raised, DOUBLE, base, exponent)


def exponential(value: Value) -> Value:
    """EXP."""
    return computed(lambda x: _libm(pc.exp, x), DOUBLE, value)


def _libm(function: Callable[..., Any], *values: np.ndarray) -> np.ndarray:
    """By the C library: numpy's own take short cuts that depend on the processor."""
    return np.asarray(function(*(pa.array(np.ascontiguousarray(x)) for x in values)).to_numpy())


def root(value: Value) -> Value:
    """SQRT."""
    return computed(np.sqrt, DOUBLE, value)


def is_nan(value: Value) -> Value:
    """ISNAN: false of NULL."""
    if value.type == INTEGER or is_decimal(value.type):
        return pc.and_(pc.is_valid(value), pa.scalar(False))
    return pc.fill_null(pc.is_nan(value), False)
