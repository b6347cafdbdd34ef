"""What formats of text share: how they are cut, and how records are looked up again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tidegate.declarations.models import Stream
from tidegate.sources.files import PACKED, Piece, SourceFile
from tidegate.sources.formats.base import Format, Reading
from tidegate.sources.text import Splitter, TextPart, packed_as, read_blocks
from tidegate.store.places import octets

UTF8 = ("utf-8", "ascii")
EXPANSION = 5
"""How much larger what a packed file holds is taken to be."""


def is_packed(file: SourceFile) -> bool:
    """Whether a file is compressed, by its name or its first bytes."""
    if file.path.suffix.lower() in PACKED:
        return True
    with octets(file.path) as content:
        return packed_as(content.peek(8)) is not None


def cut_text(stream: Stream, file: SourceFile, slice_bytes: int) -> list[Piece]:
    """Pieces of plain text, cut anywhere; a compressed file is one."""
    if file.path.suffix.lower() in PACKED:
        return [Piece(stream, file, cost=file.bytes * EXPANSION)]
    if file.bytes <= slice_bytes:
        return [Piece(stream, file, cost=file.bytes)]
    if is_packed(file):
        return [Piece(stream, file, cost=file.bytes * EXPANSION)]
    parts = -(-file.bytes // slice_bytes)
    cuts = [file.bytes * i // parts for i in range(parts + 1)]
    return [Piece(stream, file, a, b, b - a) for a, b in zip(cuts, cuts[1:], strict=False)]


def texts_at_positions(kind: Format, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
    """Records at positions, ascending, by reading the file up to the last of them; nothing is parsed but these."""
    wanted = np.asarray(positions, np.int64)
    texts: list[str] = []
    for batch in kind.read(Reading(Piece(stream, file))):
        texts += [batch.text(row) for row in np.flatnonzero(np.isin(batch.positions, wanted)).tolist()]
        if len(texts) == len(wanted):
            break
    return texts


def text_parts(reading: Reading, splitter: Splitter, encoding: str = "utf-8") -> Iterator[TextPart]:
    """The text of a piece, part after part; which bytes these are goes to ``reading``.

    Raises:
        BrokenFileError: it cannot be read to its end, or is no text.
    """
    piece, count = reading.piece, reading.count
    for part in read_blocks(piece, splitter, encoding):
        if count.first is None:
            # What comes before the first line: of a file's first piece, a byte-order mark.
            count.first = part.offset if piece.start else 0
        count.last = part.offset + len(part.data)
        count.plain = part.plain
        yield part
