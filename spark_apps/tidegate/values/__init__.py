"""How values are read: one class a value format, text and files' own types alike. Knows no record, no file.

To add a format of times, write a :class:`~tidegate.values.times.TimeFormat` and name it in ``TIME_FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.declarations.types import ColumnType, is_decimal
from tidegate.values.base import ValueFormat
from tidegate.values.scalars import SCALARS, Boolean, DecimalNumber, String
from tidegate.values.times import EPOCHS_NS, ISO, Epoch, Iso, Pattern, TimeFormat

TimeFormats = dict[str, Callable[[ColumnType, str, str], TimeFormat]]
TIME_FORMATS: TimeFormats = {ISO: lambda kind, zone, point: Iso(kind, zone)}
"""Name → what reads its times, made of the type, the zone, and the sign before fractions. Patterns have no name."""
for _name, _unit_ns in EPOCHS_NS.items():
    TIME_FORMATS[_name] = lambda kind, zone, point, unit_ns=_unit_ns: Epoch(kind, zone, unit_ns, point)  # type: ignore[misc]


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
        made = TIME_FORMATS.get(written)
        return made(kind, zone, point) if made else Pattern(kind, zone, written)
    if is_decimal(kind):
        return DecimalNumber(kind, point)
    simple = SCALARS[kind]
    return simple() if simple in (String, Boolean) else simple(point)  # type: ignore[call-arg]
