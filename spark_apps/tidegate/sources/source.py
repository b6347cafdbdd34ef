"""Where a stream's records come from: the seam of sources.

A source says what there is for an interval and how it is cut, and hands out records. It never decides what is valid.
Files are the one source so far; :class:`Source` is what others must do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from tidegate.declarations.models import Stream
from tidegate.sources.files import SLICE_BYTES, Expected, Piece, SourceFile, expected_files
from tidegate.sources.formats import Batch, Format, Reading, format_named


class Source(Protocol):
    """What a stream's records come from."""

    def expected(self, start: datetime, end: datetime) -> Sequence[Expected]:
        """What should hold the records that arrive in [start, end), with what is there of it."""

    def pieces(self, file: SourceFile, slice_bytes: int = SLICE_BYTES) -> list[Piece]:
        """How what is there can be read by several tasks."""

    def read(self, reading: Reading) -> Iterator[Batch]:
        """The records of a piece, and apart from them how many there are."""

    def texts_at(self, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Records at positions, ascending, as the quarantine shows them."""

    def changed(self, files: Sequence[SourceFile]) -> list[SourceFile]:
        """Which of them are others now than when they were listed."""


class FileSource:
    """Files, local or in an object store, whose names a stream's path says."""

    def __init__(self, stream: Stream):
        self.stream = stream

    @property
    def format(self) -> Format:
        """The files' format."""
        return format_named(self.stream.format)

    def expected(self, start: datetime, end: datetime) -> tuple[Expected, ...]:
        """Every file name that the path asks for in [start, end), with the files that are there."""
        return tuple(expected_files(self.stream, start, end))

    def pieces(self, file: SourceFile, slice_bytes: int = SLICE_BYTES) -> list[Piece]:
        """The pieces of a file, each of about ``slice_bytes``."""
        return self.format.cut(self.stream, file, slice_bytes)

    def read(self, reading: Reading) -> Iterator[Batch]:
        """The records of a piece."""
        return self.format.read(reading)

    def texts_at(self, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Records by their positions in a file."""
        return self.format.texts_at(self.stream, file, positions)

    def changed(self, files: Sequence[SourceFile]) -> list[SourceFile]:
        """Which files are others now than when they were listed."""
        return [file for file in files if file.changed()]


def source_of(stream: Stream) -> Source:
    """What the stream's records come from."""
    return FileSource(stream)
