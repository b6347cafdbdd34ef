"""The window planner alone: ``tidegate plan-windows``, and the memory part of ``tidegate explain``.

JSON in, JSON out, or for a pipeline: the bytes that each level of support needs at the declared rates, with a picture.
"""

from __future__ import annotations

import difflib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.operators.window_sizing import (
    LARGEST,
    ControllerSpec,
    Method,
    Needs,
    QueryNeed,
    SupportLevel,
    TooManyWindowsError,
    WindowNeed,
    live_widths,
    plan,
)

METHODS: tuple[Method, ...] = ("dp", "ap", "exact")
MOST_MISTAKES_SHOWN = 20

_REQUIRED = object()


def plan_windows(text: str, method: str = "exact") -> str:
    """The plan of an instance, JSON in and JSON out.

    Arguments: ``text``: the instance as in ``tidegate plan-windows --help``; a window may also give ``max_width_s``, a
    query ``weight`` and ``priority``. ``method``: how level C groups its windows: dp, ap or exact.

    Raises UserError that names every wrong place by its JSON pointer.

    >>> text = '''{"memory_budget_bytes": 119, "windows": [{"id": "w", "tuple_bytes": 2, "rate": 1}],
    ...   "queries": [{"id": "q", "ranges_s": {"w": 60}, "slack_width_s": 10, "delay_s": 20}]}'''
    >>> planned = json.loads(plan_windows(text))
    >>> planned["support_level"], planned["windows"][0]["width_s"], planned["accumulated_error_s"]
    ('B', 59.5, 0.5)
    """
    if method not in METHODS:
        raise UserError(f"method '{method}' is unknown; expected {', '.join(METHODS)}{_nearest(method, METHODS)}")
    needs, budget_bytes = _read_instance(text)
    try:
        planned = plan(needs, budget_bytes, cast(Method, method))
    except TooManyWindowsError as error:
        raise UserError(f"/windows: {error}") from None
    return json.dumps(
        {
            "support_level": planned.support_level,
            "needed_bytes": {"A": planned.needed.A, "B": planned.needed.B, "C": planned.needed.C},
            "planned_bytes": planned.planned_bytes,
            "accumulated_error_s": planned.accumulated_error_s,
            "windows": [
                {
                    "id": window.id,
                    "width_s": window.width_s,
                    "min_width_s": window.min_width_s,
                    "max_width_s": window.max_width_s,
                    "static_bytes": window.static_bytes,
                    "exchange_bytes": window.exchange_bytes,
                    "group": window.group,
                }
                for window in planned.windows
            ],
            "groups": [
                {
                    "id": group.id,
                    "windows": list(group.windows),
                    "share_bytes": group.share_bytes,
                    "period_s": group.period_s,
                }
                for group in planned.groups
            ],
            "unsupported_queries": list(planned.unsupported),
            "optimal": planned.optimal,
            "gap": planned.gap,
        },
        indent=2,
        allow_nan=False,
    )


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
                hint = _nearest(key, cast(Sequence[str], keys))
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


def _read_instance(text: str) -> tuple[Needs, float]:
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
            reader.wrong(f"{place}/{_pointer(window)}", f"unknown window{_nearest(window, windows)}")
    return {window: reader.number(ranges, place, window, above_zero=True) for window in ranges}


def _nearest(name: str, names: Iterable[str]) -> str:
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


@dataclass(frozen=True)
class StreamSummary:
    """One stream of :class:`PlanSummary`: declared rate and size, what its queries need, what the plan gives it."""

    stream: str
    rate: float
    tuple_bytes: float
    min_width_s: float
    max_width_s: float
    width_s: float
    planned_bytes: float


@dataclass(frozen=True)
class PlanSummary:
    """Needed memory of a pipeline at its declared rates, all queries taken as active.

    ``needed_bytes``: level → bytes. ``support_level``, ``streams``: the plan that the pipeline starts with (widths in
    multiples of the tick, so level A or B may need a little more than ``needed_bytes`` says).
    """

    memory_budget_bytes: int
    needed_bytes: dict[str, float]
    support_level: SupportLevel
    planned_bytes: float
    streams: tuple[StreamSummary, ...]


def needs(pipeline: Pipeline) -> PlanSummary:
    """What the pipeline's windows need at the declared rates, and the plan that this budget gives."""
    spec = ControllerSpec.from_pipeline(pipeline)
    demand = spec.needs(spec.queries, {s.name: s.rate * s.tuple_bytes for s in spec.streams})
    try:
        needed = plan(demand, spec.memory_budget_bytes).needed
    except TooManyWindowsError:
        needed = plan(demand, spec.memory_budget_bytes, "ap").needed
    level, widths = live_widths(demand, spec.memory_budget_bytes, spec.tick_s)
    return PlanSummary(
        memory_budget_bytes=pipeline.memory_budget_bytes,
        needed_bytes={"A": needed.A, "B": needed.B, "C": needed.C},
        support_level=level,
        planned_bytes=demand.bytes_of(widths),
        streams=tuple(
            StreamSummary(
                stream=s.name,
                rate=s.rate,
                tuple_bytes=s.tuple_bytes,
                min_width_s=float(demand.min_t[w]),
                max_width_s=float(demand.max_t[w]),
                width_s=float(widths[w]),
                planned_bytes=float(widths[w] * demand.byte_rate[w]),
            )
            for w, s in enumerate(spec.streams)
        ),
    )


def render(summary: PlanSummary, columns: int = 100) -> str:
    """The summary as text: a table of the streams and a picture of the budget against the need per level."""
    lines = ["Windows at the declared rates (all queries active)", ""]
    header = ("stream", "tuples/s", "bytes each", "least width", "exact width", "planned width", "planned bytes")
    rows = [
        (
            s.stream,
            f"{s.rate:.4g}",
            f"{s.tuple_bytes:.0f}",
            format_seconds(s.min_width_s),
            format_seconds(s.max_width_s),
            format_seconds(s.width_s),
            format_bytes(s.planned_bytes),
        )
        for s in summary.streams
    ]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join([row[0].ljust(widths[0]), *numbers]))
    lines += ["", "Memory budget against the need of each level", "", *_picture(summary, columns)]
    meaning = {
        "A": "at level A: every answer is exact",
        "B": "at level B: every answer is within its tolerated error",
        "infeasible": "below level B: widths are scaled down, and the answers say so",
    }
    planned = f"{format_bytes(summary.planned_bytes)} of {format_bytes(summary.memory_budget_bytes)} planned"
    lines += ["", f"  The pipeline starts {meaning[summary.support_level]} ({planned})."]
    missing = summary.needed_bytes["A"] - summary.memory_budget_bytes
    if missing > 0:
        lines.append(f"  {format_bytes(missing)} more would give level A.")
    return "\n".join(lines) + "\n"


def _picture(summary: PlanSummary, columns: int) -> list[str]:
    bars = [
        ("A exact", summary.needed_bytes["A"]),
        ("B in tolerance", summary.needed_bytes["B"]),
        ("C taking turns", summary.needed_bytes["C"]),
    ]
    label = max(len(name) for name, _ in bars) + 2
    longest = max(20, columns - label - 14)
    most = max([summary.memory_budget_bytes, *(value for _, value in bars)]) or 1.0

    def length(value: float) -> int:
        return min(longest, math.ceil(value / most * longest - 1e-9))

    mark = max(length(summary.memory_budget_bytes), 1)
    lines = []
    for name, value in bars:
        bar = ["█"] * length(value) + [" "] * (longest - length(value))
        bar[mark - 1] = "┃" if bar[mark - 1] == " " else "╂"
        lines.append(f"  {name.ljust(label)}{''.join(bar)} {format_bytes(value)}")
    budget = f"budget {format_bytes(summary.memory_budget_bytes)}"
    room = mark - 1 - len(budget) - 1
    lines.append("  " + " " * label + (f"{budget} ┃".rjust(mark) if room >= 0 else " " * (mark - 1) + f"┃ {budget}"))
    return lines


def format_bytes(value: float) -> str:
    """Bytes in the largest binary unit that leaves at least one: 1536 → "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.4g} {unit}"
        value /= 1024
    raise AssertionError


def format_seconds(value: float) -> str:
    """Seconds in the largest unit that divides into a short number: 5400 → "1.5 h"."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} s"
