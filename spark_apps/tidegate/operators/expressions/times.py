"""Functions of instants (UTC microseconds) and dates, in the proleptic Gregorian calendar, over all of 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tidegate.declarations.units import INTERVAL_US
from tidegate.operators.expressions.columns import DATE, INTEGER, TIMESTAMP, Value, computed, midnight

_DAY_US = 86_400_000_000
_UNIT_US = {"MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_MONDAY_BEFORE_EPOCH = -3  # 1970-01-01 was a Thursday

Int64s = np.ndarray


def _days(us: Int64s) -> Int64s:
    return np.asarray(us // _DAY_US)


def _months(days: Int64s) -> Int64s:
    """Months since January 1970."""
    return np.asarray(days.astype("M8[D]").astype("M8[M]").astype(np.int64))


def _day_of_month(days: Int64s) -> Int64s:
    return np.asarray(days - _first_day(_months(days)) + 1)


def _first_day(months: Int64s) -> Int64s:
    return np.asarray(months.astype("M8[M]").astype("M8[D]").astype(np.int64))


_OF_DAY: Mapping[str, Callable[[Int64s], Int64s]] = {
    "YEAR": lambda days: 1970 + _months(days) // 12,
    "QUARTER": lambda days: _months(days) % 12 // 3 + 1,
    "MONTH": lambda days: _months(days) % 12 + 1,
    "DAY": _day_of_month,
    "DAYOFWEEK": lambda days: (days + 4) % 7 + 1,  # 1 is Sunday
}
_OF_TIME: Mapping[str, Callable[[Int64s], Int64s]] = {
    "HOUR": lambda us: us // _UNIT_US["HOUR"] % 24,
    "MINUTE": lambda us: us // _UNIT_US["MINUTE"] % 60,
    "SECOND": lambda us: us // _UNIT_US["SECOND"] % 60,
}


def field(name: str, value: Value) -> Value:
    """YEAR, QUARTER, MONTH, DAY, DAYOFWEEK (1 is Sunday), HOUR, MINUTE, SECOND of an instant or a date."""
    if name in _OF_DAY:
        return computed(_OF_DAY[name], INTEGER, date_of(value))
    return computed(_OF_TIME[name], INTEGER, instant_of(value))


def date_of(value: Value) -> Value:
    """The day of an instant."""
    return value if value.type == DATE else computed(_days, DATE, value)


def instant_of(value: Value) -> Value:
    """The first instant of a date."""
    return midnight(value) if value.type == DATE else value


def since_epoch(unit: str, value: Value) -> Value:
    """UNIX_SECONDS, UNIX_MILLIS, UNIX_MICROS: whole units since 1970, rounded down."""
    return computed(lambda us: us // _UNIT_US[unit], INTEGER, value)


def truncated(unit: str, value: Value) -> Value:
    """DATE_TRUNC: the start of the unit."""

    def start(us: Int64s) -> tuple[Int64s, np.ndarray]:
        if unit in _UNIT_US:
            found = us // _UNIT_US[unit] * _UNIT_US[unit]
        else:
            days = _days(us)
            if unit == "WEEK":
                days = (days - _MONDAY_BEFORE_EPOCH) // 7 * 7 + _MONDAY_BEFORE_EPOCH
            elif unit in _MONTHS:
                days = _first_day(_months(days) // _MONTHS[unit] * _MONTHS[unit])
            found = days * _DAY_US
        return found, found <= us  # else it lies before the first instant that there is

    return computed(start, TIMESTAMP, instant_of(value))


def difference(unit: str, start: Value, end: Value) -> Value:
    """TIMESTAMPDIFF: whole units from the start to the end, towards zero."""

    def between(a: Int64s, b: Int64s) -> tuple[Int64s, np.ndarray]:
        gap = b - a
        good = ((b ^ a) & (b ^ gap)) >= 0
        if unit in _UNIT_US:
            return _towards_zero(gap, _UNIT_US[unit]), good
        days, other = _days(a), _days(b)
        at, by = a - days * _DAY_US, b - other * _DAY_US
        # A day that is not over does not count.
        other = other - ((other > days) & (by < at)) + ((other < days) & (by > at))
        if unit not in _MONTHS:
            return _towards_zero(other - days, 7 if unit == "WEEK" else 1), np.True_  # type: ignore[return-value]
        packed = [_months(d) * 32 + _day_of_month(d) for d in (days, other)]
        months = _towards_zero(packed[1] - packed[0], 32)
        return _towards_zero(months, _MONTHS[unit]), np.True_  # type: ignore[return-value]

    return computed(between, INTEGER, instant_of(start), instant_of(end))


def _towards_zero(number: Int64s, unit: int) -> Int64s:
    quotient = number // unit
    return np.asarray(quotient + ((quotient < 0) & (quotient * unit != number)))


def days_between(end: Value, start: Value) -> Value:
    """DATEDIFF: days from the start's to the end's."""
    return computed(lambda b, a: b - a, INTEGER, date_of(end), date_of(start))


def shifted(value: Value, amount: int, unit: str) -> Value:
    """An instant and an interval; NULL beyond the last instant."""
    by = amount * INTERVAL_US[unit]

    def moved(us: Int64s) -> tuple[Int64s, np.ndarray]:
        found = us + np.int64(by)
        return found, (found >= us) if by >= 0 else (found < us)

    return computed(moved, TIMESTAMP, value)
