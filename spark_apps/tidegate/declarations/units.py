"""Quantities with units, as users write them: durations, bytes, rates, percentages, instants.

A unit is never guessed. Quantities are exact: fractions of a unit are computed as fractions, and one that is not a
whole number of the target unit is a mistake rather than rounded. Every reader raises `UnreadableError`.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from fractions import Fraction

from tidegate.declarations.positions import Misspelt

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
MAX_DURATION_US = 36_500 * DAY_US
MAX_BYTES = 1 << 50
_MAX_AMOUNT = 1e15
MAX_RATE = 1e9

DURATION_UNITS = {
    "millisecond": 1_000,
    "second": SECOND_US,
    "minute": 60 * SECOND_US,
    "hour": 3_600 * SECOND_US,
    "day": DAY_US,
}
INTERVAL_US = {name.upper(): us for name, us in DURATION_UNITS.items() if name != "millisecond"}
BYTE_UNITS = {"B": 1, "byte": 1, "bytes": 1}
for _power, _prefix in enumerate("KMGT", start=1):
    BYTE_UNITS |= {f"{_prefix}iB": 1 << (10 * _power), f"{_prefix}B": 1000**_power}
RATE_UNITS_S = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}

_QUANTITY = re.compile(r"([+-]?)(\d[\d_]*(?:\.\d+)?|\.\d+)\s*(.*)", re.DOTALL)
_MAX_DIGITS = 20


class UnreadableError(ValueError):
    """A value that cannot be read: what is wrong, what was expected, and the names that may have been meant."""

    def __init__(self, message: str, expected: str = "", misspelt: Misspelt | None = None):
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.misspelt = misspelt


def shown(text: str) -> str:
    """The text in quotes, shortened and without control characters, so that a message stays readable."""
    flat = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text[:1000].split()))
    return f"'{flat[:57]}...'" if len(flat) > 60 else f"'{flat}'"


def _quantity(text: str, expected: str) -> tuple[Fraction, str]:
    """A number that is not negative, and what follows it."""
    match = _QUANTITY.fullmatch(text.strip())
    if not match or "_" in match[2]:
        raise UnreadableError(f"{shown(text)} is not a number with a unit", expected)
    sign, digits, unit = match.groups()
    if len(digits) > _MAX_DIGITS or not digits.isascii():
        raise UnreadableError(f"{shown(text)} has too many digits", expected)
    if sign == "-" and Fraction(digits) != 0:
        raise UnreadableError(f"{shown(text)} is negative", expected)
    return Fraction(digits), unit.strip()


def read_duration_us(text: str) -> int:
    """A duration in whole microseconds.

    >>> read_duration_us("5 minutes"), read_duration_us("1.5 HOURS")
    (300000000, 5400000000)
    """
    expected = "a duration such as '5 minutes' (milliseconds, seconds, minutes, hours or days)"
    number, unit = _quantity(text, expected)
    if not unit:
        raise UnreadableError(f"{shown(text)} has no unit", expected)
    factor = DURATION_UNITS.get(unit.lower().removesuffix("s")) if unit.isascii() else None
    if factor is None:
        units = [f"{name}s" for name in DURATION_UNITS]
        raise UnreadableError(f"unknown unit {shown(unit)}", expected, Misspelt(unit, units))
    duration = number * factor
    if duration > MAX_DURATION_US:
        raise UnreadableError(f"{shown(text)} is too long", "at most 36500 days")
    if duration.denominator != 1:
        raise UnreadableError(f"{shown(text)} is not a whole number of microseconds", expected)
    return int(duration)


def read_calendar_length(text: str) -> tuple[int, int] | None:
    """A whole number, more than 0, of days, weeks or months: as days and months, one of them 0. None: nothing such.

    >>> read_calendar_length("2 WEEKS"), read_calendar_length("1 month"), read_calendar_length("24 HOURS")
    ((14, 0), (0, 1), None)
    """
    match = re.fullmatch(r"(\d{1,4})\s*(day|week|month)s?", text.strip().lower(), re.ASCII)
    if match is None or int(match[1]) == 0:
        return None
    count = int(match[1])
    return {"day": (count, 0), "week": (7 * count, 0), "month": (0, count)}[match[2]]


def read_seconds(text: str) -> int:
    """A duration in whole seconds, 0 allowed."""
    duration = read_duration_us(text)
    if duration % SECOND_US:
        raise UnreadableError(f"{shown(text)} is not a whole number of seconds", "whole seconds")
    return duration // SECOND_US


def read_positive_seconds(text: str) -> int:
    """A duration in whole seconds, more than 0."""
    seconds = read_seconds(text)
    if seconds == 0:
        raise UnreadableError(f"{shown(text)} is not positive", "a duration of at least 1 second")
    return seconds


def read_bytes(text: str) -> int:
    """An amount of memory in bytes, more than 0.

    >>> read_bytes("64 KiB"), read_bytes("1.5 GB")
    (65536, 1500000000)
    """
    expected = "an amount such as '64 KiB' (B, KiB, MiB, GiB, TiB, KB, MB, GB or TB)"
    number, unit = _quantity(text, expected)
    if not unit:
        raise UnreadableError(f"{shown(text)} has no unit", expected)
    if unit not in BYTE_UNITS:
        raise UnreadableError(f"unknown unit {shown(unit)}", expected, Misspelt(unit, BYTE_UNITS))
    amount = number * BYTE_UNITS[unit]
    if amount > MAX_BYTES:
        raise UnreadableError(f"{shown(text)} is too large", "at most 1024 TiB")
    if amount.denominator != 1 or amount < 1:
        raise UnreadableError(f"{shown(text)} is not a whole positive number of bytes", expected)
    return int(amount)


def read_priority(text: str) -> int:
    """A priority: a whole number from 0, the least, to 1000.

    >>> read_priority("10")
    10
    """
    expected = "a whole number from 0 to 1000"
    if not text.isascii() or not text.strip().isdigit() or len(text.strip()) > 4 or int(text) > 1000:
        raise UnreadableError(f"{shown(text)} is not a priority", expected)
    return int(text)


def read_rate(text: str) -> float:
    """A rate in tuples per second, more than 0.

    >>> read_rate("36 per hour")
    0.01
    """
    expected = "a rate such as '40 per hour' (per second, minute, hour or day)"
    number, rest = _quantity(text, expected)
    words = rest.split()
    if len(words) != 2 or words[0].lower() != "per":
        raise UnreadableError(f"{shown(text)} has no unit", expected)
    if words[1].lower() not in RATE_UNITS_S:
        raise UnreadableError(f"unknown unit {shown(words[1])}", expected, Misspelt(words[1], RATE_UNITS_S))
    rate = number / RATE_UNITS_S[words[1].lower()]
    if rate > MAX_RATE:
        raise UnreadableError(f"{shown(text)} is too large", "at most 1000000000 per second")
    if rate == 0:
        raise UnreadableError(f"{shown(text)} is not positive", expected)
    return float(rate)


def read_fraction(text: str) -> float:
    """A percentage as a fraction, 0 allowed.

    >>> read_fraction("2.5%")
    0.025
    """
    expected = "a percentage such as '50%'"
    number, unit = _quantity(text, expected)
    if unit != "%":
        raise UnreadableError(f"{shown(text)} has no % sign", expected)
    if number > 100_000:
        raise UnreadableError(f"{shown(text)} is too large", expected)
    return float(number / 100)


def read_share(text: str) -> float:
    """A percentage in (0, 100] as a fraction."""
    fraction = read_fraction(text)
    if not 0 < fraction <= 1:
        raise UnreadableError(f"{shown(text)} is out of range", "more than 0% and at most 100%")
    return fraction


def read_amount(text: str) -> float:
    """A plain number above 0, at most 1e15.

    >>> read_amount("0.5")
    0.5
    """
    expected = "a number such as 50"
    if not re.fullmatch(r"[0-9]{1,16}(\.[0-9]{1,12})?", text.strip(), re.ASCII) or float(text) > _MAX_AMOUNT:
        raise UnreadableError(f"{shown(text)} is not a plain number of at most 1000000000000000", expected)
    if float(text) == 0:
        raise UnreadableError(f"{shown(text)} is not positive", expected)
    return float(text)


def read_integer(text: str, least: int, most: int) -> int:
    """A whole number in [least, most]."""
    expected = f"a whole number from {least} to {most}"
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
        raise UnreadableError(f"{shown(text)} is not a whole number of at most 18 digits", expected)
    number = int(text)
    if not least <= number <= most:
        raise UnreadableError(f"{shown(text)} is out of range", expected)
    return number


_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ Tt](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)\s*(Z|z|[+-]\d\d:\d\d)?)?", re.ASCII
)


def read_instant(text: str) -> datetime:
    """An instant, in UTC unless it says otherwise.

    >>> read_instant("2013-02-08").isoformat(), read_instant("2013-02-08T01:30+01:00").isoformat()
    ('2013-02-08T00:00:00+00:00', '2013-02-08T00:30:00+00:00')
    """
    expected = "a timestamp such as '2013-02-08T00:00:00Z'"
    match = _INSTANT.fullmatch(text.strip())
    if not match:
        raise UnreadableError(f"{shown(text)} is not a valid timestamp", expected)
    day, clock, zone = match.groups()
    try:
        instant = datetime.fromisoformat(f"{day}T{clock or '00:00'}{(zone or 'Z').upper()}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise UnreadableError(f"{shown(text)} does not exist", expected) from None
    if not 1900 <= instant.year <= 2200:
        raise UnreadableError(f"{shown(text)} is out of range", "a year from 1900 to 2200")
    return instant


def show_duration(seconds: float) -> str:
    """A duration for people, in the widest unit that stays whole.

    >>> show_duration(3600), show_duration(5400), show_duration(0)
    ('1 hour', '90 minutes', '0 seconds')
    """
    microseconds = round(seconds * SECOND_US)
    for name, factor in reversed(DURATION_UNITS.items()):
        if microseconds and microseconds % factor == 0:
            count = microseconds // factor
            return f"{count} {name}{'' if count == 1 else 's'}"
    return "0 seconds" if microseconds == 0 else f"{seconds:g} seconds"


def show_percent(share: float) -> str:
    """A share as percent, rounded down: it never shows as one that it has not reached.

    >>> show_percent(0.95), show_percent(0.9499), show_percent(1.0)
    ('95.0 %', '94.9 %', '100.0 %')
    """
    return f"{math.floor(share * 1000 + 1e-9) / 10:.1f} %"


def show_bytes(count: float) -> str:
    """An amount of memory for people.

    >>> show_bytes(65536), show_bytes(1500), show_bytes(12)
    ('64 KiB', '1.46 KiB', '12 B')
    """
    for name, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.3g} {name}" if count < 1000 * factor else f"{count / factor:.0f} {name}"
    return f"{count:g} B"
