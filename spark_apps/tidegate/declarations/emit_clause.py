"""Which further answers of a window a query emits: ``EMIT EARLY``, ``EMIT EVERY 1 HOUR UNTIL FINAL``, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokens import Token

from tidegate.declarations.positions import Report
from tidegate.declarations.promise_clauses import is_word
from tidegate.declarations.units import UnreadableError, read_duration_us

EVERY_SHAPE = "EMIT EVERY 1 HOUR UNTIL FINAL"
EMIT_SHAPE = f"EMIT EARLY, or {EVERY_SHAPE}"
BOTH_SHAPE = "EMIT EARLY, EVERY 1 HOUR UNTIL FINAL"
_OF_OTHERS = ("CHANGES", "FINAL", "ON")
_FOLLOWING = ("EARLY", "EVERY", *_OF_OTHERS)


@dataclass
class Emit:
    """What EMIT says.

    ``early``: at the window's end. ``every_us``: how far apart updates are; None: there are none. ``every_at``: where
    that length stands.
    """

    early: bool = False
    every_us: int | None = None
    every_at: int | None = None


def begins_emit(tokens: Sequence[Token], index: int) -> bool:
    """Whether the word EMIT at an index is the clause, by the word that follows it."""
    return index + 1 < len(tokens) and is_word(tokens[index + 1], *_FOLLOWING)


def continues_emit(tokens: Sequence[Token], index: int) -> bool:
    """Whether a word at an index is EMIT's, and no clause by itself."""
    return index > 0 and is_word(tokens[index], "EVERY") and is_word(tokens[index - 1], "EMIT")


def read_emit(values: Sequence[Token], report: Report) -> Emit:
    """What stands behind EMIT: items, with commas between them."""
    emit = Emit()
    items: list[list[Token]] = [[]]
    for token in values:
        if token.text == ",":
            items.append([])
        else:
            items[-1].append(token)
    if not all(items):
        comma = next(token for token in values if token.text == ",")
        report.add(comma.start, "EMIT cannot be read", BOTH_SHAPE)
        return emit
    for item in items:
        first = item[0]
        if is_word(first, "EARLY") and len(item) == 1:
            if emit.early:
                report.add(first.start, "EMIT EARLY is given twice")
            emit.early = True
        elif is_word(first, "EVERY"):
            if emit.every_at is not None:
                report.add(first.start, "EMIT EVERY is given twice")
            _read_every(item, emit, report)
        elif is_word(first, *_OF_OTHERS):
            message = (
                f"EMIT {first.text.upper()} is not supported: the promised answer is emitted once, K after the end"
            )
            report.add(first.start, message, f"no EMIT, or {EMIT_SHAPE}")
        else:
            at = item[1] if is_word(first, "EARLY") else first
            report.add(at.start, f"EMIT cannot be read at '{at.text[:60]}'", BOTH_SHAPE)
    return emit


def _read_every(item: list[Token], emit: Emit, report: Report) -> None:
    emit.every_at = item[0].start
    words, length = item[-2:], item[1:-2]
    if len(item) < 4 or not (is_word(words[0], "UNTIL") and is_word(words[1], "FINAL")):
        report.add(item[0].start, "EMIT EVERY ends with UNTIL FINAL", EVERY_SHAPE)
        return
    written = report.source.text[length[0].start : length[-1].end + 1]
    try:
        emit.every_us = read_duration_us(written)
    except UnreadableError as error:
        report.add(length[0].start, error.message, error.expected, error.misspelt)
        return
    if emit.every_us == 0:
        report.add(length[0].start, "EMIT EVERY must be longer than 0", EVERY_SHAPE)
