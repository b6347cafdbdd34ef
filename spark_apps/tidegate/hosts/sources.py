"""Which files hold an interval's tuples, and how their records are read as strings or typed columns."""

from __future__ import annotations

import csv
import glob
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.declarations.models import EPOCH, Stream, from_us, to_us
from tidegate.hosts.intervals import Interval

# What Spark and records.read_files put beside a file's own columns.
_ADDED_BY_READING = ("_corrupt", "_file", "_modified_us", "_metadata")
# Finest first: the unit of a pattern is that of its finest directive.
_UNITS = (
    ("%S", timedelta(seconds=1)),
    ("%M", timedelta(minutes=1)),
    ("%H", timedelta(hours=1)),
    ("%d", timedelta(days=1)),
    ("%j", timedelta(days=1)),
)


@dataclass(frozen=True)
class SourceFile:
    """One file as it was when listed. Its tuples arrived in [``period_start_us``, ``period_end_us``), or, where the
    pattern names no time, at any time (both None)."""

    path: Path
    bytes: int
    modified_us: int
    period_start_us: int | None
    period_end_us: int | None

    def changed(self) -> bool:
        """Whether the file is another now than when it was listed."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return True
        return (status.st_size, status.st_mtime_ns // 1000) != (self.bytes, self.modified_us)


@dataclass(frozen=True)
class Expected:
    """One expansion of a stream's pattern and the files that match it."""

    pattern: str
    period_start_us: int | None
    files: tuple[SourceFile, ...]


def pattern_unit(pattern: str) -> timedelta | None:
    """How much arrival time one file of the pattern holds; None if the pattern names no time.

    >>> pattern_unit("/100%%H/%Y-%m-%d.csv"), pattern_unit("/100%%H/*.csv")
    (datetime.timedelta(days=1), None)
    """
    directives = pattern.replace("%%", "")
    for directive, unit in _UNITS:
        if directive in directives:
            return unit
    return None


def matches_several(pattern: str) -> bool:
    """Whether several files may match one expansion of the pattern.

    >>> matches_several("/in/%H-*.csv"), matches_several("/a folder [[]x]/%H.csv")
    (True, False)
    """
    return any(sign in re.sub(r"\[[*?\[]\]", "", pattern) for sign in "*?[")


def expected_files(stream: Stream, intervals: Sequence[Interval]) -> Iterator[Expected]:
    """Every file name that the stream's pattern asks for in the intervals' range, with the files that are there."""
    unit = pattern_unit(stream.path)
    if unit is None:
        pattern = stream.path.replace("%%", "%")
        yield Expected(pattern, None, tuple(_listed(pattern, None, None)))
        return
    start, end = intervals[0].start, intervals[-1].end
    instant = start - (start - EPOCH) % unit
    while instant < end:
        pattern = instant.strftime(stream.path)
        first, last = to_us(instant), to_us(instant + unit)
        yield Expected(pattern, first, tuple(_listed(pattern, first, last)))
        instant += unit


def _listed(pattern: str, start_us: int | None, end_us: int | None) -> Iterator[SourceFile]:
    for name in sorted(glob.glob(pattern)):
        path = Path(name)
        if path.is_file() and not path.name.startswith((".", "_")):
            status = path.stat()
            yield SourceFile(path, status.st_size, status.st_mtime_ns // 1000, start_us, end_us)


def header_of(stream: Stream, file: SourceFile) -> tuple[str, ...] | pa.Schema | None:
    """The column names of a CSV file, the schema of a Parquet file, () for JSON lines; None if it has no content.

    Raises ValueError with the reason if the file cannot be read at all.
    """
    if file.bytes == 0:
        return None
    if stream.format == "jsonl":
        return ()
    if stream.format == "parquet":
        try:
            schema = pq.read_schema(file.path)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(str(error).splitlines()[0]) from None
        _require_readable(schema.names)
        return schema
    with open(file.path, "rb") as opened:
        line = opened.readline().decode("utf-8-sig", errors="replace").rstrip("\r\n")
    names = tuple(name.strip() for name in next(csv.reader(io.StringIO(line)), []))
    if not names or len(set(names)) != len(names) or not all(names):
        raise ValueError(f"its first line does not name every column once: {line[:200]!r}")
    _require_readable(names)
    return names


def _require_readable(names: Sequence[str]) -> None:
    """ValueError if Spark could not tell the columns apart, or from those that reading adds."""
    by_lower: dict[str, str] = {}
    for name in names:
        if name.lower() in by_lower:
            raise ValueError(f"its columns {by_lower[name.lower()]!r} and {name!r} differ in letter case only")
        if name.lower() in _ADDED_BY_READING or "`" in name:
            raise ValueError(f"its column {name!r} has a name that cannot be read: rename or drop it")
        by_lower[name.lower()] = name


def as_glob(files: Sequence[SourceFile]) -> str:
    """One path for Spark's file source that matches exactly these files, all of one folder."""
    # Braces even around a single name: a plain path would be taken for a base folder.
    names = ",".join(_escaped(file.path.name) for file in files)
    return os.path.join(_escaped(os.path.dirname(files[0].path)), "{" + names + "}")


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\*?[]{}," else c for c in text)


def modified_at(file: SourceFile) -> datetime:
    """When the file landed."""
    return from_us(file.modified_us)
