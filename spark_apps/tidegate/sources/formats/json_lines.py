"""JSON lines: an object a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.declarations.models import Stream
from tidegate.sources.counts import RawCount
from tidegate.sources.files import Piece, SourceFile
from tidegate.sources.formats.base import Batch, Format, Reading
from tidegate.sources.formats.json_records import Habits, JsonBatch, advice_on_text, names_in, parse_object
from tidegate.sources.formats.texts import cut_text, text_parts, texts_at_positions
from tidegate.sources.text import LineSplitter, block_of, count_lines


class JsonLines(Format):
    """An object a line, UTF-8; LF, CR and CRLF end lines."""

    name = "jsonl"

    def cut(self, stream: Stream, file: SourceFile, slice_bytes: int) -> list[Piece]:
        """Anywhere."""
        return cut_text(stream, file, slice_bytes)

    def read(self, reading: Reading) -> Iterator[Batch]:
        """Blocks of lines."""
        piece, count, raw = reading.piece, reading.count, RawCount()
        habits = Habits()
        for part in text_parts(reading, LineSplitter()):
            raw.add(part.data)
            block = block_of(part.data, part.split, part.offset, count.lines)
            count.lines += count_lines(part.data)
            count.read += len(block)
            count.counted = raw.records
            if len(block):
                if not reading.seen:
                    reading.seen.update(dict.fromkeys(names_in(parse_object(block.record(0)))))
                yield JsonBatch(piece.stream, block, True, habits)

    def advice(self, stream: Stream, texts: Sequence[str]) -> str:
        """Documents over several lines, or cells."""
        signs = [text.strip() for text in texts]
        if all(text[:1] in '[]{}",:' or text[-1:] in "{[," for text in signs):
            return "looks like JSON of several lines: format: json"
        return advice_on_text(signs)

    def texts_at(self, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Lines by the bytes at which they begin."""
        return texts_at_positions(self, stream, file, positions)
