"""Which time zone local times are of, where the data show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.guess.columns import Seen

_QUARTER_US = 900_000_000
_NEAR_US = 300_000_000
_SHARE = 0.9
_HOURS = range(-12, 15)


@dataclass(frozen=True)
class Zones:
    """The columns, those of local times with their zone; and why that zone, or what a user should know of it."""

    columns: tuple[Seen, ...]
    why: str


def zoned(columns: Sequence[Seen], modified_s: float) -> Zones:
    """The zone of the columns of local times. ``modified_s``: when the newest file was written, seconds since 1970."""
    local = [column for column in columns if column.time is not None and column.time.local and not column.time.day_only]
    if not local:
        return Zones(tuple(columns), "")
    shown_zone = _named(columns) or _compared(local, [c for c in columns if c.time is not None and not c.time.local])
    if shown_zone is None:
        late = max((us for column in local for us in column.instants if us is not None), default=0)
        why = "no zone seen, UTC assumed: if it is another, add its zone, such as zone: Europe/Berlin"
        if modified_s and 0 < late / 1e6 - modified_s < 15 * 3600:
            why = (
                "UTC assumed, but the newest is later than its file: add a zone east of it, such as zone: Europe/Berlin"
            )
        return Zones(tuple(columns), why)
    zone, why = shown_zone
    return Zones(tuple(replace(c, zone=zone) if c in local else c for c in columns), why)


def _named(columns: Sequence[Seen]) -> tuple[str, str] | None:
    """The zone that a column names, the same in all records."""
    for column in columns:
        if column.type == "string" and len(column.distinct) == 1:
            (name,) = column.distinct
            if "/" in str(name) and _is_zone(str(name)):
                return str(name), f"as {column.shown} says"
    return None


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _compared(local: Sequence[Seen], sure: Sequence[Seen]) -> tuple[str, str] | None:
    """The zone by which local times agree with times that say theirs."""
    for column in local:
        for other in sure:
            apart = [
                a - b for a, b in zip(column.instants, other.instants, strict=True) if a is not None and b is not None
            ]
            if len(apart) < len(column.instants) / 2 or not apart:
                continue
            quarters, often = Counter(round(us / _QUARTER_US) for us in apart).most_common(1)[0]
            near = sum(abs(us - quarters * _QUARTER_US) <= _NEAR_US for us in apart)
            if often < len(apart) * _SHARE or near < len(apart) * _SHARE or quarters % 4 or quarters // 4 not in _HOURS:
                continue
            hours = quarters // 4
            if hours == 0:
                return "UTC", f"as {other.shown} shows"
            # Its names count hours west of Greenwich.
            why = f"{abs(hours)} hours {'ahead of' if hours > 0 else 'behind'} UTC, as {other.shown} shows"
            return f"Etc/GMT{-hours:+d}", f"{why}; a zone such as Europe/Berlin knows summer time as well"
    return None
