"""Parquet as others write it: what can be read is read, whatever its types are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa

from tidegate.declarations.models import Stream
from tidegate.sources.blocks import BrokenFileError
from tidegate.sources.files import Piece, SourceFile
from tidegate.sources.values import END_US, LEAST_US, Day, Given, Moment, Nothing, moment_text
from tidegate.store import parquet as stored
from tidegate.store.places import refuse_outage

BATCH_ROWS = 1 << 16
_PER_US = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_DAY_MS = 86_400_000
_FAULTS = (pa.ArrowException, OSError, ValueError, NotImplementedError)


def batches(piece: Piece) -> Iterator[tuple[int, pa.Table]]:
    """The piece's rows, in order, each batch with the number of its first row in the file.

    Raises:
        BrokenFileError: it is no Parquet file, is damaged, or names a column twice.
    """
    try:
        with stored.opened(piece.file.path) as file:
            names = file.schema_arrow.names
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise BrokenFileError(f"it has the column {twice!r} twice")
            groups = range(piece.start, file.num_row_groups if piece.end is None else piece.end)
            row = sum(file.metadata.row_group(i).num_rows for i in range(piece.start))
            for batch in file.iter_batches(BATCH_ROWS, row_groups=list(groups), use_threads=False):
                yield row, readable(batch)
                row += batch.num_rows
            said = sum(file.metadata.row_group(i).num_rows for i in range(groups.stop))
            if row != said:
                raise BrokenFileError(f"its footer says {said} rows, {row} can be read")
    except _FAULTS as error:
        refuse_outage(piece.file.path, error)
        said = str(error).splitlines()
        raise BrokenFileError(said[0] if said else type(error).__name__) from None


def readable(batch: pa.RecordBatch) -> pa.Table:
    """The rows in types that have kernels; ArrowException if a damaged dictionary lacks what is looked up in it."""
    return pa.table([_storage(column) for column in batch.columns], batch.schema.names)


def footer_rows(piece: Piece) -> int:
    """How many rows the file's footer says that the piece has."""
    try:
        footer = stored.footer(piece.file.path)
        groups = range(piece.start, footer.num_row_groups if piece.end is None else piece.end)
        return sum(footer.row_group(i).num_rows for i in groups)
    except _FAULTS as error:
        refuse_outage(piece.file.path, error)
        raise BrokenFileError(str(error).splitlines()[0]) from None


def rows_at(file: SourceFile, stream: Stream, rows: Sequence[int]) -> list[str]:
    """Some rows of the file, ascending, as the quarantine shows them."""
    found: list[str] = []
    wanted = iter(rows)
    row = next(wanted, None)
    for first, batch in batches(Piece(stream, file)):
        own = []
        while row is not None and row < first + batch.num_rows:
            own.append(row - first)
            row = next(wanted, None)
        found += [record_text(given) for given in givens(batch, own)]
        if row is None:
            break
    return found


def plain(given: pa.Table) -> pa.Table | None:
    """The columns with strings of all kinds as ``pa.string()``; None if there is one that is no UTF-8."""
    columns = {}
    for name in given.column_names:
        column = given.column(name)
        column = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
        if _is_text(column.type):
            try:
                column.validate(full=True)
                column = column.cast(pa.string())
            except (pa.ArrowException, UnicodeDecodeError):
                return None
        columns[name] = column
    return pa.table(columns)


def _storage(column: pa.Array) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def givens(rows: pa.Table, wanted: Sequence[int] | None = None) -> list[dict[str, Given]]:
    """Some rows (all, if None), each as column → value, NULLs too."""
    columns = []
    for name in rows.column_names:
        column = rows.column(name)
        column = column if wanted is None else column.take(pa.array(wanted, pa.int64()))
        columns.append([x for chunk in column.chunks for x in _given(chunk)])
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _given(column: pa.Array) -> list[Given]:
    kind = column.type
    if _is_text(kind):
        as_octets = column.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
        return [None if x is None else _decoded(x) for x in as_octets.to_pylist()]
    if pa.types.is_timestamp(kind):
        times, by = _PER_US[kind.unit]
        return [None if x is None else Moment(x * times // by) for x in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_date32(kind):
        return [None if x is None else Day(x) for x in column.cast(pa.int32()).to_pylist()]
    if pa.types.is_date64(kind):
        return [None if x is None else Day(x // _DAY_MS) for x in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return list(column.to_pylist())
    if pa.types.is_floating(kind):
        return list(column.cast(pa.float64()).to_pylist())
    return [Nothing(_shown(value)) if value.is_valid else None for value in column]


def _decoded(octets: bytes) -> Given:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return Nothing(octets.decode(errors="backslashreplace"))


def _shown(value: pa.Scalar) -> str:
    try:
        found = value.as_py()
        return found.decode(errors="backslashreplace") if isinstance(found, bytes) else str(found)
    except (ValueError, OverflowError, pa.ArrowException):
        return str(value)


def record_text(given: dict[str, Given]) -> str:
    """A row as the quarantine shows it: a JSON object of the columns that have a value."""
    return json.dumps(
        {name: _jsonable(value) for name, value in given.items() if value is not None}, ensure_ascii=False
    )


def _jsonable(value: Given) -> object:
    if isinstance(value, Moment):
        return moment_text(value.us) if LEAST_US <= value.us < END_US else f"{value.us} microseconds after 1970-01-01"
    if isinstance(value, Day):
        us = value.days * 86_400_000_000
        return moment_text(us)[:10] if LEAST_US <= us < END_US else f"{value.days} days after 1970-01-01"
    if isinstance(value, Nothing):
        return value.text
    if isinstance(value, Decimal):
        return format(value, "f")
    # JSON has no NaN.
    return str(value) if isinstance(value, float) and value - value != 0 else value
