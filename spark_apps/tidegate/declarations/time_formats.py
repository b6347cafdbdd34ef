"""How the text of a time may be written: ISO 8601, counts since 1970, or a pattern of ``strptime``."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.declarations.positions import Misspelt
from tidegate.declarations.units import UnreadableError, shown
from tidegate.values.times import EPOCHS_NS, ISO, TIME_FORMATS

__all__ = ["EPOCH_UNITS_US", "ISO", "read_time_format", "read_zone"]

EPOCH_UNITS_US = {name: unit_ns // 1000 for name, unit_ns in EPOCHS_NS.items()}
"""Format → microseconds of its unit; 0: the unit is a thousandth of one."""
DIRECTIVES = "YymdjHIMSfpaAbBzZ%"
_DATE_OF_A_YEAR = ({"m", "b", "B"}, {"d"})


def read_time_format(text: str) -> str:
    """A format of a timestamp or date.

    Raises:
        UnreadableError: it is none, or does not say which day is meant.
    """
    word = text.strip()
    expected = f"{', '.join(TIME_FORMATS)}, or a pattern such as '%d.%m.%Y %H:%M:%S'"
    if "%" not in word:
        if word in TIME_FORMATS:
            return word
        raise UnreadableError(f"{shown(word)} is no format of a time", expected, Misspelt(word, list(TIME_FORMATS)))
    directives = re.findall(r"%(.?)", word, re.DOTALL)
    unknown = [d for d in directives if not d or d not in DIRECTIVES]
    if unknown:
        raise UnreadableError(
            f"unknown directive '%{unknown[0]}' in {shown(word)}", f"one of %{', %'.join(DIRECTIVES)}"
        )
    named = [d for d in directives if d != "%"]
    twice = next((d for d in named if named.count(d) > 1), None)
    if twice:
        raise UnreadableError(f"{shown(word)} has '%{twice}' twice", "each once")
    present = set(named)
    if not present & {"Y", "y"} or not ("j" in present or all(present & some for some in _DATE_OF_A_YEAR)):
        raise UnreadableError(
            f"{shown(word)} does not say which day is meant", "a year, a month and a day, as %Y-%m-%d"
        )
    return word


def read_zone(text: str) -> str:
    """The name of a time zone, as the IANA writes it.

    Raises:
        UnreadableError: there is no such zone.
    """
    name = text.strip()
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UnreadableError(f"{shown(name)} is no time zone", "a name such as Europe/Berlin or UTC") from None
    return name
