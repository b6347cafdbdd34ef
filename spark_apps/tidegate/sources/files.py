"""Which files hold an interval's records, and how they are cut into pieces."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.declarations.models import EPOCH, Stream, from_us, to_us
from tidegate.store import parquet
from tidegate.store.places import ObjectPath, Place, Status, place

# Finest first: the unit of a pattern is that of its finest directive.
_UNITS = (
    ("%S", timedelta(seconds=1)),
    ("%M", timedelta(minutes=1)),
    ("%H", timedelta(hours=1)),
    ("%d", timedelta(days=1)),
    ("%j", timedelta(days=1)),
)
SLICE_BYTES = 64 << 20
"""What one task reads, of plain text; compressed files count for what they hold."""
_EXPANSION = 5
Folders = dict[ObjectPath, list[Any]]
"""Of an object store's folders, what was in them."""
PACKED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}


@dataclass(frozen=True)
class SourceFile:
    """One file as it was when listed. Its tuples arrived in [``period_start_us``, ``period_end_us``), or, where the
    pattern names no time, at any time (both None). ``version``: what an object store calls the content."""

    path: Place
    bytes: int
    modified_us: int
    period_start_us: int | None
    period_end_us: int | None
    version: str = ""

    def changed(self) -> bool:
        """Whether the file is another now than when it was listed."""
        try:
            status = self.path.stat()
            other = bool(self.version) and pinned(self).version != self.version
        except OSError:
            return True
        return other or (status.st_size, status.st_mtime_ns // 1000) != (self.bytes, self.modified_us)

    @property
    def name(self) -> str:
        """The path as tables and messages show it: octets that are no UTF-8 are escaped."""
        return os.fsencode(str(self.path)).decode(errors="backslashreplace")


@dataclass(frozen=True)
class Piece:
    """A part of a stream's file: the records that begin in [start, end).

    Octets of plain text, row groups of Parquet; ``end`` None: the whole file.
    """

    stream: Stream
    file: SourceFile
    start: int = 0
    end: int | None = None
    cost: int = 0


@dataclass(frozen=True)
class Expected:
    """One expansion of a stream's pattern and the files that match it."""

    pattern: str
    period_start_us: int | None
    files: tuple[SourceFile, ...]


def pattern_unit(pattern: str) -> timedelta | None:
    """How much arrival time one file of the pattern holds; None if the pattern names no time.

    >>> pattern_unit("/100%%H/%Y-%m-%d.csv"), pattern_unit("/100%%H/*.csv")
    (datetime.timedelta(days=1), None)
    """
    directives = pattern.replace("%%", "")
    for directive, unit in _UNITS:
        if directive in directives:
            return unit
    return None


def matches_several(pattern: str) -> bool:
    """Whether several files may match one expansion of the pattern.

    >>> matches_several("/in/%H-*.csv"), matches_several("/a folder [[]x]/%H.csv")
    (True, False)
    """
    return any(sign in re.sub(r"\[[*?\[]\]", "", pattern) for sign in "*?[")


def expected_files(stream: Stream, start: datetime, end: datetime) -> Iterator[Expected]:
    """Every file name that the stream's pattern asks for in [start, end), with the files that are there."""
    unit = pattern_unit(stream.path)
    if unit is None:
        pattern = stream.path.replace("%%", "%")
        yield Expected(pattern, None, tuple(_listed(pattern, None, None, {})))
        return
    known: Folders = {}
    instant = start - (start - EPOCH) % unit
    while instant < end:
        pattern = instant.strftime(stream.path)
        first, last = to_us(instant), to_us(instant + unit)
        yield Expected(pattern, first, tuple(_listed(pattern, first, last, known)))
        instant += unit


def _listed(pattern: str, start_us: int | None, end_us: int | None, known: Folders) -> Iterator[SourceFile]:
    for path, status in matching(pattern, known):
        if not path.name.startswith((".", "_")):
            yield pinned(SourceFile(path, status.st_size, status.st_mtime_ns // 1000, start_us, end_us))


def pinned(file: SourceFile) -> SourceFile:
    """The file with its content's version, by which a change in the same second is noticed. Cost: a request."""
    return replace(file, version=file.path.version()) if isinstance(file.path, ObjectPath) else file


def matching(pattern: str, known: Folders) -> Iterator[tuple[Place, os.stat_result | Status]]:
    """The files that match a pattern, by name. ``known``: listings of an object store's folders, added to."""
    at = place(pattern)
    if isinstance(at, ObjectPath):
        yield from ObjectPath(at.root).listed(at.key, known)
        return
    for name in sorted(glob.glob(pattern), key=os.fsencode):
        path = Path(name)
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # gone, or a link to nowhere
        if path.is_file():
            yield path, status


def modified_at(file: SourceFile) -> datetime:
    """When the file landed."""
    return from_us(file.modified_us)


def cut(stream: Stream, file: SourceFile, slice_bytes: int = SLICE_BYTES) -> list[Piece]:
    """The pieces of a file, each of about ``slice_bytes``: plain text is cut anywhere, Parquet between row groups.

    Compressed text is read whole. So is a Parquet file without a footer that can be read: whoever reads it says so.
    """
    if stream.format != "parquet":
        if file.path.suffix.lower() in PACKED:
            return [Piece(stream, file, cost=file.bytes * _EXPANSION)]
        if file.bytes <= slice_bytes:
            return [Piece(stream, file, cost=file.bytes)]
        parts = -(-file.bytes // slice_bytes)
        cuts = [file.bytes * i // parts for i in range(parts + 1)]
        return [Piece(stream, file, a, b, b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    whole = Piece(stream, file, cost=file.bytes * _EXPANSION)
    if whole.cost <= slice_bytes:
        return [whole]
    try:
        footer = parquet.footer(file.path)
        sizes = [footer.row_group(i).total_byte_size for i in range(footer.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError):
        return [whole]
    pieces, start, gathered = [], 0, 0
    for number, size in enumerate(sizes):
        gathered += size
        if gathered >= slice_bytes or number == len(sizes) - 1:
            pieces.append(Piece(stream, file, start, number + 1, gathered))
            start, gathered = number + 1, 0
    return pieces or [whole]


def packed(pieces: Sequence[Piece], slice_bytes: int = SLICE_BYTES) -> list[tuple[Piece, ...]]:
    """The pieces, in their order, put together to slices of about ``slice_bytes``."""
    slices: list[list[Piece]] = [[]]
    gathered = 0
    for piece in pieces:
        if slices[-1] and gathered + piece.cost > slice_bytes:
            slices.append([])
            gathered = 0
        slices[-1].append(piece)
        gathered += piece.cost
    return [tuple(own) for own in slices if own]
