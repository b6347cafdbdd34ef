"""The name of an interval's partitions: its start, to the hour, or to the minute or second where intervals need it.

Airflow imports this again and again: it needs nothing but the standard library.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_HOUR, _MINUTE, _SECOND = "%Y-%m-%dT%H", "%Y-%m-%dT%H%M", "%Y-%m-%dT%H%M%S"


def interval_label(start: datetime, length: timedelta) -> str:
    """The label of the interval of this length that begins at ``start`` (UTC).

    >>> start = datetime(2013, 2, 8, 10, tzinfo=UTC)
    >>> [interval_label(start, timedelta(minutes=minutes)) for minutes in (1440, 10, 1.5)]
    ['2013-02-08T10', '2013-02-08T1000', '2013-02-08T100000']
    """
    if length % timedelta(hours=1) == timedelta():
        return start.strftime(_HOUR)
    return start.strftime(_MINUTE if length % timedelta(minutes=1) == timedelta() else _SECOND)


def label_start(label: str) -> datetime:
    """The start of the interval that a label names.

    >>> label_start("2013-02-08T10").isoformat()
    '2013-02-08T10:00:00+00:00'
    """
    return datetime.fromisoformat(label).replace(tzinfo=UTC)
