"""Errors that a user can mend: shown without a traceback, exit status 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

MOST_SHOWN = 100


class UserError(Exception):
    """Something that the user can mend; the message says what, where and how. Only the launcher catches it.

    ``exit_status``: of the command that it ends.
    """

    exit_status: ClassVar[int] = 2


@dataclass(frozen=True)
class Mistake:
    """One mistake in a declaration: where it stands, what is wrong, what was expected, the nearest known name."""

    file: Path
    line: int
    column: int
    message: str
    expected: str = ""
    nearest: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.message}"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.nearest:
            text += f"; did you mean '{self.nearest}'?"
        return text


class DeclarationErrors(UserError):
    """All mistakes of a pipeline at once; the text shows the first ``MOST_SHOWN``."""

    def __init__(self, mistakes: Sequence[Mistake]):
        self.mistakes = tuple(mistakes)
        count = len(self.mistakes)
        lines = [str(mistake) for mistake in self.mistakes[:MOST_SHOWN]]
        if count > MOST_SHOWN:
            lines.append(f"and {count - MOST_SHOWN} more")
        super().__init__("\n".join([*lines, f"{count} mistake{'s' if count != 1 else ''} found"]))
