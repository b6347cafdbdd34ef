"""Declaration files as text with positions, and the report that collects mistakes in them.

Every mistake is placed by its character offset; line and column (both from 1) are worked out here and nowhere else.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

from tidegate.declarations.errors import Mistake

MAX_FILE_BYTES = 1 << 20
MAX_QUERY_BYTES = 256 << 10
_MOST_COMPARISONS = 5_000


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The known name that is most like ``name``, or "" if none is near; letter case counts for nothing.

    >>> nearest_name("dep_dely", ["carrier", "dep_delay"])
    'dep_delay'
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower()[:100], by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else ""


@dataclass(frozen=True)
class Misspelt:
    """A name that means nothing, and the names that would."""

    name: str
    known: Iterable[str]


@dataclass(frozen=True)
class Source:
    """The text of one declaration file."""

    file: Path
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(i + 1 for i, character in enumerate(self.text) if character == "\n")]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1, of a character offset; an offset outside the text is moved to its edge."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1


@dataclass
class Report:
    """The mistakes found so far in one file.

    **Cost**: microseconds a mistake; names are compared with known ones until that has been done ``_MOST_COMPARISONS``
    times, so that a file full of mistakes does not take long.
    """

    source: Source
    mistakes: list[Mistake] = field(default_factory=list)
    _seen: set[tuple[int, str]] = field(default_factory=set)
    _comparisons: int = 0

    def add(self, offset: int, message: str, expected: str = "", misspelt: Misspelt | None = None) -> str:
        """Record a mistake at an offset, the same one once; returns the nearest known name, "" if none is near."""
        line, column = self.source.place(offset)
        nearest = self._nearest(misspelt) if misspelt else ""
        mistake = Mistake(self.source.file, line, column, message, expected, nearest)
        if (offset, message) not in self._seen:
            self._seen.add((offset, message))
            self.mistakes.append(mistake)
        return nearest

    def _nearest(self, misspelt: Misspelt) -> str:
        known = list(islice(misspelt.known, _MOST_COMPARISONS - self._comparisons))
        self._comparisons += len(known)
        return nearest_name(misspelt.name, known)


def read_source(file: Path) -> Source | Mistake:
    """A declaration file's text (UTF-8, a byte order mark is dropped), or why it cannot be read."""
    try:
        most = MAX_QUERY_BYTES if file.suffix == ".sql" else MAX_FILE_BYTES
        if file.stat().st_size > most:
            return Mistake(file, 1, 1, f"the file is larger than {most >> 10} KiB", "a declaration")
        data = file.read_bytes()
    except OSError as error:
        return Mistake(file, 1, 1, f"cannot be read: {error.strerror or error}", "a readable text file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = Source(file, data[: error.start].decode("utf-8")).place(error.start)
        return Mistake(file, line, column, f"byte 0x{data[error.start]:02x} is not UTF-8", "a file in UTF-8")
    source = Source(file, text.removeprefix("\ufeff"))
    if "\0" in source.text:
        line, column = source.place(source.text.index("\0"))
        return Mistake(file, line, column, "a NUL character", "text")
    return source
