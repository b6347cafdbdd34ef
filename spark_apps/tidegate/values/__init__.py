"""How values are read: one class a value format, text and files' own types alike. Knows no record, no file.

To add a format of times, write a :class:`~tidegate.values.times.TimeFormat` and name it in ``times.TIME_FORMATS``; its
cases go to tests/spec/values.
"""

from __future__ import annotations

from tidegate.values.base import ValueFormat
from tidegate.values.scalars import SCALARS, DecimalNumber
from tidegate.values.times import ISO, TIME_FORMATS, Pattern
from tidegate.values.types import ColumnType, is_decimal


def value_format(kind: ColumnType, written: str = ISO, zone: str = "UTC", point: str = ".") -> ValueFormat:
    """What reads the values of a column.

    Args:
        kind: the column's type.
        written: how its times are written: a name of ``TIME_FORMATS``, or a pattern of ``strptime``.
        zone: the time zone of times that do not say theirs.
        point: the sign before a number's fraction, in text.

    >>> value_format("integer").read("12.0"), value_format("timestamp", "epoch_ms").read("1500")
    (12, 1500000)
    """
    if kind in ("timestamp", "date"):
        return TIME_FORMATS[written](kind, zone, point) if written in TIME_FORMATS else Pattern(kind, zone, written)
    return DecimalNumber(kind, point) if is_decimal(kind) else SCALARS[kind](point)
