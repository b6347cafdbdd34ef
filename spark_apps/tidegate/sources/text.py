"""The text of files: unpacked, as UTF-8, in blocks that end where records end."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.sources.files import PACKED, BrokenFileError, Piece, SourceFile
from tidegate.store.places import octets, refuse_outage, unmapped

BLOCK_BYTES = 4 << 20
_LONGEST_RECORD_BYTES = 256 << 20
_MARK = b"\xef\xbb\xbf"
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_OTHER_MAGIC = {
    rb"PAR1": "a Parquet file",
    rb"Obj\x01": "an Avro file",
    rb"PK\x03\x04": "a zip archive or an Excel workbook: unpack it, or save its sheet as CSV",
    rb"BZh": "packed with bzip2: unpack it, or pack it with gzip or zstd",
    rb"\xfd7zXZ": "packed with xz: unpack it, or pack it with gzip or zstd",
    rb"ORC.?[\0-\x08\x0e-\x1f]": "an ORC file: write it as Parquet",
    rb"SQLite format 3\0": "an SQLite database: export the table as CSV",
    rb"%PDF-": "a PDF",
}
"""How files begin that are no text."""
FAULTS = (EOFError, zlib.error, OSError, pa.ArrowException)
"""What a damaged file makes those say that unpack it."""
_UNREADABLE = (".bz2", ".snappy", ".lz4", ".xz", ".deflate", ".br", ".zip", ".lzo", ".7z", ".z")
_LF, _CR = 10, 13
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Records of a text, one after the other in ``data``.

    ``starts``, ``ends``: int64[n], where they lie in ``data``, without what ends their lines. ``positions``: where they
    begin in the (unpacked) text; ``lines``: their first lines, from 0, within the piece.
    """

    data: bytes
    starts: Places
    ends: Places
    positions: Places
    lines: Places

    def __len__(self) -> int:
        return len(self.starts)

    def record(self, row: int) -> bytes:
        """One record."""
        return self.data[self.starts[row] : self.ends[row]]

    def take(self, rows: Places) -> Block:
        """Some of the records, at least one, in their order."""
        starts, ends = self.starts[rows], self.ends[rows]
        if rows[-1] - rows[0] == len(rows) - 1:
            start = starts[0]
            data = self.data[start : ends[-1]] + b"\n"
            return Block(data, starts - start, ends - start, self.positions[rows], self.lines[rows])
        return Block(self.data, starts, ends, self.positions[rows], self.lines[rows]).joined()

    def records(self) -> list[bytes]:
        """All records."""
        return [self.data[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]

    def none(self) -> Block:
        """No records."""
        nothing = np.empty(0, np.int64)
        return Block(b"", nothing, nothing, nothing, nothing)

    def joined(self) -> Block:
        """The same records, a line end between each two and nothing else."""
        lengths = self.ends - self.starts
        data = b"\n".join(self.records()) + b"\n"
        ends = np.cumsum(lengths + 1) - 1
        return Block(data, ends - lengths, ends, self.positions, self.lines)


@dataclass(frozen=True)
class Split:
    """A text's records and what is between them.

    ``edges``: int64[m + 1], where each begins, and where the last one ends.

    ``remarks``: which of them are comments, bool[m]; None: there are none. What is blank is no record either.
    ``single``: each of them is one line.
    """

    edges: Places
    remarks: npt.NDArray[np.bool_] | None = None
    single: bool = False

    @property
    def skipped(self) -> int:
        """How many comments there are."""
        return 0 if self.remarks is None else int(self.remarks.sum())


class Splitter(Protocol):
    """Where records begin and end. It may remember what came before."""

    def split(self, data: bytes, final: bool) -> Split:
        """The records that are whole in ``data``, which begins where one begins. ``final``: nothing follows it."""


class LineSplitter:
    """A record is a line; LF, CR and CRLF end one.

    >>> LineSplitter().split(b"a\\r\\nb\\n\\nc", final=False).edges.tolist()
    [0, 3, 5, 6]
    """

    def split(self, data: bytes, final: bool) -> Split:
        """The lines that are whole."""
        used = len(data) if final else last_line_end(data)
        ends = line_ends(data, used) + 1
        if used and (not len(ends) or ends[-1] != used):
            ends = np.append(ends, used)
        return Split(np.concatenate([[0], ends]).astype(np.int64), single=True)


def line_ends(data: bytes, end: int | None = None) -> Places:
    """Where lines end, up to ``end``: the place of the last sign of each line end."""
    text = np.frombuffer(data, np.uint8)[:end]
    if b"\r" not in data or data.count(b"\r") == data.count(b"\r\n"):
        return np.flatnonzero(text == _LF).astype(np.int64)
    lone = np.flatnonzero(text == _CR)
    after = np.minimum(lone + 1, len(text) - 1)
    lone = lone[(text[after] != _LF) | (lone + 1 == len(text))]
    return np.sort(np.concatenate([np.flatnonzero(text == _LF), lone])).astype(np.int64)


def last_line_end(data: bytes) -> int:
    """Where the last whole line of ``data`` ends; 0 if there is none."""
    return data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, max(len(data) - 1, 0)) + 1


def block_of(data: bytes, split: Split, offset: int = 0, first_line: int = 0) -> Block:
    """The block of a text's records.

    Args:
        data: the text.
        split: where its records are.
        offset: where it begins in its file.
        first_line: the number of its first line.
    """
    text = np.frombuffer(data, np.uint8)
    starts = split.edges[:-1]
    ends = _without_line_end(text, starts, split.edges[1:])
    kept = _not_blank(data, text, starts, ends)
    if split.remarks is not None:
        kept = kept[~split.remarks[kept]]
    starts, ends = starts[kept], ends[kept]
    lines = kept if split.single else np.searchsorted(line_ends(data), starts)
    return Block(data, starts, ends, starts + offset, lines + first_line)


def _without_line_end(text: npt.NDArray[np.uint8], starts: Places, ends: Places) -> Places:
    for sign in (_LF, _CR):
        ends = ends - ((ends > starts) & (text[np.maximum(ends - 1, 0)] == sign)) if len(text) else ends
    return ends


def _not_blank(data: bytes, text: npt.NDArray[np.uint8], starts: Places, ends: Places) -> Places:
    there = np.flatnonzero(ends > starts)
    doubtful = there[np.isin(text[starts[there]], (32, 9))]
    blank = [i for i in doubtful.tolist() if not data[starts[i] : ends[i]].strip(b" \t")]
    return np.setdiff1d(there, blank) if blank else there


def read_blocks(
    piece: Piece, splitter: Splitter, encoding: str = "utf-8", block_bytes: int = BLOCK_BYTES
) -> Iterator[TextPart]:
    """The text of a piece, part after part, each as far as its records are whole.

    A record belongs to the piece in which it begins; a byte-order mark is passed over.

    Raises:
        BrokenFileError: it is damaged, cut off, or packed in a way that is not read.
    """
    try:
        file, plain = opened_text(piece.file, encoding)
        with file:
            for part in _parts(file, piece, splitter, block_bytes):
                yield TextPart(*part, plain)
    except FAULTS as error:
        refuse_outage(piece.file.path, error)
        raise BrokenFileError(first_line_of(error)) from None


@dataclass(frozen=True)
class TextPart:
    """A part of a text: ``data`` begins at byte ``offset`` of the (unpacked) text.

    ``plain``: whether that is the byte of the file, neither packed nor transcoded.
    """

    data: bytes
    offset: int
    split: Split
    plain: bool


def _parts(file: BinaryIO, piece: Piece, splitter: Splitter, block_bytes: int) -> Iterator[tuple[bytes, int, Split]]:
    at, left = _first_line_of_piece(file, piece, block_bytes) if piece.start else (0, b"")
    if piece.end is not None and at >= piece.end:
        return
    first = piece.start == 0
    while True:
        more = file.read(block_bytes)
        data = left + more
        if first and (len(data) >= len(_MARK) or not more):
            if data.startswith(_MARK):
                data, at = data[len(_MARK) :], at + len(_MARK)
            first = False
        split = splitter.split(data, final=not more)
        edges = split.edges
        over = piece.end is not None and at + int(edges[-1]) >= piece.end
        if over and piece.end is not None:
            # What begins in another piece is that one's.
            count = int(np.searchsorted(edges[:-1], piece.end - at))
            split = replace(
                split, edges=edges[: count + 1], remarks=None if split.remarks is None else split.remarks[:count]
            )
        used = int(split.edges[-1])
        if used:
            yield data[:used], at, split
        elif more and len(data) > _LONGEST_RECORD_BYTES:
            raise BrokenFileError(f"a record of more than {_LONGEST_RECORD_BYTES >> 20} MiB at byte {at}")
        at, left = at + used, data[used:]
        if over or not more:
            return


def _first_line_of_piece(file: BinaryIO, piece: Piece, block_bytes: int) -> tuple[int, bytes]:
    """Where the first line begins that is not an earlier piece's, and what has been read behind that."""
    # From the byte before: if it ends a line, the next line is this piece's first.
    at = piece.start - 1
    file.seek(at)
    while piece.end is None or at < piece.end - 1:
        more = file.read(block_bytes)
        end = more.find(b"\n")
        if end >= 0:
            return at + end + 1, more[end + 1 :]
        if not more:
            break
        at += len(more)
    return piece.end or at, b""


def opened_text(file: SourceFile, encoding: str = "utf-8") -> tuple[BinaryIO, bool]:
    """A file's text, unpacked, as UTF-8; and whether that is the file as it is.

    Raises:
        BrokenFileError: it begins as no text does.
    """
    content, _, packed, head = unpacked_file(file)
    what = None if packed else other_than_text(head)
    if what:
        content.close()
        raise BrokenFileError(f"it is no text but {what}")
    if codecs.lookup(encoding).name not in ("utf-8", "ascii", "utf-8-sig"):
        return cast(BinaryIO, io.BufferedReader(_Transcoded(content, encoding), BLOCK_BYTES)), False
    return content, not packed


def opened(file: SourceFile) -> BinaryIO:
    """A file's content, unpacked."""
    return unpacked_file(file).content


class Unpacked(NamedTuple):
    """A file's content. ``raw``: the file itself, at what is read of it next; ``head``: how that begins."""

    content: BinaryIO
    raw: Any
    packed: bool
    head: bytes


def unpacked_file(file: SourceFile) -> Unpacked:
    """A file's content, unpacked if its name or its first bytes say that it is packed.

    Raises:
        BrokenFileError: its name says that it is packed in a way that is not read.
    """
    suffix = file.path.suffix.lower()
    if suffix in _UNREADABLE:
        raise BrokenFileError(f"files packed as {suffix} are not read: unpack them, or pack them with gzip or zstd")
    content = octets(file.path)
    head = content.peek(8)
    kind = PACKED.get(suffix) or packed_as(head)
    if kind == "gzip":
        return Unpacked(cast(BinaryIO, gzip.open(content)), content, True, head)
    if kind == "zstd":
        content.close()
        raw = unmapped(file.path)
        return Unpacked(cast(BinaryIO, pa.CompressedInputStream(raw, "zstd")), raw, True, head)
    return Unpacked(content, content, False, head)


def packed_as(head: bytes) -> str | None:
    """How a file is packed that begins so: gzip, zstd, or not at all."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def other_than_text(head: bytes) -> str | None:
    """What a file is that begins so; None if it may be text."""
    return next((what for magic, what in _OTHER_MAGIC.items() if re.match(magic, head, re.DOTALL)), None)


class _Transcoded(io.RawIOBase):
    """Text of another encoding as UTF-8; what cannot be decoded stays as it is, and so is no UTF-8."""

    def __init__(self, source: BinaryIO, encoding: str):
        self._source = source
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self._ready = b""
        self._over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready and not self._over:
            raw = self._source.read(len(buffer))
            self._over = not raw
            try:
                self._ready = self._decoder.decode(raw, final=not raw).encode("utf-8", "surrogateescape")
            except UnicodeError as error:
                raise BrokenFileError(f"its text cannot be decoded: {error}") from None
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


def first_line_of(error: BaseException) -> str:
    """What an error says, in a line."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return message.splitlines()[0] if message else type(error).__name__


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8 without NUL."""
    if b"\0" in data:
        return False
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def shown(record: bytes) -> str:
    """A record as the quarantine shows it: bytes that are no UTF-8 are escaped."""
    return record.decode(errors="backslashreplace")


def count_lines(data: bytes) -> int:
    """How many line ends there are."""
    ends = data.count(b"\n")
    return ends + data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else ends
