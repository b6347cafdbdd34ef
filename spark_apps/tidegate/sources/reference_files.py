"""A reference table's file → its rows, each value in its declared type; what is wrong with it stops whoever reads it.

Values are read as those of streams are, by the same formats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import ReferenceTable, Stream
from tidegate.declarations.tables import reference_rows_schema
from tidegate.sources.files import BrokenFileError, Piece, SourceFile
from tidegate.sources.formats import Batch, Reading, format_named
from tidegate.sources.formats.arrays import storage
from tidegate.sources.formats.base import Places, parts
from tidegate.sources.formats.parquet import FAULTS, RowsBatch, literal_name, read_names
from tidegate.sources.layout import Field, layout_of
from tidegate.store.places import place, refuse_outage
from tidegate.store.references import keyed
from tidegate.values.base import NotFiniteError, NotOfTypeError, RawValue, Typed, nulls_of, valid

MOST_SHOWN = 5
_ZEROS: dict[str, Any] = {"string": "", "bool": False}


class _Faults:
    """What is wrong with a table's file, a line each."""

    def __init__(self, table: ReferenceTable):
        self.table = table
        self.lines: list[str] = []

    def add(self, row: int, text: str) -> None:
        """Something is wrong with a row; the first is 1."""
        self.lines.append(f"row {row}: {text}")

    def refuse(self) -> None:
        """UserError if anything is wrong."""
        if self.lines:
            more = f" (and {len(self.lines) - MOST_SHOWN} more)" if len(self.lines) > MOST_SHOWN else ""
            raise _refused(self.table, "; ".join(self.lines[:MOST_SHOWN]) + more)


def read_reference(table: ReferenceTable) -> pa.Table:
    """The table's rows, in the order of its key.

    Raises:
        UserError: the file is not there, cannot be read, has a value that is not of its column's type, or does not say
            which one row a key names.
    """
    faults = _Faults(table)
    try:
        columns = [_typed(table, batch, first, faults) for first, batch in _batches(table)]
    except BrokenFileError as error:
        raise _refused(table, str(error)) from None
    except FileNotFoundError:
        raise _refused(table, "the file is not there") from None
    except OSError as error:
        raise _refused(table, str(error).splitlines()[0][:200]) from None
    faults.refuse()
    schema = reference_rows_schema(table)
    rows = pa.concat_tables([schema.empty_table(), *columns]).combine_chunks()
    _check_validity(table, rows, faults)
    faults.refuse()
    by_key = keyed(rows, table)
    clash = by_key.clash()
    if clash is not None:
        key = ", ".join(f"{name} {rows.column(name)[clash[0]].as_py()!s}" for name in table.key)
        same = "have the same key" if table.valid_from is None else "are valid at the same time for the key"
        faults.add(clash[0] + 1, f"it and row {clash[1] + 1} {same} {key}")
    faults.refuse()
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in _order(table)])).combine_chunks()


def version_of(rows: pa.Table) -> str:
    """What tells one content from another: equal rows in equal columns give equal names."""
    content = hashlib.sha256()
    for column in rows.schema:
        values = rows.column(column.name).combine_chunks()
        content.update(f"{column.name} {column.type}\n".encode())
        content.update(np.packbits(valid(values)).tobytes())
        for buffer in pc.fill_null(values, _zero(column.type)).buffers():
            content.update(b"" if buffer is None else buffer.to_pybytes())
    return content.hexdigest()[:16]


def _zero(kind: pa.DataType) -> pa.Scalar:
    if str(kind) in _ZEROS:
        return pa.scalar(_ZEROS[str(kind)], kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    return pa.scalar(0, pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)


def _order(table: ReferenceTable) -> list[str]:
    return [*table.key, *([table.valid_from] if table.valid_from else [])]


def _refused(table: ReferenceTable, what: str) -> UserError:
    return UserError(
        f"reference table {table.name}: {table.path}: {what}; nothing was ingested: mend the file and run the interval "
        "again"
    )


def _batches(table: ReferenceTable) -> Iterator[tuple[int, Batch]]:
    """Parts of the file, and the number of the row that each begins with, from 0."""
    stream = Stream(
        name=table.name,
        format=table.format,
        csv=table.csv,
        columns=table.columns,
        event_time="",
        arrival_time=None,
        id=(),
        rate=1.0,
        max_early_s=0,
        max_late_s=0,
    )
    first = 0
    batches = _of_delta(table, stream) if table.format == "delta" else _of_file(table, stream)
    for batch in batches:
        yield first, batch
        first += len(batch)


def _of_file(table: ReferenceTable, stream: Stream) -> Iterator[Batch]:
    path = place(table.path)
    status = path.stat()
    file = SourceFile(path, status.st_size, status.st_mtime_ns // 1000, None, None)
    if not file.bytes:
        raise BrokenFileError("the file is empty")
    reading = Reading(Piece(stream, file))
    yield from format_named(table.format).read(reading)
    _check_columns(table, reading.seen)
    if file.changed():
        raise BrokenFileError("it changed while it was read")


def _of_delta(table: ReferenceTable, stream: Stream) -> Iterator[Batch]:
    try:
        rows = DeltaTable(table.path).to_pyarrow_table()
        _check_columns(table, rows.schema.names)
        wanted, others = read_names(stream, rows.schema.names)
        tops = {name: storage(rows.column(name).combine_chunks()) for name in wanted}
    except (DeltaError, *FAULTS) as error:
        refuse_outage(place(table.path), error)
        raise BrokenFileError(str(error).splitlines()[0][:200]) from None
    yield RowsBatch.of(stream, 0, rows.num_rows, tops, others)


def _typed(table: ReferenceTable, batch: Batch, first: int, faults: _Faults) -> pa.Table:
    """A batch's rows in their types; what is not of its type is one of ``faults``, and NULL."""
    tables, order = [], []
    for rows, part, raw in parts(batch):
        columns = None if raw is None else _at_once(part, raw.columns)
        tables.append(_one_by_one(part, first + rows, faults) if columns is None else columns)
        order.append(rows)
    together = pa.concat_tables([reference_rows_schema(table).empty_table(), *tables])
    return together.take(pa.array(np.argsort(np.concatenate(order)))) if order else together


def _at_once(batch: Batch, raw: Mapping[str, pa.Array]) -> pa.Table | None:
    """All rows of a batch; None if any needs a closer look."""
    columns = {}
    for one in _fields(batch):
        values, wrong = nulls_of(one.column.type, len(batch)), np.zeros(len(batch), dtype=bool)
        if one.column.name in raw:
            values, wrong = one.values.column(raw[one.column.name])
        suspects = one.values.suspects(values)
        if wrong.any() or (suspects is not None and suspects.any()) or (one.required and values.null_count):
            return None
        columns[one.column.name] = values
    return pa.table(columns)


def _one_by_one(batch: Batch, numbers: Places, faults: _Faults) -> pa.Table:
    """The rows of a batch, each by itself. ``numbers``: of the rows in the file, from 0."""
    values: dict[str, list[Typed]] = {one.column.name: [] for one in _fields(batch)}
    for row, number in enumerate(numbers.tolist()):
        record = batch.record(row)
        if record is None:
            faults.add(number + 1, f"{batch.text(row)[:100]!r} cannot be read")
        for one in _fields(batch):
            name = one.column.name
            raw = None if record is None else record.values.get(name)
            value: Typed = None
            try:
                value = one.values.read(raw)
                if value is None and one.required and record is not None:
                    faults.add(number + 1, f"column {name} has no value")
            except NotOfTypeError:
                faults.add(number + 1, f"column {name}: {_written(raw)} is not of type {one.column.type}")
            except NotFiniteError:
                faults.add(number + 1, f"column {name}: {_written(raw)} is no finite number")
            values[name].append(value)
    return pa.table({one.column.name: one.values.of(values[one.column.name]) for one in _fields(batch)})


def _fields(batch: Batch) -> tuple[Field, ...]:
    return layout_of(batch.stream).fields  # type: ignore[attr-defined]


def _written(raw: RawValue) -> str:
    return repr(str(raw)[:100])


def _check_validity(table: ReferenceTable, rows: pa.Table, faults: _Faults) -> None:
    if table.valid_from is None or table.valid_to is None:
        return
    never = pc.less_equal(rows.column(table.valid_to), rows.column(table.valid_from))
    for row in pc.indices_nonzero(pc.fill_null(never, False)).to_pylist():
        faults.add(row + 1, f"{table.valid_to} is not later than {table.valid_from}")


def _check_columns(table: ReferenceTable, seen: Iterable[str]) -> None:
    """BrokenFileError if the file has names of columns, and one that is declared is not among them."""
    names = set(seen)
    missing = [c.name for c in table.columns if not {literal_name(c.steps), str(c.steps[0])} & names]
    if names and missing and (table.format != "csv" or table.csv.header):
        raise BrokenFileError(f"it has no column {missing[0]!r}")
