"""CSV: a header that names the columns, and a record a line, or several where a quoted cell has line ends.

A cell that begins with the quote ends with one that a delimiter or a line end follows; within it, a doubled quote is
one. Elsewhere a quote is a sign like any other. A record that is not quoted so is its first line alone, and no record.
A cell without content is NULL, and so is one that the dialect says stands for none; a quoted one is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from tidegate.declarations.models import CsvDialect, Stream
from tidegate.sources.counts import RawCount
from tidegate.sources.files import BrokenFileError, Piece, SourceFile
from tidegate.sources.formats.base import Batch, Format, Others, Places, Raw, Reading
from tidegate.sources.formats.csv_splitter import CsvSplitter, quotes_enclose
from tidegate.sources.formats.texts import UTF8, cut_text, text_parts, texts_at_positions
from tidegate.sources.judge import Record
from tidegate.sources.layout import layout_of
from tidegate.sources.text import (
    Block,
    block_of,
    count_lines,
    is_utf8,
    read_blocks,
    shown,
)

_HEADER_BYTES = 1 << 16


def cells_of(dialect: CsvDialect, record: bytes) -> list[str | None] | None:
    """A record's cells, None for one that stands for no value; None if it is no record."""
    if b"\0" in record:
        return None
    try:
        text = record.decode()
    except UnicodeDecodeError:
        return None
    quote, delimiter = dialect.quote, dialect.delimiter
    if not quote or quote not in text:
        return None if "\n" in text else [None if cell in dialect.nulls else cell for cell in text.split(delimiter)]
    cells: list[str | None] = []
    at = 0
    while True:
        if text.startswith(quote, at):
            match = _quoted(quote, delimiter).match(text, at)
            if match is None:
                return None
            cells.append(match[1].replace(quote * 2, quote))
            at = match.end()
        else:
            end = text.find(delimiter, at)
            end = len(text) if end < 0 else end
            cell = text[at:end]
            if "\n" in cell or "\r" in cell:
                return None
            cells.append(None if cell in dialect.nulls else cell)
            at = end
        if at == len(text):
            return cells
        at += 1


@lru_cache(maxsize=16)
def _quoted(quote: str, delimiter: str) -> re.Pattern[str]:
    q = re.escape(quote)
    return re.compile(rf"{q}([^{q}]*+(?:{q}{q}[^{q}]*+)*+){q}(?={re.escape(delimiter)}|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Cells:
    """Where a file's records have what.

    ``width``: how many cells they have. ``places``: column → number of its cell. ``others``: names of the other cells;
    ``names``: of all.
    """

    width: int
    places: Mapping[str, int]
    others: tuple[str, ...]
    names: tuple[str, ...] = ()


def cells_by_header(stream: Stream, record: bytes) -> Cells:
    """Where cells are, by the record that names them.

    Raises:
        BrokenFileError: it names a column twice, or none of those that are declared.
    """
    cells = cells_of(stream.csv, record)
    if cells is None:
        raise BrokenFileError(f"its first line names no columns: {shown(record[:200])!r}")
    names = [(cell or "").strip() for cell in cells]
    places: dict[str, int] = {}
    for column in stream.columns:
        step = column.steps[0]
        if isinstance(step, str) and names.count(step.strip()) > 1:
            raise BrokenFileError(f"its first line names the column {step!r} more than once")
        place = step if isinstance(step, int) else names.index(step.strip()) if step.strip() in names else len(names)
        if place < len(names):
            places[column.name] = place
    if not places:
        raise BrokenFileError(f"its first line names none of the columns: {shown(record[:200])!r}")
    read = set(places.values())
    others = dict.fromkeys(name for place, name in enumerate(names) if name and place not in read)
    return Cells(len(names), places, tuple(others), tuple(name for name in names if name))


def cells_by_place(stream: Stream, record: bytes) -> Cells:
    """Where cells are in a file without a header, whose first record is given."""
    cells = cells_of(stream.csv, record)
    places = {c.name: step for c in stream.columns if isinstance(step := c.steps[0], int)}
    width = max(len(cells or ()), 1 + max(places.values(), default=0))
    return Cells(width, places, tuple(f"[{n}]" for n in range(width) if n not in places.values()))


@dataclass
class CsvBatch(Batch):
    """Records of a CSV file."""

    stream: Stream
    block: Block
    cells: Cells

    def __post_init__(self) -> None:
        self.positions, self.lines = self.block.positions, self.block.lines

    def record(self, row: int) -> Record | None:
        """One record."""
        cells = cells_of(self.stream.csv, self.block.record(row))
        if cells is None or len(cells) != self.cells.width:
            return None
        return Record({name: cells[place] for name, place in self.cells.places.items()}, frozenset(self.cells.others))

    def text(self, row: int) -> str:
        """The record as it is written."""
        return shown(self.block.record(row))

    def part(self, rows: Places) -> Batch:
        """Some of the records."""
        return CsvBatch(self.stream, self.block.take(rows), self.cells)

    def columns(self) -> Raw | None:
        """All cells that are read, as text; None if any record is unlike the others."""
        dialect, block = self.stream.csv, self.block
        if self.cells.others and layout_of(self.stream).refuses_others or not is_utf8(block.data):
            return None
        # Fewer bytes in a text than records and line ends say: something between them is no record.
        block = block if int((block.ends - block.starts).sum()) + 2 * len(block) >= len(block.data) else block.joined()
        if dialect.quote and not _well_quoted(dialect, block):
            return None
        wanted = sorted(set(self.cells.places.values()))
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(block.data),
                read_options=pa_csv.ReadOptions(
                    use_threads=False,
                    block_size=len(block.data) + 1,
                    column_names=[str(n) for n in range(self.cells.width)],
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=dialect.delimiter,
                    quote_char=dialect.quote or False,
                    newlines_in_values=bool(dialect.quote),
                ),
                convert_options=pa_csv.ConvertOptions(
                    check_utf8=False,
                    include_columns=[str(n) for n in wanted],
                    column_types={str(n): pa.string() for n in wanted},
                    null_values=list(dialect.nulls),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowException:
            return None
        if table.num_rows != len(block):
            return None
        cells = {n: table.column(str(n)).combine_chunks() for n in wanted}
        cells = {n: c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for n, c in cells.items()}
        return Raw(
            {name: cells[place] for name, place in self.cells.places.items()},
            [Others(name, None) for name in self.cells.others],
        )


def _well_quoted(dialect: CsvDialect, block: Block) -> bool:
    """Whether quotes only enclose whole cells, or are doubled within them, and close where their record ends."""
    quote, delimiter = ord(dialect.quote), ord(dialect.delimiter)
    text = np.frombuffer(block.data, np.uint8)
    quotes = np.flatnonzero(text == quote)
    if not len(quotes):
        return True
    if len(quotes) % 2 or (np.searchsorted(quotes, block.starts) % 2).any():
        return False
    return quotes_enclose(text, quotes, delimiter, len(text))


class Csv(Format):
    """Cells between delimiters, in a dialect."""

    name = "csv"

    def cut(self, stream: Stream, file: SourceFile, slice_bytes: int) -> list[Piece]:
        """Anywhere; whoever reads the pieces sees if a cut was inside a record. Transcoded text is read whole."""
        if stream.csv.encoding not in UTF8:
            return [Piece(stream, file, cost=file.bytes)]
        return cut_text(stream, file, slice_bytes)

    def read(self, reading: Reading) -> Iterator[Batch]:
        """Blocks of records."""
        piece, count, raw = reading.piece, reading.count, RawCount()
        stream = piece.stream
        cells = _cells_of_file(piece) if piece.start else None
        for part in text_parts(reading, CsvSplitter(stream.csv), stream.csv.encoding):
            raw.add(part.data)
            block = block_of(part.data, part.split, part.offset, count.lines)
            ends = count_lines(part.data)
            count.lines += ends
            count.counted = raw.records
            count.read += part.split.skipped + _lines_of(block, ends < len(part.split.edges))
            if cells is None and len(block):
                cells = _cells(stream, block)
                if stream.csv.header:
                    block = block.take(np.arange(1, len(block))) if len(block) > 1 else block.none()
            if cells is not None and len(block):
                reading.seen.update(dict.fromkeys(cells.names))
                yield CsvBatch(stream, block, cells)

    def advice(self, stream: Stream, texts: Sequence[str]) -> str:
        """Another encoding, or another delimiter: one that is in all of them where the declared one is in none."""
        if any("\\x" in text for text in texts) and stream.csv.encoding in UTF8:
            return "is not written in UTF-8: csv: {encoding: cp1252}, or whatever it is written in"
        other = next((sign for sign in ",;\t|" if texts and all(sign in text for text in texts)), "")
        if not other or any(stream.csv.delimiter in text for text in texts):
            return ""
        return f"looks like cells between {other!r}: csv: {{delimiter: {other!r}}}"

    def texts_at(self, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Records by the bytes at which they begin."""
        return texts_at_positions(self, stream, file, positions)


def _lines_of(block: Block, single: bool) -> int:
    """How many lines that are not blank the records have; ``single``: none has more than one."""
    if single:
        return len(block)
    lines = 0
    for row in range(len(block)):
        record = block.record(row)
        several = b"\n" in record or b"\r" in record
        lines += sum(bool(line.strip(b" \t")) for line in re.split(rb"[\r\n]", record)) if several else 1
    return lines


def _cells(stream: Stream, block: Block) -> Cells:
    if stream.csv.header:
        return cells_by_header(stream, block.record(0))
    # The first record that can be read says how many cells there are.
    records = (block.record(row) for row in range(len(block)))
    return cells_by_place(stream, next((one for one in records if cells_of(stream.csv, one) is not None), b""))


def _cells_of_file(piece: Piece) -> Cells:
    """Where cells are, by the file's first record."""
    first = Piece(piece.stream, piece.file)
    for part in read_blocks(first, CsvSplitter(piece.stream.csv), piece.stream.csv.encoding, _HEADER_BYTES):
        block = block_of(part.data, part.split)
        if len(block):
            return _cells(piece.stream, block)
    raise BrokenFileError("it has no line that names the columns")
