"""Which files hold an interval's records, and the pieces that they are cut into."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tidegate.declarations.models import EPOCH, Stream, from_us, to_us
from tidegate.store.places import ObjectPath, Place, Status, place

# Finest first: the unit of a pattern is that of its finest directive.
_UNITS = (
    ("%S", timedelta(seconds=1)),
    ("%M", timedelta(minutes=1)),
    ("%H", timedelta(hours=1)),
    ("%d", timedelta(days=1)),
    ("%j", timedelta(days=1)),
)
_DIGITS = {"Y": 4, "m": 2, "d": 2, "j": 3, "H": 2, "M": 2, "S": 2}
_DIRECTIVES = "".join(_DIGITS)
SLICE_BYTES = 64 << 20
"""What one task reads, of plain text; compressed files count for what they hold."""
Folders = dict[ObjectPath, list[Any]]
"""Of an object store's folders, what was in them."""
PACKED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}


class BrokenFileError(Exception):
    """The file cannot be read; what it says why goes to the quarantine."""


@dataclass(frozen=True)
class SourceFile:
    """One file as it was when listed.

    Its tuples arrived in [``period_start_us``, ``period_end_us``), or, where the pattern names no time, at any time
    (both None). ``version``: what an object store calls the content. ``identity``: the path from the folder on that all
    files of the pattern share; it is the same wherever that folder is.
    """

    path: Place
    bytes: int
    modified_us: int
    period_start_us: int | None
    period_end_us: int | None
    version: str = ""
    identity: str = ""

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

    @property
    def by_arrival(self) -> bool:
        """Whether refused records, too, belong to the interval in which they arrived."""
        return False

    def turn(self, event_us: int, line: int) -> tuple[int | str, ...]:
        """What orders records that arrived at the same time, before their positions."""
        return event_us, self.name


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
        yield Expected(pattern, None, tuple(_listed(pattern, None, None, {}, fixed_folder(stream.path))))
        return
    known: Folders = {}
    root = fixed_folder(stream.path)
    instant = start - (start - EPOCH) % unit
    while instant < end:
        pattern = instant.strftime(stream.path)
        first, last = to_us(instant), to_us(instant + unit)
        yield Expected(pattern, first, tuple(_listed(pattern, first, last, known, root)))
        instant += unit


def _listed(pattern: str, start_us: int | None, end_us: int | None, known: Folders, root: str) -> Iterator[SourceFile]:
    for path, status in matching(pattern, known):
        if not path.name.startswith((".", "_")):
            yield pinned(source_file(path, status, start_us, end_us, root))


def source_file(
    path: Place, status: os.stat_result | Status, start_us: int | None, end_us: int | None, root: str
) -> SourceFile:
    """A file as it is now. ``root``: the folder that all files of its pattern share."""
    file = SourceFile(path, status.st_size, status.st_mtime_ns // 1000, start_us, end_us)
    return replace(file, identity=file.name.removeprefix(root).lstrip("/"))


def fixed_folder(pattern: str) -> str:
    """The folder of a pattern that all its files share, with a slash behind it.

    >>> fixed_folder("/in/a [[]x]/%Y/*.csv"), fixed_folder("/in/day.csv"), fixed_folder("s3://bucket/in-*/x")
    ('/in/a [x]/', '/in/', 's3://bucket/')
    """
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not re.search(r"[*?\[%]", re.sub(r"\[[*?\[]\]|%%", "", parts[fixed])):
        fixed += 1
    return "".join(re.sub(r"\[([*?\[])\]", r"\1", part).replace("%%", "%") + "/" for part in parts[:fixed])


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


def landing_glob(pattern: str) -> str:
    """What is looked for: the pattern with every directive open.

    >>> landing_glob("/data/%Y-%m/{x}/%d*.csv")
    '/data/*-*/{x}/**.csv'
    """
    return re.sub(rf"%[{_DIRECTIVES}]", "*", pattern).replace("%%", "%")


def period_of(pattern: str, path: str) -> tuple[int, int] | None:
    """The period [start, end) that a file's name says under a pattern that names times; None if it does not match.

    >>> [from_us(us).isoformat() for us in period_of("/in/%Y%m%d-%H%M*.csv", "/in/20240301-1005-b.csv")]
    ['2024-03-01T10:05:00+00:00', '2024-03-01T10:06:00+00:00']
    >>> period_of("/in/%Y%m%d-%H%M.csv", "/in/20240301-1005-b.csv") is None
    True
    """
    unit = pattern_unit(pattern)
    assert unit is not None
    expression, seen = "", set()
    for part in re.split(rf"(%[{_DIRECTIVES}%]|\*|\?|\[[^\]]+\])", pattern):
        if len(part) == 2 and part[0] == "%" and part[1] != "%":
            digits = rf"\d{{{_DIGITS[part[1]]}}}"
            expression += digits if part[1] in seen else f"(?P<{part[1]}>{digits})"
            seen.add(part[1])
        else:
            expression += {"%%": "%", "*": "[^/]*", "?": "[^/]"}.get(part) or (
                "[^/]" if part.startswith("[") and len(part) > 2 else re.escape(part)
            )
    match = re.fullmatch(expression, path)
    if match is None:
        return None
    parts = match.groupdict()
    names = [name for name in _DIGITS if name in parts]
    try:
        written, directives = " ".join(parts[n] for n in names), " ".join(f"%{n}" for n in names)
        start = datetime.strptime(written, directives).replace(tzinfo=UTC)
    except ValueError:
        return None
    # What was only guessed at, a directive that comes twice or a set of characters, must fit as well.
    if not fnmatchcase(path, start.strftime(pattern)):
        return None
    return to_us(start), to_us(start + unit)


def newest_files(stream: Stream) -> list[SourceFile]:
    """All files of a stream that are there, whatever they are of, the newest first."""
    unit, root = pattern_unit(stream.path), fixed_folder(stream.path)
    files = []
    for path, status in matching(landing_glob(stream.path), {}):
        period = None if unit is None else period_of(stream.path, str(path))
        if path.name.startswith((".", "_")) or (unit is not None and period is None):
            continue
        start_us, end_us = period or (None, None)
        files.append(source_file(path, status, start_us, end_us, root))
    return sorted(files, key=lambda file: (-file.modified_us, file.name))


def modified_at(file: SourceFile) -> datetime:
    """When the file landed."""
    return from_us(file.modified_us)


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
