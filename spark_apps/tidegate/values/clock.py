"""Instants and local clocks: the notation of instants, and from a zone's time to UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from tidegate.values.base import END_US, LEAST_US, NotOfTypeError

Int64s = npt.NDArray[np.int64]
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # of clocks, whatever their zone
_QUARTER_US = 15 * 60 * 1_000_000
# Since then every zone's clock has stood whole quarters of an hour from UTC, and changed at such.
_QUARTERS_SINCE_US = 2 * 365 * 86_400_000_000


def moment_text(us: int) -> str:
    """An instant of the years 1 to 9999 in the notation of timestamps.

    >>> moment_text(1_500_000)
    '1970-01-01T00:00:01.500000Z'
    """
    return (_EPOCH + timedelta(microseconds=us)).isoformat() + "Z"


def utc_us(local_us: int, zone: str) -> int:
    """The instant at which a zone's clock shows a time: the first of two; if none, the clock's gap is added.

    >>> utc_us(0, "UTC"), utc_us(3_600_000_000, "Europe/Berlin")
    (0, 0)
    """
    if zone == "UTC":
        return local_us
    if not LEAST_US <= local_us < END_US:
        raise NotOfTypeError
    try:
        instant = (_EPOCH + timedelta(microseconds=local_us)).replace(tzinfo=_zone(zone)).astimezone(UTC)
    except (OverflowError, ValueError):
        raise NotOfTypeError from None
    return (instant.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)


def utc_all_us(local_us: Int64s, zone: str) -> Int64s | None:
    """As :func:`utc_us`, for all at once: int64[n]; None if some are too old for that.

    **Cost**: that of :func:`utc_us` for each different quarter of an hour.
    """
    if zone == "UTC" or not len(local_us):
        return local_us
    if local_us.min() < _QUARTERS_SINCE_US or local_us.max() >= END_US - 2 * 86_400_000_000:
        return None
    quarters, places = np.unique(local_us // _QUARTER_US, return_inverse=True)
    offsets = np.array([utc_us(int(q) * _QUARTER_US, zone) - int(q) * _QUARTER_US for q in quarters], np.int64)
    return np.asarray(local_us + offsets[places], np.int64)


def local_us(us: int, zone: str) -> int:
    """What a zone's clock shows at an instant, as microseconds since it showed 1970-01-01."""
    if zone == "UTC":
        return us
    try:
        shown = (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=UTC).astimezone(_zone(zone))
    except (OverflowError, ValueError):
        raise NotOfTypeError from None
    return (shown.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
