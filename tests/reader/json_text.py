"""JSON by its grammar (RFC 8259, and NaN and Infinity), token by token; numbers stay as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.reader.raw import BrokenError, Items, Members, Raw, Written

MOST_LEVELS = 100
BLANKS = " \t\r\n"
_TOKEN = re.compile(
    r'[ \t\r\n]*(?:(?P<sign>[{}\[\],:])|"(?P<text>(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*)"'
    r"|(?P<word>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|NaN|-?Infinity))"
)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORD = re.compile(r'[^\s\[\]{},"]+|.', re.DOTALL)


def json_object(text: str) -> Members:
    """The members of text that is one object.

    Raises:
        BrokenError: it is none, has no member, or is nested deeper than `MOST_LEVELS`.
    """
    tokens = list(_tokens(text))
    if not tokens or tokens[0] != "{":
        raise BrokenError
    members, end = _object(tokens, 0, 1)
    if end != len(tokens) or not members:
        raise BrokenError
    return members


def _tokens(text: str) -> Iterator[Any]:
    """Signs as they are, words as `Written`, texts as a list of one."""
    at, end = 0, len(text.rstrip(BLANKS))
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise BrokenError
        at = match.end()
        if match["sign"]:
            yield match["sign"]
        else:
            yield [_unescaped(match["text"])] if match["word"] is None else Written(match["word"])


def _unescaped(text: str) -> str:
    def sign(match: re.Match[str]) -> str:
        letter = match[1]
        return chr(int(letter[1:], 16)) if letter[0] == "u" else _ESCAPES.get(letter, letter)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", sign, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if "\\u" in text else plain


def _object(tokens: list[Any], at: int, level: int) -> tuple[Members, int]:
    members = Members()
    at += 1
    while tokens[at : at + 1] != ["}"] or members:
        name, colon = (tokens[at : at + 2] + [None, None])[:2]
        if not isinstance(name, list) or colon != ":":
            raise BrokenError
        value, at = _value(tokens, at + 2, level)
        members.append((name[0], value))
        if tokens[at : at + 1] == ["}"]:
            break
        if tokens[at : at + 1] != [","]:
            raise BrokenError
        at += 1
    return members, at + 1


def _list(tokens: list[Any], at: int, level: int) -> tuple[Items, int]:
    items = Items()
    at += 1
    while tokens[at : at + 1] != ["]"] or items:
        value, at = _value(tokens, at, level)
        items.append(value)
        if tokens[at : at + 1] == ["]"]:
            break
        if tokens[at : at + 1] != [","]:
            raise BrokenError
        at += 1
    return items, at + 1


def _value(tokens: list[Any], at: int, level: int) -> tuple[Raw, int]:
    token = tokens[at] if at < len(tokens) else None
    if isinstance(token, list):
        return token[0], at + 1
    if isinstance(token, Written):
        return None if token == "null" else token, at + 1
    if token not in ("{", "[") or level == MOST_LEVELS:
        raise BrokenError
    return _object(tokens, at, level + 1) if token == "{" else _list(tokens, at, level + 1)


# Documents: values one after the other, on any lines


def documents(text: str) -> Iterator[tuple[int, str]]:
    """The records of a text of JSON values, each with where it begins: of a list at the top, its elements.

    Raises:
        BrokenError: a bracket or a string is not closed.
    """
    at = _past_blanks(text, 0)
    while at < len(text):
        if text[at] == "[":
            at = _past_blanks(text, at + 1)
            while text[at : at + 1] != "]":
                end = _end_of(text, at)
                yield at, text[at:end]
                at = _past_blanks(text, end)
                if text[at : at + 1] == ",":
                    at = _past_blanks(text, at + 1)
                if at >= len(text):
                    raise BrokenError
            at += 1
        else:
            end = _end_of(text, at)
            yield at, text[at:end]
            at = end
        at = _past_blanks(text, at)


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in BLANKS:
        at += 1
    return at


def _end_of(text: str, at: int) -> int:
    """Where the value that begins at a place ends."""
    if text[at : at + 1] == '"':
        return _end_of_string(text, at)
    if text[at : at + 1] not in ("{", "["):
        match = _WORD.match(text, at)
        if match is None:
            raise BrokenError
        return match.end()
    level = 0
    while at < len(text):
        if text[at] == '"':
            at = _end_of_string(text, at)
            continue
        level += (text[at] in "{[") - (text[at] in "}]")
        at += 1
        if level == 0:
            return at
    raise BrokenError


def _end_of_string(text: str, at: int) -> int:
    at += 1
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == '"':
            return at + 1
        at += 1
    raise BrokenError
