"""One value in its declared type: the rules of docs/how-to/data-of-your-own.md, one function a type."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

from tests.reader import times
from tests.reader.raw import (
    Day,
    Items,
    Members,
    Moment,
    Nothing,
    Raw,
    RefusedError,
    compact_json,
    day_text,
    instant_text,
)

from tidegate.declarations.models import Column

NON_FINITE = ("nan", "inf", "infinity")
_NUMBER = re.compile(r"([+-]?)([0-9]*)(\.?)([0-9]*)(?:[eE]([+-]?[0-9]+))?", re.ASCII)
_DECIMAL = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")
_EXACT = Context(prec=2000)


def value(column: Column, raw: Raw, comma: bool = False) -> Any:
    """A raw value in a column's type; None stays None. Timestamps are microseconds, dates days since 1970-01-01.

    ``comma``: it is a cell of a CSV file in which the comma stands before a fraction.

    Raises:
        RefusedError: wrong_type or non_finite.
    """
    if raw is None:
        return None
    if isinstance(raw, Nothing):
        raise RefusedError("wrong_type")
    kind = column.type
    if kind == "string":
        return text(raw)
    if isinstance(raw, Members | Items):
        raise RefusedError("wrong_type")
    if isinstance(raw, str):
        raw = type(raw)(raw.strip(" \t"))
        if not raw.isascii():
            raise RefusedError("wrong_type")
    if comma and (kind in ("integer", "double") or kind.startswith("decimal") or column.format in times.PER_SECOND):
        raw = with_point(raw)
    try:
        if kind == "integer":
            return integer(raw)
        if kind == "double":
            return double(raw)
        if kind == "boolean":
            return boolean(raw)
        if kind == "timestamp":
            return times.instant(raw, column.format, column.zone)
        if kind == "date":
            return times.day(raw, column.format, column.zone)
        return decimal(raw, *digits_of(kind))
    except RefusedError:
        raise
    except (ValueError, ArithmeticError, TypeError, KeyError):
        raise RefusedError("wrong_type") from None


def with_point(cell: str) -> str:
    """A cell's number with a point where it has a comma; one that has a point is none."""
    if "." in cell:
        raise RefusedError("wrong_type")
    return cell.replace(",", ".")


def digits_of(kind: str) -> tuple[int, int]:
    """Precision and scale of the name of a decimal type."""
    match = _DECIMAL.fullmatch(kind)
    assert match is not None, kind
    return int(match[1]), int(match[2])


def text(raw: Raw) -> str:
    """Text as it is; other scalars in the notation of the documentation; objects and lists as JSON."""
    if isinstance(raw, Members | Items):
        return compact_json(raw)
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, Moment):
        return instant_text(raw.us)
    if isinstance(raw, Day):
        return day_text(raw.days)
    if isinstance(raw, Decimal):
        return f"{raw:f}"
    return str(raw)


def integer(raw: Raw) -> int:
    """A whole number of 64 bits."""
    if isinstance(raw, str):
        sign, digits = (raw[:1], raw[1:]) if raw[:1] in ("+", "-") else ("", raw)
        whole, point, rest = digits.partition(".")
        if not whole.isdigit() or (point and set(rest) != {"0"}):
            raise RefusedError("wrong_type")
        number = int(whole) * (-1 if sign == "-" else 1)
    elif isinstance(raw, int | float | Decimal) and not isinstance(raw, bool) and raw == int(raw):
        number = int(raw)
    else:
        raise RefusedError("wrong_type")
    if not -(2**63) <= number < 2**63:
        raise RefusedError("wrong_type")
    return number


def double(raw: Raw) -> float:
    """A finite number of 64 bits."""
    if isinstance(raw, str):
        written_number(raw)
    elif isinstance(raw, bool) or not isinstance(raw, int | float | Decimal):
        raise RefusedError("wrong_type")
    number = float(raw)
    if not math.isfinite(number):
        raise RefusedError("non_finite")
    return number


def written_number(number: str) -> tuple[int, int]:
    """The digits of a number and the power of ten with which they count: ``-12.5e3`` is -125 and 2."""
    if number.lower().removeprefix("-" if number.startswith("-") else "+") in NON_FINITE:
        raise RefusedError("non_finite")
    match = _NUMBER.fullmatch(number)
    if match is None or not match[2] + match[4]:
        raise RefusedError("wrong_type")
    sign, whole, _, rest, exponent = match.groups()
    return int(sign + "0" + whole + rest), int(exponent or "0") - len(rest)


def decimal(raw: Raw, precision: int, scale: int) -> Decimal:
    """A decimal with no more digits than the type has; a native double is rounded to the scale, half to even."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float | Decimal):
        raise RefusedError("wrong_type")
    if isinstance(raw, float):
        if not math.isfinite(raw):
            raise RefusedError("non_finite")
        raw = Decimal(repr(raw)).quantize(Decimal((0, (1,), -scale)), ROUND_HALF_EVEN, _EXACT)
    digits, power = written_number(raw if isinstance(raw, str) else f"{raw:f}")
    power += scale
    if digits and power > precision:
        raise RefusedError("wrong_type")
    if digits and power < 0:
        if -power > len(str(abs(digits))) or digits % 10**-power:
            raise RefusedError("wrong_type")
        digits //= 10**-power
    elif digits:
        digits *= 10**power
    if abs(digits) >= 10**precision:
        raise RefusedError("wrong_type")
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


def boolean(raw: Raw) -> bool:
    """true, false, 1 or 0."""
    if isinstance(raw, str):
        return {"true": True, "1": True, "false": False, "0": False}[raw.lower()]
    if isinstance(raw, int):
        return {0: False, 1: True}[raw]
    raise RefusedError("wrong_type")
