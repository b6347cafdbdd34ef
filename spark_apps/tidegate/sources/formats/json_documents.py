"""JSON text of any layout: documents one after the other, or arrays of them. Each object is a record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidegate.declarations.models import Stream
from tidegate.sources.files import BrokenFileError, Piece, SourceFile
from tidegate.sources.formats.base import Batch, Format, Reading
from tidegate.sources.formats.json_records import Habits, JsonBatch, names_in, parse_object
from tidegate.sources.formats.texts import EXPANSION, is_packed, text_parts, texts_at_positions
from tidegate.sources.text import Block, Split, count_lines, line_ends

_QUOTE, _BACKSLASH, _COMMA, _BLANKS = 34, 92, 44, b" \t\r\n"
_OPENING, _CLOSING = (ord("{"), ord("[")), (ord("}"), ord("]"))
_STEP = np.zeros(256, np.int8)
_STEP[list(_OPENING)], _STEP[list(_CLOSING)] = 1, -1
_STRUCTURE = _STEP != 0
_STRUCTURE[_COMMA] = True


@dataclass(frozen=True)
class DocumentSplit(Split):
    """As :class:`Split`; ``separated``: whether the last byte is a comma or bracket between records, bool[m]."""

    separated: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))


class DocumentSplitter:
    """Values one after the other, or elements of arrays at the top.

    >>> DocumentSplitter().split(b'[{"a": 1},\\n {"b": 2}]', final=True).edges.tolist()
    [0, 1, 9, 10, 20, 21]
    """

    def __init__(self) -> None:
        self._inside = False

    def split(self, data: bytes, final: bool) -> DocumentSplit:
        """The elements that are whole, and the brackets and commas between them.

        Raises:
            BrokenFileError: a string or a bracket is not closed, or one closes that none has opened.
        """
        text = np.frombuffer(data, np.uint8)
        places, steps = _structure(data, text, final)
        depth = int(self._inside) + np.cumsum(steps)
        if len(depth) and depth.min() < 0:
            raise BrokenFileError("a bracket closes that none has opened")
        if final and (depth[-1] if len(depth) else int(self._inside)) > 0:
            raise BrokenFileError("its text ends within an object or an array")
        top = np.minimum(depth, depth - steps) <= 1
        edges, separated = self._edges(text, places[top].tolist(), depth[top].tolist(), steps[top].tolist())
        if final and edges[-1] != len(data):
            edges.append(len(data))
            separated.append(False)
        return DocumentSplit(np.array(edges, np.int64), separated=np.array(separated, dtype=bool))

    def _edges(
        self, text: npt.NDArray[np.uint8], places: Sequence[int], depths: Sequence[int], steps: Sequence[int]
    ) -> tuple[list[int], list[bool]]:
        edges, separated = [0], []
        for place, depth, step in zip(places, depths, steps, strict=True):
            level = int(self._inside)
            if step > 0 and (self._inside or text[place] != _OPENING[1]):
                continue
            if step > 0 or (step < 0 and depth < level):
                self._inside = step > 0
            elif depth > level:
                continue
            edges.append(place + 1)
            separated.append(step >= 0 or depth < level)
        return edges, separated


def _structure(data: bytes, text: npt.NDArray[np.uint8], final: bool) -> tuple[np.ndarray, np.ndarray]:
    """Brackets and commas that are not within strings: where they are, and by how much each changes the depth."""
    quotes = np.flatnonzero(text == _QUOTE)
    if b"\\" in data and len(quotes):
        behind = np.flatnonzero((text[np.maximum(quotes - 1, 0)] == _BACKSLASH) & (quotes > 0))
        escaped = [i for i in behind.tolist() if _backslashes(data, int(quotes[i])) % 2]
        quotes = np.delete(quotes, escaped)
    if final and len(quotes) % 2:
        raise BrokenFileError("its text ends within a string")
    places = np.flatnonzero(_STRUCTURE[text])
    places = places[np.searchsorted(quotes, places) % 2 == 0]
    return places, _STEP[text[places]].astype(np.int64)


def _backslashes(data: bytes, place: int) -> int:
    at = place
    while at and data[at - 1] == _BACKSLASH:
        at -= 1
    return place - at


class JsonDocuments(Format):
    """Objects one after the other, on any lines, or in arrays; UTF-8."""

    name = "json"
    is_text = True

    def cut(self, stream: Stream, file: SourceFile, slice_bytes: int) -> list[Piece]:
        """Not at all: only who has read what is before knows where an element begins."""
        packed = file.bytes > slice_bytes and is_packed(file)
        return [Piece(stream, file, cost=file.bytes * (EXPANSION if packed else 1))]

    def read(self, reading: Reading) -> Iterator[Batch]:
        """Blocks of elements."""
        piece, count = reading.piece, reading.count
        habits = Habits()
        for part in text_parts(reading, DocumentSplitter()):
            # Bytes that are not blank: those of elements, and the brackets and commas between them.
            count.counted += len(part.data.translate(None, _BLANKS))
            assert isinstance(part.split, DocumentSplit)
            block, between = _elements(part.data, part.split, part.offset, count.lines)
            count.read += between + len(block.data.translate(None, _BLANKS))
            count.lines += count_lines(part.data)
            if len(block):
                if not reading.seen:
                    reading.seen.update(dict.fromkeys(names_in(parse_object(block.record(0)))))
                yield JsonBatch(piece.stream, block, False, habits)

    def texts_at(self, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Elements by the bytes at which they begin."""
        return texts_at_positions(self, stream, file, positions)


def _elements(data: bytes, split: DocumentSplit, offset: int, first_line: int) -> tuple[Block, int]:
    """The elements, without what is between them, and how many brackets and commas that is."""
    starts, texts = [], []
    edges = split.edges.tolist()
    for start, end, separated in zip(edges[:-1], edges[1:], split.separated.tolist(), strict=True):
        text = data[start : end - separated]
        inside = text.strip(_BLANKS)
        if inside:
            starts.append(start + len(text) - len(text.lstrip(_BLANKS)))
            texts.append(inside)
    lengths = np.array([len(text) for text in texts], np.int64)
    ends = np.cumsum(lengths + 1) - 1
    places = np.array(starts, np.int64)
    lines = first_line + np.searchsorted(line_ends(data), places)
    block = Block(b"\n".join(texts), ends - lengths, ends, places + offset, lines)
    return block, int(split.separated.sum())
