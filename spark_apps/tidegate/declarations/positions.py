"""Declaration files as text with positions, and the report that collects mistakes in them.

Every mistake is placed by its character offset; line and column (both from 1) are worked out here and nowhere else.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tidegate.declarations.errors import Mistake

MAX_FILE_BYTES = 1 << 20


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The known name that is most like ``name``, or "" if none is near; letter case counts for nothing.

    >>> nearest_name("dep_dely", ["carrier", "dep_delay"])
    'dep_delay'
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower()[:100], by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else ""


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
    """The mistakes found so far in one file."""

    source: Source
    mistakes: list[Mistake] = field(default_factory=list)

    def add(self, offset: int, message: str, expected: str = "", nearest: str = "") -> None:
        """Record a mistake at an offset; the same one is recorded once."""
        line, column = self.source.place(offset)
        mistake = Mistake(self.source.file, line, column, message, expected, nearest)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)


def read_source(file: Path) -> Source | Mistake:
    """A declaration file's text (UTF-8, a byte order mark is dropped), or why it cannot be read."""
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            return Mistake(file, 1, 1, "the file is larger than 1 MiB", "a declaration")
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
