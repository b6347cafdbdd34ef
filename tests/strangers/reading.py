"""An independent reading of a stream's files: which record goes where, and why, in plain Python.

Written from the README alone; nothing of the product is imported but the declared models. What the generator never
writes (a number in hexadecimal, say) is not read here either.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.declarations.models import EPOCH, Column, Pipeline, Stream

UNITS = {"%S": 1, "%M": 60, "%H": 3600, "%d": 86_400, "%j": 86_400}
BROKEN = object()


@dataclass
class Read:
    """A record as it was judged: ``reason`` None: accepted."""

    interval: datetime
    values: dict[str, Any]
    reason: str | None
    arrival: datetime | None
    event: datetime | None
    identity: str | None


@dataclass
class Reading:
    """What must have become of a stream's records that belong to some intervals."""

    records: list[Read] = field(default_factory=list)
    broken_files: int = 0
    missing: int = 0

    @property
    def accepted(self) -> list[Read]:
        """Those that are in ``events_<stream>``."""
        return [record for record in self.records if record.reason is None]

    def reasons(self) -> dict[str, int]:
        """How many records are refused for each reason; broken files count as one record."""
        counts: dict[str, int] = {}
        for record in self.records:
            if record.reason is not None:
                counts[record.reason] = counts.get(record.reason, 0) + 1
        if self.broken_files:
            counts["broken_file"] = self.broken_files
        return counts


def read_stream(pipeline: Pipeline, stream: Stream, start: datetime, intervals: int) -> Reading:
    """Judge every record of the files of these intervals."""
    length = timedelta(seconds=pipeline.interval_s)
    end = start + intervals * length
    reading = Reading()
    for path, period in expected_files(stream, start, end, reading):
        landed = EPOCH + timedelta(microseconds=path.stat().st_mtime_ns // 1_000_000 * 1000)
        if path.stat().st_size == 0:
            continue
        raw = list(raw_records(stream, path))
        if raw and raw[0] is BROKEN:
            # Every interval says so that the file may hold records of.
            first, last = period or (start, end)
            within = (start + n * length for n in range(intervals))
            reading.broken_files += sum(first < at + length and at < last for at in within)
            continue
        for values in raw:
            record = judge(stream, values, landed, period)
            home = record.arrival
            if home is None or record.reason == "outside_file_interval" or outside(home, period):
                home = period[0] if period else landed
            if start <= home < end:
                record.interval = EPOCH + (home - EPOCH) // length * length
                reading.records.append(record)
    refuse_duplicates(pipeline, stream, reading.records)
    return reading


def outside(arrival: datetime, period: tuple[datetime, datetime] | None) -> bool:
    """Whether an arrival does not lie in its file's period."""
    return period is not None and not period[0] <= arrival < period[1]


def expected_files(
    stream: Stream, start: datetime, end: datetime, reading: Reading
) -> Iterator[tuple[Path, tuple[datetime, datetime] | None]]:
    """The files that the path asks for, each with its period."""
    units = [seconds for directive, seconds in UNITS.items() if directive in stream.path]
    if not units:
        yield from ((Path(name), None) for name in sorted(glob.glob(stream.path)))
        return
    unit = timedelta(seconds=min(units))
    at = EPOCH + (start - EPOCH) // unit * unit
    while at < end:
        names = sorted(glob.glob(at.strftime(stream.path)))
        reading.missing += not names
        yield from ((Path(name), (at, at + unit)) for name in names)
        at += unit


def raw_records(stream: Stream, path: Path) -> Iterator[Any]:
    """The records of a file as column → value; None for what is no record of its format; BROKEN for a whole file."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            yield BROKEN
            return
    if stream.format == "parquet":
        try:
            table = pq.read_table(io.BytesIO(content))
        except pa.ArrowException:
            yield BROKEN
            return
        yield from table.to_pylist()
        return
    text = content.decode("utf-8-sig")
    if stream.format == "jsonl":
        for line in text.split("\n"):
            if line.strip():
                yield json_record(line)
        return
    lines = [line for line in text.replace("\r\n", "\n").split("\n")]
    header = next(csv.reader(lines[:1]), [])
    if not header or len(set(header)) != len(header):
        yield BROKEN
        return
    for line in lines[1:]:
        if line.strip():
            cells = next(csv.reader([line]))
            yield dict(zip(header, (c or None for c in cells), strict=True)) if len(cells) == len(header) else None


def json_record(line: str) -> Any:
    """The fields of a line, None if it is no object with a field."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and value else None


def judge(stream: Stream, raw: Any, landed: datetime, period: tuple[datetime, datetime] | None) -> Read:
    """One record by itself: everything but duplicates."""
    arrival = landed if stream.arrival_time is None else None
    read = Read(landed, {}, None, arrival, None, None)
    if raw is None:
        read.reason = "broken_record"
        return read
    required = {stream.id, stream.event_time, stream.arrival_time}
    reasons = []
    if set(raw) - {c.name for c in stream.columns}:
        reasons.append("unknown_column")
    for column in stream.columns:
        given = raw.get(column.name)
        value = typed(column, given)
        read.values[column.name] = None if value is BROKEN else value
        if given is None and (not column.nullable or column.name in required):
            reasons.append("missing_value")
        elif value is BROKEN:
            reasons.append("wrong_type")
        elif isinstance(value, float) and not math.isfinite(value):
            reasons.append("non_finite")
    if stream.arrival_time is not None:
        read.arrival = read.values[stream.arrival_time]
    read.event, identity = read.values[stream.event_time], read.values[stream.id]
    read.identity = None if identity is None else str(identity)
    if read.arrival is not None and read.event is not None:
        early = read.event - read.arrival
        if early > timedelta(seconds=stream.max_early_s):
            reasons.append("too_early")
        elif early < -timedelta(seconds=stream.max_late_s):
            reasons.append("too_late")
    if read.arrival is not None and outside(read.arrival, period):
        reasons.append("outside_file_interval")
    read.reason = reasons[0] if reasons else None
    return read


def typed(column: Column, value: Any) -> Any:
    """The value in the declared type; BROKEN if it cannot be one."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        return BROKEN
    if column.type == "string":
        return value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, str):
        value = value.strip()
    try:
        if column.type == "integer":
            number = value if isinstance(value, int) else int(value)
            return number if -(2**63) <= number < 2**63 else BROKEN
        if column.type == "double":
            return float(value)
        if column.type == "boolean":
            return value if isinstance(value, bool) else {"true": True, "false": False}[value.lower()]
        if column.type == "date":
            return value if isinstance(value, date) else date.fromisoformat(value)
        at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, KeyError):
        return BROKEN


def refuse_duplicates(pipeline: Pipeline, stream: Stream, records: list[Read]) -> None:
    """An id that comes again within ``max_late``, by whole intervals, is refused; the first to arrive is accepted."""
    length = timedelta(seconds=pipeline.interval_s)
    memory = -(-timedelta(seconds=stream.max_late_s) // length) * length
    last: dict[str | None, datetime] = {}
    good = [record for record in records if record.reason is None]
    for record in sorted(good, key=lambda r: (r.arrival, r.event)):
        before = last.get(record.identity)
        if before is not None and before >= record.interval - memory:
            record.reason = "duplicate_id"
        else:
            last[record.identity] = record.interval
