"""The JSON of a planning problem: read into needs, every mistake named by its JSON pointer."""

from __future__ import annotations

import difflib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from tidegate.declarations.errors import UserError
from tidegate.operators.window_sizing import LARGEST, Needs, QueryNeed, WindowNeed

MOST_MISTAKES_SHOWN = 20

_REQUIRED = object()


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys it was given twice."""

    repeated: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    result = _Object(pairs)
    if len(result) < len(pairs):
        result.repeated = tuple(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
    return result


class _Reader:
    """Reads values at JSON pointers and gathers every mistake."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def wrong(self, place: str, message: str) -> None:
        self.mistakes.append(f"{place or '/'}: {message}")

    def object(self, value: Any, place: str, keys: Sequence[str] | None = None) -> _Object | None:
        """The object at that place; with ``keys``, others are refused."""
        if not isinstance(value, _Object):
            self.wrong(place, f"expected an object, found {_kind(value)}")
            return None
        for key in value.repeated:
            self.wrong(f"{place}/{_pointer(key)}", "the key is given twice")
        for key in value if keys is not None else ():
            if key not in cast(Sequence[str], keys):
                expected = ", ".join(cast(Sequence[str], keys))
                hint = nearest(key, cast(Sequence[str], keys))
                self.wrong(f"{place}/{_pointer(key)}", f"unknown key; expected one of {expected}{hint}")
        return value

    def objects(self, parent: _Object, key: str, keys: Sequence[str]) -> list[tuple[str, _Object]]:
        """The objects of the list under that key, each with its place."""
        place = f"/{key}"
        if key not in parent:
            self.wrong(place, "missing; expected a list of objects")
            return []
        values = parent[key]
        if not isinstance(values, list):
            self.wrong(place, f"expected a list of objects, found {_kind(values)}")
            return []
        if not values:
            self.wrong(place, "empty; expected at least one")
        read = [(f"{place}/{i}", self.object(value, f"{place}/{i}", keys)) for i, value in enumerate(values)]
        return [(at, value) for at, value in read if value is not None]

    def number(
        self, parent: _Object, place: str, key: str, *, above_zero: bool = False, default: Any = _REQUIRED
    ) -> float:
        """The finite number under that key, at least (or above) zero; NaN after a mistake."""
        place = f"{place}/{_pointer(key)}"
        expected = "a number above 0" if above_zero else "a number of at least 0"
        if key not in parent:
            if default is _REQUIRED:
                self.wrong(place, f"missing; expected {expected}")
                return math.nan
            return cast(float, default)
        value = parent[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(place, f"expected {expected}, found {_kind(value)}")
        elif not (value >= 0) or (above_zero and value == 0):
            self.wrong(place, f"expected {expected}, found {_shown(value)}")
        elif value > LARGEST:
            self.wrong(place, f"expected at most {LARGEST:g}, found {_shown(value)}")
        else:
            return float(value)
        return math.nan

    def integer(self, parent: _Object, place: str, key: str, default: int) -> int:
        """The whole number under that key."""
        value = parent.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(f"{place}/{key}", f"expected a whole number, found {_kind(value)}")
        elif abs(value) > 2**53:
            self.wrong(f"{place}/{key}", "expected a whole number of at most 2^53 in size")
        else:
            return int(value)
        return default

    def new_id(self, parent: _Object, place: str, taken: dict[str, str]) -> str:
        """The id of an object, not yet taken by another; "" after a mistake."""
        place += "/id"
        value = parent.get("id")
        if "id" not in parent:
            self.wrong(place, "missing; expected a non-empty string")
        elif not isinstance(value, str):
            self.wrong(place, f"expected a non-empty string, found {_kind(value)}")
        elif not value:
            self.wrong(place, "empty; expected a non-empty string")
        elif value in taken:
            self.wrong(place, f"'{_short(value)}' is already the id at {taken[value]}")
        else:
            taken[value] = place
            return value
        return ""

    def finish(self) -> None:
        if self.mistakes:
            count = len(self.mistakes)
            more = [f"… and {count - MOST_MISTAKES_SHOWN} more"] if count > MOST_MISTAKES_SHOWN else []
            found = f"{count} mistake{'s' if count != 1 else ''} found in the instance"
            raise UserError("\n".join([*self.mistakes[:MOST_MISTAKES_SHOWN], *more, found]))


def read_instance(text: str) -> tuple[Needs, float]:
    """The needs and the budget that the text gives."""
    if not text.strip():
        raise UserError("/: the instance is empty; expected a JSON object")
    try:
        root = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise UserError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        # A whole number of thousands of digits, or brackets nested thousands deep.
        raise UserError(f"/: not readable as JSON: {str(error).split(';')[0]}") from None
    reader = _Reader()
    top = reader.object(root, "", ("memory_budget_bytes", "windows", "queries"))
    if top is None:
        reader.finish()
    top = cast(_Object, top)
    budget = reader.number(top, "", "memory_budget_bytes")
    window_places: dict[str, str] = {}
    windows = []
    for place, value in reader.objects(top, "windows", ("id", "tuple_bytes", "rate", "max_width_s")):
        name = reader.new_id(value, place, window_places)
        tuple_bytes = reader.number(value, place, "tuple_bytes", above_zero=True)
        rate = reader.number(value, place, "rate")
        cap = reader.number(value, place, "max_width_s", default=None)
        if tuple_bytes * rate > LARGEST:
            reader.wrong(place, f"tuple_bytes · rate: expected at most {LARGEST:g} bytes/s")
        windows.append(WindowNeed(name, tuple_bytes * rate, cap))
    query_places: dict[str, str] = {}
    queries = []
    query_keys = ("id", "ranges_s", "slack_width_s", "delay_s", "weight", "priority")
    for place, value in reader.objects(top, "queries", query_keys):
        queries.append(
            QueryNeed(
                id=reader.new_id(value, place, query_places),
                ranges_s=_ranges(reader, value, place, window_places),
                slack_width_s=reader.number(value, place, "slack_width_s"),
                delay_s=reader.number(value, place, "delay_s"),
                weight=reader.number(value, place, "weight", above_zero=True, default=1.0),
                priority=reader.integer(value, place, "priority", 0),
            )
        )
    reader.finish()
    return Needs.of(windows, queries), budget


def _ranges(reader: _Reader, query: _Object, place: str, windows: Mapping[str, str]) -> dict[str, float]:
    place += "/ranges_s"
    if "ranges_s" not in query:
        reader.wrong(place, "missing; expected an object of window → seconds")
        return {}
    ranges = reader.object(query["ranges_s"], place)
    if ranges is None:
        return {}
    if not ranges:
        reader.wrong(place, "empty; expected at least one window")
    for window in ranges:
        if window not in windows:
            reader.wrong(f"{place}/{_pointer(window)}", f"unknown window{nearest(window, windows)}")
    return {window: reader.number(ranges, place, window, above_zero=True) for window in ranges}


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint at the known name that is most like this one, or nothing."""
    close = difflib.get_close_matches(name[:100], list(names)[:1000], n=1)
    return f"; did you mean '{_short(close[0])}'?" if close else ""


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the string '{_short(value)}'"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else f"the number {_shown(value)}"


def _shown(number: float) -> str:
    if isinstance(number, int) and abs(number) > 10**17:
        return f"{'-' if number < 0 else ''}a number of {math.ceil(abs(number).bit_length() * math.log10(2))} digits"
    return repr(number)


def _short(text: str) -> str:
    text = text if len(text) <= 60 else text[:57] + "…"
    return text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text


def _pointer(key: str) -> str:
    """A key as a reference token of a JSON pointer (RFC 6901)."""
    return _short(key.replace("~", "~0").replace("/", "~1"))
