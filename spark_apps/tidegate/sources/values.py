"""What a value may look like: one set of rules for every format.

A value is given as text (CSV, JSON strings, Parquet strings), as a number of a JSON document, or as a Parquet file's
own type. No rule depends on the day of the run, on the machine, or on other records.

| type      | text, and JSON numbers as written                    | Parquet's own types                          |
|-----------|------------------------------------------------------|----------------------------------------------|
| string    | as it is, valid UTF-8; a JSON number or true/false   | integers, decimals, doubles, booleans, dates |
|           | as written                                           | and timestamps in the notation of this table |
| integer   | ``[+-]?digits``, then nothing or ``.0``, ``.00`` …;  | integers, decimals and doubles whose value   |
|           | within 64 bits                                       | is whole and within 64 bits                  |
| double    | ``[+-]?digits[.digits][e[+-]digits]``, ``.5``,       | integers, decimals, doubles                  |
|           | ``5.``; the nearest double. NaN, inf, infinity (any  |                                              |
|           | letter case, signed) and what is too large for a     |                                              |
|           | double are ``non_finite``                            |                                              |
| boolean   | true, false (any letter case), 1, 0; JSON's too      | booleans; the integers 1 and 0               |
| timestamp | ``YYYY-MM-DD``, then nothing (midnight) or ``T`` or  | timestamps of any unit and zone (without a   |
|           | a space and ``hh:mm[:ss[.digits]]``, then nothing    | zone: UTC), dates (midnight); finer than     |
|           | (UTC), ``Z`` or ``±hh[[:]mm]``; 1 to 9 digits, what  | microseconds is cut off                      |
|           | is finer than microseconds is cut off                |                                              |
| date      | ``YYYY-MM-DD``                                       | dates, timestamps at midnight (UTC)          |

Spaces and tabs around text do not count, except for strings. Dates and timestamps lie in the years 1 to 9999 (UTC).
A CSV cell without content and a JSON null are NULL; ``""`` is text without content: a string, and nothing else.
Objects, lists, bytes, times of day and durations are values of no type: ``wrong_type``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from tidegate.declarations.models import EPOCH
from tidegate.declarations.types import ColumnType

LEAST_US, END_US = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The years 1 to 9999, microseconds since 1970-01-01 UTC, half-open."""
DAY_US = 86_400_000_000
BLANKS = " \t"
_LEAST_INTEGER, _LARGEST_INTEGER = -(2**63), 2**63 - 1

_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})(?:\.0+)?", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NO_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:Z|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?",
    re.ASCII,
)
_EPOCH_DAY = date(1970, 1, 1).toordinal()

Typed = str | int | float | bool | None
"""A value in the declared type: timestamps as microseconds, dates as days since 1970-01-01."""


class Number(str):
    """A number (or NaN, Infinity) of a JSON document, as written."""


@dataclass(frozen=True)
class Moment:
    """A Parquet timestamp: microseconds since 1970-01-01 UTC."""

    us: int


@dataclass(frozen=True)
class Day:
    """A Parquet date: days since 1970-01-01."""

    days: int


@dataclass(frozen=True)
class Nothing:
    """Something that is a value of no type: an object, a list, bytes; ``text`` shows it."""

    text: str


Given = str | bool | int | float | Decimal | Number | Moment | Day | Nothing | None


class NotOfTypeError(ValueError):
    """The value is not one of the declared type."""


class NotFiniteError(ValueError):
    """The value is NaN or infinite."""


def read(kind: ColumnType, given: Given) -> Typed:
    """A given value in the declared type; None stays None.

    >>> read("integer", "12.0"), read("timestamp", "1970-01-01T00:00:01Z"), read("boolean", "TRUE")
    (12, 1000000, True)

    Raises:
        NotOfTypeError: it is none.
        NotFiniteError: it is a double, but no number.
    """
    if given is None:
        return None
    if isinstance(given, Nothing):
        raise NotOfTypeError
    if kind == "string":
        return _string(given)
    if kind == "integer":
        return _integer(given)
    if kind == "double":
        return _double(given)
    if kind == "boolean":
        return _boolean(given)
    return _timestamp(given) if kind == "timestamp" else _date(given)


def _string(given: Given) -> str:
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, Moment):
        if not LEAST_US <= given.us < END_US:
            raise NotOfTypeError
        return moment_text(given.us)
    if isinstance(given, Day):
        return date.fromordinal(_date(given) + _EPOCH_DAY).isoformat()
    if isinstance(given, Decimal):
        return format(given, "f")
    return str(given)


def _integer(given: Given) -> int:
    if isinstance(given, str):
        match = _INTEGER.fullmatch(given.strip(BLANKS))
        if match is None:
            raise NotOfTypeError
        value = int(match[1] + match[2])
    elif isinstance(given, bool | Moment | Day):
        raise NotOfTypeError
    elif isinstance(given, float):
        if not given.is_integer():
            raise NotOfTypeError
        value = int(given)
    else:
        value = int(given)  # type: ignore[arg-type]
        if value != given:
            raise NotOfTypeError
    if not _LEAST_INTEGER <= value <= _LARGEST_INTEGER:
        raise NotOfTypeError
    return value


def _double(given: Given) -> float:
    if isinstance(given, str):
        text = given.strip(BLANKS)
        if _NO_NUMBER.fullmatch(text):
            raise NotFiniteError
        if _DOUBLE.fullmatch(text) is None:
            raise NotOfTypeError
        value = float(text)
    elif isinstance(given, bool | Moment | Day):
        raise NotOfTypeError
    else:
        value = float(given)  # type: ignore[arg-type]
    if not math.isfinite(value):
        raise NotFiniteError
    return value


def _boolean(given: Given) -> bool:
    if isinstance(given, bool):
        return given
    if isinstance(given, str):
        found = {"true": True, "false": False, "1": True, "0": False}.get(given.strip(BLANKS).lower())
    else:
        found = {0: False, 1: True}.get(given) if isinstance(given, int) else None
    if found is None:
        raise NotOfTypeError
    return found


def _timestamp(given: Given) -> int:
    if isinstance(given, Moment):
        us = given.us
    elif isinstance(given, Day):
        us = given.days * DAY_US
    elif isinstance(given, str):
        us = _text_us(given.strip(BLANKS))
    else:
        raise NotOfTypeError
    if not LEAST_US <= us < END_US:
        raise NotOfTypeError
    return us


def _text_us(text: str) -> int:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise NotOfTypeError
    year, month, day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    except ValueError:
        raise NotOfTypeError from None
    if hour is None:
        return days * DAY_US
    ahead = int(zone_hours or 0), int(zone_minutes or 0)
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59 or ahead[0] > 23 or ahead[1] > 59:
        raise NotOfTypeError
    local_s = (int(hour) * 60 + int(minute)) * 60 + int(second or 0)
    ahead_s = (ahead[0] * 60 + ahead[1]) * 60 * (-1 if sign == "-" else 1)
    return days * DAY_US + (local_s - ahead_s) * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))


def _date(given: Given) -> int:
    if isinstance(given, Moment) and given.us % DAY_US == 0:
        days = given.us // DAY_US
    elif isinstance(given, Day):
        days = given.days
    elif isinstance(given, str):
        match = _DATE.fullmatch(given.strip(BLANKS))
        try:
            if match is None:
                raise ValueError
            days = date(*map(int, match.groups())).toordinal() - _EPOCH_DAY
        except ValueError:
            raise NotOfTypeError from None
    else:
        raise NotOfTypeError
    if not LEAST_US <= days * DAY_US < END_US:
        raise NotOfTypeError
    return days


def moment_text(us: int) -> str:
    """An instant of the years 1 to 9999 in the notation of timestamps.

    >>> moment_text(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    return (EPOCH + timedelta(microseconds=us)).replace(tzinfo=None).isoformat() + "Z"
