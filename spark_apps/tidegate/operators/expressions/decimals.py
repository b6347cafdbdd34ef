"""Decimals: arithmetic, rounding and casts. What does not fit the type is NULL.

Values are whole numbers over a power of ten, and results are rounded once, HALF_UP, to the digits that the language
gives them (``declarations.decimals``). Sums and products of fewer than 38 digits are computed by Arrow; everything else
row by row by Python's integers. **Cost**: 2 to 4 µs a row there, and 10 to read doubles and texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.declarations import decimals
from tidegate.operators.expressions.columns import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    STRING,
    TIMESTAMP,
    Value,
    each_distinct,
)
from tidegate.values import limbs
from tidegate.values.limbs import divided, is_decimal, moved
from tidegate.values.types import Digits

_SECOND_PLACES = 6  # of microseconds
_INTEGER_DIGITS = 19
_PLAIN: Mapping[type[exp.Expression], Callable[[Value, Value], Value]] = {
    exp.Add: pc.add,
    exp.Sub: pc.subtract,
    exp.Mul: pc.multiply,
}


def digits_of(kind: pa.DataType) -> Digits:
    """The digits of a decimal type."""
    return Digits(kind.precision, kind.scale)


def of_digits(digits: Digits) -> pa.DataType:
    """The decimal type of some digits."""
    return pa.decimal128(*digits)


def computed(function: Callable[..., Any], kind: pa.DataType, *values: Value) -> Value:
    """What Python makes of the unscaled numbers, row by row; NULL where any is, or where it makes None."""
    columns = [value for value in values if isinstance(value, pa.Array)]
    if not all(value.is_valid for value in values if isinstance(value, pa.Scalar)):
        return pa.nulls(len(columns[0]), kind) if columns else pa.scalar(None, kind)
    known = np.ones(len(columns[0]) if columns else 1, dtype=bool)
    numbers: list[Any] = []
    for value in values:
        if isinstance(value, pa.Array):
            known &= np.asarray(value.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
            numbers.append(limbs.unscaled(value))
        else:
            numbers.append(repeat(limbs.unscaled(pa.repeat(value, 1))[0], len(known)))
    rows = [function(*row) if there else None for there, *row in zip(known.tolist(), *numbers, strict=True)]
    result = limbs.from_unscaled(rows, kind) if is_decimal(kind) else pa.array(rows, kind)
    return result if columns else result[0]


def scaled(value: Value, kind: pa.DataType) -> Value:
    """The value as another decimal type, rounded HALF_UP."""
    have, wanted = value.type, kind
    if have == wanted:
        return value
    more = wanted.scale - have.scale
    if more >= 0 and wanted.precision - wanted.scale >= have.precision - have.scale:
        return value.cast(wanted)
    return computed(lambda n: moved(n, more), kind, value)


def arithmetic(operation: type[exp.Expression], one: Value, other: Value) -> Value:
    """``+ - * / %`` of two decimals."""
    a, b = digits_of(one.type), digits_of(other.type)
    kind = of_digits(decimals.arithmetic(operation, a, b))
    if operation in _PLAIN and kind.precision < 38:
        return _PLAIN[operation](one, other).cast(kind)
    return computed(_FUNCTIONS[operation](a.scale, b.scale, kind.scale), kind, one, other)


def _sum(a: int, b: int, to: int, sign: int = 1) -> Callable[[int, int], int]:
    most = max(a, b)
    return lambda x, y: moved(x * 10 ** (most - a) + sign * y * 10 ** (most - b), to - most)


def _product(a: int, b: int, to: int) -> Callable[[int, int], int]:
    return lambda x, y: moved(x * y, to - a - b)


def _quotient(a: int, b: int, to: int) -> Callable[[int, int], int | None]:
    up, down = 10 ** max(to - a + b, 0), 10 ** max(a - b - to, 0)
    return lambda x, y: divided(x * up, y * down) if y else None


def _remainder(a: int, b: int, to: int) -> Callable[[int, int], int | None]:
    most = max(a, b)

    def rest(x: int, y: int) -> int | None:
        if not y:
            return None
        x, y = x * 10 ** (most - a), y * 10 ** (most - b)
        result = abs(x) % abs(y)
        return moved(result if x >= 0 else -result, to - most)

    return rest


_FUNCTIONS: Mapping[type[exp.Expression], Callable[[int, int, int], Callable[[int, int], int | None]]] = {
    exp.Add: _sum,
    exp.Sub: lambda a, b, to: _sum(a, b, to, -1),
    exp.Mul: _product,
    exp.Div: _quotient,
    exp.Mod: _remainder,
}


def rounded(value: Value, places: int) -> Value:
    """ROUND."""
    scale = value.type.scale
    kind = of_digits(decimals.rounded(digits_of(value.type), places))
    if places >= scale:
        return value.cast(kind)
    if places >= 0:
        return computed(lambda n: moved(n, places - scale), kind, value)
    return computed(lambda n: divided(n, 10 ** (scale - places)) * 10**-places, kind, value)


def whole(upwards: bool, value: Value) -> Value:
    """CEIL (upwards) and FLOOR."""
    one = 10**value.type.scale
    sign = -1 if upwards else 1
    return computed(lambda n: sign * (sign * n // one), of_digits(decimals.whole(digits_of(value.type))), value)


def widest(values: Sequence[Value], digits: Sequence[Digits]) -> list[Value]:
    """Decimals and integers as one decimal type; ``digits``: of each of them that is not NULL."""
    kind = of_digits(decimals.widest(digits))
    return [from_any(value, kind) for value in values]


def comparable(values: Sequence[Value]) -> list[Value]:
    """Decimals and integers as one type that has all values of them."""
    kinds = [digits_of(v.type) if is_decimal(v.type) else Digits(20, 0) for v in values if not pa.types.is_null(v.type)]
    scale = max(kind.scale for kind in kinds)
    precision = max(kind.precision - kind.scale for kind in kinds) + scale
    kind = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(limbs.WIDE, scale)
    return [value if value.type == kind else value.cast(kind) for value in values]


def as_doubles(value: Value) -> Value:
    """The nearest doubles."""
    column = pa.repeat(value, 1) if isinstance(value, pa.Scalar) else value
    mask = np.asarray(column.is_null().to_numpy(zero_copy_only=False), dtype=bool) if column.null_count else None
    result = pa.array(limbs.as_doubles(column), mask=mask)
    return result if isinstance(value, pa.Array) else result[0]


def to_any(value: Value, kind: pa.DataType) -> Value:
    """CAST of a decimal to another type."""
    one = 10**value.type.scale
    if is_decimal(kind):
        return scaled(value, kind)
    if kind == DOUBLE:
        return as_doubles(value)
    if kind == STRING:
        return each_distinct(lambda number: f"{number:f}", STRING, value)
    if kind == BOOLEAN:
        return computed(bool, BOOLEAN, value)
    if kind == INTEGER:
        return computed(lambda n: _fitting(_towards_zero(n, one)), INTEGER, value)
    return computed(lambda n: _fitting(_towards_zero(n * 10**_SECOND_PLACES, one)), pa.int64(), value).cast(kind)


def _towards_zero(number: int, by: int) -> int:
    return number // by if number >= 0 else -(-number // by)


def _fitting(number: int) -> int | None:
    return number if -(2**63) <= number < 2**63 else None


def from_any(value: Value, kind: pa.DataType) -> Value:
    """CAST to a decimal; of a double by the decimal number that it is written as."""
    source = value.type
    if pa.types.is_null(source):
        return value.cast(kind)
    if is_decimal(source):
        return scaled(value, kind)
    if source == DOUBLE:
        return _read(lambda x: None if x != x or abs(x) == np.inf else repr(x), kind, value)
    if source == BOOLEAN:
        value = value.cast(pa.int8()).cast(INTEGER)
    have = _SECOND_PLACES if source == TIMESTAMP else 0
    value = value.cast(INTEGER)
    if not have and kind.precision - kind.scale >= _INTEGER_DIGITS:
        return value.cast(kind)
    return computed(lambda n: moved(n, kind.scale - have), kind, value.cast(pa.decimal128(_INTEGER_DIGITS, 0)))


def from_text(written: Callable[[str], str | None], value: Value, kind: pa.DataType) -> Value:
    """CAST of text to a decimal; ``written``: the number that stands in a text, None if there is none."""
    return _read(written, kind, value)


def _read(written: Callable[[Any], str | None], kind: pa.DataType, value: Value) -> Value:
    """The decimals that are nearest to numbers, each given by its text."""

    def one(item: Any) -> int | None:
        text = None if item is None else written(item)
        return None if text is None else limbs.read(text, kind.scale)

    items = value.to_pylist() if isinstance(value, pa.Array) else [value.as_py()]
    known: dict[Any, int | None] = {item: one(item) for item in dict.fromkeys(items)}
    result = limbs.from_unscaled([known[item] for item in items], kind)
    return result if isinstance(value, pa.Array) else result[0]
