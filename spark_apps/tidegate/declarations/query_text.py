"""The clauses that SQL does not have, cut out of a query's text.

``stream [RANGE 60 MINUTES]`` and the closing ERROR, ACCURACY, EVERY, DURATION, PRIORITY and EMIT are read here and
overwritten with blanks of equal length. What is left is an ordinary SELECT, in which every position is still that of
the text as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TypeVar, cast, get_args

import sqlglot
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from tidegate.declarations import time_windows
from tidegate.declarations.emit_clause import EMIT_SHAPE, Emit, begins_emit, continues_emit, read_emit
from tidegate.declarations.models import OnMiss
from tidegate.declarations.names import CLAUSES, CLAUSES_OF_SEVERAL_WORDS
from tidegate.declarations.positions import Misspelt, Report
from tidegate.declarations.promise_clauses import PromisedFor, is_word, names_column, read_promised_for
from tidegate.declarations.time_formats import read_zone
from tidegate.declarations.units import (
    DAY_US,
    UnreadableError,
    read_calendar_length,
    read_duration_us,
    read_instant,
    read_priority,
    read_share,
    shown,
)
from tidegate.values.calendar import Calendar

T = TypeVar("T")
ON_MISS = tuple(word.upper() for word in get_args(OnMiss))

MAX_BRACKETS = 16
MAX_WORDS = 10_000
WINDOW_SHAPE = "'stream [60 MINUTES]' or 'stream [RANGE 60 MINUTES]'"
CALENDAR_SHAPE = "EVERY 1 DAY AT TIME ZONE 'Europe/Berlin' (or 1 WEEK, 1 MONTH)"
DURATION_SHAPE = "DURATION ['2013-01-01', '2013-02-01')"

_OPENING = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}
_AFTER_FROM = {
    TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY, TokenType.ORDER_BY, TokenType.LIMIT
}  # fmt: skip
_DERIVED = "a SELECT of tuples can be a derived stream, streams/<name>.sql"
_SET_OPERATIONS = {TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT}
# Words after which an expression begins, so that a name that follows is a column and not the start of a clause.
_OPERAND_WORDS = """
    SELECT DISTINCT FROM JOIN ON WHERE AND OR NOT BY HAVING WHEN THEN ELSE CASE BETWEEN LIKE ILIKE RLIKE IN IS AS
    DIV LIMIT QUALIFY
"""
_EXPECTS_OPERAND = frozenset(_OPERAND_WORDS.split())


@dataclass(frozen=True)
class WindowClause:
    """``[60 MINUTES]`` at an offset; the range is None if it could not be read, or is of weeks or months.

    ``length``: of a range of whole days, weeks or months, how many days and months.
    """

    offset: int
    range_us: int | None
    length: tuple[int, int] | None = None


@dataclass(frozen=True)
class SessionClause:
    """Sessions, written at an offset; ``keys``: the columns of PARTITION BY, where it stands, each with its place."""

    offset: int
    gap_us: int
    keys: tuple[tuple[str, int], ...] | None


@dataclass
class QueryText:
    """A query's text, its own clauses read.

    ``windows``: by the offset at which the stream's name begins; at −1 a window that names no stream, for the only one.
    ``times``: by the same offsets, the column over which a window says that it is, and where. ``promised_for``: what
    ERROR or ACCURACY holds for. ``session``: what its windows are, if they are sessions; ``windows`` then says how long
    one may be. ``calendar``: of EVERY with AT TIME ZONE. ``emit``: further answers of each window. ``nulls_first``:
    where those words stand.
    ``is_lost``: what is left is not worth parsing, as a window of it could not be read.
    """

    statement: str
    description: str
    body: str
    windows: dict[int, WindowClause] = field(default_factory=dict)
    times: dict[int, tuple[str, int]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    error: float | None = None
    accuracy: float | None = None
    promised_for: PromisedFor = field(default_factory=PromisedFor)
    on_miss: OnMiss = "warn"
    every_us: int | None = None
    calendar: Calendar | None = None
    session: SessionClause | None = None
    active_from: datetime | None = None
    active_to: datetime | None = None
    priority: int = 0
    emit: Emit = field(default_factory=Emit)
    nulls_first: int | None = None
    is_lost: bool = False


def split_query(report: Report) -> QueryText | None:
    """Cut the text into its own clauses and plain SQL; None if its shape is past reading (the report says why)."""
    text = report.source.text
    tokens = tokenize(text, report)
    if tokens is None:
        return None
    if len(tokens) > MAX_WORDS:
        report.add(tokens[MAX_WORDS].start, "the query is too long", f"at most {MAX_WORDS} words and signs")
        return None
    tokens = _single_statement(tokens, report)
    if not tokens or not _is_plain_select(tokens, report) or not _brackets_are_shallow(tokens, report):
        return None
    nulls_first = [a.start for a, b in pairwise(tokens) if (a.text.upper(), b.text.upper()) == ("NULLS", "FIRST")]
    statement = text[tokens[0].start : tokens[-1].end + 1]
    query = QueryText(statement=statement, description=leading_comment(text), body=text)
    query.nulls_first = nulls_first[0] if nulls_first else None
    before = len(report.mistakes)
    begin = _clauses_begin(tokens)
    edits = [*_read_windows(tokens[:begin], query, report), *time_windows.fields(tokens[:begin])]
    after = len(report.mistakes)
    for window in time_windows.read_functions(tokens[:begin], report):
        _take_window(window, query, report)
        edits += window.edits
    query.is_lost |= len(report.mistakes) > after
    if begin < len(tokens):
        _read_clauses(tokens[begin:], query, report)
        edits.append((tokens[begin].start, tokens[-1].end + 1, ""))
    # Anything past the statement (its semicolon) is blanked as well.
    edits.append((tokens[-1].end + 1, len(text), ""))
    for start, end, new in edits:
        gap = "".join(c if c in "\r\n" else " " for c in query.body[start + len(new) : end])
        query.body = query.body[:start] + new + gap + query.body[end:]
    shape_lost = any("is not closed" in mistake.message for mistake in report.mistakes[before:])
    return None if shape_lost or query.is_lost else query


def tokenize(text: str, report: Report) -> list[Token] | None:
    """The tokens, or None if a string, name or comment is not closed."""
    try:
        return list(sqlglot.tokenize(text, dialect="spark"))
    except (TokenError, RecursionError) as error:
        cause = str(error.__cause__ or error)
        match = re.match(r"Missing (.+) from \d+:(\d+)", cause)
        if match:
            report.add(int(match[2]), f"{match[1]} is not closed", f"a closing {match[1]}")
        elif text.rfind("/*") > text.rfind("*/"):
            report.add(text.rfind("/*"), "a comment is not closed", "a closing */")
        else:
            report.add(getattr(error, "end", None) or 0, "the text cannot be split into tokens", "SQL")
        return None


def leading_comment(text: str) -> str:
    """The ``--`` lines before the statement, as markdown; a blank line parts paragraphs."""
    lines: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("--"):
            break
        lines.append(stripped.removeprefix("--").removeprefix(" "))
    return "\n".join(lines).strip()


def _single_statement(tokens: list[Token], report: Report) -> list[Token]:
    """The tokens before the first semicolon; a mistake if there are none, or more statements after it."""
    if all(token.token_type is TokenType.SEMICOLON for token in tokens):
        tokens = []
    if not tokens:
        report.add(0, "the file contains no query", "one SELECT statement")
        return []
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            rest = [t for t in tokens[index:] if t.token_type is not TokenType.SEMICOLON]
            if rest:
                report.add(rest[0].start, "the file contains several statements", "one statement a file")
            return tokens[:index]
    return tokens


def _is_plain_select(tokens: list[Token], report: Report) -> bool:
    first = tokens[0]
    if first.token_type is TokenType.WITH:
        report.add(first.start, "WITH is not supported", f"one SELECT over streams; {_DERIVED}")
        return False
    if first.token_type is not TokenType.SELECT:
        message = f"a query cannot begin with '{first.text[:60]}'"
        report.add(first.start, message, "SELECT", Misspelt(first.text, ["SELECT"]))
        return False
    for index, token in enumerate(tokens[1:], 1):
        if token.token_type in _SET_OPERATIONS:
            expected = "one SELECT, and a query for each other"
            if token.token_type is TokenType.UNION:
                expected += "; UNION ALL of tuples can be a derived stream, streams/<name>.sql"
            report.add(token.start, f"{token.text.upper()} is not supported", expected)
            return False
        exists = index > 1 and tokens[index - 1].text == "(" and is_word(tokens[index - 2], "EXISTS")
        if token.token_type is TokenType.SELECT and not exists:
            report.add(token.start, "subqueries are not supported", f"streams by name; {_DERIVED}")
            return False
    return True


def _brackets_are_shallow(tokens: list[Token], report: Report) -> bool:
    depth = 0
    for token in tokens:
        if token.token_type in _OPENING:
            depth += 1
        elif token.token_type in _OPENING.values():
            depth -= 1
        if depth > MAX_BRACKETS:
            report.add(token.start, "the expression is nested too deeply", f"at most {MAX_BRACKETS} levels of brackets")
            return False
    return True


def _clauses_begin(tokens: list[Token]) -> int:
    """Index of the first word of the closing clauses; the number of tokens if there are none.

    ``error`` and the like may also name columns: a clause begins only where an expression has just ended.
    """
    depth, after_from = 0, False
    for index, token in enumerate(tokens):
        if token.token_type in _OPENING:
            depth += 1
        elif token.token_type in _OPENING.values():
            depth -= 1
        elif token.token_type is TokenType.FROM:
            after_from = True
        elif after_from and depth == 0 and _begins_clause(tokens, index) and _ends_operand(tokens[index - 1]):
            return index
    return len(tokens)


def _is_clause(token: Token) -> bool:
    return token.token_type is not TokenType.STRING and token.text.upper() in CLAUSES


def _begins_clause(tokens: list[Token], index: int) -> bool:
    word = tokens[index].text.upper()
    return _is_clause(tokens[index]) and (word not in CLAUSES_OF_SEVERAL_WORDS or begins_emit(tokens, index))


def _ends_operand(token: Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER, *_OPENING.values()):
        return True
    words = token.text.upper().split()
    return bool(words) and words[-1].replace("_", "a").isalnum() and words[-1] not in _EXPECTS_OPERAND


def _take_window(window: time_windows.TimeWindow, query: QueryText, report: Report) -> None:
    """A window of Flink's or Spark's: its range, and how often it is answered."""
    at = -1 if window.stream_offset is None else window.stream_offset
    if window.session:
        _take_sessions(window, at, query, report)
        return
    if query.session is not None:
        report.add(window.offset, "sessions are the only window of a query", "one window")
        return
    if at == -1 and (query.windows or query.times):
        report.add(window.offset, "the query has another window already", "one window a stream")
        return
    if query.every_us is not None and query.every_us != window.slide_us:
        report.add(window.offset, "two windows of a query are answered at different times", "the same slide for both")
    query.windows[at] = WindowClause(window.offset, window.size_us)
    query.times[at] = window.column
    query.every_us = window.slide_us


def _take_sessions(window: time_windows.TimeWindow, at: int, query: QueryText, report: Report) -> None:
    """Sessions: their gap, and a day as the longest, unless the stream has a RANGE."""
    if query.session is not None or query.times:
        report.add(window.offset, "sessions are the only window of a query", "one window")
        return
    if at != -1 or not query.windows:
        query.windows[at] = WindowClause(window.offset, DAY_US)
    query.session = SessionClause(window.offset, window.size_us, window.keys)
    query.times[at] = window.column


def _read_windows(tokens: list[Token], query: QueryText, report: Report) -> list[tuple[int, int, str]]:
    """Read every ``[…]`` and table function between FROM and WHERE; what to put in their place."""
    spans: list[tuple[int, int, str]] = []
    index = next((i for i, t in enumerate(tokens) if t.token_type is TokenType.FROM), len(tokens))
    depth = 0
    while index < len(tokens):
        token = tokens[index]
        if depth == 0 and token.token_type in _AFTER_FROM:
            break
        if token.token_type in (TokenType.L_PAREN, TokenType.R_PAREN):
            depth += 1 if token.token_type is TokenType.L_PAREN else -1
        if token.token_type is TokenType.L_BRACKET and depth == 0:
            end = index + 1
            while end < len(tokens) and tokens[end].token_type not in (TokenType.R_BRACKET, *_AFTER_FROM):
                end += 1
            if end == len(tokens) or tokens[end].token_type is not TokenType.R_BRACKET:
                report.add(token.start, "the window is not closed", WINDOW_SHAPE)
                return spans
            query.windows[tokens[index - 1].start] = _read_range(tokens[index + 1 : end], token, report)
            spans.append((token.start, tokens[end].end + 1, ""))
            index = end
        if depth == 0 and time_windows.begins_table_function(tokens, index):
            function, index = time_windows.read_table_function(tokens, index, report)
            if function is None:
                query.is_lost = True
                return spans
            _take_window(function, query, report)
            spans += function.edits
            behind = tokens[index].token_type if index < len(tokens) else None
            if function.session and function.stream_offset is not None and behind is TokenType.L_BRACKET:
                closing = [i for i in range(index, len(tokens)) if tokens[i].token_type is TokenType.R_BRACKET]
                if not closing:
                    report.add(tokens[index].start, "the window is not closed", WINDOW_SHAPE)
                    return spans
                longest = _read_range(tokens[index + 1 : closing[0]], tokens[index], report)
                query.windows[function.stream_offset] = longest
                spans.append((tokens[index].start, tokens[closing[0]].end + 1, ""))
                index = closing[0] + 1
            continue
        index += 1
    return spans


def _read_range(inner: list[Token], bracket: Token, report: Report) -> WindowClause:
    unread = WindowClause(bracket.start, None)
    if inner and inner[0].text.upper() == "RANGE":
        inner = inner[1:]
    if not inner:
        report.add(bracket.start, "the window has no range", WINDOW_SHAPE)
        return unread
    word = inner[0].text.upper()
    if word in ("ROWS", "TUMBLING", "TUMBLE", "HOP", "HOPPING", "SESSION", "SLIDING"):
        message = f"{word} windows are not supported; a window slides over time"
        expected = f"{WINDOW_SHAPE}, or {time_windows.TUMBLE_SHAPE} in FROM"
        if word == "SESSION":
            message = "sessions are written as Spark or Flink write them"
            expected = f"{time_windows.SPARK_SESSION_SHAPE} in GROUP BY, or {time_windows.SESSION_SHAPE} in FROM"
        report.add(inner[0].start, message, expected)
        return unread
    length = read_calendar_length(_written(inner, report))
    if length is not None and not inner[-1].text.upper().startswith("DAY"):
        return WindowClause(bracket.start, None, length)
    duration = _convert(inner, read_duration_us, report)
    if duration == 0:
        report.add(inner[0].start, "a range of 0 contains no tuples", WINDOW_SHAPE)
    return WindowClause(bracket.start, duration or None, length)


def _written(tokens: list[Token], report: Report) -> str:
    return report.source.text[tokens[0].start : tokens[-1].end + 1]


def _convert(tokens: list[Token], convert: Callable[[str], T], report: Report) -> T | None:
    """Convert the text that the tokens span; None after a mistake."""
    try:
        return convert(_written(tokens, report))
    except UnreadableError as error:
        report.add(tokens[0].start, error.message, error.expected, error.misspelt)
        return None


def _read_clauses(tokens: list[Token], query: QueryText, report: Report) -> None:
    starts = [
        i
        for i, token in enumerate(tokens)
        if _is_clause(token) and not names_column(tokens, i) and not continues_emit(tokens, i)
    ]
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        keyword, values = tokens[start], tokens[start + 1 : end]
        name = keyword.text.upper()
        if name in query.offsets:
            report.add(keyword.start, f"{name} is given twice")
            continue
        query.offsets[name] = keyword.start
        if not values:
            shapes = {"DURATION": DURATION_SHAPE, "EVERY": "EVERY 5 MINUTES", "PRIORITY": "PRIORITY 10"}
            shapes["EMIT"] = EMIT_SHAPE
            shape = shapes.get(name, f"{name} 5%")
            report.add(keyword.start, f"{name} has no value", shape)
        elif misplaced := [token for token in values if token.token_type in _AFTER_FROM]:
            word = misplaced[0].text.upper()
            report.add(misplaced[0].start, f"{word} stands after {name}", f"{word} before {', '.join(CLAUSES)}")
        elif name in ("ERROR", "ACCURACY"):
            promise = _read_on_miss(values, query, report)
            promise, promised_for = read_promised_for(promise, name, report)
            share = _convert(promise, read_share, report) if promise else None
            query.promised_for = promised_for
            query.error, query.accuracy = (share, query.accuracy) if name == "ERROR" else (query.error, share)
        elif name == "EVERY":
            _read_every(keyword, values, query, report)
        elif name == "EMIT":
            query.emit = read_emit(values, report)
        elif name == "PRIORITY":
            query.priority = _convert(values, read_priority, report) or 0
        else:
            _read_duration(values, query, report)


def _read_every(keyword: Token, values: list[Token], query: QueryText, report: Report) -> None:
    """Read ``10 MINUTES``, or ``1 DAY AT TIME ZONE 'Europe/Berlin'``."""
    at = next((i for i, token in enumerate(values) if token.text.upper() == "AT"), None)
    until = next((token for token in values if token.text.upper() == "UNTIL"), None)
    if until is not None:
        expected = "EMIT EARLY, EVERY 1 HOUR UNTIL FINAL" if "EMIT" in query.offsets else EMIT_SHAPE
        report.add(until.start, "UNTIL FINAL belongs to EMIT", expected)
    elif query.session is not None:
        report.add(keyword.start, "a session is answered when it has ended, not every so often", "no EVERY")
    elif query.times:
        expected = "no EVERY" if at is None else f"the stream's name, and {CALENDAR_SHAPE}"
        report.add(keyword.start, "EVERY is given twice: the window says it", expected)
    elif at is not None:
        query.calendar = _read_calendar(values, at, report)
    elif (length := read_calendar_length(_written(values, report))) and not values[-1].text.upper().startswith("DAY"):
        unit = "month" if length[1] else "week"
        report.add(values[0].start, f"a {unit} begins by a clock: which one?", CALENDAR_SHAPE)
    else:
        query.every_us = _convert(values, read_duration_us, report)
        if query.every_us == 0:
            report.add(values[0].start, "EVERY must be longer than 0", "EVERY 5 MINUTES")


def _read_calendar(values: list[Token], at: int, report: Report) -> Calendar | None:
    """The days, weeks or months of a zone; None after a mistake."""
    words, zone = [token.text.upper() for token in values[at : at + 3]], values[at + 3 :]
    if at == 0 or words != ["AT", "TIME", "ZONE"] or [token.token_type for token in zone] != [TokenType.STRING]:
        report.add(values[at].start, "AT TIME ZONE cannot be read", CALENDAR_SHAPE)
        return None
    try:
        name = read_zone(zone[0].text)
    except UnreadableError as error:
        report.add(zone[0].start, error.message, error.expected)
        return None
    written = _written(values[:at], report)
    length = read_calendar_length(written)
    if length not in ((1, 0), (7, 0), (0, 1)):
        message = f"{shown(written)} is no day, week or month of a calendar"
        report.add(values[0].start, message, f"{CALENDAR_SHAPE}; other lengths without AT TIME ZONE")
        return None
    return Calendar(name, *length)


def _read_on_miss(values: list[Token], query: QueryText, report: Report) -> list[Token]:
    """Read ``ON MISS …`` behind a promise; the tokens before it."""
    at = next((i for i, token in enumerate(values) if is_word(token, "ON")), len(values))
    words = [token.text.upper() for token in values[at:]]
    shape = f"ON MISS {', '.join(ON_MISS[:-1])} or {ON_MISS[-1]}"
    if not words:
        return values
    if at == 0:
        report.add(values[0].start, "the promise stands before ON MISS", "ERROR 5% ON MISS FAIL")
        return []
    if words[1:2] != ["MISS"] or len(words) != 3:
        report.add(values[at].start, "ON MISS cannot be read", shape)
    elif words[2] not in ON_MISS:
        message, misspelt = f"'{values[at + 2].text[:60]}' is nothing to do on a miss", Misspelt(words[2], ON_MISS)
        report.add(values[at + 2].start, message, shape, misspelt)
    else:
        query.offsets["MISS"] = values[at].start
        query.on_miss = cast(OnMiss, words[2].lower())
    return values[:at]


def _read_duration(values: list[Token], query: QueryText, report: Report) -> None:
    shape = [TokenType.L_BRACKET, TokenType.STRING, TokenType.COMMA, TokenType.STRING, TokenType.R_PAREN]
    types = [token.token_type for token in values]
    if types != shape:
        closed = types[:4] == shape[:4] and types[4:] == [TokenType.R_BRACKET]
        message = "the end of DURATION is exclusive" if closed else "DURATION cannot be read"
        report.add(values[-1].start if closed else values[0].start, message, DURATION_SHAPE)
        return

    def instant(token: Token) -> datetime | None:
        try:
            return read_instant(token.text)
        except UnreadableError as error:
            report.add(token.start, error.message, error.expected)
            return None

    query.active_from, query.active_to = instant(values[1]), instant(values[3])
    if query.active_from and query.active_to and query.active_from >= query.active_to:
        report.add(values[1].start, "DURATION ends before it begins", DURATION_SHAPE)
