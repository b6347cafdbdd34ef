"""The types that columns, expressions and answers may have.

A type is its name, as it is written in pipeline.yml: ``integer``, or ``decimal(10,2)``. The parameters of a decimal are
part of its name, so that a type stays one word wherever types are compared, stored or shown.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pyarrow as pa

ColumnType = str
"""A name in ``SIMPLE_TYPES``, or that of a decimal, as :func:`decimal_type` writes it."""

TIMESTAMP = pa.timestamp("us", tz="UTC")
MAX_PRECISION = 38

_ARROW = {
    "string": pa.string(),
    "integer": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
}
SIMPLE_TYPES = tuple(_ARROW)
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)", re.ASCII)
_WRITTEN_DECIMAL = re.compile(r"decimal\s*\(\s*([0-9]{1,3})\s*(?:,\s*([0-9]{1,3})\s*)?\)", re.ASCII | re.IGNORECASE)


class Digits(NamedTuple):
    """How many digits a decimal has: all together, and after the point."""

    precision: int
    scale: int


def decimal_type(precision: int, scale: int) -> ColumnType:
    """The type of decimals with so many digits.

    >>> decimal_type(10, 2)
    'decimal(10,2)'
    """
    return f"decimal({precision},{scale})"


def digits_of(kind: ColumnType) -> Digits | None:
    """The digits of a decimal type; None for any other type.

    >>> digits_of("decimal(10,2)"), digits_of("double")
    (Digits(precision=10, scale=2), None)
    """
    match = _DECIMAL.fullmatch(kind)
    return Digits(int(match[1]), int(match[2])) if match else None


def is_decimal(kind: ColumnType) -> bool:
    """Whether the type is a decimal."""
    return kind.startswith("decimal(")


def family_of(kind: ColumnType) -> str:
    """The type without its parameters.

    >>> family_of("decimal(10,2)"), family_of("double")
    ('decimal', 'double')
    """
    return kind.partition("(")[0]


def is_number(kind: ColumnType) -> bool:
    """Whether values of the type can be added: integer, double or decimal."""
    return kind in ("integer", "double") or is_decimal(kind)


def arrow_type(kind: ColumnType) -> pa.DataType:
    """How tables store the type; KeyError for the name of no type.

    >>> arrow_type("decimal(10,2)")
    Decimal128Type(decimal128(10, 2))
    """
    digits = digits_of(kind)
    return pa.decimal128(*digits) if digits else _ARROW[kind]


def read_type(text: str) -> ColumnType | None:
    """The type that a user writes, in the one form that names it; None if the text names none.

    >>> read_type("decimal(10, 2)"), read_type("decimal(5)"), read_type("decimal(40, 2)")
    ('decimal(10,2)', 'decimal(5,0)', None)
    """
    match = _WRITTEN_DECIMAL.fullmatch(text)
    if match is None:
        return text if text in _ARROW else None
    precision, scale = int(match[1]), int(match[2] or 0)
    return decimal_type(precision, scale) if 1 <= precision <= MAX_PRECISION and scale <= precision else None
