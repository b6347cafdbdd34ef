"""JSON text of any layout: documents one after the other, or arrays of them. Each object is a record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidegate.declarations.models import Stream
from tidegate.sources.files import BrokenFileError, Piece, SourceFile
from tidegate.sources.formats.base import Batch, Format, Reading
from tidegate.sources.formats.json_records import Habits, JsonBatch, advice_on_text, names_in, parse_object
from tidegate.sources.formats.texts import EXPANSION, is_packed, text_parts, texts_at_positions
from tidegate.sources.text import Block, Split, count_lines, line_ends

_QUOTE, _BACKSLASH, _COMMA, _ARRAY, _BLANKS = 34, 92, 44, ord("["), b" \t\r\n"
_OPENING, _CLOSING = (ord("{"), _ARRAY), (ord("}"), ord("]"))
_STEP = np.zeros(256, np.int8)
_STEP[list(_OPENING)], _STEP[list(_CLOSING)] = 1, -1
_STRUCTURE = _STEP != 0
_STRUCTURE[_COMMA] = True
_BLANK = re.compile(rb"[ \t\r\n]*")
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|"|[{}\[\]]', re.DOTALL)
_WORD = re.compile(rb'[^\s\[\]{},"]+|.', re.DOTALL)


@dataclass(frozen=True)
class DocumentSplit(Split):
    """As :class:`Split`; ``separated``: whether the last byte is a comma or bracket between records, bool[m]."""

    separated: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))


class DocumentSplitter:
    """Values one after the other, or elements of arrays at the top; text between them that is neither is one, too.

    >>> DocumentSplitter().split(b'[{"a": 1},\\n {"b": 2}]', final=True).edges.tolist()
    [0, 1, 9, 10, 20, 21]
    """

    def __init__(self) -> None:
        self._inside = False
        self._after_element = False

    def split(self, data: bytes, final: bool) -> DocumentSplit:
        """The elements that are whole, and the brackets and commas between them.

        Raises:
            BrokenFileError: a string or a bracket is not closed.
        """
        before = self._inside, self._after_element
        split = self._by_depth(data)
        if split is None or (final and (split[0][-1] != len(data.rstrip(_BLANKS)) or self._inside)):
            self._inside, self._after_element = before
            split = self._one_by_one(data, final)
        edges, separated = split
        if final and edges[-1] != len(data):
            edges.append(len(data))
            separated.append(False)
        return DocumentSplit(np.array(edges, np.int64), separated=np.array(separated, dtype=bool))

    def _by_depth(self, data: bytes) -> tuple[list[int], list[bool]] | None:
        """The edges, where all is brackets, commas and what is within them; None if there is anything else.

        **Cost**: some ns a byte, and a microsecond an element.
        """
        text = np.frombuffer(data, np.uint8)
        places, steps = _structure(data, text)
        depths = int(self._inside) + np.cumsum(steps)
        if len(depths) and depths.min() < 0:
            return None
        top = np.minimum(depths, depths - steps) <= 1
        edges, separated, opened = [0], list[bool](), -1
        events = zip(places[top].tolist(), depths[top].tolist(), steps[top].tolist(), strict=True)
        for place, depth, step in events:
            level = int(self._inside)
            if step > 0 and depth == level + 1 and (self._inside or text[place] != _ARRAY):
                opened = place
                continue
            if step > 0 and depth > 1 or step <= 0 and depth > level:
                continue
            element = step < 0 and depth == level
            if data[edges[-1] : opened if element else place].strip(_BLANKS):
                return None
            if step == 0 and not (self._inside and self._after_element):
                return None
            if not element and step:
                self._inside = step > 0
            self._after_element = element
            edges.append(place + 1)
            separated.append(not element)
        return edges, separated

    def _one_by_one(self, data: bytes, final: bool) -> tuple[list[int], list[bool]]:
        edges, separated = [0], list[bool]()
        at = _past_blanks(data, 0)
        while at < len(data):
            sign = data[at : at + 1]
            between = sign == (b"]" if self._inside else b"[") or (
                sign == b"," and self._inside and self._after_element
            )
            if between:
                self._inside = self._inside if sign == b"," else sign == b"["
                end: int | None = at + 1
            else:
                end = _end_of(data, at, final)
            if end is None:
                break
            self._after_element = not between
            edges.append(end)
            separated.append(between)
            at = _past_blanks(data, end)
        if final and (at < len(data) or self._inside):
            raise BrokenFileError("its text ends within an object, an array or a string")
        return edges, separated


def _past_blanks(data: bytes, at: int) -> int:
    match = _BLANK.match(data, at)
    return match.end() if match else at


def _end_of(data: bytes, at: int, final: bool) -> int | None:
    """Where the value ends that begins at ``at``; None if that is not in ``data``. What is no value is a word."""
    if data[at] == _QUOTE:
        match = _TEXT.match(data, at)
        return match.end() if match else None
    if data[at] not in _OPENING:
        match = _WORD.match(data, at)
        assert match is not None
        return match.end() if final or match.end() < len(data) else None
    level = 0
    while (token := _TOKEN.search(data, at)) is not None:
        at = token.end()
        if token[0] == b'"':
            return None
        level += (token[0] in b"{[") - (token[0] in b"}]") if len(token[0]) == 1 else 0
        if level == 0:
            return at
    return None


def _structure(data: bytes, text: npt.NDArray[np.uint8]) -> tuple[np.ndarray, np.ndarray]:
    """Brackets and commas that are not within strings: where they are, and by how much each changes the depth."""
    quotes = np.flatnonzero(text == _QUOTE)
    if b"\\" in data and len(quotes):
        behind = np.flatnonzero((text[np.maximum(quotes - 1, 0)] == _BACKSLASH) & (quotes > 0))
        escaped = [i for i in behind.tolist() if _backslashes(data, int(quotes[i])) % 2]
        quotes = np.delete(quotes, escaped)
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
            block, between = elements_of(part.data, part.split, part.offset, count.lines)
            count.read += between + len(block.data.translate(None, _BLANKS))
            count.lines += count_lines(part.data)
            if len(block):
                if not reading.seen:
                    reading.seen.update(dict.fromkeys(names_in(parse_object(block.record(0)))))
                yield JsonBatch(piece.stream, block, False, habits)

    def advice(self, stream: Stream, texts: Sequence[str]) -> str:
        """Cells."""
        return advice_on_text(texts)

    def texts_at(self, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Elements by the bytes at which they begin."""
        return texts_at_positions(self, stream, file, positions)


def elements_of(data: bytes, split: DocumentSplit, offset: int = 0, first_line: int = 0) -> tuple[Block, int]:
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
