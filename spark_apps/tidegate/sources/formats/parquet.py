"""Parquet as others write it: what can be read is read, whatever its types are."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.declarations.models import Stream
from tidegate.sources.files import PACKED, BrokenFileError, Piece, SourceFile
from tidegate.sources.formats.arrays import as_text, follow, raw_values, record_text, storage, take
from tidegate.sources.formats.base import Batch, Format, Others, Places, Raw, Reading
from tidegate.sources.formats.texts import EXPANSION, texts_at_positions
from tidegate.sources.judge import Record
from tidegate.sources.layout import layout_of
from tidegate.sources.text import first_line_of, opened
from tidegate.store import parquet as stored
from tidegate.store.places import refuse_outage

BATCH_ROWS = 1 << 16
FAULTS = (pa.ArrowException, OSError, ValueError, NotImplementedError)


@dataclass
class RowsBatch(Batch):
    """Rows of a file with columns. ``raw``: declared column → values; ``tops``: the file's columns that are read."""

    stream: Stream
    positions: np.ndarray
    tops: Mapping[str, pa.Array]
    raw: Mapping[str, pa.Array]
    others: tuple[str, ...]

    def __post_init__(self) -> None:
        self.lines = self.positions

    @classmethod
    def of(
        cls, stream: Stream, first: int, rows: int, tops: Mapping[str, pa.Array], others: tuple[str, ...]
    ) -> RowsBatch:
        """Rows from number ``first`` on."""
        raw = {f.column.name: _values(tops, f.column.steps) for f in layout_of(stream).fields}
        there = {name: values for name, values in raw.items() if values is not None}
        return cls(stream, np.arange(first, first + rows), tops, there, others)

    def columns(self) -> Raw | None:
        """All rows at once; None if a text is no UTF-8."""
        if self.others and layout_of(self.stream).refuses_others:
            return None
        texts = {name: as_text(values) for name, values in self.raw.items()}
        if any(values is None for values in texts.values()):
            return None
        return Raw({n: v for n, v in texts.items() if v is not None}, [Others(name, None) for name in self.others])

    def record(self, row: int) -> Record | None:
        """One row; None if the file has no columns."""
        if not self.tops and not self.others:
            return None
        values = {name: raw_values(column[row : row + 1])[0] for name, column in self.raw.items()}
        return Record(values, frozenset(self.others))

    def text(self, row: int) -> str:
        """The columns that are read, as a JSON object."""
        return record_text({name: raw_values(column[row : row + 1])[0] for name, column in self.tops.items()})

    def part(self, rows: Places) -> Batch:
        """Some of the rows."""
        tops, raw = ({n: take(v, rows) for n, v in columns.items()} for columns in (self.tops, self.raw))
        return RowsBatch(self.stream, self.positions[rows], tops, raw, self.others)


def _values(tops: Mapping[str, pa.Array], steps: Sequence[str | int]) -> pa.Array | None:
    literal = literal_name(steps)
    return tops[literal] if literal in tops else follow(tops, steps)


def literal_name(steps: Sequence[str | int]) -> str:
    """The name of a column at the top that the whole path may be."""
    text = str(steps[0])
    for step in steps[1:]:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text


def read_names(stream: Stream, names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Of a file's columns those that are read, and the others.

    Raises:
        BrokenFileError: one that is read is there twice.
    """
    wanted = {name for c in stream.columns for name in (literal_name(c.steps), str(c.steps[0]))}
    twice = next((name for name in names if name in wanted and names.count(name) > 1), None)
    if twice:
        raise BrokenFileError(f"it has the column {twice!r} twice")
    return [name for name in names if name in wanted], tuple(dict.fromkeys(n for n in names if n not in wanted))


class Parquet(Format):
    """Row groups of columns."""

    name = "parquet"

    def cut(self, stream: Stream, file: SourceFile, slice_bytes: int) -> list[Piece]:
        """Between row groups. A file without a footer that can be read is one piece: whoever reads it says so."""
        whole = Piece(stream, file, cost=file.bytes * EXPANSION)
        if whole.cost <= slice_bytes or file.path.suffix.lower() in PACKED:
            return [whole]
        try:
            footer = stored.footer(file.path)
            sizes = [footer.row_group(i).total_byte_size for i in range(footer.num_row_groups)]
        except FAULTS:
            return [whole]
        pieces, start, gathered = [], 0, 0
        for number, size in enumerate(sizes):
            gathered += size
            if gathered >= slice_bytes or number == len(sizes) - 1:
                pieces.append(Piece(stream, file, start, number + 1, gathered))
                start, gathered = number + 1, 0
        return pieces or [whole]

    def read(self, reading: Reading) -> Iterator[Batch]:
        """Batches of rows; their columns that are read, nothing else."""
        piece, count = reading.piece, reading.count
        try:
            with opened_parquet(piece.file) as file:
                names = list(file.schema_arrow.names)
                reading.seen.update(dict.fromkeys(names))
                wanted, others = read_names(piece.stream, names)
                groups = range(piece.start, file.num_row_groups if piece.end is None else piece.end)
                first = row = sum(file.metadata.row_group(i).num_rows for i in range(piece.start))
                count.counted = sum(file.metadata.row_group(i).num_rows for i in groups)
                columns = [n for n, kind in zip(names, file.schema_arrow.types, strict=True) if n in wanted]
                # Group by group: pyarrow cannot make one batch of several groups' nested values.
                for group in groups:
                    for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False):
                        tops = {n: storage(batch.column(batch.schema.get_field_index(n))) for n in wanted}
                        yield RowsBatch.of(piece.stream, row, batch.num_rows, tops, others)
                        row += batch.num_rows
                count.read = row - first
                if count.read != count.counted:
                    raise BrokenFileError(f"its footer says {count.counted} rows, {count.read} can be read")
        except FAULTS as error:
            refuse_outage(piece.file.path, error)
            raise BrokenFileError(first_line_of(error)) from None

    def texts_at(self, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Rows by their numbers."""
        return texts_at_positions(self, stream, file, positions)


def opened_parquet(file: SourceFile) -> pq.ParquetFile:
    """A file of rows, unpacked if its name says that it is packed."""
    if file.path.suffix.lower() not in PACKED:
        return stored.opened(file.path)
    with opened(file) as content:
        return pq.ParquetFile(io.BytesIO(content.read()))
