"""Timestamps and dates: ISO 8601, counts since 1970, and patterns of ``strptime``.

| format     | text, and JSON numbers as written                                                                     |
|------------|-------------------------------------------------------------------------------------------------------|
| iso        | timestamp: ``YYYY-MM-DD``, then nothing (midnight) or ``T`` or a space and ``hh:mm[:ss[.digits]]``,   |
|            | then nothing, ``Z`` or ``±hh[[:]mm]``; 1 to 9 digits. date: ``YYYY-MM-DD``                            |
| epoch_…    | ``[+-]?digits[.digits][e[+-]digits]`` units since 1970-01-01 UTC; a date is the day of that instant   |
| a pattern  | what ``datetime.strptime`` reads under it; of a date the day                                          |

A file's own timestamps (of any unit) and dates (midnight) are taken as they are under every format, numbers of its own
as if they were written out. What is finer than a microsecond is cut off. A time that does not say its zone is one of
the column's ``zone``. Spaces and tabs around text do not count. All lie in the years 1 to 9999 (UTC).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.values.base import (
    BLANKS,
    DAY_US,
    END_US,
    LEAST_US,
    Day,
    Moment,
    NotOfTypeError,
    RawValue,
    Typed,
    ValueFormat,
    bytes_of,
    valid,
)
from tidegate.values.clock import Int64s, local_us, utc_all_us, utc_us
from tidegate.values.patterns import fixed_width_us
from tidegate.values.scalars import EXACT, exact_number
from tidegate.values.types import TIMESTAMP, ColumnType

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:(Z)|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # of clocks, whatever their zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_PER_US = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_ANY_US = 946_684_800_000_000
_ZONE_NAMES = ("UTC", "GMT", "Z")


class TimeFormat(ValueFormat):
    """A timestamp or a date. ``zone``: of times that do not say theirs."""

    def __init__(self, kind: ColumnType, zone: str = "UTC"):
        self.kind, self.zone = kind, zone

    @abstractmethod
    def moment(self, text: str) -> Moment:
        """The time that a text writes; NotOfTypeError if it writes none."""

    def read(self, raw: RawValue) -> Typed:
        """The timestamp, or the date."""
        if raw is None:
            return None
        if isinstance(raw, Day):
            return self._within(raw.days) if self.kind == "date" else self._instant(Moment(raw.days * DAY_US, False))
        if isinstance(raw, Moment):
            return self._midnight(raw) if self.kind == "date" else self._instant(raw)
        if isinstance(raw, bool) or not isinstance(raw, str | int | float | Decimal):
            raise NotOfTypeError
        moment = self.moment(raw.strip(BLANKS) if isinstance(raw, str) else self.written(raw))
        return self._day(moment) if self.kind == "date" else self._instant(moment)

    def written(self, number: float | Decimal) -> str:
        """A file's own number as text."""
        return format(number, "f") if isinstance(number, Decimal) else str(number)

    def of(self, values: Sequence[Typed]) -> pa.Array:
        """Microseconds, or days."""
        if self.kind == "date":
            return pa.array(values, pa.int32()).cast(pa.date32())
        return pa.array(values, pa.int64()).cast(TIMESTAMP)

    def natives(self, column: pa.Array) -> pa.Array | None:
        """Timestamps of any unit, and dates."""
        kind = column.type
        if self.kind == "date":
            return _days_within(column) if pa.types.is_date32(kind) else None
        if not pa.types.is_timestamp(kind):
            return None
        times, by = _PER_US[kind.unit]
        return self.instants(_scaled(column.cast(pa.int64()), times, by), column, zoned=kind.tz is not None)

    def instants(self, us: Int64s | None, column: pa.Array, zoned: bool) -> pa.Array | None:
        """Microseconds (int64[n]) as timestamps, with the column's NULLs; None if some are out of range."""
        if us is None:
            return None
        nulls = ~valid(column) if column.null_count else None
        if nulls is not None:
            us = np.where(nulls, _ANY_US, us)
        instants = us if zoned else utc_all_us(us, self.zone)
        if instants is None or not len(instants):
            return None if instants is None else pa.array(instants, pa.int64()).cast(TIMESTAMP)
        if instants.min() < LEAST_US or instants.max() >= END_US:
            return None
        return pa.array(instants, pa.int64(), mask=nulls).cast(TIMESTAMP)

    def days(self, us: Int64s | None, column: pa.Array) -> pa.Array | None:
        """The days of a clock's microseconds (int64[n]) as dates, with the column's NULLs; None if out of range."""
        if us is None:
            return None
        nulls = ~valid(column) if column.null_count else None
        days = np.where(nulls, 0, us // DAY_US) if nulls is not None else us // DAY_US
        if len(days) and (days.min() * DAY_US < LEAST_US or days.max() * DAY_US >= END_US):
            return None
        return pa.array(days.astype(np.int32), mask=nulls).cast(pa.date32())

    def _instant(self, moment: Moment) -> int:
        us = moment.us if moment.zoned else utc_us(moment.us, self.zone)
        if not LEAST_US <= us < END_US:
            raise NotOfTypeError
        return us

    def _day(self, moment: Moment) -> int:
        """The day that the time itself says."""
        return self._within(moment.us // DAY_US)

    def _midnight(self, moment: Moment) -> int:
        if moment.zoned and not LEAST_US <= moment.us < END_US:
            raise NotOfTypeError
        shown = local_us(moment.us, self.zone) if moment.zoned else moment.us
        if shown % DAY_US:
            raise NotOfTypeError
        return self._within(shown // DAY_US)

    def _within(self, days: int) -> int:
        if not LEAST_US <= days * DAY_US < END_US:
            raise NotOfTypeError
        return days


class Iso(TimeFormat):
    """ISO 8601, as tables and logs write it."""

    def moment(self, text: str) -> Moment:
        """A date, with a time behind it if a timestamp is meant."""
        match = (_DATE if self.kind == "date" else _TIMESTAMP).fullmatch(text)
        if match is None:
            raise NotOfTypeError
        year, month, day, *rest = match.groups()
        try:
            us = (date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY) * DAY_US
        except ValueError:
            raise NotOfTypeError from None
        if not rest or rest[0] is None:
            return Moment(us, zoned=False)
        hour, minute, second, fraction, zulu, sign, ahead_hours, ahead_minutes = rest
        ahead = int(ahead_hours or 0), int(ahead_minutes or 0)
        if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59 or ahead[0] > 23 or ahead[1] > 59:
            raise NotOfTypeError
        clock_s = (int(hour) * 60 + int(minute)) * 60 + int(second or 0)
        ahead_s = (ahead[0] * 60 + ahead[1]) * 60 * (-1 if sign == "-" else 1)
        us += (clock_s - ahead_s) * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))
        return Moment(us, zoned=bool(zulu or sign))

    def texts(self, column: pa.Array) -> pa.Array | None:
        """All with a zone, or all without one."""
        if self.kind == "date":
            return _days_within(column.cast(pa.date32()))
        data, starts, lengths = bytes_of(column)
        # pyarrow also reads hours without minutes: what follows the hour must be a colon.
        longer = starts[lengths > 10]
        if len(longer) and (longer.max() + 13 >= len(data) or (data[longer + 13] != ord(":")).any()):
            return None
        try:
            return _far_from_the_ends(column.cast(TIMESTAMP))
        except pa.ArrowInvalid:
            us = column.cast(pa.timestamp("us")).cast(pa.int64()).fill_null(0).to_numpy()
        return _far_from_the_ends(self.instants(us, column, zoned=False))


class Epoch(TimeFormat):
    """A count of units since 1970. ``unit_us``: of a unit; ``point``: the sign before a fraction, in text."""

    def __init__(self, kind: ColumnType, zone: str, unit_ns: int, point: str = "."):
        super().__init__(kind, zone)
        self.unit_ns, self.point = unit_ns, point
        self._scale = len(str(unit_ns)) - 1

    def moment(self, text: str) -> Moment:
        """The instant; of a date, what the zone's clock shows then."""
        if self.point != ".":
            if "." in text:
                raise NotOfTypeError
            text = text.replace(self.point, ".")
        try:
            ns = EXACT.multiply(exact_number(text), self.unit_ns)
        except ValueError:
            raise NotOfTypeError from None
        if abs(ns) > 10**21:
            raise NotOfTypeError
        us = int(EXACT.divide(ns, 1000).to_integral_value("ROUND_FLOOR", EXACT))
        if self.kind != "date":
            return Moment(us)
        if not LEAST_US <= us < END_US:
            raise NotOfTypeError
        return Moment(local_us(us, self.zone), zoned=False)

    def written(self, number: float | Decimal) -> str:
        """A file's own number as Python writes it."""
        return repr(number) if isinstance(number, float) else super().written(number)

    def texts(self, column: pa.Array) -> pa.Array | None:
        """Digits alone, or with a few behind a point."""
        if self.point != ".":
            return None
        data, _, _ = bytes_of(column)
        if ((data >= ord("0")) & (data <= ord("9")) | (data == ord("-"))).all():
            return self.natives(column.cast(pa.int64()))
        return self.natives(column.cast(pa.decimal128(38, self._scale)))

    def natives(self, column: pa.Array) -> pa.Array | None:
        """Whole numbers, and decimals that nanoseconds hold."""
        if pa.types.is_integer(column.type):
            whole = np.asarray(column.cast(pa.int64()).fill_null(0))
            times, by = (self.unit_ns // 1000, 1) if self.unit_ns >= 1000 else (1, 1000 // self.unit_ns)
            return self._typed(_scaled(whole, times, by), column)
        if pa.types.is_decimal128(column.type) and column.type.scale == self._scale:
            words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
            low, high = words[column.offset : column.offset + len(column)].T
            fits = (high == low >> 63) | (~valid(column) if column.null_count else False)
            return self._typed(low // 1000, column) if fits.all() else None
        return super().natives(column)

    def _typed(self, us: Int64s | None, column: pa.Array) -> pa.Array | None:
        if self.kind != "date":
            return self.instants(us, column, zoned=True)
        return self.days(us, column) if self.zone == "UTC" else None

    def json_numbers(self, fraction: bool) -> pa.DataType | None:
        """All numbers, exactly."""
        return pa.decimal128(38, self._scale) if fraction else pa.int64()


class Pattern(TimeFormat):
    """A pattern of ``strptime``."""

    def __init__(self, kind: ColumnType, zone: str, pattern: str):
        super().__init__(kind, zone)
        self.pattern = pattern

    def moment(self, text: str) -> Moment:
        """What ``datetime.strptime`` reads."""
        if not text.isascii():
            raise NotOfTypeError
        instant, utc = self._read(text)
        if instant.tzinfo is not None and self.kind != "date":
            offset = instant.utcoffset() or timedelta()
            return Moment((instant.replace(tzinfo=None) - _EPOCH - offset) // _MICROSECOND)
        return Moment((instant.replace(tzinfo=None) - _EPOCH) // _MICROSECOND, zoned=utc)

    def _read(self, text: str) -> tuple[datetime, bool]:
        """The time, and whether its zone's name says that it is UTC (the only zone whose name every machine knows)."""
        names = [name for name in _ZONE_NAMES if name in text] if "%Z" in self.pattern else [""]
        for name in names:
            try:
                instant = datetime.strptime(text, self.pattern.replace("%Z", name))  # noqa: DTZ007
                return instant, bool(name)
            except (ValueError, OverflowError):
                continue
        raise NotOfTypeError

    def texts(self, column: pa.Array) -> pa.Array | None:
        """Texts of the same length, whose parts all have their full width."""
        times = fixed_width_us(self.pattern, column)
        if times is None:
            return None
        if self.kind == "date":
            return self.days(times.clock_us, column)
        return self.instants(times.clock_us - times.ahead_us, column, times.zoned)


def _scaled(whole: pa.Array | Int64s, times: int, by: int) -> Int64s | None:
    """Whole numbers × ``times`` / ``by``, rounded down; None if that is out of all range."""
    numbers = np.asarray(whole.fill_null(0)) if isinstance(whole, pa.Array) else whole
    if not len(numbers):
        return np.asarray(numbers, np.int64)
    most = 2**62 // times
    if numbers.min() < -most or numbers.max() > most:
        return None
    return np.asarray(numbers * times // by, np.int64)


def _far_from_the_ends(instants: pa.Array | None) -> pa.Array | None:
    """None if an instant is near the ends of the years that are allowed: text may say another year than UTC."""
    if instants is None:
        return None
    span = pc.min_max(instants.cast(pa.int64()))
    least, largest = span["min"].as_py(), span["max"].as_py()
    return instants if least is None or (least >= LEAST_US + DAY_US and largest < END_US - DAY_US) else None


def _days_within(days: pa.Array) -> pa.Array | None:
    span = pc.min_max(days.cast(pa.int32()))
    least, largest = span["min"].as_py(), span["max"].as_py()
    within = least is None or (least * DAY_US >= LEAST_US and largest * DAY_US < END_US)
    return days if within else None


def _epoch(unit_ns: int) -> MadeTimeFormat:
    return lambda kind, zone, point: Epoch(kind, zone, unit_ns, point)


MadeTimeFormat = Callable[[ColumnType, str, str], TimeFormat]
"""Makes a format of times for a type, a zone, and the sign before fractions."""
ISO = "iso"
EPOCHS_NS = {"epoch_s": 10**9, "epoch_ms": 10**6, "epoch_us": 10**3, "epoch_ns": 1}
"""Format → nanoseconds of its unit."""
TIME_FORMATS: dict[str, MadeTimeFormat] = {
    ISO: lambda kind, zone, point: Iso(kind, zone),
    **{name: _epoch(unit_ns) for name, unit_ns in EPOCHS_NS.items()},
}
"""The formats of times that have a name; what is no name is a pattern."""
