"""What a record holds before its values have types.

NULL is None; text is `str`; a number or word of a JSON document is `Written`; what a Parquet or Avro file holds in
types of its own is bool, int, float, Decimal, `Moment` or `Day`. Objects are `Members`, lists are `Items`; whatever
is a value of no type is `Nothing`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
FIRST_US = -62_135_596_800_000_000
"""Start of year 1, microseconds since 1970-01-01 UTC."""
END_US = 253_402_300_800_000_000
"""Start of year 10000."""
Raw = Any


class RefusedError(ValueError):
    """A value is none of its type; the text is the reason: wrong_type or non_finite."""


class BrokenError(ValueError):
    """A record, or a whole file, cannot be read."""


class Written(str):
    """A number or a word of a JSON document, as written."""


class Members(list[tuple[str, Raw]]):
    """An object: names and values in the order of the file; a name may come twice."""


class Items(list[Raw]):
    """A list."""


class Nothing:
    """A value of no type: bytes, a time of day, a duration."""


@dataclass(frozen=True)
class Moment:
    """A native timestamp: microseconds since 1970-01-01, of UTC, or of a local clock (``zoned`` False)."""

    us: int
    zoned: bool = True


@dataclass(frozen=True)
class Day:
    """A native date: days since 1970-01-01."""

    days: int


def us_of(instant: datetime) -> int:
    """Microseconds since 1970-01-01 of an instant that knows its zone."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def year_within(instant_us: int) -> int:
    """The instant, if it lies in the years 1 to 9999.

    Raises:
        RefusedError: it does not.
    """
    if not FIRST_US <= instant_us < END_US:
        raise RefusedError("wrong_type")
    return instant_us


def instant_text(instant_us: int) -> str:
    """An instant as ``YYYY-MM-DDThh:mm:ss[.ffffff]Z``."""
    return (EPOCH + timedelta(microseconds=year_within(instant_us))).replace(tzinfo=None).isoformat() + "Z"


def day_text(days: int) -> str:
    """A day as ``YYYY-MM-DD``."""
    return instant_text(days * DAY_US)[:10]


def compact_json(raw: Raw) -> str:
    """An object or list as JSON text: no blanks between tokens, numbers as written."""
    if isinstance(raw, Members):
        return "{" + ",".join(f"{_json_string(name)}:{compact_json(value)}" for name, value in raw) + "}"
    if isinstance(raw, Items):
        return "[" + ",".join(map(compact_json, raw)) + "]"
    if raw is None:
        return "null"
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, Written):
        return str(raw)
    if isinstance(raw, str):
        return _json_string(raw)
    if isinstance(raw, int | float):
        return repr(raw)
    if isinstance(raw, Decimal):
        return f"{raw:f}"
    if isinstance(raw, Moment):
        return _json_string(instant_text(raw.us))
    if isinstance(raw, Day):
        return _json_string(day_text(raw.days))
    raise RefusedError("wrong_type")


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
