"""The files of a stream as they have landed, and what must become of their records, by the independent reader."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from tests.reader.accounts import Account, Landed, account
from tests.reader.raw import us_of

from tidegate.declarations.models import EPOCH, Pipeline, Stream

UNITS = {"%S": 1, "%M": 60, "%H": 3600, "%d": 86_400, "%j": 86_400}


@dataclass
class Landing:
    """What there is of a stream's files, and its records' account.

    ``broken``: how often the quarantine says of a file that it cannot be read. ``missing``: patterns without a file.
    """

    account: Account
    broken: Counter[str] = field(default_factory=Counter)
    missing: int = 0


def read_stream(pipeline: Pipeline, stream: Stream, start: datetime, intervals: int) -> Landing:
    """Judge every record of the files of these intervals."""
    length_us = pipeline.interval_s * 1_000_000
    start_us = us_of(start)
    end_us = start_us + intervals * length_us
    files, missing = [], 0
    for pattern, period in patterns(stream, start, intervals * timedelta(seconds=pipeline.interval_s)):
        names = sorted(glob.glob(pattern))
        missing += not names
        files += [landed(stream, Path(name), period, start_us) for name in names]
    landing = Landing(account(stream, files, length_us, start_us, end_us), missing=missing)
    for file in landing.account.broken:
        # Every interval says so that the file may hold records of.
        first, last = file.period or (start_us, end_us)
        within = (start_us + n * length_us for n in range(intervals))
        landing.broken[file.path] += sum(first < at + length_us and at < last for at in within)
    return landing


def landed(stream: Stream, path: Path, period: tuple[int, int] | None, since_us: int) -> Landed:
    """A file as it is now."""
    landed_us = path.stat().st_mtime_ns // 1000
    name = str(path)[len(folder_of(stream.path)) :]
    return Landed(str(path), name, path.read_bytes(), landed_us, period, since_us)


def folder_of(pattern: str) -> str:
    """What a pattern begins with, up to the folder before its first wildcard or directive."""
    first = re.search(r"[*?%]|\[(?![*?\[]\])", pattern)
    whole = pattern[: first.start()] if first else pattern
    plain = re.sub(r"\[([*?\[])\]", r"\1", whole)
    return plain[: plain.rindex("/") + 1]


def patterns(stream: Stream, start: datetime, span: timedelta) -> Iterator[tuple[str, tuple[int, int] | None]]:
    """The patterns that the path asks for, each with the arrivals that it says."""
    units = [seconds for directive, seconds in UNITS.items() if directive in stream.path]
    if not units:
        yield stream.path, None
        return
    unit = timedelta(seconds=min(units))
    at = EPOCH + (start - EPOCH) // unit * unit
    while at < start + span:
        yield at.strftime(stream.path), (us_of(at), us_of(at + unit))
        at += unit
