"""The ``csv:`` part of a stream: how its CSV files are written."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

import yaml

from tidegate.declarations.models import CsvDialect
from tidegate.declarations.units import UnreadableError, shown
from tidegate.declarations.yaml_sections import Section

# Key → what it says, for the reference (infra/docs/reference.py).
CSV_KEYS = {
    "delimiter": "The sign between cells; `tab` for a tab.",
    "header": "Whether the first line names the columns. Without (`false`) a column is read from its place among the "
    "columns, or from `from: '[n]'`.",
    "decimal": "The sign before a number's fraction: `.` or `,`.",
    "quote": "The sign around cells that hold delimiters, quotes or line ends; `none` if there is no such sign.",
    "encoding": "How the text is encoded: `utf-8`, `latin-1`, `cp1252`, `utf-16` or any other name that Python knows.",
    "nulls": 'Cells that stand for no value, besides those without content: `[NA, "-"]`. A quoted cell is text.',
    "comment": "A line that begins with this sign is no record.",
}
_SIGNS = ("delimiter", "decimal", "quote", "comment")
_WORDS = {"tab": "\t", "\\t": "\t", "space": " "}


def read_csv_section(section: Section) -> CsvDialect:
    """The dialect; what is wrong goes to the section's report, and is as if it were not there."""
    values: dict[str, Any] = {
        "delimiter": _sign(section, "delimiter", lambda text: _WORDS.get(text, text)),
        "header": section.read("header", _yes_or_no, True, required=False),
        "decimal": _sign(section, "decimal", _decimal),
        "quote": _sign(section, "quote", lambda text: "" if text == "none" else text),
        "encoding": section.read("encoding", _encoding, "utf-8", required=False),
        "nulls": _nulls(section),
        "comment": _sign(section, "comment", str),
    }
    dialect = CsvDialect(**{key: value for key, value in values.items() if value is not None})
    if any(key in section and values[key] is None for key in _SIGNS):
        return dialect  # what a mistaken sign should have been, nobody knows
    signs = {"delimiter": dialect.delimiter, "quote": dialect.quote, "comment": dialect.comment}
    used = [(key, sign) for key, sign in signs.items() if sign]
    for number, (key, sign) in enumerate(used):
        other = next((name for name, same in used[:number] if same == sign), None)
        if other:
            section.report.add(section.value_offset(key), f"{key} and {other} in {section.title} are the same sign")
    if dialect.decimal == dialect.delimiter:
        message = f"delimiter and decimal in {section.title} are the same sign"
        section.report.add(section.value_offset("decimal"), message, "another delimiter, such as ';'")
    return dialect


def _sign(section: Section, key: str, convert: Callable[[str], str]) -> str | None:
    """A value of one sign, which may be a blank."""
    node = section.node(key, required=False)
    if node is None:
        return None
    title = f"'{key}' in {section.title}"
    if not isinstance(node, yaml.ScalarNode):
        section.report.add(node.start_mark.index, f"{title} is not a plain value", "one ASCII character")
        return None
    try:
        sign = convert(node.value)
        if key != "quote" or sign:
            _check_sign(sign)
    except UnreadableError as error:
        section.report.add(node.start_mark.index, f"{title}: {error.message}", error.expected)
        return None
    return sign


def _check_sign(sign: str) -> None:
    if len(sign) != 1 or not sign.isascii() or sign in "\r\n\0":
        raise UnreadableError(f"{shown(sign)} is not one ASCII character", "one, such as ';', or the word tab")


def _decimal(text: str) -> str:
    if text not in (".", ","):
        raise UnreadableError(f"{shown(text)} is no sign before a fraction", "'.' or ','")
    return text


def _yes_or_no(text: str) -> bool:
    if text.strip() not in ("true", "false"):
        raise UnreadableError(f"{shown(text)} is neither true nor false", "true or false")
    return text.strip() == "true"


def _encoding(text: str) -> str:
    expected = "an encoding of text, such as utf-8, latin-1 or utf-16"
    try:
        codec = codecs.lookup(text.strip())
        if not getattr(codec, "_is_text_encoding", True) or isinstance("".encode(codec.name), str):
            raise LookupError
    except (LookupError, TypeError, ValueError):
        raise UnreadableError(f"{shown(text)} is no encoding of text", expected) from None
    return codec.name


def _nulls(section: Section) -> tuple[str, ...] | None:
    node = section.node("nulls", required=False)
    if node is None:
        return None
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(item, yaml.ScalarNode) for item in items):
        section.report.add(node.start_mark.index, f"'nulls' in {section.title} is no list of texts", '[NA, "-"]')
        return None
    return tuple(dict.fromkeys(["", *(str(item.value) for item in items)]))
