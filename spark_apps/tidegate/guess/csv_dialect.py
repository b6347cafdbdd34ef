"""How a CSV file is written, seen from its first lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tidegate.declarations.models import CsvDialect
from tidegate.sources.formats.csv import cells_of
from tidegate.sources.formats.csv_splitter import CsvSplitter
from tidegate.sources.text import block_of

DELIMITERS = ",;\t|"
NULL_WORDS = ("NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "none", "NaN", "nan", "-", "--", "?", "\\N", "(null)")
"""Cells that people write where a value is missing."""
CERTAIN_NULLS = frozenset({"\\N", "NULL", "(null)", "#N/A", "N/A", "n/a", "NA"})
"""Those of them that no text of a column is likely to be."""
_MOST_TEXT = 1 << 18
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_PLAIN = re.compile(r"[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?", re.ASCII)
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+", re.ASCII)
_OPENED = re.compile(r'(?:^|[,;\t|])"')
_CLOSED = re.compile(r'(?:^|[,;\t|])"(?:[^"]|"")*"(?:$|[,;\t|])')
_TYPED = re.compile(r"[+-]?[0-9][0-9.,:/+\-T Z]*|true|false|-", re.ASCII | re.IGNORECASE)


class Text(NamedTuple):
    """Octets as text, and how they were encoded."""

    text: str
    encoding: str


def decoded(octets: bytes, whole: bool) -> Text:
    """The text of the octets, which may end within a sign unless they are ``whole``.

    >>> decoded("Köln".encode("cp1252"), True), decoded("Köln".encode()[:2], False)
    (Text(text='Köln', encoding='cp1252'), Text(text='K', encoding='utf-8'))
    """
    for mark, encoding in _BOMS:
        if octets.startswith(mark):
            return Text(octets.decode(encoding, "ignore"), encoding)
    if octets[:200:2].count(0) > len(octets[:200:2]) / 2:
        return Text(octets.decode("utf-16-be", "ignore"), "utf-16-be")
    if octets[1:200:2].count(0) > len(octets[1:200:2]) / 2:
        return Text(octets.decode("utf-16-le", "ignore"), "utf-16-le")
    try:
        return Text(octets.decode(), "utf-8")
    except UnicodeDecodeError as error:
        if not whole and len(octets) - error.start < 4:
            return Text(octets[: error.start].decode(), "utf-8")
    try:
        return Text(octets.decode("cp1252"), "cp1252")
    except UnicodeDecodeError:
        return Text(octets.decode("latin-1"), "latin-1")


def dialect_of(text: str, encoding: str) -> CsvDialect | None:
    """The dialect of a text of whole lines; None if it does not look like CSV.

    >>> dialect_of("Nr;Zeit;Ort\\n0;9,5;A\\n1;9,6;B\\n", "utf-8")  # doctest: +NORMALIZE_WHITESPACE
    CsvDialect(delimiter=';', header=True, decimal=',', quote='"', encoding='utf-8', nulls=('',), comment='')
    """
    text = text[:_MOST_TEXT]
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip(" \t")]
    comment = _comment(lines)
    lines = [line for line in lines if not (comment and line.startswith(comment))]
    if not lines:
        return None
    best, quote = max(
        ((sign, quote) for quote in _quotes(lines) for sign in DELIMITERS), key=lambda pair: _evenness(lines, *pair)
    )
    if _evenness(lines, best, quote)[0] < 0.8:
        return None
    rows = cells(text, CsvDialect(delimiter=best, quote=quote, comment=comment))
    width = Counter(map(len, rows[:1000])).most_common(1)[0][0]
    header = _is_header(rows)
    body = [row for row in rows[int(header) :] if len(row) == width]
    return CsvDialect(
        delimiter=best,
        header=header,
        decimal=_decimal(body, best),
        quote=quote,
        encoding="utf-8" if encoding == "utf-8-sig" else encoding,
        comment=comment,
    )


def cells(text: str, dialect: CsvDialect) -> list[list[str]]:
    """The cells of each of the text's records."""
    data = text.encode()
    return [row_of(dialect, record) for record in block_of(data, CsvSplitter(dialect).split(data, True)).records()]


def row_of(dialect: CsvDialect, record: bytes) -> list[str]:
    """A record's cells, empty where they stand for no value; none if it is no record."""
    return [cell or "" for cell in cells_of(dialect, record) or ()]


def _comment(lines: Sequence[str]) -> str:
    marked = [number for number, line in enumerate(lines) if line.startswith("#")]
    return "#" if marked and len(marked) < max(len(lines) * 0.5, 2) else ""


def _quotes(lines: Sequence[str]) -> tuple[str, ...]:
    """The signs that may stand around cells, the likelier first; empty: none does."""
    marked = [line for line in lines[:1000] if '"' in line]
    if marked:
        opened = [line for line in marked if _OPENED.search(line)]
        closed = sum(bool(_CLOSED.search(line)) for line in opened)
        return ('"', "") if closed >= len(opened) - closed else ("", '"')
    single = re.compile(r"(^|[,;\t|])'[^']*'($|[,;\t|])")
    return ("'",) if sum(bool(single.search(line)) for line in lines[:1000]) > len(lines[:1000]) * 0.5 else ('"',)


def _evenness(lines: Sequence[str], delimiter: str, quote: str) -> tuple[float, int]:
    """The share of lines that have as many cells as most have, and how many that is; (0, 1) if it is one."""
    rows = cells("\n".join(lines[:200]), CsvDialect(delimiter=delimiter, quote=quote))
    width, often = Counter(map(len, rows)).most_common(1)[0]
    return (often / len(rows), width) if width > 1 else (0.0, 1)


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: none of it is a number or a time, and it is not like the rows below."""
    first = [cell.strip() for cell in rows[0]]
    names = [cell for cell in first if cell]
    if not names or any(_TYPED.fullmatch(name) for name in names):
        return False
    if len(rows) == 1:
        return True
    below = [[row[n].strip() for row in rows[1:200] if n < len(row) and row[n].strip()] for n in range(len(first))]
    if any(column and sum(bool(_TYPED.fullmatch(cell)) for cell in column) > len(column) / 2 for column in below):
        return True
    return len(set(names)) == len(names) and not any(
        name in column for name, column in zip(first, below, strict=True) if name
    )


def _decimal(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    """`,` if numbers with a comma are more than those with a point."""
    if delimiter == ",":
        return "."
    texts = [cell.strip() for row in rows[:2000] for cell in row]
    commas = sum(bool(_COMMA.fullmatch(cell)) for cell in texts)
    points = sum("." in cell and bool(_PLAIN.fullmatch(cell)) for cell in texts)
    return "," if commas > points else "."
