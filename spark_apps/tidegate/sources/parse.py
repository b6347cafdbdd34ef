"""Records out of octets: JSON lines and CSV, a line or a whole block at a time. ``parquet`` is the third format.

What a line says is defined by :func:`json_fields` and :func:`csv_fields`; the readers of whole blocks refuse whatever
they would read otherwise, and their block is then taken apart.

JSON: an object a line, UTF-8, no key twice, at most 100 levels deep, nothing behind it.
CSV: RFC 4180 with a comma, a header that names every column once, and a record a line: a line break within quotes is
not read.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from tidegate.declarations.models import Stream
from tidegate.sources.blocks import Block, BrokenFileError
from tidegate.sources.values import Given, Nothing, Number

_JSON_TYPES = {"integer": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
_QUOTED = re.compile(r'"((?:[^"]|"")*)"(?=,|$)')
_MOST_LEVELS = 100
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_QUOTE, _COMMA, _LF, _CR = 34, 44, 10, 13


class _Object(dict):  # type: ignore[type-arg]
    pass


def json_fields(line: bytes) -> dict[str, Given] | None:
    """A line's members; None if it is no JSON object, or nested deeper than ``_MOST_LEVELS``."""
    try:
        if line.count(b"{") + line.count(b"[") > _MOST_LEVELS and _levels(line) > _MOST_LEVELS:
            return None  # beyond some depth it would matter how deep this program's own stack is
        found = json.loads(
            line.decode(),
            parse_int=Number,
            parse_float=Number,
            parse_constant=Number,
            object_pairs_hook=_members,
        )
        if not isinstance(found, _Object):
            return None
        if b"\\u" in line:  # half of a surrogate pair is no text
            for name, value in found.items():
                name.encode()
                _ = value.encode() if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return None
    return {name: Nothing("") if isinstance(value, _Object | list) else value for name, value in found.items()}


def _levels(line: bytes) -> int:
    level = deepest = 0
    for sign in _TEXT.sub(b"", line):
        level += (sign in b"{[") - (sign in b"}]")
        deepest = max(level, deepest)
    return deepest


def _members(pairs: list[tuple[str, Given]]) -> _Object:
    found = _Object(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def json_table(stream: Stream, block: Block) -> pa.Table | None:
    """A block's records, a row a line: numbers typed, the rest as text; None if any line is unlike the others."""
    octets = np.frombuffer(block.data, np.uint8)
    # Each line begins and ends an object, and as many objects as lines are found: so each line is one object.
    if not ((octets[block.starts] == ord("{")).all() and (octets[block.ends - 1] == ord("}")).all()):
        return None
    if not _utf8(block.data):
        return None
    schema = pa.schema([(c.name, _JSON_TYPES.get(c.type, pa.string())) for c in stream.columns])
    try:
        table = pa_json.read_json(
            pa.BufferReader(block.data),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return table if table.num_rows == len(block.starts) else None


def _utf8(data: bytes) -> bool:
    if b"\0" in data:
        return False
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def csv_header(line: bytes) -> tuple[str, ...]:
    """The names of a CSV file's columns.

    Raises:
        BrokenFileError: the line does not name every column once.
    """
    cells = csv_cells(line)
    names = tuple((name or "").strip() for name in cells or ())
    if not names or len(set(names)) != len(names) or not all(names):
        shown = line[:200].decode(errors="backslashreplace")
        raise BrokenFileError(f"its first line does not name every column once: {shown!r}")
    return names


def csv_cells(line: bytes) -> list[str | None] | None:
    """A line's cells, None for one without content; None if the line is no record."""
    if b"\0" in line:
        return None
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    if '"' not in text:
        return [cell or None for cell in text.split(",")]
    cells: list[str | None] = []
    at = 0
    while True:
        if text.startswith('"', at):
            match = _QUOTED.match(text, at)
            if match is None:
                return None
            cells.append(match[1].replace('""', '"'))
            at = match.end()
        else:
            end = text.find(",", at)
            end = len(text) if end < 0 else end
            cells.append(text[at:end] or None)
            at = end
        if at == len(text):
            return cells
        at += 1


def csv_fields(line: bytes, header: tuple[str, ...]) -> dict[str, Given] | None:
    """A line's cells by the header's names; None if they are not as many."""
    cells = csv_cells(line)
    return dict(zip(header, cells, strict=True)) if cells is not None and len(cells) == len(header) else None


def csv_table(stream: Stream, block: Block, header: tuple[str, ...]) -> pa.Table | None:
    """A block's records, a row a line, all as text; None if any line is unlike the others."""
    if not set(header) <= {c.name for c in stream.columns} or not _utf8(block.data):
        return None
    if b'"' in block.data and not _well_quoted(block):
        return None
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block.data),
            read_options=pa_csv.ReadOptions(
                use_threads=False, block_size=len(block.data) + 1, column_names=list(header)
            ),
            convert_options=pa_csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(header, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(block.starts) else None


def _well_quoted(block: Block) -> bool:
    """Whether quotes only enclose whole cells, or are doubled within them, and close where their line ends."""
    octets = np.frombuffer(block.data, np.uint8)
    quotes = np.flatnonzero(octets == _QUOTE)
    if len(quotes) % 2 or (np.searchsorted(quotes, block.starts) % 2).any():
        return False
    opening, closing = quotes[::2], quotes[1::2]
    before = np.where(opening > 0, octets[np.maximum(opening - 1, 0)], _LF)
    after = np.where(closing + 1 < len(octets), octets[np.minimum(closing + 1, len(octets) - 1)], _LF)
    doubled = opening[1:] == closing[:-1] + 1
    opens = np.isin(before, (_COMMA, _LF, _CR))
    opens[1:] |= doubled
    closes = np.isin(after, (_COMMA, _LF, _CR))
    closes[:-1] |= doubled
    return bool(opens.all() and closes.all())
