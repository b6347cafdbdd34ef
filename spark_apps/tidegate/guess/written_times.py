"""How the times of a column are written: ISO 8601, a count since 1970, or a pattern of strptime."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from tidegate.declarations.models import EPOCH, from_us, to_us
from tidegate.declarations.time_formats import EPOCH_UNITS_US, ISO, read_time_format
from tidegate.declarations.units import UnreadableError
from tidegate.values.base import Number

Reader = Callable[[Any], int | None]
"""A value → microseconds since 1970, of a local time as if it were UTC; None if it is not written so."""
FIRST_US, END_US = to_us(datetime(1990, 1, 1, tzinfo=UTC)), to_us(datetime(2050, 1, 1, tzinfo=UTC))
"""What a count since 1970 may mean: instants in these years."""
_LIKELY_US = to_us(datetime(2010, 1, 1, tzinfo=UTC))
"""What a count is at least, if nothing but its size says that it is one."""
_FITTING = 0.95
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?P<time>[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
_COUNT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_LONG_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
# What a date, a time and a zone look like, and their directives; the first that a text begins with counts.
_DATES = tuple(
    (re.compile(shape, re.ASCII | re.IGNORECASE), patterns)
    for shape, patterns in (
        (r"\d{4}-\d\d?-\d\d?(?!\d)", ("%Y-%m-%d",)),
        (r"\d{4}/\d\d?/\d\d?(?!\d)", ("%Y/%m/%d",)),
        (r"\d{4}\.\d\d?\.\d\d?(?!\d)", ("%Y.%m.%d",)),
        (r"\d\d?\.\d\d?\.\d{4}(?!\d)", ("%d.%m.%Y", "%m.%d.%Y")),
        (r"\d\d?\.\d\d?\.\d\d(?!\d)", ("%d.%m.%y",)),
        (r"\d\d?/\d\d?/\d{4}(?!\d)", ("%m/%d/%Y", "%d/%m/%Y")),
        (r"\d\d?/\d\d?/\d\d(?!\d)", ("%m/%d/%y", "%d/%m/%y")),
        (r"\d\d?-\d\d?-\d{4}(?!\d)", ("%d-%m-%Y", "%m-%d-%Y")),
        (rf"\d\d?/(?:{_MONTHS})/\d{{4}}(?!\d)", ("%d/%b/%Y",)),
        (rf"\d\d?-(?:{_MONTHS})-\d{{4}}(?!\d)", ("%d-%b-%Y",)),
        (rf"\d\d?-(?:{_MONTHS})-\d\d(?!\d)", ("%d-%b-%y",)),
        (rf"\d\d? (?:{_MONTHS}) \d{{4}}(?!\d)", ("%d %b %Y",)),
        (rf"\d\d? (?:{_LONG_MONTHS}) \d{{4}}(?!\d)", ("%d %B %Y",)),
        (rf"(?:{_MONTHS}) \d\d?, \d{{4}}(?!\d)", ("%b %d, %Y",)),
        (rf"(?:{_LONG_MONTHS}) \d\d?, \d{{4}}(?!\d)", ("%B %d, %Y",)),
        (rf"(?:{_MONTHS}) \d\d? \d{{4}}(?!\d)", ("%b %d %Y",)),
        (rf"(?:{_MONTHS}) +\d\d?(?=[ ]\d\d:)", ("%b %d",)),
        (r"(?:19|20)\d{6}(?=\D|$)", ("%Y%m%d",)),
        (r"(?:19|20)\d{6}(?=\d{6}$|\d{4}$)", ("%Y%m%d",)),
    )
)
_TIMES = tuple(
    (re.compile(shape, re.ASCII | re.IGNORECASE), pattern)
    for shape, pattern in (
        (r"\d\d?:\d\d:\d\d\.\d{1,6}(?!\d) ?[AP]M", "%I:%M:%S.%f %p"),
        (r"\d\d?:\d\d:\d\d [AP]M", "%I:%M:%S %p"),
        (r"\d\d?:\d\d:\d\d[AP]M", "%I:%M:%S%p"),
        (r"\d\d?:\d\d [AP]M", "%I:%M %p"),
        (r"\d\d?:\d\d[AP]M", "%I:%M%p"),
        (r"\d\d?:\d\d:\d\d\.\d{1,6}(?!\d)", "%H:%M:%S.%f"),
        (r"\d\d?:\d\d:\d\d,\d{1,6}(?!\d)", "%H:%M:%S,%f"),
        (r"\d\d?:\d\d:\d\d", "%H:%M:%S"),
        (r"\d\d?:\d\d", "%H:%M"),
        (r"\d{6}", "%H%M%S"),
        (r"\d{4}", "%H%M"),
    )
)
_ZONES = (
    (re.compile(r" [+-]\d\d:?\d\d"), " %z"),
    (re.compile(r"[+-]\d\d:?\d\d|Z"), "%z"),
    (re.compile(r" (?:UTC|GMT)"), " %Z"),
    (re.compile(r"(?:UTC|GMT)"), "%Z"),
)
_DAY_NAME = re.compile(rf"(?:{_DAYS})(?P<rest>,? )", re.IGNORECASE)


@dataclass(frozen=True)
class TimeFormat:
    """How a column's times are written.

    ``format``: as ``Column.format``. ``day_only``: no value has a time of day. ``local``: values do not say their zone.
    ``share``: of the values, those written so. ``other``: a format that fits as well, empty if there is none.
    """

    format: str
    day_only: bool
    local: bool
    share: float
    other: str = ""


def time_format(values: Sequence[Any], named_so: bool, named_otherwise: bool = False) -> TimeFormat | None:
    """The format of nearly all of these values; None if they are no times.

    ``named_so``: whether the column's name speaks of a time: a number is one only if it does, or if all of them are
    milliseconds or microseconds of plausible years. ``named_otherwise``: whether it speaks of something else.
    """
    if not values:
        return None
    some = values[:: max(1, len(values) // 500)]
    if isinstance(some[0], (date, datetime)):
        return _native(values)
    texts = [value.strip(" \t") for value in some if isinstance(value, str)]
    if len(texts) >= len(some) * _FITTING and sum(map(bool, map(_ISO.fullmatch, texts))) >= len(texts) * _FITTING:
        return _iso(values)
    counts = _count_format(some, named_so, named_otherwise)
    if counts:
        return TimeFormat(counts, False, False, _share(values, counts))
    if not any(not isinstance(value, Number) for value in some) and not named_so:
        return None
    return _pattern(values, texts, named_so)


def _native(values: Sequence[Any]) -> TimeFormat | None:
    days = [isinstance(value, date) and not isinstance(value, datetime) for value in values]
    if all(days):
        return TimeFormat(ISO, True, True, 1.0)
    local = any(isinstance(value, datetime) and value.tzinfo is None for value in values)
    return TimeFormat(ISO, False, local, _share(values, ISO))


def _iso(values: Sequence[Any]) -> TimeFormat:
    matches = [match for value in values if isinstance(value, str) and (match := _ISO.fullmatch(value.strip(" \t")))]
    timed = [match for match in matches if match["time"]]
    local = any(match["zone"] is None for match in timed or matches)
    return TimeFormat(ISO, not timed, local, _share(values, ISO))


def _count_format(values: Sequence[Any], named_so: bool, named_otherwise: bool) -> str | None:
    """The unit of counts since 1970, by their magnitude; None if they are not such."""
    for unit in EPOCH_UNITS_US:
        read = time_reader(unit)
        instants = [us for value in values if (us := read(value)) is not None]
        plausible = sum(FIRST_US <= us < END_US for us in instants)
        if plausible < max(len(values) * _FITTING, 1):
            continue
        if unit in ("epoch_ms", "epoch_us") and not named_otherwise and min(instants) >= _LIKELY_US:
            return unit
        return unit if named_so else None
    return None


def _pattern(values: Sequence[Any], texts: Sequence[str], named_so: bool) -> TimeFormat | None:
    shape = next((shape for text in texts[:3] if (shape := _patterns(text))), ())
    if any("%" not in pattern.replace("%Y%m%d", "") for pattern in shape) and not named_so:
        return None  # eight digits may be any number
    fitting = {pattern: _share(texts, pattern) for pattern in shape}
    # Of one column some values may have a fraction of a second, and some none: that cannot be one pattern.
    best = max(fitting.values(), default=0.0)
    if best < _FITTING:
        return None
    same = [pattern for pattern, share in fitting.items() if share == best]
    first = min(same, key=lambda pattern: (_disorder(texts, pattern), same.index(pattern)))
    other = next((pattern for pattern in same if pattern != first), "")
    if "." in first[:6] or (other and _disorder(texts, other) != _disorder(texts, first)):
        other = ""  # with points the day always comes first
    timed, zoned = "%H" in first or "%I" in first, "%z" in first or "%Z" in first
    return TimeFormat(first, not timed, not zoned, _share(values, first), other)


def _disorder(texts: Sequence[str], pattern: str) -> tuple[int, int]:
    """How many months the instants of the texts lie apart, and how often one is before the one ahead of it."""
    read = time_reader(pattern)
    instants = [us for text in texts if (us := read(text)) is not None]
    span = (max(instants) - min(instants)) // (30 * 86_400_000_000) if instants else 0
    return span, sum(later < earlier for earlier, later in zip(instants, instants[1:], strict=False))


def _patterns(text: str) -> tuple[str, ...]:
    """The patterns that the text may have been written by.

    >>> _patterns("10/Oct/2000:13:55:36 -0700"), _patterns("Fri May 29 10:57:13 +0000 2014")
    (('%d/%b/%Y:%H:%M:%S %z',), ('%a %b %d %H:%M:%S %z %Y',))
    """
    start, ahead = 0, ""
    if day := _DAY_NAME.match(text):
        start, ahead = day.end(), "%a" + day["rest"]
    for shape, dates in _DATES:
        match = shape.match(text, start)
        if match is None:
            continue
        rest = _rest(text[match.end() :])
        if rest is not None:
            return tuple(pattern for written in dates if _says_the_day(pattern := ahead + written + rest))
    return ()


def _says_the_day(pattern: str) -> bool:
    """Whether a column may have this format: times without a year are of no day."""
    try:
        return read_time_format(pattern) == pattern
    except UnreadableError:
        return False


def _rest(text: str) -> str | None:
    """The pattern of what follows a date; None if it is no time of day."""
    if not text:
        return ""
    gap = re.match(r"[T:_-]|, | - | +", text)
    between = gap[0] if gap else ""
    between = " " if between.strip() == "" and between else between
    text = text[gap.end() :] if gap else text
    for shape, written in _TIMES:
        match = shape.match(text)
        if match is None:
            continue
        rest, pattern = text[match.end() :], between + written
        for zone, directive in _ZONES:
            if zoned := zone.match(rest):
                rest, pattern = rest[zoned.end() :], pattern + directive
                break
        if re.fullmatch(r" \d{4}", rest):
            return pattern + " %Y"
        return pattern if not rest else None
    return None


def _share(values: Sequence[Any], written: str) -> float:
    read = time_reader(written)
    return sum(read(value) is not None for value in values) / len(values) if values else 0.0


def time_reader(written: str) -> Reader:
    """What reads the times of a format.

    >>> time_reader("epoch_ms")("1767600000005"), time_reader("%d.%m.%Y %H:%M")("05.01.2026 08:00")
    (1767600000005000, 1767600000000000)
    """
    if written in EPOCH_UNITS_US:
        unit_us = Decimal(EPOCH_UNITS_US[written]) or Decimal("0.001")
        return lambda value: _counted(value, unit_us)
    if written == ISO:
        return lambda value: _instant(value) if isinstance(value, date) else _iso_instant(value)
    return lambda value: _instant(value) if isinstance(value, date) else _parsed(value, written)


def instant_of(local_us: int, zone: str) -> int:
    """The instant of a local time of a zone.

    >>> instant_of(1767603600000000, "Europe/Berlin")
    1767600000000000
    """
    return _instant(from_us(local_us).replace(tzinfo=ZoneInfo(zone)))


def _counted(value: Any, unit_us: Decimal) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        return _instant(value) if isinstance(value, date) else None
    text = value.strip(" \t") if isinstance(value, str) else repr(value) if isinstance(value, float) else str(value)
    if not _COUNT.fullmatch(text):
        return None
    counted = Decimal(text) * unit_us
    return int(counted // 1) if abs(counted) < 10**18 else None


def _instant(value: date) -> int:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001
    instant = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return (instant - EPOCH).days * 86_400_000_000 + (instant - EPOCH).seconds * 10**6 + (instant - EPOCH).microseconds


def _iso_instant(value: Any) -> int | None:
    if not isinstance(value, str) or not _ISO.fullmatch(value.strip(" \t")):
        return None
    text = re.sub(r"(\.\d{6})\d+", r"\1", value.strip(" \t"))
    try:
        return _instant(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _parsed(value: Any, pattern: str) -> int | None:
    text = str(value).strip(" \t")
    if not text.isascii():
        return None
    try:
        return _instant(datetime.strptime(text, pattern))  # noqa: DTZ007
    except (ValueError, OverflowError):
        return None
