"""Instants and days out of texts and numbers: ISO 8601, counts since 1970, patterns of ``strptime``."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from tests.reader.raw import DAY_US, EPOCH, Day, Moment, Raw, RefusedError, Written, us_of, year_within

PER_SECOND = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
_COUNT = re.compile(r"([+-]?)([0-9]*)(\.?)([0-9]*)(?:[eE]([+-]?[0-9]+))?", re.ASCII)


def instant(raw: Raw, written: str, zone: str) -> int:
    """Microseconds since 1970-01-01 UTC; ``written``: the column's format.

    Raises:
        ValueError: it says no instant.
    """
    if isinstance(raw, Moment):
        return year_within(raw.us if raw.zoned else from_local(raw.us, zone))
    if isinstance(raw, Day):
        return year_within(from_local(year_within(raw.days * DAY_US), zone))
    if written in PER_SECOND:
        return counted(raw, written)
    if written == "iso":
        local_us, ahead_s = iso(text_alone(raw))
        return year_within(from_local(local_us, zone) if ahead_s is None else local_us - ahead_s * 1_000_000)
    moment, said = patterned(number_text(raw), written)
    return year_within(from_local(moment, zone) if said is None else moment - said)


def day(raw: Raw, written: str, zone: str) -> int:
    """Days since 1970-01-01.

    Raises:
        ValueError: it says no day.
    """
    if isinstance(raw, Day):
        return year_within(raw.days * DAY_US) // DAY_US
    if isinstance(raw, Moment):
        local_us = to_local(year_within(raw.us), zone) if raw.zoned else year_within(raw.us)
        if local_us % DAY_US:
            raise RefusedError("wrong_type")
        return local_us // DAY_US
    if written in PER_SECOND:
        return to_local(counted(raw, written), zone) // DAY_US
    if written == "iso":
        return iso_day(text_alone(raw))
    return patterned(number_text(raw), written)[0] // DAY_US


# Local clocks


def from_local(local_us: int, zone: str) -> int:
    """The instant at which a zone's clocks show a time: the first of two; beyond a gap if there is none."""
    shown = EPOCH.replace(tzinfo=None) + timedelta(microseconds=local_us)
    ahead = shown.replace(tzinfo=ZoneInfo(zone), fold=0).utcoffset()
    assert ahead is not None
    return local_us - ahead // timedelta(microseconds=1)


def to_local(instant_us: int, zone: str) -> int:
    """What a zone's clocks show at an instant, as microseconds since 1970-01-01 on the same clock."""
    shown = (EPOCH + timedelta(microseconds=instant_us)).astimezone(ZoneInfo(zone))
    return us_of(shown.replace(tzinfo=UTC))


# Counts since 1970


def counted(raw: Raw, written: str) -> int:
    """The instant of a count of seconds or parts of them; finer than a microsecond is cut off, towards the past."""
    match = _COUNT.fullmatch(number_text(raw))
    if match is None:
        raise RefusedError("wrong_type")
    sign, whole, _, rest, exponent = match.groups()
    if not whole + rest:
        raise RefusedError("wrong_type")
    count = int(sign + "0" + whole + rest) * 1_000_000
    power = int(exponent or "0") - len(rest)
    if count == 0:
        return 0
    if power > 40:
        raise RefusedError("wrong_type")
    power = max(power, -10_000)
    return year_within(count * 10 ** max(power, 0) // (PER_SECOND[written] * 10 ** max(-power, 0)))


def number_text(raw: Raw) -> str:
    """The text of a number or text, without blanks around it.

    Raises:
        RefusedError: it is neither, or not ASCII.
    """
    if isinstance(raw, str):
        text = raw.strip(" \t")
    elif isinstance(raw, bool):
        raise RefusedError("wrong_type")
    elif isinstance(raw, Decimal):
        text = f"{raw:f}"
    elif isinstance(raw, int | float):
        text = repr(raw)
    else:
        raise RefusedError("wrong_type")
    if not text.isascii():
        raise RefusedError("wrong_type")
    return text


def text_alone(raw: Raw) -> str:
    """Text without blanks around it; a number is none."""
    if not isinstance(raw, str):
        raise RefusedError("wrong_type")
    return number_text(raw)


# ISO 8601


def iso(text: str) -> tuple[int, int | None]:
    """What the clock shows, as microseconds since 1970-01-01, and the seconds that it is ahead of UTC, if said."""
    day_us = iso_day(text[:10]) * DAY_US
    if len(text) == 10:
        return day_us, None
    if text[10] not in "T ":
        raise RefusedError("wrong_type")
    clock, ahead_s = _split_zone(text[11:])
    parts = clock.split(":")
    if len(parts) not in (2, 3):
        raise RefusedError("wrong_type")
    second, point, fraction = (parts[2] if len(parts) == 3 else "00").partition(".")
    if point and not 1 <= len(_digits(fraction)) <= 9:
        raise RefusedError("wrong_type")
    seconds = (_two(parts[0], 23) * 60 + _two(parts[1], 59)) * 60 + _two(second, 59)
    return day_us + seconds * 1_000_000 + int((fraction + "000000")[:6]), ahead_s


def iso_day(text: str) -> int:
    """Days since 1970-01-01 of ``YYYY-MM-DD``."""
    if [len(_digits(part)) for part in text.split("-")] != [4, 2, 2]:
        raise RefusedError("wrong_type")
    return (date(*map(int, text.split("-"))) - EPOCH.date()).days


def _split_zone(text: str) -> tuple[str, int | None]:
    if text.endswith("Z"):
        return text[:-1], 0
    at = max(text.rfind("+"), text.rfind("-"))
    if at < 0:
        return text, None
    zone = text[at + 1 :]
    minutes = zone[2:].removeprefix(":") if len(zone) > 2 else "00"
    ahead_s = (_two(zone[:2], 23) * 60 + _two(minutes, 59)) * 60
    return text[:at], -ahead_s if text[at] == "-" else ahead_s


def _digits(text: str) -> str:
    if not text.isdigit():
        raise RefusedError("wrong_type")
    return text


def _two(text: str, most: int) -> int:
    if len(_digits(text)) != 2 or int(text) > most:
        raise RefusedError("wrong_type")
    return int(text)


# Patterns


def patterned(text: str, pattern: str) -> tuple[int, int | None]:
    """What ``strptime`` reads, as microseconds since 1970-01-01 on the clock, and those it is ahead of UTC, if said."""
    if "%Z" not in pattern.replace("%%", ""):
        return _parts(datetime.strptime(text, pattern))  # noqa: DTZ007 - a zone is what it may lack
    # strptime takes more names than UTC, GMT and Z, of any letter case: so each place of one of these is tried.
    unzoned = re.sub("%(.)", lambda directive: "\x01" if directive[1] == "Z" else directive[0], pattern)
    for name in ("UTC", "GMT", "Z"):
        for match in re.finditer(name, text):
            marked = text[: match.start()] + "\x01" + text[match.end() :]
            try:
                shown, ahead = _parts(datetime.strptime(marked, unzoned))  # noqa: DTZ007
            except ValueError:
                continue
            return shown, ahead or 0
    raise RefusedError("wrong_type")


def _parts(moment: datetime) -> tuple[int, int | None]:
    ahead = moment.utcoffset()
    shown_us = us_of(moment.replace(tzinfo=UTC))
    return shown_us, None if ahead is None else ahead // timedelta(microseconds=1)


__all__ = ["Written", "counted", "day", "from_local", "instant", "iso", "iso_day", "patterned", "to_local"]
