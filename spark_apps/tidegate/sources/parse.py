"""Ingest, phase 1, a slice at a time: pieces of files to parts, files of Arrow that this task alone writes."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.engine import Slice
from tidegate.operators.duplicates import hashes
from tidegate.operators.schedule import instants_us
from tidegate.sources.files import BrokenFileError, Piece, SourceFile
from tidegate.sources.formats import Batch, Reading
from tidegate.sources.records import LINE, POSITION, Judged, Refused, Tuples, judge
from tidegate.sources.source import reader_of
from tidegate.store.places import mapped, output, place

FILE, HASH = "_file", "_hash"
_PART_ROWS = 1 << 20
_MOST_NAMES = 500
REFUSED_SCHEMA = pa.schema(
    [
        (FILE, pa.int32()),
        (POSITION, pa.int64()),
        (LINE, pa.int64()),
        ("arrival_us", pa.int64()),
        ("reason", pa.string()),
        ("column", pa.string()),
        ("record", pa.string()),
    ]
)


@dataclass(frozen=True)
class ParseTask:
    """What a slice reads. Tuples that arrived outside [start, end) are counted, not kept. ``folder``: for its parts."""

    pieces: tuple[Piece, ...]
    start_us: int
    end_us: int
    folder: str
    interval_us: int


@dataclass(frozen=True)
class Part:
    """A file of tuples (``event_schema``, ``_at``, ``_line``, ``_file``, ``_hash``), or of refused records.

    ``files``: what ``_file`` counts; ``starts``: at which pieces of them. ``first_us``, ``last_us``: of the tuples'
    arrivals.
    """

    stream: str
    path: str
    files: tuple[SourceFile, ...]
    starts: tuple[int, ...]
    rows: int
    first_us: int = 0
    last_us: int = 0

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Some columns; the file stays mapped, nothing is copied."""
        with mapped(place(self.path)) as file:
            table = pa.ipc.open_file(file).read_all()
        return table if columns is None else table.select(list(columns))


@dataclass(frozen=True)
class Ignored:
    """Accepted records with a field that no column is read from: how many, and the arrival of the first."""

    records: int
    first_us: int

    def and_others(self, more: Ignored) -> Ignored:
        """Both together."""
        return Ignored(self.records + more.records, min(self.first_us, more.first_us))


@dataclass(frozen=True)
class Example:
    """A refused record: its line within the piece, its text, and the verdict's ``detail``."""

    line: int
    text: str
    detail: str | None


Refusals = dict[tuple[str, str], tuple[int, tuple[Example, ...]]]
"""Reason and column ("" for none) → how many records, and the first of them."""
MOST_EXAMPLES = 8
_MOST_TEXT = 300
IgnoredFields = dict[tuple[int, str], Ignored]
"""Number of the interval since 1970, and name → what was ignored."""


@dataclass(frozen=True)
class PieceReport:
    """On one piece.

    ``counted``: its records (or lines), counted apart; ``read``: how many the reader went through. ``first``, ``last``:
    the bytes that were read of a text. ``lines``: its line ends; ``plain``: whether it is the file, byte by byte.
    ``accepted``: good records, those of other intervals too. ``by_interval``: number of the interval since 1970 →
    accepted. ``first_us``, ``last_us``: of good arrivals. ``columns``: those of which any record has a value;
    ``names``: of fields that some record has. ``refusals``: why records were refused. Of what has landed through Spark,
    by number of the interval: ``arrived``, how many records, and ``late``, how many of them landed when all of their
    time was taken to be known.
    """

    stream: str
    file: SourceFile
    status: str
    start: int = 0
    error: str | None = None
    counted: int = 0
    read: int = 0
    first: int | None = None
    last: int | None = None
    lines: int = 0
    plain: bool = False
    records: int = 0
    accepted: int = 0
    refused: int = 0
    by_interval: Mapping[int, int] = field(default_factory=dict)
    first_us: int | None = None
    last_us: int | None = None
    ignored: IgnoredFields = field(default_factory=dict)
    columns: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    refusals: Refusals = field(default_factory=dict)
    arrived: Mapping[int, int] = field(default_factory=dict)
    late: Mapping[int, int] = field(default_factory=dict)


@dataclass
class ParseResult:
    """What became of a slice's pieces."""

    reports: list[PieceReport] = field(default_factory=list)
    tuples: list[Part] = field(default_factory=list)
    refused: list[Part] = field(default_factory=list)


def parse_pieces(one: Slice) -> ParseResult:
    """Parse and judge the pieces of a slice (a :class:`ParseTask`), and write what is kept.

    A file that cannot be read to its end gives nothing but the report that says so. **Memory**: a block, and what is
    kept until it is a part of a million rows.
    """
    task: ParseTask = one.of
    writer = _Writer(task)
    for piece in task.pieces:
        writer.begin(piece)
        try:
            report = _parse(piece, task, writer)
            writer.settle()
        except BrokenFileError as error:
            writer.forget()
            report = PieceReport(piece.stream.name, piece.file, "unreadable", piece.start, str(error))
        writer.result.reports.append(report)
    writer.close()
    return writer.result


def _parse(piece: Piece, task: ParseTask, writer: _Writer) -> PieceReport:
    reading, totals = Reading(piece), _Totals(task.interval_us)
    for batch in reader_of(piece.stream).read(reading):
        judged = Judged()
        file = batch.file or piece.file
        writer.continue_with(file)
        judge(piece.stream, file, batch, judged)
        totals.add(batch, judged)
        for one in judged.tuples:
            arrival_us = instants_us(one.rows.column("arrival_time"))
            within = (arrival_us >= task.start_us) & (arrival_us < task.end_us)
            rows = one.rows if within.all() else one.rows.filter(pa.array(within))
            if rows.num_rows:
                writer.add(rows)
        if judged.refused:
            writer.refuse(judged.refused)
    count = reading.count
    return replace(
        totals.report(piece),
        status="ok" if count.read or count.last or piece.start else "empty",
        counted=count.counted,
        read=count.read,
        first=count.first,
        last=count.last,
        lines=count.lines,
        plain=count.plain,
        names=tuple(reading.seen)[:_MOST_NAMES],
    )


@dataclass
class _Totals:
    interval_us: int
    records: int = 0
    accepted: int = 0
    refused: int = 0
    by_interval: Counter[int] = field(default_factory=Counter)
    first_us: int | None = None
    last_us: int | None = None
    ignored: IgnoredFields = field(default_factory=dict)
    columns: set[str] = field(default_factory=set)
    refusals: Refusals = field(default_factory=dict)
    arrived: Counter[int] = field(default_factory=Counter)
    late: Counter[int] = field(default_factory=Counter)

    def add(self, batch: Batch, judged: Judged) -> None:
        """Count what became of a batch."""
        self.records += len(batch)
        if batch.arrival_us is not None:
            numbers = batch.arrival_us // self.interval_us
            self.arrived.update(_counts(numbers))
            if batch.late is not None:
                self.late.update(_counts(numbers[batch.late]))
        self.accepted += judged.accepted
        self.refused += len(judged.refused)
        self.columns |= judged.columns
        for one in judged.tuples:
            self._count(one)
        for refused in judged.refused:
            key = refused.verdict.reason or "", refused.verdict.column or ""
            count, examples = self.refusals.get(key, (0, ()))
            if count < MOST_EXAMPLES:
                example = Example(refused.line, refused.text[:_MOST_TEXT], refused.verdict.detail)
                examples = (*examples, example)
            self.refusals[key] = count + 1, examples

    def _count(self, one: Tuples) -> None:
        arrival_us = instants_us(one.rows.column("arrival_time"))
        first, last = int(arrival_us.min()), int(arrival_us.max())
        self.first_us = first if self.first_us is None else min(first, self.first_us)
        self.last_us = last if self.last_us is None else max(last, self.last_us)
        numbers = arrival_us // self.interval_us
        different = _counts(numbers)
        self.by_interval.update(different)
        for number in different if one.others else ():
            here = arrival_us if len(different) == 1 else np.where(numbers == number, arrival_us, _NEVER_US)
            for name, there in one.others.items():
                arrivals = here if there is None else here[there]
                count = int((arrivals < _NEVER_US).sum())
                if count:
                    ignored = Ignored(count, int(arrivals.min()))
                    before = self.ignored.get((number, name))
                    self.ignored[number, name] = ignored if before is None else before.and_others(ignored)

    def report(self, piece: Piece) -> PieceReport:
        """The report on a piece, as far as it is known."""
        return PieceReport(
            stream=piece.stream.name,
            file=piece.file,
            status="ok",
            start=piece.start,
            records=self.records,
            accepted=self.accepted,
            refused=self.refused,
            by_interval=dict(self.by_interval),
            first_us=self.first_us,
            last_us=self.last_us,
            ignored=self.ignored,
            columns=frozenset(self.columns),
            refusals=self.refusals,
            arrived=dict(self.arrived),
            late=dict(self.late),
        )


def _counts(numbers: npt.NDArray[np.int64]) -> dict[int, int]:
    different, rows = np.unique(numbers, return_counts=True)
    return dict(zip(different.tolist(), rows.tolist(), strict=True))


_NEVER_US = 2**62


class _Writer:
    """Collects what a slice keeps, and writes it as parts. What a piece gave can be dropped until it is settled."""

    def __init__(self, task: ParseTask):
        self.task = task
        self.result = ParseResult()
        self._files: dict[tuple[SourceFile, int], int] = {}
        self._settled = _Kept()
        self._open = _Kept()

    def begin(self, piece: Piece) -> None:
        """What follows is of this piece."""
        self._piece = piece
        self.continue_with(piece.file)

    def continue_with(self, file: SourceFile) -> None:
        """What follows is of this file."""
        self._file = self._files.setdefault((file, self._piece.start), len(self._files))

    def settle(self) -> None:
        """The piece was read to its end."""
        if self._open.parts:
            self._write(self._open)
            self._move_parts()
        self._settled.tuples += self._open.tuples
        self._settled.refused += self._open.refused
        self._settled.rows += self._open.rows
        self._open = _Kept()
        if self._settled.rows >= _PART_ROWS:
            self.close()

    def forget(self) -> None:
        """Drop everything of the piece."""
        for _, part in self._open.parts:
            place(part.path).unlink()
        self._open = _Kept()

    def close(self) -> None:
        """Write what is left."""
        self._write(self._settled)
        for accepted, part in self._settled.parts:
            (self.result.tuples if accepted else self.result.refused).append(part)
        self._settled = _Kept()

    def add(self, table: pa.Table) -> None:
        """Keep tuples."""
        ids = table.column("event_id").combine_chunks()
        number = pa.repeat(pa.scalar(self._file, pa.int32()), table.num_rows)
        table = table.append_column(FILE, number).append_column(HASH, pa.array(hashes(ids)))
        self._keep(self._open.tuples, table)

    def refuse(self, refused: Sequence[Refused]) -> None:
        """Keep refused records."""
        rows = {
            FILE: [self._file] * len(refused),
            POSITION: [r.position for r in refused],
            LINE: [r.line for r in refused],
            "arrival_us": [r.verdict.arrival_us for r in refused],
            "reason": [r.verdict.reason for r in refused],
            "column": [r.verdict.column for r in refused],
            "record": [r.text for r in refused],
        }
        self._keep(self._open.refused, pa.table(rows, schema=REFUSED_SCHEMA))

    def _keep(self, tables: list[tuple[str, pa.Table]], table: pa.Table) -> None:
        tables.append((self._piece.stream.name, table))
        self._open.rows += table.num_rows
        if self._open.rows >= _PART_ROWS:
            self._write(self._open)

    def _move_parts(self) -> None:
        for accepted, part in self._open.parts:
            (self.result.tuples if accepted else self.result.refused).append(part)

    def _write(self, kept: _Kept) -> None:
        for accepted, tables in ((True, kept.tuples), (False, kept.refused)):
            for stream in dict.fromkeys(name for name, _ in tables):
                table = pa.concat_tables([rows for name, rows in tables if name == stream])
                kept.parts.append((accepted, self._part(stream, table)))
            tables.clear()
        kept.rows = 0

    def _part(self, stream: str, table: pa.Table) -> Part:
        path = f"{self.task.folder}/{uuid.uuid4().hex}.arrow"
        with output(place(path)) as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
        span = (0, 0)
        if "arrival_time" in table.column_names:
            arrival_us = instants_us(table.column("arrival_time"))
            span = int(arrival_us.min()), int(arrival_us.max())
        files, starts = (tuple(x) for x in zip(*self._files, strict=True))
        return Part(stream, path, files, starts, table.num_rows, *span)


@dataclass
class _Kept:
    """Stream and table of each; ``parts``: those that were written already, and whether they are of tuples."""

    tuples: list[tuple[str, pa.Table]] = field(default_factory=list)
    refused: list[tuple[str, pa.Table]] = field(default_factory=list)
    parts: list[tuple[bool, Part]] = field(default_factory=list)
    rows: int = 0
