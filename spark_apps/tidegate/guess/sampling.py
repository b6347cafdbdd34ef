"""Reads a bounded part of a stranger's files. The only module here that opens files.

A file's format is seen from its content, inside gzip and zstd too. Of each file the first records are read, of the
newest of each stream the last ones as well.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import CsvDialect
from tidegate.guess.csv_dialect import decoded, dialect_of, row_of
from tidegate.guess.records import FileSample, Steps
from tidegate.sources.files import BrokenFileError, SourceFile, source_file
from tidegate.sources.formats import parquet
from tidegate.sources.formats.csv_splitter import CsvSplitter
from tidegate.sources.formats.json_documents import DocumentSplitter, elements_of
from tidegate.sources.formats.json_records import parse_object
from tidegate.sources.text import (
    FAULTS,
    LineSplitter,
    Splitter,
    Unpacked,
    block_of,
    first_line_of,
    other_than_text,
    unpacked_file,
)
from tidegate.values.types import MAX_PRECISION, ColumnType, decimal_type

MOST_FILES = 20
MOST_RECORDS = 2000
"""Of one file's beginning."""
HEAD_BYTES = 4 << 20
TAIL_BYTES = 256 << 10
_TAIL_RECORDS = 500
_WRAPPED = 10
"""So many objects in a list of each document are rather records than parts of one."""
_UNPACKED_BYTES = 64 << 20
_READ_FORMATS = "jsonl, JSON documents or arrays of them, CSV, Parquet or Avro, plain or in gzip or zstd"

_Parser = Callable[[bytes], Mapping[Any, Any] | None]
"""Reads a record; None if it is none."""


@dataclass(frozen=True)
class _Octets:
    """A part of a file's (unpacked) octets. ``share``: which share of the file it is, estimated."""

    path: Path
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
        file = source_file(path, status, None, None, "")
        octets = _octets(path, file, tail)
        if not octets.head:
            raise UserError(f"{path} is empty: name files that have records")
        if octets.head.startswith(b"PAR1"):
            sample = _parquet(path, file, tail)
        elif octets.head.startswith(b"Obj\x01"):
            sample = _avro(path, file)
        else:
            sample = _text(octets)
    except (BrokenFileError, *FAULTS) as error:
        raise UserError(f"{path} cannot be read: {first_line_of(error)}") from None
    return replace(sample, modified_s=status.st_mtime, size=status.st_size)


def _octets(path: Path, file: SourceFile, tail: bool) -> _Octets:
    unpacked = unpacked_file(file)
    with unpacked.content as content:
        head, more = content.read(HEAD_BYTES), content.read(1)
        whole, share = not more, _share(unpacked, file) if more else 1.0
        if tail and more and not unpacked.packed:
            content.seek(max(HEAD_BYTES, file.bytes - TAIL_BYTES))
            more = content.read(1)
        rest, count = b"", 0
        while tail and more and count < _UNPACKED_BYTES:
            count += len(more)
            rest = (rest + more)[-TAIL_BYTES:]
            more = content.read(1 << 20)
    return _Octets(path, head, b"" if more else rest, whole, share, unpacked.packed)


def _share(unpacked: Unpacked, file: SourceFile) -> float:
    """Which share of a file has been read."""
    place: int = unpacked.raw.tell()
    return min(max(place / file.bytes, 1e-6), 1.0)


def _text(octets: _Octets) -> FileSample:
    path, what = octets.path, other_than_text(octets.head)
    if what:
        raise UserError(f"{path} is {what}; read are {_READ_FORMATS}")
    text, encoding = decoded(octets.head, octets.whole)
    if "\0" in text[:1000]:
        raise UserError(f"{path} is no text, and of no known format; read are {_READ_FORMATS}")
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        if encoding.startswith("utf-16"):
            raise UserError(f"{path} is JSON in {encoding}: write it in UTF-8, in which JSON is read")
        return _json(replace(octets, head=octets.head.removeprefix(codecs.BOM_UTF8)))
    dialect = dialect_of(text, encoding)
    if dialect is None:
        raise UserError(
            f"{path} is text, but its lines are no JSON, and have no cells between ',', ';', tabs or '|'; read are "
            f"{_READ_FORMATS}"
        )
    tail = octets.tail.decode(encoding, "replace").encode()
    return _csv(replace(octets, head=text.encode(), tail=tail), dialect)


def _records(octets: _Octets, splitter: Splitter) -> tuple[list[bytes], list[bytes]]:
    """The records of the beginning, and those of the end."""
    head, tail = octets.head, octets.tail.partition(b"\n")[2]
    return (
        block_of(head, splitter.split(head, octets.whole)).records(),
        block_of(tail, splitter.split(tail, final=True)).records(),
    )


def _sample(octets: _Octets, form: str, parsed: _Parser, head: Sequence[bytes], tail: Sequence[bytes]) -> FileSample:
    """What is read of a text file whose records are ``head`` at its beginning, and ``tail`` at its end."""
    parts = head[:MOST_RECORDS], (tail or head[MOST_RECORDS:])[-_TAIL_RECORDS:]
    first, last = ([record for record in map(parsed, part) if record] for part in parts)
    whole = octets.whole and len(head) <= MOST_RECORDS
    return FileSample(octets.path, form, first, last, whole, len(head) / octets.share, packed=octets.packed)


def _json(octets: _Octets) -> FileSample:
    lines, last = _records(octets, LineSplitter())
    objects = sum(parse_object(line) is not None for line in lines[:50])
    if lines and objects >= max(1, len(lines[:50]) * 0.8):
        sample = _sample(octets, "jsonl", parse_object, lines, last)
        return replace(sample, remarks=_wrapped(sample.records))
    documents = elements_of(octets.head, DocumentSplitter().split(octets.head, octets.whole))[0].records()
    sample = _sample(octets, "json", parse_object, documents, ())
    if not sample.records:
        begin = documents[0][:1] if documents else b""
        what = {b"": "not complete", b"[": "lists", b"{": "empty or not valid"}.get(begin, "plain values")
        raise UserError(
            f"{octets.path} is JSON, but its documents are {what}: a record is an object with named fields; write each "
            'as one, as {"time": …, "price": …}'
        )
    return replace(sample, remarks=_wrapped(sample.records))


def _wrapped(records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """A remark on documents that hold what are rather the records in a list."""
    sizes: dict[str, list[int]] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                sizes.setdefault(name, []).append(len(value))
    least = 2 if len(records) == 1 else _WRAPPED
    lists = [name for name, some in sizes.items() if len(some) > len(records) / 2 and sum(some) >= least * len(some)]
    if not lists:
        return ()
    objects = max(sizes[lists[0]])
    return (
        f"each document is one record; the up to {objects} objects in its list '{lists[0]}' are not records of their "
        f"own: write each of them as one, such as by jq -c '.{lists[0]}[]'",
    )


def _csv(octets: _Octets, dialect: CsvDialect) -> FileSample:
    head, tail = _records(octets, CsvSplitter(dialect))
    header = [name.strip() for name in row_of(dialect, head.pop(0))] if dialect.header and head else []
    width = len(header) or len(row_of(dialect, head[0]) if head else ())
    repeated = {name for name in header if not name or header.count(name) > 1}
    # A name that is there twice, or none, cannot name a cell: its place can.
    keys: list[str | int] = [n if not header or header[n] in repeated else header[n] for n in range(width)]

    def parsed(record: bytes) -> dict[str | int, str] | None:
        row = row_of(dialect, record)
        return dict(zip(keys, row, strict=True)) if len(row) == width else None

    remarks = (f"its header has {', '.join(sorted(map(repr, repeated)))} more than once",) if repeated - {""} else ()
    return replace(_sample(octets, "csv", parsed, head, tail), csv=dialect, remarks=remarks)


def _parquet(path: Path, file: SourceFile, tail: bool) -> FileSample:
    try:
        with parquet.opened_parquet(file) as content:
            meta = content.metadata
            # Group by group: pyarrow cannot make one batch of several groups' nested values.
            groups = (content.iter_batches(MOST_RECORDS, row_groups=[n]) for n in range(meta.num_row_groups))
            rows = (row for batches in groups for batch in batches for row in batch.to_pylist())
            records: list[dict[str, Any]] = list(islice(rows, MOST_RECORDS))
            last: list[dict[str, Any]] = []
            final = meta.num_row_groups - 1
            if tail and meta.num_rows > len(records) and meta.row_group(final).total_byte_size < _UNPACKED_BYTES * 4:
                group = content.read_row_group(final)
                least = max(group.num_rows - min(_TAIL_RECORDS, meta.num_rows - len(records)), 0)
                last = group.slice(least).to_pylist()
            schema = content.schema_arrow
    except parquet.FAULTS as error:
        raise UserError(f"{path} is no Parquet file that can be read: {first_line_of(error)[:200]}") from None
    types: dict[Steps, ColumnType] = {
        (field.name,): decimal_type(field.type.precision, field.type.scale)
        for field in schema
        if pa.types.is_decimal(field.type) and 0 <= field.type.scale <= field.type.precision <= MAX_PRECISION
    }
    whole = meta.num_rows <= len(records)
    return FileSample(path, "parquet", records, last, whole, float(meta.num_rows), types=types)


def _avro(path: Path, file: SourceFile) -> FileSample:
    try:
        import fastavro

        from tidegate.sources.formats import avro
    except ImportError:
        raise UserError(f"{path} is an Avro file, which needs the package fastavro: pip install fastavro") from None
    try:
        unpacked = unpacked_file(file)
        with unpacked.content as content:
            reader = fastavro.reader(content)
            avro.fields_in(reader.writer_schema)
            records: list[Any] = list(islice(reader, MOST_RECORDS))
            whole = next(reader, None) is None
            share = 1.0 if whole else _share(unpacked, file)
    except avro.FAULTS as error:
        raise UserError(f"{path} is no Avro file that can be read: {first_line_of(error)}") from None
    return FileSample(path, "avro", records, (), whole, len(records) / share)
