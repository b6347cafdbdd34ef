"""All records of a stream's files: which are accepted, which refused, and in which interval each belongs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.reader.files import Record, records
from tests.reader.raw import BrokenError
from tests.reader.records import Period, Verdict, event_id, judge

from tidegate.declarations.models import Stream


@dataclass(frozen=True)
class Landed:
    """A file that has landed.

    ``path``: as ``source_files`` names it. ``name``: below the folder that the stream's path begins with. ``since_us``:
    start of the interval that was being run when the file was first seen this long.
    """

    path: str
    name: str
    content: bytes
    landed_us: int
    period: Period
    since_us: int


@dataclass
class Fate:
    """What becomes of a record. ``home_us``: any instant of the interval that it belongs to."""

    file: Landed
    record: Record
    verdict: Verdict
    home_us: int
    id: str | None = None
    reason: str | None = None
    column: str | None = None


@dataclass
class Account:
    """What must become of the records of a stream that belong to [start, end).

    ``broken``: files of which nothing can be read. ``empty``: files without a record. ``interval_us``: length of an
    interval. ``read``: how many records were read, of any interval.
    """

    interval_us: int
    fates: list[Fate] = field(default_factory=list)
    broken: list[Landed] = field(default_factory=list)
    empty: list[Landed] = field(default_factory=list)
    read: int = 0

    @property
    def accepted(self) -> list[Fate]:
        """Those that are tuples."""
        return [fate for fate in self.fates if fate.reason is None]

    @property
    def refused(self) -> list[Fate]:
        """Those that are in the quarantine."""
        return [fate for fate in self.fates if fate.reason is not None]

    def unknown_columns(self) -> dict[tuple[int, str], tuple[int, int]]:
        """(number of the interval since 1970, name) → how many records have it, and the first arrival of these.

        Those that are good by themselves: duplicates, too.
        """
        rows: dict[tuple[int, str], tuple[int, int]] = {}
        for fate in self.fates:
            if fate.reason not in (None, "duplicate_id"):
                continue
            arrival_us = fate.verdict.arrival_us
            assert arrival_us is not None
            for name in fate.record.others:
                key = arrival_us // self.interval_us, name
                count, first_us = rows.get(key, (0, arrival_us))
                rows[key] = count + 1, min(first_us, arrival_us)
        return rows


def account(stream: Stream, files: Iterable[Landed], interval_us: int, start_us: int, end_us: int) -> Account:
    """Judge every record of the files; those that belong to [start, end) are in the account."""
    whole = Account(interval_us)
    for file in files:
        try:
            read = records(stream, file.path, file.content)
        except BrokenError:
            whole.broken.append(file)
            continue
        whole.read += len(read)
        if not read:
            whole.empty.append(file)
        verdicts = [(record, judge(stream, file.period, file.landed_us, record)) for record in read]
        span = arrivals_of(file, [verdict for _, verdict in verdicts])
        for record, verdict in verdicts:
            home_us = home(file, verdict, span)
            if start_us <= home_us < end_us:
                whole.fates.append(_fate(stream, file, record, verdict, home_us))
    refuse_duplicates(stream, whole)
    return whole


def arrivals_of(file: Landed, verdicts: Iterable[Verdict]) -> tuple[int, int]:
    """The arrivals that the file's records may have, half-open: what its name says, or what its good records span."""
    if file.period is not None:
        return file.period
    good = [verdict.arrival_us for verdict in verdicts if verdict.reason is None and verdict.arrival_us is not None]
    return (min(good), max(good) + 1) if good else (0, 0)


def home(file: Landed, verdict: Verdict, span: tuple[int, int]) -> int:
    """An instant of the interval that a record belongs to."""
    arrival_us = verdict.arrival_us
    if arrival_us is not None and span[0] <= arrival_us < span[1]:
        return arrival_us
    return file.since_us if file.period is None else file.period[0]


def _fate(stream: Stream, file: Landed, record: Record, verdict: Verdict, home_us: int) -> Fate:
    identity = None if verdict.reason else event_id(stream, verdict.values, file.name, record.place)
    return Fate(file, record, verdict, home_us, identity, verdict.reason, verdict.column)


def refuse_duplicates(stream: Stream, whole: Account) -> None:
    """Refuse an id that was accepted within ``max_late``, by whole intervals; the first to arrive is accepted."""
    if not stream.id:
        return
    memory = -(-stream.max_late_s * 1_000_000 // whole.interval_us)
    last: dict[str | None, int] = {}
    for fate in sorted(whole.accepted, key=lambda fate: turn(stream, fate)):
        interval = fate.home_us // whole.interval_us
        if fate.id in last and last[fate.id] >= interval - memory:
            fate.reason, fate.column = "duplicate_id", ", ".join(stream.id)
        else:
            last[fate.id] = interval


def turn(stream: Stream, fate: Fate) -> tuple[Any, ...]:
    """The order in which records are accepted: by arrival, event time, file and place in it."""
    values: Mapping[str, Any] = fate.verdict.values
    return fate.verdict.arrival_us, values[stream.event_time], fate.file.path, fate.record.place
