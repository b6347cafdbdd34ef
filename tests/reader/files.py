"""A file's octets to records, by its stream's format: compression, encoding, lines, positions."""

from __future__ import annotations

import codecs
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from tests.reader.columnar import avro_rows, parquet_rows
from tests.reader.csv_text import Cell, Row, csv_rows
from tests.reader.json_text import documents, json_object
from tests.reader.raw import BrokenError, Items, Members, Raw, RefusedError

from tidegate.declarations.models import Column, CsvDialect, PathStep, Stream

GZIP, ZSTD, MARK = b"\x1f\x8b", b"(\xb5/\xfd", "\ufeff"
UNREADABLE = (b"BZh", b"PAR1", b"\xfd7zXZ")
UNDECODED = re.compile("[\udc80-\udcff]")
Reach = Callable[[Column], Raw]


@dataclass(frozen=True)
class Record:
    """A record of a file.

    ``position``: its line or row from 1. ``place``: the octet at which it begins in the text, or its row from 0.
    ``text``: as the file has it; None where the file has no text of it. ``reach``: gives the raw value of a declared
    column; None: the record is broken. ``others``: names at its top from which no column is read, and that have a
    value.
    """

    position: int
    place: int
    text: str | None
    reach: Reach | None
    others: tuple[str, ...] = ()


def records(stream: Stream, name: str, content: bytes) -> list[Record]:
    """The records of a file.

    Raises:
        BrokenError: nothing of the file can be read.
    """
    content = unpacked(name, content, text=stream.format not in ("parquet", "avro"))
    if stream.format in ("parquet", "avro"):
        names, rows = parquet_rows(content) if stream.format == "parquet" else avro_rows(content)
        return list(_rows(stream, names, rows))
    if stream.format == "csv":
        return list(_csv(stream, decoded(content, stream.csv.encoding)))
    text = content.decode(errors="surrogateescape")
    return list(_json(stream, text, documents if stream.format == "json" else lines))


def unpacked(name: str, content: bytes, text: bool = True) -> bytes:
    """The content of a file, whatever it is packed in: its name or its first octets say so."""
    if name.endswith(".gz") or content.startswith(GZIP):
        return _gunzip(content)
    if name.endswith((".zst", ".zstd")) or content.startswith(ZSTD):
        try:
            return pa.input_stream(io.BytesIO(content), compression="zstd").read()
        except (pa.ArrowException, OSError):
            raise BrokenError from None
    if text and content.startswith(UNREADABLE):
        raise BrokenError
    return content


def _gunzip(content: bytes) -> bytes:
    whole = b""
    while content:
        reader = zlib.decompressobj(31)
        try:
            whole += reader.decompress(content) + reader.flush()
        except zlib.error:
            raise BrokenError from None
        if not reader.eof:
            raise BrokenError
        content = reader.unused_data.lstrip(b"\0")
    return whole


def decoded(content: bytes, encoding: str) -> str:
    """Text; what cannot be decoded is there as half of a surrogate pair."""
    if codecs.lookup(encoding).name == "utf-8":
        return content.decode(errors="surrogateescape")
    return content.decode(encoding, errors="undecoded")


codecs.register_error("undecoded", lambda error: ("\udc80", error.end))  # type: ignore[attr-defined]


@dataclass
class Ruler:
    """Measures a text from its beginning: how many lines and octets lie before a place."""

    text: str
    at: int = 0
    line: int = 1
    octets: int = 0

    def move(self, at: int) -> tuple[int, int]:
        """The line, from 1, and the octet, from 0, of a place that is no earlier than the one before."""
        passed = self.text[self.at : at]
        self.line += len(re.findall(r"\r\n|\r|\n", passed))
        self.octets += len(passed.encode(errors="surrogateescape"))
        self.at = at
        return self.line, self.octets


def shown(text: str) -> str:
    """Text as the quarantine shows it: octets that are no UTF-8 are escaped."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


# Where a column's value is


def follow(top: Members, steps: tuple[PathStep, ...]) -> Raw:
    """The value to which steps lead, None if it is not there.

    Raises:
        RefusedError: there is no object, or no list, where one must be.
        BrokenError: a name on the way comes twice.
    """
    value: Raw = top
    for step in steps:
        if value is None:
            return None
        if isinstance(step, int):
            if not isinstance(value, Items):
                raise RefusedError("wrong_type")
            value = value[step] if step < len(value) else None
            continue
        if not isinstance(value, Members):
            raise RefusedError("wrong_type")
        same = [content for name, content in value if name == step]
        if len(same) > 1:
            raise BrokenError
        value = same[0] if same else None
    return value


def whole_text(steps: tuple[PathStep, ...]) -> str:
    """A path as text, names as they are."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


# JSON


def lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with where it begins; LF, CR and CRLF end one."""
    for match in re.finditer(r"[^\r\n]+", text):
        if match[0].strip(" \t"):
            yield match.start(), match[0]


def _json(stream: Stream, text: str, split: Callable[[str], Iterator[tuple[int, str]]]) -> Iterator[Record]:
    mark = len(MARK) if text.startswith(MARK) else 0
    ruler = Ruler(text)
    for at, segment in split(text[mark:]):
        position, place = ruler.move(at + mark)
        visible = shown(segment) if stream.format == "jsonl" else None
        try:
            if UNDECODED.search(segment):
                raise BrokenError
            top = json_object(segment)
            _check_members(stream, top)
        except BrokenError:
            yield Record(position, place, visible, None)
            continue
        others = {name for name, value in top if value is not None or stream.other_columns == "refuse"}
        others -= {str(column.steps[0]) for column in stream.columns}

        def reach(column: Column, top: Members = top) -> Raw:
            return follow(top, column.steps)

        yield Record(position, place, visible, reach, tuple(sorted(others)))


def _check_members(stream: Stream, top: Members) -> None:
    """Raise BrokenError for a name that comes twice on the way to a column, or a value that is no text."""
    names = [name for name, _ in top]
    if stream.other_columns == "refuse" and len(set(names)) < len(names):
        raise BrokenError
    for column in stream.columns:
        try:
            _check_text(follow(top, column.steps))
        except RefusedError:
            continue


def _check_text(raw: Raw) -> None:
    """Raise BrokenError for half of a surrogate pair: it is no text."""
    try:
        if isinstance(raw, Members):
            for name, value in raw:
                name.encode()
                _check_text(value)
        elif isinstance(raw, Items):
            for value in raw:
                _check_text(value)
        elif isinstance(raw, str):
            raw.encode()
    except UnicodeEncodeError:
        raise BrokenError from None


# CSV


def _csv(stream: Stream, text: str) -> Iterator[Record]:
    dialect = stream.csv
    mark = len(MARK) if text.startswith(MARK) else 0
    ruler, rows = Ruler(text), list(csv_rows(text[mark:], dialect))
    if not rows:
        return
    places = {column.name: step for column in stream.columns for step in column.steps if isinstance(step, int)}
    names: list[str] = []
    if dialect.header:
        names, rows = header_names(stream, rows[0]), rows[1:]
        places |= {c.name: names.index(_header_name(c)) for c in stream.columns if _header_name(c) in names}
        width = len(names)
    else:
        first = next((len(row.cells) for row in rows if readable(row)), 0)  # type: ignore[arg-type]
        width = max([first, *(place + 1 for place in places.values())])
    others = {name for name in names if name} - {names[place] for place in places.values() if place < len(names)}
    others |= set() if dialect.header else {f"[{n}]" for n in range(width)} - {f"[{n}]" for n in places.values()}
    for row in rows:
        position, place = ruler.move(row.at + mark)
        if not readable(row) or len(row.cells or ()) != width:
            yield Record(position, place, shown(row.text), None)
            continue
        cells = [raw_cell(cell, dialect) for cell in row.cells or ()]

        def reach(column: Column, cells: list[str | None] = cells) -> Raw:
            at = places.get(column.name, len(cells))
            return cells[at] if at < len(cells) else None

        yield Record(position, place, shown(row.text), reach, tuple(sorted(others)))


def readable(row: Row) -> bool:
    """Whether a row's quotes are well set, and its text could be decoded and has no NUL."""
    return row.cells is not None and not UNDECODED.search(row.text) and "\0" not in row.text


def raw_cell(cell: Cell, dialect: CsvDialect) -> str | None:
    """A cell's text, None if it stands for no value."""
    return None if not cell.quoted and cell.text in ("", *dialect.nulls) else cell.text


def _header_name(column: Column) -> str | None:
    return column.steps[0].strip() if isinstance(column.steps[0], str) else None


def header_names(stream: Stream, row: Row) -> list[str]:
    """The names of a file's columns.

    Raises:
        BrokenError: it cannot be read, a name that a column reads comes twice, or no column's name is there.
    """
    if not readable(row):
        raise BrokenError
    names = [cell.text.strip() for cell in row.cells or ()]
    read = {name for name in map(_header_name, stream.columns) if name is not None}
    if any(names.count(name) > 1 for name in read) or (read and not read & set(names)):
        raise BrokenError
    return names


# Parquet and Avro


def _rows(stream: Stream, names: list[str], rows: list[Members]) -> Iterator[Record]:
    whole = {c.name: whole_text(c.steps) for c in stream.columns if whole_text(c.steps) in names}
    read = {*whole.values(), *(str(c.steps[0]) for c in stream.columns)}
    others = tuple(sorted(set(names) - read))
    for number, row in enumerate(rows):

        def reach(column: Column, row: Members = row) -> Raw:
            return follow(row, (whole[column.name],) if column.name in whole else column.steps)

        yield Record(number + 1, number, None, reach if names else None, others)
