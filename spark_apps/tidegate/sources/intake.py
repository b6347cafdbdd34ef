"""The first half of ingest, a slice at a time: pieces of files to parts, files of Arrow that this task alone writes."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.engine import Slice
from tidegate.operators.duplicates import hashes
from tidegate.operators.schedule import instants_us
from tidegate.sources import parquet
from tidegate.sources.blocks import BrokenFileError, block_of, read_lines
from tidegate.sources.counts import RawCount
from tidegate.sources.files import Piece, SourceFile
from tidegate.sources.parse import csv_header
from tidegate.sources.records import Judged, Refused, judge_lines, judge_rows
from tidegate.store.places import mapped, output, place

FILE, HASH = "_file", "_hash"
_PART_ROWS = 1 << 20
REFUSED_SCHEMA = pa.schema(
    [
        (FILE, pa.int32()),
        ("_at", pa.int64()),
        ("arrival_us", pa.int64()),
        ("reason", pa.string()),
        ("column", pa.string()),
        ("record", pa.string()),
    ]
)


@dataclass(frozen=True)
class Intake:
    """What a slice reads. Tuples that arrived outside [start, end) are counted, not kept. ``folder``: for its parts."""

    pieces: tuple[Piece, ...]
    start_us: int
    end_us: int
    folder: str
    interval_us: int


@dataclass(frozen=True)
class Part:
    """A file of tuples (``event_schema``, ``_at``, ``_file``, ``_hash``), or of refused records, of one stream.

    ``files``: what ``_file`` counts. ``first_us``, ``last_us``: of the tuples' arrivals.
    """

    stream: str
    path: str
    files: tuple[SourceFile, ...]
    rows: int
    first_us: int = 0
    last_us: int = 0

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Some columns; the file stays mapped, nothing is copied."""
        with mapped(place(self.path)) as file:
            table = pa.ipc.open_file(file).read_all()
        return table if columns is None else table.select(list(columns))


@dataclass(frozen=True)
class Report:
    """On one piece.

    ``raw``: records, counted apart. ``octets``: of text, how many the piece has. ``accepted``: good records, those of
    other intervals too. ``by_interval``: number of the interval since 1970 → accepted. ``first_us``, ``last_us``: of
    good arrivals.
    """

    stream: str
    file: SourceFile
    status: str
    error: str | None = None
    raw: int = 0
    octets: int = 0
    accepted: int = 0
    refused: int = 0
    by_interval: dict[int, int] = field(default_factory=dict)
    first_us: int | None = None
    last_us: int | None = None


@dataclass
class Taken:
    """What a slice found."""

    reports: list[Report] = field(default_factory=list)
    tuples: list[Part] = field(default_factory=list)
    refused: list[Part] = field(default_factory=list)


def take(one: Slice) -> Taken:
    """Parse and judge the pieces of a slice (an :class:`Intake`), and write what is kept.

    A file that cannot be read to its end gives nothing but the report that says so. **Memory**: a block, and what is
    kept until it is a part of a million rows.
    """
    intake: Intake = one.of
    writer = _Writer(intake)
    for piece in intake.pieces:
        writer.begin(piece)
        try:
            report = _read(piece, intake, writer)
            writer.settle()
        except BrokenFileError as error:
            writer.forget()
            report = Report(piece.stream.name, piece.file, "unreadable", str(error))
        writer.taken.reports.append(report)
    writer.close()
    return writer.taken


def _read(piece: Piece, intake: Intake, writer: _Writer) -> Report:
    if piece.file.bytes == 0:
        return Report(piece.stream.name, piece.file, "empty")
    counts = _Counts()
    reading = _rows(piece, counts) if piece.stream.format == "parquet" else _lines(piece, counts)
    for judged in reading:
        counts.accepted += sum(table.num_rows for table in judged.tuples)
        counts.refused += len(judged.refused)
        for table in judged.tuples:
            arrival_us = instants_us(table.column("arrival_time"))
            counts.saw(arrival_us)
            numbers, rows = np.unique(arrival_us // intake.interval_us, return_counts=True)
            counts.by_interval.update(dict(zip(numbers.tolist(), rows.tolist(), strict=True)))
            within = (arrival_us >= intake.start_us) & (arrival_us < intake.end_us)
            if not within.all():
                table = table.filter(pa.array(within))
            if table.num_rows:
                writer.add(table)
        if judged.refused:
            writer.refuse(judged.refused)
    status = "ok" if piece.stream.format == "parquet" or counts.octets or piece.start else "empty"
    return Report(
        piece.stream.name,
        piece.file,
        status,
        None,
        counts.raw,
        counts.octets,
        counts.accepted,
        counts.refused,
        dict(counts.by_interval),
        counts.first_us,
        counts.last_us,
    )


@dataclass
class _Counts:
    raw: int = 0
    octets: int = 0
    accepted: int = 0
    refused: int = 0
    by_interval: Counter[int] = field(default_factory=Counter)
    first_us: int | None = None
    last_us: int | None = None

    def saw(self, arrival_us: np.ndarray) -> None:
        first, last = int(arrival_us.min()), int(arrival_us.max())
        self.first_us = first if self.first_us is None else min(first, self.first_us)
        self.last_us = last if self.last_us is None else max(last, self.last_us)


def _rows(piece: Piece, counts: _Counts) -> Iterator[Judged]:
    counts.raw = parquet.footer_rows(piece)
    for first, rows in parquet.batches(piece):
        judged = Judged([], [])
        judge_rows(piece.stream, piece.file, first, rows, judged)
        yield judged


def _lines(piece: Piece, counts: _Counts) -> Iterator[Judged]:
    header = _header(piece) if piece.stream.format == "csv" and piece.start else ()
    raw = RawCount()
    expect_header = piece.stream.format == "csv" and not piece.start
    for at, data in read_lines(piece):
        if not counts.octets:
            # What comes before the first line: of a file's first piece, a byte-order mark.
            counts.octets = 0 if piece.start else at
        counts.octets += len(data)
        raw.add(data)
        block = block_of(data, at)
        if expect_header:
            expect_header = False
            if not len(block.starts) or block.starts[0] > 0:
                raise BrokenFileError("its first line is blank: it should name the columns")
            header = csv_header(block.line(0))
            raw.records -= 1
            if len(block.starts) == 1:
                continue
            block = block.lines(1, len(block.starts))
        judged = Judged([], [])
        judge_lines(piece.stream, piece.file, block, header, judged)
        yield judged
    counts.raw = raw.records


def _header(piece: Piece) -> tuple[str, ...]:
    for _, data in read_lines(Piece(piece.stream, piece.file, 0, 1), 1 << 16):
        block = block_of(data)
        return csv_header(block.line(0) if len(block.starts) else b"")
    raise BrokenFileError("its first line does not name every column once: ''")


class _Writer:
    """Gathers what a slice keeps, and writes it as parts. What a file gave can be taken back until it is settled."""

    def __init__(self, intake: Intake):
        self.intake = intake
        self.taken = Taken()
        self._files: list[SourceFile] = []
        self._settled = _Gathered()
        self._open = _Gathered()

    def begin(self, piece: Piece) -> None:
        """What follows is of this piece."""
        self._piece = piece
        self._files.append(piece.file)

    def settle(self) -> None:
        """The piece was read to its end."""
        if self._open.parts:
            self._write(self._open)
            self._move_parts()
        self._settled.tuples += self._open.tuples
        self._settled.refused += self._open.refused
        self._settled.rows += self._open.rows
        self._open = _Gathered()
        if self._settled.rows >= _PART_ROWS:
            self.close()

    def forget(self) -> None:
        """Drop everything of the piece."""
        for _, part in self._open.parts:
            place(part.path).unlink()
        self._open = _Gathered()

    def close(self) -> None:
        """Write what is left."""
        self._write(self._settled)
        for kept, part in self._settled.parts:
            (self.taken.tuples if kept else self.taken.refused).append(part)
        self._settled = _Gathered()

    def add(self, table: pa.Table) -> None:
        """Keep tuples."""
        ids = table.column("event_id").combine_chunks()
        number = pa.repeat(pa.scalar(len(self._files) - 1, pa.int32()), table.num_rows)
        table = table.append_column(FILE, number).append_column(HASH, pa.array(hashes(ids)))
        self._gather(self._open.tuples, table)

    def refuse(self, refused: Sequence[Refused]) -> None:
        """Keep refused records."""
        rows = {
            FILE: [len(self._files) - 1] * len(refused),
            "_at": [r.at for r in refused],
            "arrival_us": [r.verdict.arrival_us for r in refused],
            "reason": [r.verdict.reason for r in refused],
            "column": [r.verdict.column for r in refused],
            "record": [r.text for r in refused],
        }
        self._gather(self._open.refused, pa.table(rows, schema=REFUSED_SCHEMA))

    def _gather(self, gathered: list[tuple[str, pa.Table]], table: pa.Table) -> None:
        gathered.append((self._piece.stream.name, table))
        self._open.rows += table.num_rows
        if self._open.rows >= _PART_ROWS:
            self._write(self._open)

    def _move_parts(self) -> None:
        for kept, part in self._open.parts:
            (self.taken.tuples if kept else self.taken.refused).append(part)

    def _write(self, gathered: _Gathered) -> None:
        for kept, tables in ((True, gathered.tuples), (False, gathered.refused)):
            for stream in dict.fromkeys(name for name, _ in tables):
                table = pa.concat_tables([own for name, own in tables if name == stream])
                gathered.parts.append((kept, self._part(stream, table)))
            tables.clear()
        gathered.rows = 0

    def _part(self, stream: str, table: pa.Table) -> Part:
        path = f"{self.intake.folder}/{uuid.uuid4().hex}.arrow"
        with output(place(path)) as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
        span = (0, 0)
        if "arrival_time" in table.column_names:
            arrival_us = instants_us(table.column("arrival_time"))
            span = int(arrival_us.min()), int(arrival_us.max())
        return Part(stream, path, tuple(self._files), table.num_rows, *span)


@dataclass
class _Gathered:
    """Stream and table of each; ``parts``: those that were written already, and whether they are of tuples."""

    tuples: list[tuple[str, pa.Table]] = field(default_factory=list)
    refused: list[tuple[str, pa.Table]] = field(default_factory=list)
    parts: list[tuple[bool, Part]] = field(default_factory=list)
    rows: int = 0
