"""Where the records of a CSV text begin and end, cells with line ends in them included."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tidegate.declarations.models import CsvDialect
from tidegate.sources.text import LineSplitter, Places, Split, line_ends

MOST_RECORD_BYTES = 16 << 20
"""A cell that is not closed within so many bytes of its record's begin is not quoted."""
_LF, _CR = 10, 13


class CsvSplitter:
    """A record is a line; a quoted cell's line ends are its own.

    >>> CsvSplitter(CsvDialect()).split(b'a,"x\\ny"\\nb,c\\n', final=False).edges.tolist()
    [0, 8, 12]
    """

    def __init__(self, dialect: CsvDialect):
        self.dialect = dialect
        self._quote, self._comment = dialect.quote.encode(), dialect.comment.encode()
        q, d = re.escape(self._quote), re.escape(dialect.delimiter.encode())
        self._quoted = re.compile(rb"%b[^%b]*+(?:%b%b[^%b]*+)*+%b" % (q, q, q, q, q, q)) if q else None
        self._unquoted = re.compile(rb"[^%b\r\n]*" % d)
        self._delimiter = ord(dialect.delimiter)

    def split(self, data: bytes, final: bool) -> Split:
        """The records that are whole. **Cost**: a few ns a byte where quotes enclose whole cells, else that of regular
        expressions."""
        if not self._quote or self._quote not in data:
            return replace(self._with_remarks(data, LineSplitter().split(data, final).edges), single=True)
        edges = self._by_parity(data, final)
        if edges is not None:
            return self._with_remarks(data, edges)
        return self._with_remarks(data, self._one_by_one(data, final))

    def _with_remarks(self, data: bytes, edges: Places) -> Split:
        if not self._comment or self._comment not in data or len(edges) < 2:
            return Split(edges)
        text = np.frombuffer(data, np.uint8)
        remarks = text[edges[:-1]] == ord(self._comment)
        return Split(edges, remarks if remarks.any() else None)

    def _by_parity(self, data: bytes, final: bool) -> Places | None:
        """The edges, where all quotes enclose whole cells or are doubled within them; None if any does not."""
        if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
            return None
        text = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(text == ord(self._quote))
        ends = line_ends(data)
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0] + 1
        if final and (not len(ends) or ends[-1] != len(data)):
            if len(quotes) % 2:
                return None
            ends = np.append(ends, len(data))
        edges = np.concatenate([[0], ends]).astype(np.int64)
        quotes = quotes[: int(np.searchsorted(quotes, edges[-1]))]
        # Text without a record's end may be a cell that is never closed.
        if np.diff(edges, append=len(data)).max() > MOST_RECORD_BYTES or not quotes_enclose(
            text, quotes, self._delimiter, int(edges[-1])
        ):
            return None
        several = (
            self._comment and (text[edges[:-1]] == ord(self._comment)).any() and len(line_ends(data)) >= len(edges)
        )
        return None if several else edges

    def _one_by_one(self, data: bytes, final: bool) -> Places:
        edges, at = [0], 0
        while at < len(data):
            comment = self._comment and data.startswith(self._comment, at)
            end = _after_line(data, at, final) if comment else self._end(data, at, final)
            if end is None:
                break
            at = end
            edges.append(at)
        return np.array(edges, np.int64)

    def _end(self, data: bytes, start: int, final: bool) -> int | None:
        """Where the record ends that begins at ``start``, its line end included; None if that is not yet known."""
        at = start
        while True:
            if self._quoted is not None and data.startswith(self._quote, at):
                match = self._quoted.match(data, at)
                if match is None:
                    known = final or len(data) - start > MOST_RECORD_BYTES
                    return _after_line(data, start, final) if known else None
                at = match.end()
                if at < len(data) and data[at] not in (self._delimiter, _LF, _CR):
                    return _after_line(data, start, final)
            else:
                match = self._unquoted.match(data, at)
                at = match.end() if match else at
            if at == len(data):
                return (
                    at
                    if final and at - start <= MOST_RECORD_BYTES
                    else _after_line(data, start, final)
                    if final
                    else None
                )
            if data[at] != self._delimiter:
                break
            at += 1
        if at - start > MOST_RECORD_BYTES:
            return _after_line(data, start, final)
        return _after_line(data, at, final)


def quotes_enclose(text: npt.NDArray[np.uint8], quotes: Places, delimiter: int, end: int) -> bool:
    """Whether quotes, an even number of them, only enclose whole cells or are doubled within them.

    ``text`` counts up to ``end``; ``quotes``: where they stand in it.
    """
    opening, closing = quotes[::2], quotes[1::2]
    if not len(opening):
        return True
    before = np.where(opening > 0, text[np.maximum(opening - 1, 0)], _LF)
    after = np.where(closing + 1 < end, text[np.minimum(closing + 1, len(text) - 1)], _LF)
    doubled = opening[1:] == closing[:-1] + 1
    opens, closes = (np.isin(x, (delimiter, _LF, _CR)) for x in (before, after))
    opens[1:] |= doubled
    closes[:-1] |= doubled
    return bool(opens.all() and closes.all())


def _after_line(data: bytes, at: int, final: bool) -> int | None:
    """Where the line ends that goes on at ``at``, its line end included; None if that is not yet known."""
    match = _LINE_END.search(data, at)
    if match is None or (match.end() == len(data) and data.endswith(b"\r")):
        return len(data) if final else None
    return match.end()


_LINE_END = re.compile(rb"\r\n|\n|\r")
