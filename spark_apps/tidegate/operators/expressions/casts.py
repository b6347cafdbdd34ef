"""CAST: NULL where a value does not fit the type.

From text, with blanks around it: whole numbers ``[+-]digits``; real numbers with a point, an exponent, ``NaN``,
``Infinity`` and ``inf``; booleans ``t true y yes 1`` and ``f false n no 0``; dates and instants
``yyyy-mm-dd[(T| )hh:mm[:ss[.ffffff]][zone]]``, in UTC unless a zone (``Z``, ``UTC``, ``±hh[:mm]``) is given, of which a
date is the day that is written. Spark reads more texts than these (``1d``, ``0x1p3``, ``12:30`` as of today); here they
are NULL.

To decimals everything is rounded HALF_UP. To text: decimals with all digits of their scale, real numbers as Java writes
them (``1.0E10``), instants without the zeros at their end.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.expressions import decimals, numbers
from tidegate.operators.expressions.columns import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIMESTAMP,
    Value,
    computed,
    each_distinct,
    midnight,
)
from tidegate.operators.expressions.times import date_of
from tidegate.values.limbs import is_decimal

_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_SPECIAL = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_BLANKS = "".join(map(chr, [*range(0x21), 0x7F]))
_TRUE, _FALSE = frozenset(["t", "true", "y", "yes", "1"]), frozenset(["f", "false", "n", "no", "0"])
_CLOCK = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?"
_ZONE = r"(Z|UTC|[+-]\d\d?(?::?\d\d)?)"
_INSTANT = re.compile(rf"(\d{{4}})-(\d{{1,2}})-(\d{{1,2}})(?:[T ]{_CLOCK}(?: ?{_ZONE})?)?", re.ASCII | re.IGNORECASE)


def cast(value: Value, kind: pa.DataType) -> Value:
    """The value as of another type, NULL where it cannot be."""
    source = value.type
    if source == kind:
        return value
    if pa.types.is_null(source):
        return value.cast(kind)
    if is_decimal(source):
        return decimals.to_any(value, kind)
    if is_decimal(kind):
        return decimals.from_text(_decimal_text, value, kind) if source == STRING else decimals.from_any(value, kind)
    if kind == STRING:
        return _to_text(value)
    if kind == INTEGER:
        return _to_integer(value)
    if kind == DOUBLE:
        return _to_double(value)
    if kind == BOOLEAN:
        return each_distinct(_boolean, BOOLEAN, value) if source == STRING else computed(_truth, BOOLEAN, value)
    if kind == TIMESTAMP:
        return _to_instant(value)
    return date_of_text(value) if source == STRING else date_of(value)


def _truth(number: np.ndarray) -> np.ndarray:
    return np.asarray(number != 0)


def _to_text(value: Value) -> Value:
    if value.type == DOUBLE:
        # Zeros of both signs are equal, but are not written alike.
        return each_distinct(lambda bits: java_text(float(np.int64(bits).view(np.float64))), STRING, _bits(value))
    if value.type == TIMESTAMP:
        return each_distinct(_instant_text, STRING, value.cast(pa.int64()))
    if value.type == DATE:
        return each_distinct(lambda day: _date_text(np.datetime64(day, "D")), STRING, value.cast(pa.int32()))
    return value.cast(STRING)


def _bits(value: Value) -> Value:
    return computed(lambda x: np.ascontiguousarray(x).view(np.int64), INTEGER, value)


def java_text(x: float) -> str:
    """As Java writes a double: plainly from 0.001 to 10 million, else with an exponent.

    >>> java_text(0.1), java_text(1e7), java_text(-1.25e-5), java_text(float("nan"))
    ('0.1', '1.0E7', '-1.25E-5', 'NaN')
    """
    if not np.isfinite(x):
        return "NaN" if np.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    sign, digits, exponent = "-" if np.signbit(x) else "", *_decimal(abs(x))
    point = len(digits) + exponent
    if x == 0:
        return f"{sign}0.0"
    if 1e-3 <= abs(x) < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        whole, rest = digits[:point].ljust(point, "0"), digits[point:]
        return f"{sign}{whole}.{rest or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _decimal(x: float) -> tuple[str, int]:
    """The shortest digits that read back as x, and the power of ten of the last one."""
    mantissa, _, exponent = repr(x).partition("e")
    whole, _, rest = mantissa.partition(".")
    digits, power = (whole + rest).lstrip("0"), int(exponent or 0) - len(rest)
    kept = digits.rstrip("0")
    return kept or "0", power + len(digits) - len(kept)


def _instant_text(us: int) -> str:
    text = str(np.datetime_as_string(np.datetime64(us, "us"))).replace("T", " ")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return _with_sign(text)


def _date_text(day: np.datetime64) -> str:
    return _with_sign(str(day))


def _with_sign(text: str) -> str:
    year = text.lstrip("-").partition("-")[0]
    return f"+{text}" if len(year) > 4 and not text.startswith("-") else text


def _to_integer(value: Value) -> Value:
    if value.type == STRING:
        return each_distinct(_integer, INTEGER, value)
    if value.type == DOUBLE:
        return numbers.as_whole(value)
    if value.type == TIMESTAMP:
        return computed(lambda us: us // 1_000_000, INTEGER, value)
    return value.cast(INTEGER)


def _integer(text: str) -> int | None:
    stripped = text.strip(_BLANKS)
    if not _WHOLE.fullmatch(stripped) or len(stripped) > 4000:
        return None
    number = int(stripped)
    return number if -(2**63) <= number < 2**63 else None


def _to_double(value: Value) -> Value:
    if value.type == STRING:
        return each_distinct(_double, DOUBLE, value)
    if value.type == TIMESTAMP:
        return computed(lambda us: us / 1e6, DOUBLE, value)
    if value.type == BOOLEAN:
        return value.cast(pa.int8()).cast(DOUBLE)
    return value.cast(DOUBLE, safe=False)


def _decimal_text(text: str) -> str | None:
    stripped = text.strip(_BLANKS)
    return stripped if _REAL.fullmatch(stripped) else None


def _double(text: str) -> float | None:
    stripped = text.strip(_BLANKS)
    return float(stripped) if _REAL.fullmatch(stripped) or _SPECIAL.fullmatch(stripped) else None


def _boolean(text: str) -> bool | None:
    word = text.strip(_BLANKS).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _to_instant(value: Value) -> Value:
    if value.type == STRING:
        return instant_of_text(value)
    if value.type == DATE:
        return midnight(value)
    if value.type == INTEGER:
        return computed(lambda s: (s * 1_000_000, np.abs(s // 2) < 2**62 // 1_000_000), TIMESTAMP, value)
    return numbers.as_whole(pc.multiply(value, 1e6)).cast(pa.timestamp("us", "UTC"))


def instant_of_text(value: Value) -> Value:
    """Instants as they are written."""
    return each_distinct(lambda text: None if (found := _read(text)) is None else found[1], TIMESTAMP, value)


def date_of_text(value: Value) -> Value:
    """The days that are written."""
    return each_distinct(lambda text: None if (found := _read(text)) is None else found[0], DATE, value)


def _read(text: str) -> tuple[date, datetime] | None:
    match = _INSTANT.fullmatch(text.strip(_BLANKS))
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        micros = int((fraction or "0").ljust(6, "0")[:6])
        clock = time(int(hour or 0), int(minute or 0), int(second or 0), micros, _zone(zone))
        written = datetime.combine(date(int(year), int(month), int(day)), clock)
        return written.date(), written.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _zone(text: str | None) -> timezone:
    if text is None or text.upper() in ("Z", "UTC"):
        return UTC
    digits = text[1:].replace(":", "")
    hours, minutes = (digits, "0") if len(digits) <= 2 else (digits[:-2], digits[-2:])
    shift = timedelta(hours=int(hours), minutes=int(minutes))
    if int(minutes) > 59 or shift > timedelta(hours=18):
        raise ValueError(text)
    return timezone(-shift if text[0] == "-" else shift)
