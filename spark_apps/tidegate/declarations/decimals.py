"""The precision and scale of what is computed from decimals, as in Spark.

Beside a decimal an integer is a decimal of 20 digits, a literal of digits as many as it has, and a literal such as
``1.5`` is a decimal, too. With a double everything is a double. Results that would have more than 38 digits keep the
digits before the point, and six behind it (Spark's ``spark.sql.decimalOperations.allowPrecisionLoss``).

**Source**: Spark 4's ``DecimalPrecisionTypeCoercion``, ``DecimalType`` and the expressions' own result types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce

from sqlglot import exp

from tidegate.values.types import MAX_PRECISION, ColumnType, Digits, decimal_type, digits_of, is_decimal

_BIGINT, _INT = Digits(20, 0), Digits(10, 0)
_LEAST_SCALE = 6
# What a typed literal is marked with: it is a decimal, and not a double.
_MARK = "decimal"


def as_type(digits: Digits) -> ColumnType:
    """The type of decimals with these digits."""
    return decimal_type(*digits)


def bounded(precision: int, scale: int) -> Digits:
    """At most 38 digits, before the point and behind it alike."""
    return Digits(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def _adjusted(precision: int, scale: int) -> Digits:
    """At most 38 digits; those before the point stay, and behind it six, or as many as there are."""
    if precision <= MAX_PRECISION:
        return Digits(precision, scale)
    whole = precision - scale
    return Digits(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _LEAST_SCALE)))


def _sum(a: Digits, b: Digits) -> tuple[int, int]:
    scale = max(a.scale, b.scale)
    return max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale


def _product(a: Digits, b: Digits) -> tuple[int, int]:
    return a.precision + b.precision + 1, a.scale + b.scale


def _quotient(a: Digits, b: Digits) -> tuple[int, int]:
    scale = max(_LEAST_SCALE, a.scale + b.precision + 1)
    return a.precision - a.scale + b.scale + scale, scale


def _remainder(a: Digits, b: Digits) -> tuple[int, int]:
    scale = max(a.scale, b.scale)
    return min(a.precision - a.scale, b.precision - b.scale) + scale, scale


_RESULTS: Mapping[type[exp.Expression], Callable[[Digits, Digits], tuple[int, int]]] = {
    exp.Add: _sum,
    exp.Sub: _sum,
    exp.Mul: _product,
    exp.Div: _quotient,
    exp.Mod: _remainder,
}


def arithmetic(operation: type[exp.Expression], a: Digits, b: Digits) -> Digits:
    """The digits of a sum, difference, product, quotient or remainder.

    >>> arithmetic(exp.Mul, Digits(10, 2), Digits(20, 0)), arithmetic(exp.Div, Digits(38, 10), Digits(20, 0))
    (Digits(precision=31, scale=2), Digits(precision=38, scale=10))
    """
    return _adjusted(*_RESULTS[operation](a, b))


def wider(a: Digits, b: Digits) -> Digits:
    """Digits for values of both; where 38 are too few, fewer behind the point."""
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale
    return Digits(min(precision, MAX_PRECISION), max(scale - max(precision - MAX_PRECISION, 0), 0))


def widest(kinds: Iterable[Digits]) -> Digits:
    """Digits for values of all of them, put together from the left as Spark does."""
    return reduce(wider, kinds)


def holding_all(kinds: Iterable[ColumnType]) -> ColumnType | None:
    """The decimal type that has every value of some decimals and integers; None if it has more than 38 digits.

    >>> holding_all(["decimal(10,2)", "integer"]), holding_all(["decimal(38,38)", "integer"])
    ('decimal(21,2)', None)
    """
    digits = [digits_of(kind) or Digits(19, 0) for kind in kinds]
    scale = max(one.scale for one in digits)
    precision = max(one.precision - one.scale for one in digits) + scale
    return decimal_type(precision, scale) if precision <= MAX_PRECISION else None


def rounded(digits: Digits, places: int) -> Digits:
    """The digits of ROUND to so many places."""
    whole = digits.precision - digits.scale + 1
    if places < 0:
        return bounded(max(whole, 1 - places), 0)
    return bounded(whole + min(digits.scale, places), min(digits.scale, places))


def whole(digits: Digits) -> Digits:
    """The digits of FLOOR and CEIL."""
    return digits if digits.scale == 0 else Digits(digits.precision - digits.scale + 1, 0)


def operand(node: exp.Expression, kind: ColumnType) -> Digits:
    """The digits of what is computed with a decimal: its own, or those of an integer.

    >>> operand(exp.Literal.number(100), "integer"), operand(exp.column("n"), "integer")
    (Digits(precision=3, scale=0), Digits(precision=20, scale=0))
    """
    number = _integer(node)
    return digits_of(kind) or (_BIGINT if number is None else Digits(len(str(abs(number))), 0))


def alternative(node: exp.Expression, kind: ColumnType) -> Digits:
    """The digits of one of several values that take each other's place, as in COALESCE."""
    number = _integer(node)
    small = number is not None and -(2**31) <= number < 2**31
    return digits_of(kind) or (_INT if small else _BIGINT)


def _integer(node: exp.Expression) -> int | None:
    """The number that an integer literal is, also one that is divided by; None of anything else."""
    node = node.unnest()
    if isinstance(node, exp.Nullif):
        node = node.this
    sign = 1
    if isinstance(node, exp.Neg):
        node, sign = node.this, -1
    plain = isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit()
    return sign * int(node.this) if plain else None


def literal_digits(node: exp.Literal) -> Digits | None:
    """The digits of a literal such as ``1.5``; None of one with an exponent, of an integer, of more than 38 digits.

    >>> literal_digits(exp.Literal.number("0.05")), literal_digits(exp.Literal.number("1e3"))
    (Digits(precision=2, scale=2), None)
    """
    match = re.fullmatch(r"([0-9]*)\.([0-9]*)", node.this, re.ASCII)
    if node.is_string or match is None or not any(match.groups()):
        return None
    scale = len(match[2])
    precision = max(len((match[1] + match[2]).lstrip("0")), scale, 1)
    return Digits(precision, scale) if precision <= MAX_PRECISION else None


def mark_literals(node: exp.Expression) -> None:
    """Make decimals of the literals of an expression that can be decimals."""
    for literal in node.find_all(exp.Literal):
        if literal_digits(literal) is not None:
            literal.meta[_MARK] = True


def is_marked(node: exp.Literal) -> bool:
    """Whether a literal is a decimal."""
    return bool(node._meta and node.meta.get(_MARK))


def any_decimal(kinds: Iterable[str | None]) -> bool:
    """Whether one of some types is a decimal."""
    return any(kind is not None and is_decimal(kind) for kind in kinds)
