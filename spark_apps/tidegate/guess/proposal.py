"""A pipeline for a stranger's files: streams, clock and first queries, composed of all guesses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, CsvDialect, KafkaSource, Stream
from tidegate.guess.clock import Clock, Lateness, clock_of, lateness_of, limits_s, span_us
from tidegate.guess.columns import Schema, Seen, schema_of
from tidegate.guess.file_patterns import FilePattern, Place, pattern_of
from tidegate.guess.kinds import Kind
from tidegate.guess.naming import column_names, stream_name
from tidegate.guess.records import FileSample, Sample, Steps, sample_of
from tidegate.guess.roles import (
    BROKER,
    NO_ID_OF_TOPIC,
    STAMP,
    Identity,
    Times,
    identity_of,
    times_of,
    times_of_topic,
)
from tidegate.guess.zones import zoned
from tidegate.operators.window_sizing import declared_tuple_bytes
from tidegate.values.types import ColumnType

MOST_COLUMNS = 40
MIB = 1 << 20
_MARGIN = 8
"""The memory budget, in multiples of what the windows would hold at the declared rate."""


@dataclass(frozen=True)
class StreamProposal:
    """One stream, and what was seen of it.

    ``names``: path → the declared column's name. ``rate``: records per second. ``span``: first and last arrival,
    microseconds. ``zone_note``: of columns of local times. ``remarks``: what a user should look at.
    """

    name: str
    kind: Kind
    schema: Schema
    names: Mapping[Steps, str]
    times: Times
    identity: Identity
    pattern: FilePattern
    late: Lateness
    rate: float
    records: int
    span: tuple[int, int]
    zone_note: str
    remarks: tuple[str, ...]

    @property
    def format(self) -> str:
        """The format of its files."""
        return self.kind.samples[0].format

    @property
    def csv(self) -> CsvDialect | None:
        """The dialect of its files, with what stands for no value."""
        dialect = self.kind.samples[0].csv
        return dialect and dialect.model_copy(update={"nulls": ("", *self.schema.nulls)})

    def column(self, seen: Seen) -> str:
        """The declared name of a column."""
        return self.names[seen.path]

    def declared(self, clock: Clock) -> Stream:
        """The stream as pipeline.yml declares it."""
        early_s, late_s = limits_s(self.late, clock)
        topic, arrival = self.kind.topic, self.column(self.times.arrival)
        stamped = self.times.arrival.path == STAMP
        return Stream(
            name=self.name, format=self.format, path=self.pattern.text, rate=self.rate,
            source=KafkaSource(servers=topic.servers, topic=topic.name) if topic else None,
            columns=tuple(Column(name=self.column(c), type=type_of(c, self.times)) for c in self.schema.columns),
            event_time=self.column(self.times.event), arrival_time=None if stamped else arrival,
            arrival_stamp="broker" if stamped else "landed",
            id=tuple(map(self.column, self.identity.columns)), max_early_s=early_s, max_late_s=late_s,
        )  # fmt: skip


@dataclass(frozen=True)
class Proposal:
    """A pipeline to start from. ``skipped``: why some of the files are not read."""

    name: str
    streams: tuple[StreamProposal, ...]
    clock: Clock
    memory_budget_bytes: int
    skipped: tuple[str, ...] = ()

    def until(self, now_s: float) -> Proposal:
        """The same, to be run up to the last interval that has ended: records come into a topic until then."""
        length, clock = self.clock.interval_s, self.clock
        ended_s = int(now_s) // length * length
        if clock.to_s <= ended_s:
            return self
        # Of records that came just now, all are in the interval that is running.
        to_s = max(ended_s, clock.from_s + length)
        return replace(self, clock=replace(clock, to_s=to_s))

    @property
    def remarks(self) -> list[str]:
        """What a user should look at, of all streams."""
        cut = ["only the newest intervals are run first: there are thousands"] if self.clock.cut else []
        of_streams = [f"{stream.name}: {remark}" for stream in self.streams for remark in stream.remarks]
        more = [f"and {len(self.skipped) - 5} more files are not read"] if len(self.skipped) > 5 else []
        return [*of_streams, *cut, *(f"left out: {why}" for why in self.skipped[:5]), *more]


def type_of(column: Seen, times: Times) -> ColumnType:
    """The type that a column is declared with: a stream's own times are timestamps, be they days."""
    return "timestamp" if column in (times.event, times.arrival) else column.type


def propose(
    target: Path, kinds: Sequence[Kind], others: Mapping[Path, Sequence[Path]], skipped: Sequence[str] = ()
) -> Proposal:
    """A pipeline in the folder ``target`` (absolute) for files of these kinds.

    ``others``: folder → all the files in it, those of other kinds too. ``skipped``: why some files are not read.

    Raises:
        UserError: a kind has no column that says when its records happened.
    """
    streams: list[StreamProposal] = []
    for kind in kinds:
        streams.append(_stream(kind, target, others, [stream.name for stream in streams]))
    clock = clock_of([s.span for s in streams], [s.pattern.unit_s for s in streams], [s.late for s in streams])
    return Proposal(target.name, tuple(streams), clock, _memory(streams, clock), tuple(skipped))


def _stream(kind: Kind, target: Path, others: Mapping[Path, Sequence[Path]], used: Iterable[str]) -> StreamProposal:
    about = kind.about
    sample = sample_of(kind.samples)
    if not sample.count:
        raise UserError(f"there are no records in {about}: name files that have some")
    declared = {path: type for file in kind.samples for path, type in file.types.items()}
    schema = schema_of(sample, kind.samples[0].csv, declared)
    zones = zoned(schema.columns, max(file.modified_s for file in kind.samples))
    columns = zones.columns
    if kind.topic is None:
        times = times_of(columns, about)
    else:
        columns, times = times_of_topic(columns, kind.topic)
    identity = identity_of(columns, times.event)
    if kind.topic is not None and not identity.columns:
        identity = Identity((), NO_ID_OF_TOPIC)
    schema = _at_most(Schema(columns, schema.left_out, schema.nulls), times, identity)
    names = column_names(schema.columns, times, identity)
    if kind.topic is not None:
        names |= {STAMP: BROKER}
    pattern = FilePattern("", None, "") if kind.topic else _pattern(kind, target, others, sample, times)
    arrivals = [us for us in times.arrival.instants if us is not None]
    span = span_us(arrivals)
    records = kind.records
    rate = records / max((span[1] - span[0]) / 1e6, 1.0)
    remarks = [remark for file in kind.samples for remark in file.remarks] + list(pattern.remarks)
    remarks += _remarks(schema.columns, times, identity, span)
    files = kind.files or tuple(file.path for file in kind.samples)
    return StreamProposal(
        stream_name(files, kind.folder, target.name, used), kind, schema, names, times, identity, pattern,
        lateness_of(times.event.instants, times.arrival.instants), rate, round(records), span, zones.why,
        tuple(dict.fromkeys(remarks)),
    )  # fmt: skip


def _pattern(
    kind: Kind, target: Path, others: Mapping[Path, Sequence[Path]], sample: Sample, times: Times
) -> FilePattern:
    """The pattern of a kind's files."""
    folders = {file.parent for file in kind.files}
    beside = [file for folder in folders for file in others.get(folder, ()) if file not in set(kind.files)]
    spans = _spans(kind.samples, sample, times.arrival)
    return pattern_of(Place(kind.files, beside, kind.folder is not None, target, spans))


def _at_most(schema: Schema, times: Times, identity: Identity) -> Schema:
    """The schema with at most ``MOST_COLUMNS`` columns: those with a role, then those that most records have."""
    if len(schema.columns) <= MOST_COLUMNS:
        return schema
    needed = {times.event.path, times.arrival.path, *(column.path for column in identity.columns)}
    order = {column.path: number for number, column in enumerate(schema.columns)}
    ranked = sorted(schema.columns, key=lambda c: (c.path not in needed, -round(c.fill, 1), len(c.path), order[c.path]))
    kept = {column.path for column in ranked[:MOST_COLUMNS]}
    left_out = {c.path: f"one of more than {MOST_COLUMNS}" for c in schema.columns if c.path not in kept}
    return Schema(tuple(c for c in schema.columns if c.path in kept), {**schema.left_out, **left_out}, schema.nulls)


def _spans(files: Sequence[FileSample], sample: Sample, arrival: Seen) -> dict[Path, tuple[int, int]]:
    """Of every file that was read its first and last arrival."""
    spans: dict[Path, tuple[int, int]] = {}
    for number, us in zip(sample.file_of, arrival.instants, strict=True):
        if us is not None:
            path = files[number].path
            first, last = spans.get(path, (us, us))
            spans[path] = min(first, us), max(last, us)
    return spans


def _remarks(columns: Sequence[Seen], times: Times, identity: Identity, span: tuple[int, int]) -> list[str]:
    remarks = [
        f"{column.shown}: {column.unfit} of {len(column.present):,} values are no {type_of(column, times)}: refused"
        for column in columns
        if column.unfit
    ]
    remarks += [
        f"{column.shown}: {len(column.values) - len(column.present)} of {len(column.values):,} have none: refused"
        for column in dict.fromkeys((times.event, times.arrival, *identity.columns))
        if len(column.present) < len(column.values)
    ]
    ambiguous = [column for column in columns if column.time is not None and column.time.other]
    for column in ambiguous:
        assert column.time is not None
        remarks.append(f"{column.shown}: read as {column.time.format}; {column.time.other} would fit as well")
    if times.event.type == "date":
        clocks = [c.shown for c in columns if c.type == "string" and c.present and all(map(_is_clock, c.present[:50]))]
        joined = f"; the time of day in {clocks[0]} cannot be joined to it, write both into one" if clocks else ""
        remarks.append(f"{times.event.shown} has days only: events of a day all happen at its midnight{joined}")
    arrivals = [us for us in times.arrival.instants if us is not None]
    outside = sum(not span[0] <= us <= span[1] for us in arrivals)
    if outside:
        remarks.append(f"{times.arrival.shown}: {outside} of {len(arrivals):,} lie far from all others")
    return remarks


def _is_clock(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"\d\d?:\d\d(:\d\d(\.\d+)?)?( ?[AaPp][Mm])?", value.strip()))


def _memory(streams: Sequence[StreamProposal], clock: Clock) -> int:
    """A generous budget: a power of two, from 16 MiB to 1 GiB."""
    needed = sum(s.rate * declared_tuple_bytes(s.declared(clock)) * (2 * clock.horizon_s) for s in streams)
    budget = 16 * MIB
    while budget < needed * _MARGIN and budget < 1024 * MIB:
        budget *= 2
    return budget
