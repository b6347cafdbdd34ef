"""Windows as Flink and Spark write them, read as ``stream [RANGE …] … EVERY …``, or as sessions.

Flink's table functions stand in FROM: ``TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '10' MINUTES))`` and
``HOP(TABLE s, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '10' MINUTES)``: the slide, then the size. Spark's function
stands in GROUP BY: ``window(at, '10 minutes', '1 minute')``, the size, then the slide; ``window.start`` and
``window.end`` are ``window_start`` and ``window_end``. Sessions are ``SESSION(TABLE s PARTITION BY key, DESCRIPTOR(at),
INTERVAL '5' MINUTES)`` in FROM, or ``session_window(at, '5 minutes')`` in GROUP BY. What is left of any of them in the
text is the stream's name, or a column that is no longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tidegate.declarations.positions import Report
from tidegate.declarations.scope import Scope, Unresolved, offset_of
from tidegate.declarations.units import UnreadableError, read_duration_us

START, END = "window_start", "window_end"
TABLE_FUNCTIONS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
TUMBLE_SHAPE = "TUMBLE(TABLE stream, DESCRIPTOR(event_time), INTERVAL '10' MINUTES)"
HOP_SHAPE = "HOP(TABLE stream, DESCRIPTOR(event_time), INTERVAL '1' MINUTE, INTERVAL '10' MINUTES)"
SESSION_SHAPE = "SESSION(TABLE stream PARTITION BY key, DESCRIPTOR(event_time), INTERVAL '5' MINUTES)"
SPARK_SHAPE = "window(event_time, '10 minutes', '1 minute')"
SPARK_SESSION_SHAPE = "session_window(event_time, '5 minutes')"
_SHAPES = {"TUMBLE": TUMBLE_SHAPE, "HOP": HOP_SHAPE, "SESSION": SESSION_SHAPE}
_ARGUMENTS = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}


@dataclass(frozen=True)
class TimeWindow:
    """One such window. ``stream_offset``: where the stream's name begins, None of Spark's, which names none.

    ``column``: the time that it is over, and where that is written. ``edits``: (start, end, text) to put in the place
    of what is written; no longer than that. ``session``: whether ``size_us`` is the gap of sessions; ``keys``: the
    columns whose sessions they are, where the window says it, each with its place.
    """

    offset: int
    stream_offset: int | None
    size_us: int
    slide_us: int
    column: tuple[str, int]
    edits: tuple[tuple[int, int, str], ...]
    session: bool = False
    keys: tuple[tuple[str, int], ...] | None = None


def begins_table_function(tokens: Sequence[Token], index: int) -> bool:
    """Whether one of Flink's table functions begins at a token."""
    word = tokens[index].text.upper()
    behind = [token.token_type for token in tokens[index + 1 : index + 3]]
    if word == "TABLE" and behind[:1] == [TokenType.L_PAREN]:
        return index + 2 < len(tokens) and tokens[index + 2].text.upper() in TABLE_FUNCTIONS
    return word in TABLE_FUNCTIONS and behind[:1] == [TokenType.L_PAREN]


def read_table_function(tokens: Sequence[Token], index: int, report: Report) -> tuple[TimeWindow | None, int]:
    """The window that begins at a token, None after a mistake; and the index behind it."""
    first = tokens[index]
    wrapped = first.text.upper() == "TABLE"
    name = tokens[index + 2] if wrapped else first
    opening = index + (3 if wrapped else 1)
    inner = _closing(tokens, opening)
    end = None if inner is None else inner + 1 if wrapped else inner
    if inner is None or end is None or end >= len(tokens) or tokens[end].token_type is not TokenType.R_PAREN:
        report.add(first.start, f"{name.text.upper()} is not closed", TUMBLE_SHAPE)
        return None, len(tokens)
    window = _table_function(name, tokens[opening + 1 : inner], first.start, tokens[end].end + 1, report)
    return window, end + 1


def _table_function(name: Token, inner: Sequence[Token], start: int, end: int, report: Report) -> TimeWindow | None:
    word = name.text.upper()
    if word not in _SHAPES:
        report.add(name.start, f"{word} windows are not supported", f"{TUMBLE_SHAPE}, HOP or SESSION")
        return None
    shape, order = _SHAPES[word], _ARGUMENTS[word]
    parts = _with_keys(_arguments(inner)) if word == "SESSION" else _arguments(inner)
    named = {part[0].text.upper(): part[2:] for part in parts if len(part) > 2 and part[1].text == "=>"}
    given = named or dict(zip(order, parts, strict=False))
    if set(given) != set(order) or len(parts) != len(order):
        report.add(name.start, f"{word} cannot be read", shape)
        return None
    table, column = given["DATA"], given["TIMECOL"]
    keys = None
    if word == "SESSION":
        table, keys = _split_keys(table)
    if len(table) != 2 or table[0].text.upper() != "TABLE":
        report.add((table or inner)[0].start, f"{word} takes a stream by name", shape)
        return None
    if [t.text.upper() for t in (*column[:2], *column[3:])] != ["DESCRIPTOR", "(", ")"]:
        report.add(column[0].start, f"{word} takes the stream's event time", shape)
        return None
    size = "GAP" if word == "SESSION" else "SIZE"
    size_us, slide_us = (_interval(given[key], report, shape) for key in (size, "SLIDE" if word == "HOP" else size))
    if not size_us or not slide_us:
        return None
    stream = table[1]
    edits = ((start, stream.start, ""), (stream.end + 1, end, ""))
    at = column[2].text, column[2].start
    return TimeWindow(name.start, stream.start, size_us, slide_us, at, edits, word == "SESSION", keys)


def _with_keys(parts: list[list[Token]]) -> list[list[Token]]:
    """The arguments of SESSION: between the keys of PARTITION BY stand commas, too."""
    first, *others = parts or [[]]
    if any(token.text.upper() == "PARTITION BY" or token.text.upper() == "PARTITION" for token in first):
        while others and [token.text.upper() for token in others[0][:1]] not in (["DESCRIPTOR"], ["TIMECOL"]):
            first = [*first, *others.pop(0)]
    return [first, *others] if first else []


def _split_keys(table: Sequence[Token]) -> tuple[list[Token], tuple[tuple[str, int], ...]]:
    """``TABLE stream``, and the columns behind PARTITION BY."""
    at = next((i for i, token in enumerate(table) if token.text.upper().startswith("PARTITION")), len(table))
    names = [token for token in table[at + 1 :] if token.text.upper() != "BY"]
    return list(table[:at]), tuple((token.text, token.start) for token in names)


def read_functions(tokens: Sequence[Token], report: Report) -> list[TimeWindow]:
    """Spark's ``window(…)`` and ``session_window(…)`` in GROUP BY."""
    windows: list[TimeWindow] = []
    for index, token in enumerate(tokens[:-1]):
        word = token.text.upper()
        if word not in ("WINDOW", "SESSION_WINDOW") or tokens[index + 1].token_type is not TokenType.L_PAREN:
            continue
        closing = _closing(tokens, index + 1)
        if closing is None:
            report.add(token.start, f"{token.text} is not closed", SPARK_SHAPE)
            return windows
        parts = _arguments(tokens[index + 2 : closing])
        if word == "SESSION_WINDOW":
            if len(parts) != 2 or any(len(part) != 1 for part in parts):
                report.add(token.start, "session_window cannot be read", SPARK_SESSION_SHAPE)
            elif gap_us := _duration(parts[1][0], report, SPARK_SESSION_SHAPE):
                column = parts[0][0].text, parts[0][0].start
                edit = token.start, tokens[closing].end + 1, END
                windows.append(TimeWindow(token.start, None, gap_us, gap_us, column, (edit,), session=True))
        elif not 2 <= len(parts) <= 3 or any(len(part) != 1 for part in parts):
            report.add(token.start, "window cannot be read", SPARK_SHAPE)
        else:
            size_us, slide_us = (_duration(part[0], report, SPARK_SHAPE) for part in (parts[1], parts[-1]))
            if size_us and slide_us:
                column = parts[0][0].text, parts[0][0].start
                edit = token.start, tokens[closing].end + 1, END
                windows.append(TimeWindow(token.start, None, size_us, slide_us, column, (edit,)))
    return windows


def fields(tokens: Sequence[Token]) -> list[tuple[int, int, str]]:
    """The edits that make columns of ``window.start`` and ``window.end``."""
    edits = []
    for index, token in enumerate(tokens[:-2]):
        dot, name = tokens[index + 1], tokens[index + 2]
        named = token.text.upper() in ("WINDOW", "SESSION_WINDOW")
        if named and dot.token_type is TokenType.DOT and name.text.upper() in ("START", "END"):
            edits.append((token.start, name.end + 1, f"window_{name.text.lower()}"))
    return edits


def take_columns(select: exp.Select, scope: Scope, report: Report) -> bool:
    """Take ``window_start`` and ``window_end`` out of SELECT and GROUP BY; whether the answer shows the start.

    Every answer has its window's end; a window is a group of its own in any case.
    """
    shows_start = False
    kept = []
    for item in select.expressions:
        name = _window_column(item.unalias(), scope)
        if name is None:
            kept.append(item)
            continue
        if isinstance(item, exp.Alias) and item.alias.lower() != name:
            message = f"'{name}' keeps its name in the answer"
            report.add(offset_of(item.args["alias"]), message, f"{name}, without AS")
        shows_start |= name == START
    select.set("expressions", kept)
    group = select.args.get("group")
    if group is not None:
        terms = [node for node in group.expressions if _window_column(node, scope) is None]
        if len(terms) < len(group.expressions):
            group.set("expressions", terms)
            if not terms:
                select.set("group", None)
    return shows_start


def _window_column(node: exp.Expression, scope: Scope) -> str | None:
    """``window_start`` or ``window_end``, unless it is a column of a stream."""
    if not isinstance(node, exp.Column) or node.table or node.name.lower() not in (START, END):
        return None
    return str(node.name.lower()) if isinstance(scope.find(node), Unresolved) else None


def _closing(tokens: Sequence[Token], opening: int) -> int | None:
    depth = 0
    for index in range(opening, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth == 0:
            return index
    return None


def _arguments(inner: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in inner:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and token.token_type is TokenType.COMMA:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _interval(tokens: Sequence[Token], report: Report, shape: str) -> int | None:
    """``INTERVAL '10' MINUTES``, with or without quotes."""
    words = [token.text for token in tokens]
    if words[:1] and words[0].upper() == "INTERVAL" and 2 <= len(words) <= 3:
        return _read(" ".join(words[1:]), tokens[1], report)
    report.add(tokens[0].start, "the interval cannot be read", shape)
    return None


def _duration(token: Token, report: Report, shape: str) -> int | None:
    if token.token_type is not TokenType.STRING:
        report.add(token.start, "a duration stands in quotes", shape)
        return None
    return _read(token.text, token, report)


def _read(text: str, token: Token, report: Report) -> int | None:
    try:
        duration_us = read_duration_us(text)
    except UnreadableError as error:
        report.add(token.start, error.message, error.expected, error.misspelt)
        return None
    if duration_us == 0:
        report.add(token.start, "a window of 0 contains no tuples", TUMBLE_SHAPE)
    return duration_us or None
