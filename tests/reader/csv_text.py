"""CSV, sign by sign: cells, quotes, line ends, comments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.declarations.models import CsvDialect


@dataclass(frozen=True)
class Cell:
    """A cell's text, and whether it stood in quotes."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Row:
    """A record of a CSV file: where it begins, its text, and its cells; None if its quotes are not well set."""

    at: int
    text: str
    cells: list[Cell] | None


def csv_rows(text: str, dialect: CsvDialect) -> Iterator[Row]:
    """The records, the header as one of them; blank lines and comments are none.

    A record whose quotes are not well set is its first line alone.
    """
    at = 0
    while at < len(text):
        end = line_end(text, at)
        line = text[at:end]
        comment = bool(dialect.comment) and line.startswith(dialect.comment)
        if line.strip(" \t") and not comment:
            cells, last = cells_from(text, at, dialect)
            end = end if cells is None else last
            yield Row(at, text[at:end], cells)
        at = end + (2 if text[end : end + 2] == "\r\n" else 1)


def line_end(text: str, at: int) -> int:
    """Where the line ends in which a place is."""
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at


def cells_from(text: str, at: int, dialect: CsvDialect) -> tuple[list[Cell] | None, int]:
    """The cells of the record that begins at a place, and where it ends; None if its quotes are not well set."""
    cells: list[Cell] = []
    while True:
        if dialect.quote and text[at : at + 1] == dialect.quote:
            content, at = _quoted(text, at + 1, dialect.quote)
            if content is None or text[at : at + 1] not in ("", "\r", "\n", dialect.delimiter):
                return None, at
            cells.append(Cell(content, quoted=True))
        else:
            start = at
            while at < len(text) and text[at] not in ("\r", "\n", dialect.delimiter):
                at += 1
            cells.append(Cell(text[start:at]))
        if text[at : at + 1] != dialect.delimiter:
            return cells, at
        at += 1


def _quoted(text: str, at: int, quote: str) -> tuple[str | None, int]:
    """What stands up to the closing quote, and the place behind it; None if no quote closes."""
    content = ""
    while at < len(text):
        if text[at] != quote:
            content += text[at]
            at += 1
        elif text[at + 1 : at + 2] == quote:
            content += quote
            at += 2
        else:
            return content, at + 1
    return None, at
