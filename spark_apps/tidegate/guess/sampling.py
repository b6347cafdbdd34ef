"""Reads a bounded part of a stranger's files. The only module here that opens files.

A file's format is seen from its content, inside gzip and zstd too. Of each file the first records are read, of the
newest of each stream the last ones as well.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import CsvDialect
from tidegate.guess.csv_dialect import cells, decoded, dialect_of
from tidegate.guess.records import FileSample, Number, Steps
from tidegate.values.types import MAX_PRECISION, ColumnType, decimal_type

MOST_FILES = 20
MOST_RECORDS = 2000
"""Of one file's beginning."""
HEAD_BYTES = 4 << 20
TAIL_BYTES = 256 << 10
_TAIL_RECORDS = 500
_UNPACKED_BYTES = 64 << 20
_READ_FORMATS = "jsonl, JSON documents or arrays of them, CSV, Parquet or Avro, plain or in gzip or zstd"
_UNREADABLE = {
    b"PK\x03\x04": "a zip archive or an Excel workbook: unpack it, or save its sheet as CSV",
    b"BZh": "packed with bzip2: unpack it, or pack it with gzip or zstd",
    b"\xfd7zXZ": "packed with xz: unpack it, or pack it with gzip or zstd",
    b"ORC": "an ORC file: write it as Parquet",
    b"SQLite format 3": "an SQLite database: export the table as CSV",
    b"%PDF": "a PDF",
}


@dataclass(frozen=True)
class _Octets:
    """A part of a file's (unpacked) octets. ``share``: which share of the file it is, estimated."""

    head: bytes
    tail: bytes
    whole: bool
    share: float
    packed: bool


def files_in(named: Sequence[Path]) -> list[Path]:
    """The files that were named, and those of the folders that were named; not those that begin with `.` or `_`.

    Raises:
        UserError: something is not there, or there is no file.
    """
    files: list[Path] = []
    for path in named:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
            if not inside:
                raise UserError(f"{path} has no files: name files, or a folder that has some")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"{path} does not exist: name files or folders to look at")
    return list(dict.fromkeys(Path(path).absolute() for path in files))


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def beside(files: Sequence[Path]) -> dict[Path, tuple[Path, ...]]:
    """Folder of these files → all the files in it."""
    folders = sorted({file.parent for file in files})
    return {
        folder: tuple(sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith((".", "_"))))
        for folder in folders
    }


def newest(files: Sequence[Path]) -> Path:
    """The file that was written last, of several at once the last by name."""
    return max(files, key=lambda file: (file.stat().st_mtime_ns, file.name))


def octets_of(files: Sequence[Path]) -> int:
    """How many octets the files have together."""
    return sum(file.stat().st_size for file in files)


def chosen(files: Sequence[Path]) -> list[Path]:
    """At most ``MOST_FILES`` of the files: the first, the last by name, and some between.

    >>> len(chosen([Path(str(n)) for n in range(100)])), chosen([Path("a")])
    (20, [PosixPath('a')])
    """
    if len(files) <= MOST_FILES:
        return list(files)
    return [files[round(n * (len(files) - 1) / (MOST_FILES - 1))] for n in range(MOST_FILES)]


def read_sample(path: Path, tail: bool = False) -> FileSample:
    """The first records of a file, and with ``tail`` its last ones.

    Raises:
        UserError: it cannot be read, or is of no format that is known.
    """
    try:
        status = path.stat()
        with path.open("rb") as file:
            start = file.read(16)
        if not start:
            raise UserError(f"{path} is empty: name files that have records")
        if start.startswith(b"PAR1"):
            sample = _parquet(path, tail)
        elif start.startswith(b"Obj\x01"):
            sample = _avro(path)
        else:
            _refuse_other(path, start)
            sample = _text(path, _octets(path, start, status.st_size, tail))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    return replace(sample, modified_s=status.st_mtime, size=status.st_size)


def _refuse_other(path: Path, start: bytes) -> None:
    for mark, what in _UNREADABLE.items():
        if start.startswith(mark):
            raise UserError(f"{path} is {what}; read are {_READ_FORMATS}")


def _octets(path: Path, start: bytes, size: int, tail: bool) -> _Octets:
    packing = "gzip" if start.startswith(b"\x1f\x8b") else "zstd" if start.startswith(b"\x28\xb5\x2f\xfd") else ""
    if not packing:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            rest = b""
            if tail and size > len(head):
                file.seek(max(len(head), size - TAIL_BYTES))
                rest = file.read(TAIL_BYTES)
        return _Octets(head, rest, len(head) >= size, min(len(head) / size, 1.0), False)
    with path.open("rb") as raw:
        unpacked = gzip.GzipFile(fileobj=raw) if packing == "gzip" else _zstd(raw)
        try:
            head = _read(unpacked, HEAD_BYTES)
            share, rest = raw.tell() / size, b""
            more = unpacked.read(1)
            total = len(head) + 1
            while more and tail and total < _UNPACKED_BYTES:
                total += len(more)
                rest = (rest + more)[-TAIL_BYTES:]
                more = unpacked.read(1 << 20)
        except (EOFError, gzip.BadGzipFile, OSError) as error:
            raise UserError(f"{path} cannot be unpacked ({error}): is it complete?") from None
    whole = not rest and not more
    return _Octets(head, b"" if more else rest, whole, 1.0 if whole else min(max(share, 1e-6), 1.0), True)


def _zstd(raw: BinaryIO) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")


def _read(stream: Any, most: int) -> bytes:
    parts, left = [], most
    while left and (part := stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _text(path: Path, octets: _Octets) -> FileSample:
    text = decoded(octets.head, octets.whole)
    if "\0" in text.text[:1000]:
        raise UserError(f"{path} is no text, and of no known format; read are {_READ_FORMATS}")
    opening = text.text.lstrip("\ufeff \t\r\n")[:1]
    if opening in ("{", "["):
        return _json(path, octets, text.text.lstrip("\ufeff"))
    whole_lines = text.text.lstrip("\ufeff")
    if not octets.whole:
        whole_lines = whole_lines[: whole_lines.rfind("\n") + 1] or whole_lines
    dialect = dialect_of(whole_lines, text.encoding)
    if dialect is None:
        raise UserError(
            f"{path} is text, but its lines are no JSON, and have no cells between ',', ';', tabs or '|'; read are "
            f"{_READ_FORMATS}"
        )
    return _csv(path, octets, whole_lines, dialect)


def _json(path: Path, octets: _Octets, text: str) -> FileSample:
    lines = [line for line in text.splitlines() if line.strip()]
    if not octets.whole and not text.endswith("\n"):
        lines = lines[:-1]
    objects = [value for line in lines[:50] if isinstance(value := _parsed(line), dict)]
    if lines and len(objects) >= max(1, len(lines[:50]) * 0.8):
        head = [value for line in lines[:MOST_RECORDS] if isinstance(value := _parsed(line), dict)]
        tail_lines = octets.tail.decode(errors="replace").splitlines()[1:] or lines[MOST_RECORDS:]
        tail = [value for line in tail_lines[-_TAIL_RECORDS:] if isinstance(value := _parsed(line), dict)]
        whole = octets.whole and len(lines) <= MOST_RECORDS
        about = float(len(lines)) if octets.whole else len(lines) / octets.share
        return FileSample(path, "jsonl", head, tail, whole, about, packed=octets.packed)
    documents = list(_documents(text))
    records = [value for value in documents if isinstance(value, dict)]
    if not records:
        what = "lists" if any(isinstance(value, list) for value in documents) else "plain values"
        raise UserError(
            f"{path} is JSON, but its documents are {what if documents else 'not complete'}, not objects: a record is "
            'an object with named fields; write each as one, as {"time": …, "price": …}'
        )
    about = float(len(documents)) if octets.whole else len(documents) / octets.share
    tail, head = records[MOST_RECORDS:][-_TAIL_RECORDS:], records[:MOST_RECORDS]
    whole = octets.whole and not tail
    return FileSample(path, "json", head, tail, whole, about, packed=octets.packed, remarks=_one_document(records))


def _one_document(records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """A remark on a file that is one document with the records in a list of it."""
    if len(records) > 1:
        return ()
    lists = [k for k, v in records[0].items() if isinstance(v, list) and len(v) > 1 and isinstance(v[0], dict)]
    if not lists:
        return ()
    return (f"each file is one record; the objects in its list '{lists[0]}' are not records of their own",)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=Number)
    except (ValueError, RecursionError):
        return None


def _documents(text: str) -> Iterator[Any]:
    """The documents of a text, and the elements of lists at the top, as far as the text has them complete."""
    decoder = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)
    at, inside = 0, False
    while at < len(text):
        if text[at] in " \t\r\n" or (inside and text[at] == ","):
            at += 1
        elif text[at] == "[" and not inside:
            at, inside = at + 1, True
        elif text[at] == "]" and inside:
            at, inside = at + 1, False
        else:
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                return
            yield value


def _csv(path: Path, octets: _Octets, text: str, dialect: CsvDialect) -> FileSample:
    rows = cells(text, dialect, None if octets.whole else MOST_RECORDS + int(dialect.header))
    header = [name.strip() for name in rows.pop(0)] if dialect.header else []
    complete = octets.whole and len(rows) <= MOST_RECORDS
    last = octets.tail.decode(dialect.encoding, errors="replace").partition("\n")[2]
    tail_rows = (rows[MOST_RECORDS:] if octets.whole else cells(last, dialect))[-_TAIL_RECORDS:]
    width = len(header) or max(map(len, rows[:1]), default=0)
    repeated = {name for name in header if not name or header.count(name) > 1}
    # A name that is there twice, or none, cannot name a cell: its place can.
    keys: list[str | int] = [n if not header or header[n] in repeated else header[n] for n in range(width)]
    records, tail = (
        [dict(zip(keys, row, strict=True)) for row in some if len(row) == width]
        for some in (rows[:MOST_RECORDS], tail_rows)
    )
    remarks = (f"its header has {', '.join(sorted(map(repr, repeated)))} more than once",) if repeated - {""} else ()
    about = float(len(rows)) if octets.whole else (text.count("\n") - dialect.header) / octets.share
    return FileSample(path, "csv", records, tail, complete, about, dialect, octets.packed, remarks=remarks)


def _parquet(path: Path, tail: bool) -> FileSample:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        records: list[dict[str, Any]] = []
        for batch in file.iter_batches(batch_size=MOST_RECORDS):
            records += batch.to_pylist()[: MOST_RECORDS - len(records)]
            if len(records) == MOST_RECORDS:
                break
        last: list[dict[str, Any]] = []
        meta = file.metadata
        if (
            tail
            and meta.num_rows > len(records)
            and meta.row_group(meta.num_row_groups - 1).total_byte_size < (_UNPACKED_BYTES * 4)
        ):
            group = file.read_row_group(meta.num_row_groups - 1)
            least = max(group.num_rows - min(_TAIL_RECORDS, meta.num_rows - len(records)), 0)
            last = group.slice(least).to_pylist()
    except pa.ArrowException as error:
        raise UserError(f"{path} is no Parquet file that can be read: {str(error).splitlines()[0][:200]}") from None
    types: dict[Steps, ColumnType] = {
        (field.name,): decimal_type(field.type.precision, field.type.scale)
        for field in file.schema_arrow
        if pa.types.is_decimal(field.type) and 0 <= field.type.scale <= field.type.precision <= MAX_PRECISION
    }
    whole = meta.num_rows <= len(records)
    return FileSample(path, "parquet", records, last, whole, float(meta.num_rows), types=types)


def _avro(path: Path) -> FileSample:
    try:
        import fastavro
    except ImportError:
        raise UserError(f"{path} is an Avro file, which needs the package fastavro: pip install fastavro") from None
    records: list[Any] = []
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            for record in fastavro.reader(file):
                if len(records) == MOST_RECORDS:
                    share = min(max(file.tell() / size, 1e-6), 1.0)
                    return FileSample(path, "avro", records, (), False, len(records) / share)
                records.append(record)
    except (ValueError, KeyError, EOFError, TypeError, IndexError) as error:
        raise UserError(f"{path} is no Avro file that can be read: {error}") from None
    return FileSample(path, "avro", records, (), True, float(len(records)))
