"""One record judged by itself: everything but ids that come again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.reader.files import Record
from tests.reader.raw import RefusedError, day_text, instant_text
from tests.reader.values import value

from tidegate.declarations.models import Column, Stream

Period = tuple[int, int] | None
"""The arrivals that a file's name says, [start, end) in microseconds; None: it says none."""


@dataclass(frozen=True)
class Verdict:
    """``reason`` None: it is a tuple, of these values by declared column.

    ``arrival_us``: when the record arrived, None if that cannot be read.
    """

    reason: str | None
    column: str | None
    arrival_us: int | None
    values: Mapping[str, Any]


def judge(stream: Stream, period: Period, landed_us: int, record: Record) -> Verdict:
    """The verdict on a record of a file that landed at an instant."""
    landed = landed_us if stream.arrival_time is None else None
    if record.reach is None:
        return Verdict("broken_record", None, landed, {})
    problems: list[tuple[str, str | None]] = []
    if record.others and stream.other_columns == "refuse":
        problems.append(("unknown_column", record.others[0]))
    values: dict[str, Any] = {}
    for column in stream.columns:
        try:
            values[column.name] = value(column, record.reach(column), comma=_comma(stream))
        except RefusedError as error:
            values[column.name] = None
            problems.append((str(error), column.name))
            continue
        if values[column.name] is None and (not column.nullable or column.name in required(stream)):
            problems.append(("missing_value", column.name))
    arrival_us = values[stream.arrival_time] if stream.arrival_time else landed
    if not problems:
        assert arrival_us is not None
        problems += untimely(stream, period, values[stream.event_time], arrival_us)
    return Verdict(*(problems[0] if problems else (None, None)), arrival_us, values)


def _comma(stream: Stream) -> bool:
    return stream.format == "csv" and stream.csv.decimal == ","


def required(stream: Stream) -> set[str | None]:
    """The columns without whose values a record is no tuple."""
    return {*stream.id, stream.event_time, stream.arrival_time}


def untimely(stream: Stream, period: Period, event_us: int, arrival_us: int) -> list[tuple[str, str | None]]:
    """What is wrong with a record's times, and with the column that says so."""
    if event_us - arrival_us > stream.max_early_s * 1_000_000:
        return [("too_early", stream.event_time)]
    if arrival_us - event_us > stream.max_late_s * 1_000_000:
        return [("too_late", stream.event_time)]
    if period is not None and not period[0] <= arrival_us < period[1]:
        return [("outside_file_interval", stream.arrival_time)]
    return []


def event_id(stream: Stream, values: Mapping[str, Any], file: str, place: int) -> str:
    """What identifies a tuple. ``file``: its name below the folder that the stream's path begins with."""
    if not stream.id:
        return f"{file}:{place}"
    columns = [stream.column(name) for name in stream.id]
    if len(columns) == 1:
        return str(values[columns[0].name])
    parts = [_json_part(column, values[column.name]) for column in columns]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def _json_part(column: Column, part: Any) -> Any:
    if column.type == "timestamp":
        return instant_text(part)
    return day_text(part) if column.type == "date" else part


def instant_of(instant_us: int) -> datetime:
    """An instant as the tables have it."""
    return datetime.fromisoformat(instant_text(instant_us).replace("Z", "+00:00")).astimezone(UTC)
