"""Avro container files, as fastavro reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pyarrow as pa

from tidegate.declarations.models import PathStep, Stream
from tidegate.sources.files import BrokenFileError, Piece, SourceFile
from tidegate.sources.formats.arrays import raw_value, record_text
from tidegate.sources.formats.base import Batch, Format, Others, Places, Raw, Reading
from tidegate.sources.formats.parquet import literal_name, read_names
from tidegate.sources.formats.texts import EXPANSION, texts_at_positions
from tidegate.sources.judge import Record
from tidegate.sources.layout import layout_of
from tidegate.sources.text import first_line_of, opened
from tidegate.store.places import refuse_outage
from tidegate.values.base import Untyped

_BATCH_RECORDS = 1 << 13
_NESTED = {dict, list, tuple, Untyped}
# What else a damaged file makes fastavro say: it trusts lengths and types that it reads.
FAULTS = (EOFError, OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError)


class AvroBatch(Batch):
    """Records as Python has them."""

    def __init__(self, stream: Stream, records: Sequence[dict[str, Any]], first: int, others: tuple[str, ...]):
        self.stream, self.records, self.others = stream, records, others
        self.positions = self.lines = np.arange(first, first + len(records))

    def columns(self) -> Raw | None:
        """All records at once; None if the values of a column are of several types."""
        layout = layout_of(self.stream)
        if self.others and layout.refuses_others:
            return None
        columns: dict[str, pa.Array] = {}
        for field in layout.fields:
            values = _values(self.records, field.column.steps)
            kinds = set(map(type, values))
            if kinds & _NESTED:
                return None
            if UUID in kinds:
                values = [str(value) if isinstance(value, UUID) else value for value in values]
            try:
                columns[field.column.name] = pa.array(values)
            except (pa.ArrowException, OverflowError):
                return None
        return Raw(columns, [Others(name, None) for name in self.others])

    def record(self, row: int) -> Record | None:
        """One record."""
        fields = layout_of(self.stream).fields
        values = {f.column.name: raw_value(_value(self.records[row], f.column.steps)) for f in fields}
        return Record(values, frozenset(self.others))

    def text(self, row: int) -> str:
        """The record as a JSON object."""
        return record_text({name: raw_value(value) for name, value in self.records[row].items()})

    def part(self, rows: Places) -> Batch:
        """Some of the records."""
        return AvroBatch(self.stream, [self.records[row] for row in rows.tolist()], 0, self.others)


def _values(records: Sequence[dict[str, Any]], steps: Sequence[PathStep]) -> list[Any]:
    if len(steps) == 1:
        name = str(steps[0])
        return [record.get(name) for record in records]
    return [_value(record, steps) for record in records]


def _value(record: dict[str, Any], steps: Sequence[PathStep]) -> Any:
    literal = literal_name(steps)
    if literal in record:
        return record[literal]
    value: Any = record
    for step in steps:
        if value is None:
            return None
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list):
            value = value[step] if step < len(value) else None
        else:
            return Untyped("")
    return value


class Avro(Format):
    """Container files; their schema is in them."""

    name = "avro"

    def cut(self, stream: Stream, file: SourceFile, slice_bytes: int) -> list[Piece]:
        """Not at all."""
        return [Piece(stream, file, cost=file.bytes * EXPANSION)]

    def read(self, reading: Reading) -> Iterator[Batch]:
        """Batches of records. Counted are those that the blocks' heads say."""
        piece, count = reading.piece, reading.count
        try:
            with opened(piece.file) as content:
                blocks = fastavro.block_reader(content)
                names = [str(field["name"]) for field in fields_in(blocks.writer_schema)]
                reading.seen.update(dict.fromkeys(names))
                _, others = read_names(piece.stream, names)
                records: list[dict[str, Any]] = []
                for block in blocks:
                    count.counted += block.num_records
                    records += [dict(record) for record in block]  # type: ignore[arg-type]
                    while len(records) >= _BATCH_RECORDS:
                        yield self._batch(piece.stream, records[:_BATCH_RECORDS], reading, others)
                        records = records[_BATCH_RECORDS:]
                if records:
                    yield self._batch(piece.stream, records, reading, others)
        except FAULTS as error:
            refuse_outage(piece.file.path, error)
            raise BrokenFileError(first_line_of(error)) from None

    def _batch(
        self, stream: Stream, records: list[dict[str, Any]], reading: Reading, others: tuple[str, ...]
    ) -> AvroBatch:
        first = reading.count.read
        reading.count.read += len(records)
        return AvroBatch(stream, records, first, others)

    def texts_at(self, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Records by their numbers."""
        return texts_at_positions(self, stream, file, positions)


def fields_in(schema: Any) -> list[dict[str, Any]]:
    """The fields of a container's records.

    Raises:
        BrokenFileError: its values are none.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BrokenFileError("its values are no records")
    return list(schema["fields"])
