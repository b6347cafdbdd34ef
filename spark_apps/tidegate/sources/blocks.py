"""A text file's octets, in blocks that end where lines end. A record is a line; LF, CR and CRLF end one."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.sources.files import PACKED, Piece, SourceFile
from tidegate.store.places import octets, refuse_outage, unmapped

BLOCK_BYTES = 4 << 20
_LONGEST_LINE_BYTES = 256 << 20
_MARK = b"\xef\xbb\xbf"
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PAR1": "Parquet", b"\xfd7zXZ": "xz"}
_UNREADABLE = (".bz2", ".snappy", ".lz4", ".xz", ".deflate", ".br", ".zip", ".lzo", ".7z", ".z")
Places = npt.NDArray[np.int64]


class BrokenFileError(Exception):
    """The file cannot be read; what it says why goes to the quarantine."""


@dataclass(frozen=True)
class Block:
    """Lines of a file: ``data`` begins at octet ``offset`` of the (unpacked) file.

    ``starts``, ``ends``: int64[n], where the lines that are not blank lie in ``data``, without what ends them.
    """

    data: bytes
    offset: int
    starts: Places
    ends: Places

    def line(self, number: int) -> bytes:
        """One line."""
        return self.data[self.starts[number] : self.ends[number]]

    def lines(self, first: int, last: int) -> Block:
        """Those from ``first`` up to ``last``, as a block of their own."""
        start, end = int(self.starts[first]), int(self.ends[last - 1])
        inside = self.data[start:end] + b"\n"
        return Block(inside, self.offset + start, self.starts[first:last] - start, self.ends[first:last] - start)


def block_of(data: bytes, offset: int = 0) -> Block:
    """The block of some whole lines."""
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets == 10)
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        found = [match.span() for match in re.finditer(rb"[^\r\n]+", data)]
        starts, ends = (np.array([span[i] for span in found], np.int64) for i in (0, 1))
    else:
        starts = np.concatenate([[0], ends + 1]).astype(np.int64)
        ends = np.concatenate([ends, [len(data)]]).astype(np.int64)
        if b"\r" in data:
            ends = ends - (octets[np.maximum(ends - 1, 0)] == 13)
        there = ends > starts
        starts, ends = starts[there], ends[there]
    blank = np.flatnonzero((octets[starts] == 32) | (octets[starts] == 9))
    blank = np.array([i for i in blank if not data[starts[i] : ends[i]].strip(b" \t")], np.int64)
    if len(blank):
        starts, ends = np.delete(starts, blank), np.delete(ends, blank)
    return Block(data, offset, starts, ends)


def read_lines(piece: Piece, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """The piece's lines: blocks, each with the octet of the (unpacked) file at which it begins.

    A line belongs to the piece in which it begins, as far as LF ends lines; a byte-order mark is passed over.

    Raises:
        BrokenFileError: it is damaged, cut off, or packed in a way that is not read.
    """
    try:
        with opened(piece.file) as file:
            yield from _whole_lines(file, piece, block_bytes)
    except (EOFError, zlib.error, OSError, pa.ArrowException) as error:
        refuse_outage(piece.file.path, error)
        raise BrokenFileError(_said(error)) from None


def _said(error: BaseException) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return said.splitlines()[0] if said else type(error).__name__


def opened(file: SourceFile) -> BinaryIO:
    """The file's octets, unpacked."""
    suffix = file.path.suffix.lower()
    if suffix in _UNREADABLE:
        raise BrokenFileError(f"files packed as {suffix} are not read: gzip (.gz) and zstd (.zst) are")
    found = octets(file.path)
    if suffix not in PACKED:
        head = found.peek(8)
        for magic, kind in _MAGIC.items():
            if head.startswith(magic):
                found.close()
                raise BrokenFileError(f"its content is {kind}, its name does not say so")
        return found
    if PACKED[suffix] == "gzip":
        return cast(BinaryIO, gzip.open(found))
    found.close()
    return cast(BinaryIO, pa.CompressedInputStream(unmapped(file.path), "zstd"))


def _whole_lines(file: BinaryIO, piece: Piece, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    at, left = 0, b""
    if piece.start:
        # From the octet before: if it ends a line, the next line is this piece's first.
        at = piece.start - 1
        file.seek(at)
        while piece.end is None or at < piece.end - 1:
            read = file.read(block_bytes)
            end = read.find(b"\n")
            if end >= 0:
                at, left = at + end + 1, read[end + 1 :]
                break
            if not read:
                return
            at += len(read)
        else:
            return
        if piece.end is not None and at >= piece.end:
            return
    first = piece.start == 0
    while True:
        read = file.read(block_bytes)
        data = left + read
        if first and len(data) >= 3 or not read:
            if first and data.startswith(_MARK):
                data, at = data[3:], at + 3
            first = False
        over = piece.end is not None and at + len(data) >= piece.end
        end = data.find(b"\n", max((piece.end or 0) - 1 - at, 0)) + 1 if over else _last_line(data)
        if end == 0 and read:
            if len(data) > _LONGEST_LINE_BYTES:
                raise BrokenFileError(f"a line of more than {_LONGEST_LINE_BYTES >> 20} MiB at octet {at}")
            left = data
            continue
        if not read:
            end = end if over and end else len(data)
        if end:
            yield at, data[:end]
        at, left = at + end, data[end:]
        if over or not read:
            return


def _last_line(data: bytes) -> int:
    """Where the last whole line of ``data`` ends; 0 if there is none."""
    return data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, max(len(data) - 1, 0)) + 1


def lines_at(file: SourceFile, offsets: Sequence[int]) -> list[str]:
    """The lines that begin at some octets of the (unpacked) file, ascending."""
    found = []
    with opened(file) as source:
        at, ahead = 0, b""
        for offset in offsets:
            if source.seekable() and offset > at + len(ahead):
                at, ahead = source.seek(offset), b""
            while at + len(ahead) <= offset and (read := source.read(1 << 16)):
                at, ahead = at + len(ahead), read
            at, ahead = offset, ahead[offset - at :]
            while not re.search(rb"[\r\n]", ahead) and (read := source.read(1 << 12)):
                ahead += read
            found.append(text_of(re.split(rb"[\r\n]", ahead, maxsplit=1)[0]))
    return found


def text_of(line: bytes) -> str:
    """A line as the quarantine shows it: octets that are no UTF-8 are escaped."""
    return line.decode(errors="backslashreplace")
