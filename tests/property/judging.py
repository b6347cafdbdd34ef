"""The product's reading of a file, for the laws of `test_judge_laws`: whole blocks at once, or one record by one.

All that the laws know of how the product reads is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.declarations.models import Stream
from tidegate.sources.files import BrokenFileError, SourceFile
from tidegate.sources.formats import Reading, format_named
from tidegate.sources.records import Judged, judge

Outcome = tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]
"""Tuples: id, times, values, others, place and line; refused: place, line, reason, column, arrival, text."""
BROKEN: Outcome = [("broken_file",)], []


def whole(stream: Stream, file: SourceFile, data: bytes) -> Outcome:
    """A file's records, as many at once as can be."""
    return _outcome(stream, _written(file, data), True)


def one_by_one(stream: Stream, file: SourceFile, data: bytes) -> Outcome:
    """A file's records, each by itself."""
    return _outcome(stream, _written(file, data), False)


def in_pieces(stream: Stream, file: SourceFile, data: bytes, slice_bytes: int) -> Outcome:
    """A file's records, read in pieces of about ``slice_bytes``."""
    return _outcome(stream, _written(file, data), True, slice_bytes)


def counts(stream: Stream, file: SourceFile, data: bytes) -> tuple[int, int]:
    """What was counted apart from reading, and what the reader went through."""
    kind = format_named(stream.format)
    reading = Reading(kind.cut(stream, _written(file, data), 1 << 40)[0])
    for _ in kind.read(reading):
        pass
    return reading.count.counted, reading.count.read


def _written(file: SourceFile, data: bytes) -> SourceFile:
    path = Path(str(file.path))
    path.write_bytes(data)
    return replace(file, bytes=len(data), identity=path.name)


def _outcome(stream: Stream, file: SourceFile, at_once: bool, slice_bytes: int = 1 << 40) -> Outcome:
    tuples: list[tuple[Any, ...]] = []
    refused: list[tuple[Any, ...]] = []
    kind, line, read_to = format_named(stream.format), 0, 0
    try:
        for piece in kind.cut(stream, file, slice_bytes):
            reading, judged = Reading(piece), Judged()
            for batch in kind.read(reading):
                judge(stream, file, batch, judged, at_once)
            if piece.start and reading.count.first not in (None, read_to):
                # A piece ended inside a record: whoever sees that reads the file as a whole.
                return _outcome(stream, file, at_once)
            read_to = reading.count.last or read_to
            tuples += [row for one in judged.tuples for row in rows_in_words(one.rows, one.others, line)]
            refused += [
                (r.position, r.line + line, r.verdict.reason, r.verdict.column, r.verdict.arrival_us, r.text)
                for r in judged.refused
            ]
            line += reading.count.lines
    except BrokenFileError:
        return BROKEN
    return sorted(tuples, key=lambda row: row[-2:]), sorted(refused, key=lambda row: row[:2])


def rows_in_words(table: pa.Table, others: dict[str, Any], line: int) -> list[tuple[Any, ...]]:
    """Values in words that tell every bit apart (−0.0 from 0.0); names that no column is read from; place, line."""
    plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    plain = [c.cast(pa.int32()) if pa.types.is_date(c.type) else c for c in plain]
    rows: Sequence[tuple[Any, ...]] = list(zip(*(c.to_pylist() for c in plain), strict=True))
    names = [
        tuple(sorted(name for name, there in others.items() if there is None or there[i])) for i in range(len(rows))
    ]
    return [
        (*map(repr, row[:-2]), others_there, row[-2], row[-1] + line)
        for row, others_there in zip(rows, names, strict=True)
    ]
