"""Records of a table ``landed_<stream>``: values of Kafka in JSON or Avro, or rows of a source of Spark.

A record of Kafka has parts. Its value is read as JSON lines and Avro files are; a column of another part (``$key``,
``$headers.NAME``, ``$partition`` …) is read beside it, text as a cell of a CSV file is. A record without a value (a
tombstone) is one whose columns of the value are all NULL.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, KafkaSource, Stream
from tidegate.declarations.names import source_name
from tidegate.sources.formats.arrays import as_text, raw_value, raw_values, record_text, storage, take, whole
from tidegate.sources.formats.avro import FAULTS, AvroBatch
from tidegate.sources.formats.base import Batch, Others, Places, Raw, parts
from tidegate.sources.formats.json_records import Habits, JsonBatch, names_in, parse_object
from tidegate.sources.formats.parquet import BATCH_ROWS, RowsBatch, literal_name, read_names
from tidegate.sources.judge import Record
from tidegate.sources.layout import Field, layout_of
from tidegate.sources.registry import Schemas
from tidegate.sources.text import BLOCK_BYTES, Block, shown
from tidegate.values.base import Mask, NotFiniteError, NotOfTypeError, RawValue, Typed, valid
from tidegate.values.types import TIMESTAMP

_AVRO_ROWS = 1 << 13
_MAGIC = b"\0"
_HEAD = struct.Struct(">bI")
_BLANKS = np.isin(np.arange(256), np.frombuffer(b" \t\r\n", np.uint8))
_BEFORE_END = np.isin(np.arange(256), np.frombuffer(b" \t\r\n{", np.uint8))
_AVRO_FAULTS = (*FAULTS, struct.error, RecursionError)


def message_batches(stream: Stream, rows: pa.Table, schemas: Schemas | None, seen: dict[str, None]) -> Iterator[Batch]:
    """The records of landed rows, in their order; each row is in exactly one batch.

    Positions are those of the source, lines the numbers of the batches that landed them. **Memory**: a block of
    4 MiB of values, beside the rows, which hold less than 2 GiB of them.

    Args:
        stream: a stream that comes through Spark.
        rows: of its landed table, all of one source, generation and partition.
        schemas: the registry's, of Avro values whose schemas have numbers.
        seen: gets the names of fields, if it has none.

    Raises:
        UserError: a schema cannot be had, or the source lacks the column that holds the records.
    """
    yield from _batches(stream, rows, schemas, seen, Habits())


def _batches(
    stream: Stream, rows: pa.Table, schemas: Schemas | None, seen: dict[str, None], habits: Habits
) -> Iterator[Batch]:
    if not isinstance(stream.source, KafkaSource) and not stream.format:
        yield from _rows(stream, rows, seen)
        return
    values = _values_of(stream, rows)
    most = _AVRO_ROWS if stream.format == "avro" else BATCH_ROWS
    read = _avro_reader(stream, schemas) if stream.format == "avro" else None
    position, batch = (whole(rows.column(name)).to_numpy() for name in ("position", "batch"))
    parts = _parts(stream, rows)
    for first, last in _cuts(values, most):
        part = values.slice(first, last - first)
        tombstones = None if not part.null_count else ~valid(part)
        inner: Batch
        if read is None:
            inner = _json_batch(stream, part, position[first:last], batch[first:last], habits, seen)
        else:
            inner = _avro_batch(stream, part, read, seen, habits.others)
            inner.positions, inner.lines = position[first:last], batch[first:last]
        beside = {name: column.slice(first, last - first) for name, column in parts.items()}
        yield MessageBatch(inner, part, beside, tombstones, _keys_of(rows, first, last) if part.null_count else None)


class MessageBatch(Batch):
    """Values, and the columns of other parts beside them.

    ``parts``: declared column → values in text or a type of their own. ``tombstones``: which records have no value,
    None: all have one; ``keys``: then the records' keys.
    """

    def __init__(
        self,
        inner: Batch,
        values: pa.Array,
        parts: Mapping[str, pa.Array],
        tombstones: Mask | None,
        keys: pa.Array | None,
    ):
        self.inner, self.values, self.parts, self.tombstones, self.keys = inner, values, parts, tombstones, keys
        self.positions, self.lines = inner.positions, inner.lines

    @property
    def alike(self) -> bool:
        """As the values are."""
        return self.inner.alike

    def columns(self) -> Raw | None:
        """All records at once; None if a value is unlike the others, or a key or header is no UTF-8."""
        texts = {name: as_text(column) for name, column in self.parts.items()}
        if any(column is None for column in texts.values()):
            return None
        raw = self.inner.columns()
        return None if raw is None else Raw({**raw.columns, **texts}, raw.others)

    def record(self, row: int) -> Record | None:
        """One record; None if its value is none."""
        record = Record({}) if self._is_tombstone(row) else self.inner.record(row)
        if record is None or not self.parts:
            return record
        beside: dict[str, RawValue] = {n: raw_values(column.slice(row, 1))[0] for n, column in self.parts.items()}
        return Record({**record.values, **beside}, record.others)

    def text(self, row: int) -> str:
        """The value as it is; of Avro, the record that it is. Of a record without one, its key."""
        if not self._is_tombstone(row):
            avro = isinstance(self.inner, _AvroMessages)
            return self.inner.text(row) if avro else shown(self.values[row].as_py())
        key = None if self.keys is None else self.keys[row].as_py()
        return "null" if key is None else f"null, of the key {shown(key)}"

    def kinds(self) -> Places | None:
        """As the values are."""
        return self.inner.kinds()

    def part(self, rows: Places) -> Batch:
        """Some of the records."""
        return MessageBatch(
            self.inner.take(rows),
            take(self.values, rows),
            {name: take(column, rows) for name, column in self.parts.items()},
            None if self.tombstones is None else self.tombstones[rows],
            None if self.keys is None else take(self.keys, rows),
        )

    def _is_tombstone(self, row: int) -> bool:
        return self.tombstones is not None and bool(self.tombstones[row])


@lru_cache(maxsize=64)
def value_stream(stream: Stream) -> Stream:
    """The stream as far as its values go: without the columns of other parts."""
    columns = tuple(column for column in stream.columns if column.part == "value")
    return stream.model_copy(update={"columns": columns, "source": None})


# Where values, keys and headers are


def _values_of(stream: Stream, rows: pa.Table) -> pa.Array:
    """The octets that hold a record each; NULL where there is none."""
    if "value" not in rows.column_names:
        raise UserError(
            f"stream '{stream.name}': its source has no column 'value' to hold records of format {stream.format}: "
            "leave 'format' away to read its columns"
        )
    return _octets(rows, "value")


def _octets(rows: pa.Table, name: str) -> pa.Array:
    values = storage(whole(rows.column(name)))
    if pa.types.is_string(values.type):
        return values.view(pa.binary())
    return values.cast(pa.binary())


def _text(octets: pa.Array) -> pa.Array:
    """Octets as a column of text, whether they are UTF-8 or not: whoever reads it finds out."""
    return octets.view(pa.string())


def _keys_of(rows: pa.Table, first: int, last: int) -> pa.Array | None:
    return _octets(rows.slice(first, last - first), "key") if "key" in rows.column_names else None


def _parts(stream: Stream, rows: pa.Table) -> dict[str, pa.Array]:
    """Declared column of another part than the value → its values."""
    columns = (column for column in stream.columns if column.part != "value")
    return {column.name: _PARTS[column.part](stream, rows, column) for column in columns}


def _header(rows: pa.Table, name: str) -> pa.Array:
    """Of each record the last header of that name, as text."""
    lists = whole(rows.column("headers"))
    pairs, parents = pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists))
    names, values = (storage(column) for column in pairs.flatten())
    matches = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(names.cast(pa.string()), name), False)))
    places = np.full(len(lists), -1, np.int64)
    places[parents[matches]] = matches  # of several the last one
    return _text(values.cast(pa.binary()).take(pa.array(places, mask=places < 0)))


def _timestamps(rows: pa.Table) -> pa.Array:
    """Kafka's timestamps; NULL where a record has none, which Kafka writes as -1."""
    stamps = whole(rows.column("timestamp")).cast(TIMESTAMP)
    us = stamps.cast(pa.int64())
    return pc.if_else(pc.less(us, 0), pa.scalar(None, TIMESTAMP), stamps)


def _topics(stream: Stream, rows: pa.Table) -> pa.Array:
    topic = stream.source.topic if isinstance(stream.source, KafkaSource) else None
    return pa.repeat(pa.scalar(topic, pa.string()), rows.num_rows)


_PARTS: dict[str, Callable[[Stream, pa.Table, Column], pa.Array]] = {
    "key": lambda stream, rows, column: _text(_octets(rows, "key")),
    "headers": lambda stream, rows, column: _header(rows, str(column.path[0])),
    "topic": lambda stream, rows, column: _topics(stream, rows),
    "partition": lambda stream, rows, column: whole(rows.column("partition")),
    "offset": lambda stream, rows, column: whole(rows.column("position")),
    "timestamp": lambda stream, rows, column: _timestamps(rows),
}


def _cuts(values: pa.Array, most_rows: int) -> Iterator[tuple[int, int]]:
    """Where batches begin and end: about a block's bytes each, and not too many rows."""
    edges = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    first = 0
    while first < len(values):
        last = int(np.searchsorted(edges, int(edges[first]) + BLOCK_BYTES))
        last = min(max(last, first + 1), first + most_rows, len(values))
        yield first, last
        first = last


# JSON


def _json_batch(
    stream: Stream, values: pa.Array, positions: np.ndarray, lines: np.ndarray, habits: Habits, seen: dict[str, None]
) -> JsonBatch:
    """Values as a text of JSON: one after the other, a line end behind each."""
    values_stream = value_stream(stream)
    if not seen:
        example = next((octets.as_py() for octets in values if octets.is_valid), b"")
        seen.update(dict.fromkeys(names_in(parse_object(example))))
    if values.null_count:
        values = values.fill_null(_stand_in(values_stream))
    joined = pc.binary_join_element_wise(values, pa.scalar(b"\n", pa.binary()), pa.scalar(b"", pa.binary()))
    edges = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    edges = edges.astype(np.int64)
    data = bytes(memoryview(joined.buffers()[2])[edges[0] : edges[-1]])
    starts, ends = edges[:-1] - edges[0], edges[1:] - edges[0] - 1
    ends = _trimmed(data, starts, ends)
    single = b"\r" not in data and data.count(b"\n") == len(values)
    return _ValuesBatch(values_stream, Block(data, starts, ends, positions, lines), single, habits)


class _ValuesBatch(JsonBatch):
    """Objects that are values: one of them may be an object without members, which no record is."""

    def columns(self) -> Raw | None:
        """As of lines; None if any object has no members, which a line without values would not be told from."""
        block = self.block
        data = np.frombuffer(block.data, np.uint8)
        second = data[np.minimum(block.starts + 1, len(data) - 1)]
        doubtful = (second != ord('"')) & _BEFORE_END[data[np.maximum(block.ends - 2, 0)]]
        if any(not block.record(row)[1:-1].strip() for row in np.flatnonzero(doubtful).tolist()):
            return None
        return super().columns()

    def part(self, rows: Places) -> Batch:
        """Some of the objects."""
        return _ValuesBatch(self.stream, self.block.take(rows), self.lines_only, self.habits)


def _stand_in(stream: Stream) -> bytes:
    """What stands for a value that is not there: an object none of whose columns has a value."""
    tops = [str(column.steps[0]) for column in stream.columns]
    return json.dumps({tops[0] if tops else "_": None}).encode()


def _trimmed(data: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The ends without line ends and blanks that a producer put behind its values; two at most."""
    text = np.frombuffer(data, np.uint8)
    for _ in range(2):
        ends = ends - ((ends > starts) & _BLANKS[text[np.maximum(ends - 1, 0)]])
    return ends


# Avro

Reader = Callable[[bytes], dict[str, Any] | None]


def _avro_reader(stream: Stream, schemas: Schemas | None) -> Reader:
    """What makes a record of a value; None of one that is none."""
    source = stream.source
    if not isinstance(source, KafkaSource) or (source.registry is None and not source.schema_text):
        raise UserError(f"stream '{stream.name}' does not say by which schema its values are written")
    if source.registry is None:
        schema = fastavro.parse_schema(json.loads(source.schema_text))
        return lambda value: _avro_record(value, 0, schema)
    if schemas is None:
        raise ValueError("a stream with a registry is read with its schemas")
    by_number = schemas.schema

    def read(value: bytes) -> dict[str, Any] | None:
        if len(value) < _HEAD.size or value[:1] != _MAGIC:
            return None
        return _avro_record(value, _HEAD.size, by_number(_HEAD.unpack_from(value)[1]))

    return read


def _avro_record(value: bytes, start: int, schema: Any) -> dict[str, Any] | None:
    """The record that follows ``start``, to the value's very end."""
    content = io.BytesIO(value)
    content.seek(start)
    try:
        record = fastavro.schemaless_reader(content, schema, None)
    except _AVRO_FAULTS:
        return None
    return record if isinstance(record, dict) and content.tell() == len(value) else None


def _avro_batch(stream: Stream, values: pa.Array, read: Reader, seen: dict[str, None], others: bool) -> _AvroMessages:
    records = [{} if value is None else read(value) for value in values.to_pylist()]
    if not seen:
        seen.update(dict.fromkeys(names_in(next((record for record in records if record), {}))))
    values_stream = value_stream(stream)
    return _AvroMessages(
        values_stream, records, values, _beside(values_stream, records) if others else [()] * len(records)
    )


def _beside(stream: Stream, records: Sequence[dict[str, Any] | None]) -> list[tuple[str, ...]]:
    """Of each record the fields that no column is read from."""
    wanted = {name for c in stream.columns for name in (literal_name(c.steps), str(c.steps[0]))}
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    others = []
    for record in records:
        names = tuple(record or ())
        if names not in known:
            known[names] = tuple(name for name in names if name not in wanted)
        others.append(known[names])
    return others


class _AvroMessages(AvroBatch):
    """Records of Avro, each by the schema that it was written by; None where there is none.

    ``beside``: of each the fields that no column is read from.
    """

    def __init__(
        self,
        stream: Stream,
        records: Sequence[dict[str, Any] | None],
        values: pa.Array,
        beside: Sequence[tuple[str, ...]],
    ):
        self.kept, self.values, self.beside = records, values, beside
        super().__init__(stream, [record or {} for record in records], 0, ())

    def columns(self) -> Raw | None:
        """All records at once; None if any is none, or the values of a column are of several types."""
        if any(record is None for record in self.kept):
            return None
        if layout_of(self.stream).refuses_others and any(self.beside):
            return None
        raw = super().columns()
        if raw is None:
            return None
        names = dict.fromkeys(name for names in dict.fromkeys(self.beside) for name in names)
        there = {name: np.array([name in names for names in self.beside], dtype=bool) for name in names}
        return Raw(raw.columns, [Others(name, None if mask.all() else mask) for name, mask in there.items()])

    def record(self, row: int) -> Record | None:
        """One record."""
        record = super().record(row)
        if self.kept[row] is None or record is None:
            return None
        return Record(record.values, frozenset(self.beside[row]))

    def text(self, row: int) -> str:
        """The record as a JSON object; the octets, escaped, if it is none."""
        record = self.kept[row]
        if record is None:
            return repr(self.values[row].as_py())[2:-1]
        return record_text({name: raw_value(value) for name, value in record.items()})

    def part(self, rows: Places) -> Batch:
        """Some of the records."""
        kept, beside = ([column[row] for row in rows.tolist()] for column in (self.kept, self.beside))
        return _AvroMessages(self.stream, kept, take(self.values, rows), beside)


# Rows of a source with columns


def _rows(stream: Stream, rows: pa.Table, seen: dict[str, None]) -> Iterator[Batch]:
    names = {source_column: name for name in rows.column_names if (source_column := source_name(name)) is not None}
    if not seen:
        seen.update(dict.fromkeys(names))
    wanted, others = read_names(stream, list(names))
    position, batch = (whole(rows.column(name)).to_numpy() for name in ("position", "batch"))
    columns = {name: storage(whole(rows.column(names[name]))) for name in wanted}
    for first in range(0, rows.num_rows, BATCH_ROWS):
        length = min(BATCH_ROWS, rows.num_rows - first)
        tops = {name: column.slice(first, length) for name, column in columns.items()}
        one: Batch = RowsBatch.of(stream, 0, length, tops, others)
        one.positions, one.lines = position[first : first + length], batch[first : first + length]
        yield one


# When records arrived


def arrivals(stream: Stream, rows: pa.Table, schemas: Schemas | None) -> pa.Array:
    """When each record arrived, as its source says: timestamps, NULL where that cannot be read.

    It is what the judge reads of the same records. **Cost**: of a stream whose arrival is a column of the value, that
    of parsing the values; else nothing.

    Args:
        stream: a stream that comes through Spark.
        rows: as ``message_batches`` takes them, before they have an arrival.
        schemas: the registry's.

    Raises:
        UserError: as ``message_batches``.
    """
    if stream.arrival_time is None:
        stamps = _timestamps(rows) if stream.arrival_stamp == "broker" else whole(rows.column("landed_at"))
        return stamps.cast(TIMESTAMP)
    if stream.format != "jsonl":
        # Whether such a record can be read does not depend on which of its columns are.
        only = tuple(column for column in stream.columns if column.name == stream.arrival_time)
        stream = stream.model_copy(update={"columns": only, "other_columns": "ignore"})
    field = next(one for one in layout_of(stream).fields if one.column.name == stream.arrival_time)
    batches = _batches(stream, rows, schemas, {"": None}, Habits(others=False))
    arrived = [_arrivals(field, batch) for batch in batches]
    return pa.concat_arrays(arrived) if arrived else pa.array([], TIMESTAMP)


def _arrivals(field: Field, batch: Batch) -> pa.Array:
    """What the column says of a batch's records: as many at once as can be, as the judge reads them."""
    rows, arrived = list[np.ndarray](), list[pa.Array]()
    for places, part, raw in parts(batch):
        rows.append(places)
        arrived.append(_arrivals_of_part(field, part, raw))
    order = np.argsort(np.concatenate(rows), kind="stable")
    return pa.concat_arrays(arrived).take(pa.array(order))


def _arrivals_of_part(field: Field, part: Batch, raw: Raw | None) -> pa.Array:
    if raw is None:
        return pa.array([_arrival(field, part, row) for row in range(len(part))], pa.int64()).cast(TIMESTAMP)
    if field.column.name not in raw.columns:
        return pa.nulls(len(part), TIMESTAMP)
    typed, wrong = field.values.column(raw.columns[field.column.name])
    if wrong.any():
        us = typed.cast(pa.int64()).to_pylist()
        for row in np.flatnonzero(wrong).tolist():
            us[row] = _arrival(field, part, row)
        typed = pa.array(us, pa.int64())
    return typed.cast(TIMESTAMP)


def _arrival(field: Field, batch: Batch, row: int) -> Typed:
    """What the column says of one record, microseconds; None if it cannot be read."""
    record = batch.record(row)
    try:
        return None if record is None else field.values.read(record.values.get(field.column.name))
    except (NotOfTypeError, NotFiniteError):
        return None
