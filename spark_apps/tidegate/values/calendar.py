"""Days, weeks and months as a time zone's clocks show them, as instants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from math import gcd
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

KNOWN_FROM_US = 2 * 365 * 86_400_000_000
"""1972: since then every zone's clock has stood whole quarters of an hour from UTC (Liberia's since its 7 January)."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000
_WEEK = 7
_FIRST_MONDAY = date(1970, 1, 5).toordinal()
_FIRST_DAY = date(1970, 1, 1).toordinal()
# What is told of a zone as a whole is told of these years: from then on the last rules repeat.
_TOLD_FROM, _TOLD_UNTIL = date(1972, 1, 8).toordinal(), date(2041, 1, 1).toordinal()


@dataclass(frozen=True)
class Calendar:
    """Days or months of a zone, so many at a time, one after the other.

    ``days`` at a time: a multiple of 7 begins on a Monday, others are counted from 1970-01-01. ``months`` at a time are
    counted from January 1970. One of the two is 0. A day begins at the first instant of its date: at midnight, or,
    where the clock skips midnight, when it has skipped it; where midnight comes twice, at the first.

    >>> berlin = Calendar("Europe/Berlin", days=1)
    >>> march = berlin.starts_us(*(utc_us("2024-03-30T12:00"), utc_us("2024-04-01T12:00")))
    >>> (np.diff(march) // 3_600_000_000).tolist()
    [23]
    """

    zone: str
    days: int = 0
    months: int = 0

    @property
    def name(self) -> str:
        """What one is called.

        >>> Calendar("UTC", days=14).name, Calendar("UTC", months=1).name
        ('2 weeks', 'month')
        """
        unit, count = ("month", self.months) if self.months else ("day", self.days)
        if unit == "day" and count % _WEEK == 0:
            unit, count = "week", count // _WEEK
        return unit if count == 1 else f"{count} {unit}s"

    @property
    def usual_us(self) -> int:
        """How long one is where the clock does not change; of months how long the longest can be."""
        return (31 * self.months or self.days) * _DAY_US

    @property
    def longest_us(self) -> int:
        """How long one is at most."""
        return _longest_us(self)

    @property
    def largest_tick_us(self) -> int:
        """The largest tick that divides the distance of each begin from 1970, UTC."""
        return _divisor_us(self.zone)

    def starts_us(self, start_us: int, end_us: int) -> Int64s:
        """The instants in [start, end) at which one begins, ascending."""
        found: list[int] = []
        for at_us in self._starts(start_us):
            if at_us >= end_us:
                break
            # A zone that moves over the date line leaves a day out: two begin at one instant.
            if at_us >= start_us and found[-1:] != [at_us]:
                found.append(at_us)
        return np.array(found, dtype=np.int64)

    def begin_us(self, at_us: int) -> int:
        """The begin of the one that holds an instant."""
        begin_us = None
        for start_us in self._starts(at_us):
            if start_us > at_us:
                break
            begin_us = start_us
        assert begin_us is not None
        return begin_us

    def next_us(self, at_us: int) -> int:
        """The first begin after an instant."""
        return next(start_us for start_us in self._starts(at_us) if start_us > at_us)

    def numbers(self, starts_us: Int64s) -> Int64s:
        """Begins as consecutive numbers; one that a zone leaves out has a number, too."""
        return np.array([self._number(_local_day(self.zone, at_us)) for at_us in starts_us.tolist()], dtype=np.int64)

    def before_us(self, ends_us: Int64s) -> Int64s:
        """The instants as long before the begins of days as one is long, each on its date.

        A month before a day that its predecessor does not have is that one's last day.
        """
        ends, place = np.unique(ends_us, return_inverse=True)
        return np.array([self._before_us(end_us) for end_us in ends.tolist()], dtype=np.int64)[place]

    def _before_us(self, end_us: int) -> int:
        day = _local_day(self.zone, end_us)
        before = day - self.days if self.days else _months_before(day, self.months)
        begin_us = day_start_us(self.zone, before)
        while begin_us >= end_us:
            before -= 1
            begin_us = day_start_us(self.zone, before)
        return begin_us

    def _number(self, day: int) -> int:
        if self.months:
            return _month(day) // self.months
        return (day - (_FIRST_DAY if self.days % _WEEK else _FIRST_MONDAY)) // self.days

    def _starts(self, at_us: int) -> Iterator[int]:
        """Begins from one that is no later than an instant on."""
        number = self._number(_local_day(self.zone, at_us)) - 1
        while True:
            if self.months:
                year, month = divmod(number * self.months, 12)
                day = date(1970 + year, month + 1, 1).toordinal()
            else:
                day = (_FIRST_DAY if self.days % _WEEK else _FIRST_MONDAY) + number * self.days
            yield day_start_us(self.zone, day)
            number += 1


@dataclass(frozen=True)
class Periods:
    """Periods of ``length_us`` since 1970, UTC; with a calendar, those of the calendar."""

    length_us: int
    calendar: Calendar | None = None

    def begin_us(self, at_us: int) -> int:
        """The begin of the period that holds an instant.

        >>> Periods(10).begin_us(25), Periods(10).next_us(20)
        (20, 30)
        """
        return at_us // self.length_us * self.length_us if self.calendar is None else self.calendar.begin_us(at_us)

    def next_us(self, begin_us: int) -> int:
        """The end of the period that begins at an instant."""
        return begin_us + self.length_us if self.calendar is None else self.calendar.next_us(begin_us)

    @property
    def longest_us(self) -> int:
        """How long a period is at most."""
        return self.length_us if self.calendar is None else self.calendar.longest_us


def utc_us(text: str) -> int:
    """An instant in ISO 8601, UTC."""
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=1 << 17)
def day_start_us(zone: str, day: int) -> int:
    """The first instant at which a zone's clocks show a date (its ordinal), or a later one.

    >>> (day_start_us("America/Sao_Paulo", date(2018, 11, 4).toordinal()) - utc_us("2018-11-04T03:00")) // 60_000_000
    0
    """
    midnight = datetime.fromordinal(day).replace(tzinfo=_zone(zone))
    start_us = (midnight.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    shown = midnight.astimezone(UTC).astimezone(_zone(zone))
    if shown.replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return start_us
    # The clock skips midnight: the day begins when it has.
    least_us, most_us = start_us - 2 * _DAY_US, start_us
    while most_us - least_us > 1:
        middle_us = (least_us + most_us) // 2
        least_us, most_us = (middle_us, most_us) if _local_day(zone, middle_us) < day else (least_us, middle_us)
    return most_us


def _local_day(zone: str, at_us: int) -> int:
    return (_EPOCH + timedelta(microseconds=at_us)).astimezone(_zone(zone)).toordinal()


def _month(day: int) -> int:
    """Months since January 1970."""
    of = date.fromordinal(day)
    return (of.year - 1970) * 12 + of.month - 1


def _months_before(day: int, months: int) -> int:
    year, month = divmod(_month(day) - months, 12)
    first = date(1970 + year, month + 1, 1)
    length = (first + timedelta(days=31)).replace(day=1).toordinal() - first.toordinal()
    return first.toordinal() + min(date.fromordinal(day).day, length) - 1


@lru_cache(maxsize=64)
def _told(zone: str) -> Int64s:
    """The begins of all days of the years that a zone is told by."""
    days, of_zone = np.arange(_TOLD_FROM, _TOLD_UNTIL), _zone(zone)
    midnights = (datetime.fromordinal(day).replace(tzinfo=of_zone) for day in days.tolist())
    offsets = [at.utcoffset() or timedelta() for at in midnights]
    offset_us = np.array([at.days * 86_400 + at.seconds for at in offsets], dtype=np.int64) * 1_000_000
    starts_us: Int64s = (days - _FIRST_DAY) * _DAY_US - offset_us
    changed = np.append(False, offset_us[1:] != offset_us[:-1])
    for place in np.flatnonzero(changed | np.append(changed[1:], False)).tolist():
        starts_us[place] = day_start_us(zone, int(days[place]))
    return starts_us


@lru_cache(maxsize=64)
def _divisor_us(zone: str) -> int:
    return gcd(_DAY_US, int(np.gcd.reduce(_told(zone))))


@lru_cache(maxsize=64)
def _longest_us(calendar: Calendar) -> int:
    starts_us, days = _told(calendar.zone), np.arange(_TOLD_FROM, _TOLD_UNTIL)
    if calendar.days:
        return int((starts_us[calendar.days :] - starts_us[: -calendar.days]).max())
    firsts = np.flatnonzero([date.fromordinal(day).day == 1 for day in days.tolist()])
    begins_us = starts_us[firsts]
    # From the first of a month to any other day is no longer than between two firsts.
    return int((begins_us[calendar.months :] - begins_us[: -calendar.months]).max())


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
