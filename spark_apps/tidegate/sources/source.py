"""Where a stream's records come from: the seam of sources.

A source says, to the driver, what there is for an interval and how it is cut; a reader hands out the records, to
tasks. Neither decides what is valid. There are two kinds: files that name an interval, and what has landed by Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from tidegate.declarations.models import Stream
from tidegate.sources.files import SLICE_BYTES, Expected, Piece, SourceFile, expected_files
from tidegate.sources.formats import Batch, Format, Reading, format_named
from tidegate.sources.landed import LandedReader, LandedSource
from tidegate.store.places import Place
from tidegate.store.watermarks import Announcements


class Source(Protocol):
    """What a stream's records come from, as the driver sees it."""

    def expected(self, start: datetime, end: datetime) -> Sequence[Expected]:
        """What should hold the records that arrive in [start, end), with what is there of it."""

    def pieces(self, file: SourceFile, start: datetime, end: datetime, slice_bytes: int = SLICE_BYTES) -> list[Piece]:
        """How the records of a file that arrive in [start, end) can be read by several tasks."""

    def changed(self, files: Sequence[SourceFile]) -> list[SourceFile]:
        """Which of them are others now than when they were listed."""


class Reader(Protocol):
    """What reads pieces, in a task."""

    def read(self, reading: Reading) -> Iterator[Batch]:
        """The records of a piece, and apart from them how many there are."""

    def texts_at(self, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Records at positions, ascending, as the quarantine shows them."""


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

    def pieces(self, file: SourceFile, start: datetime, end: datetime, slice_bytes: int = SLICE_BYTES) -> list[Piece]:
        """The pieces of a file, each of about ``slice_bytes``: the whole of it, whenever its records arrived."""
        return self.format.cut(self.stream, file, slice_bytes)

    def changed(self, files: Sequence[SourceFile]) -> list[SourceFile]:
        """Which files are others now than when they were listed."""
        return [file for file in files if file.changed()]


def source_of(stream: Stream, folder: Place, announcements: Announcements) -> Source:
    """What the stream's records come from.

    ``folder``: the pipeline's in the warehouse. ``announcements``: the stream's, if it comes through Spark.
    """
    return FileSource(stream) if stream.source is None else LandedSource(stream, folder, announcements)


def reader_of(stream: Stream) -> Reader:
    """What reads the stream's pieces."""
    return format_named(stream.format) if stream.source is None else LandedReader()
