"""Patterns of LIKE and RLIKE: read, checked, and written as pyarrow's matchers need them.

Regular expressions are matched in time linear in the text (RE2), so no pattern can stand still on a text. Written as
in Java: classes, repetitions, alternatives, groups, anchors, ``\\d \\w \\s \\b``, ``\\p{L}``, ``(?i)`` … What needs
backtracking (backreferences, lookaround, possessive repetition) does not exist. Case is ignored beyond ASCII, too, and
``\\b`` knows ASCII words.
"""

from __future__ import annotations

import re

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_BLANKS = r"\t\n\x0B\f\r "
# Java's, of which RE2 knows nothing, or something else.
_REFUSED = re.compile(r"\\[1-9kGRXNhHvVZecu]|\(\?<?[=!]|\(\?>|[*+?}]\+")
_LIKE_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


class PatternError(ValueError):
    """The text is no pattern; the message says why."""


def like_pattern(text: str) -> str:
    """The pattern of LIKE itself, if it is one.

    >>> like_pattern("50\\\\% %")
    '50\\\\% %'
    """
    for match in _LIKE_ESCAPE.finditer(text):
        if match[1] not in ("%", "_", "\\") or not match[1]:
            what = f"'\\{match[1]}'" if match[1] else "a backslash at its end"
            raise PatternError(f"the pattern has {what}; a backslash goes before %, _ or another backslash")
    return text


def regular_expression(text: str) -> str:
    """A regular expression, written as Java has it, as RE2 has it.

    >>> regular_expression("^[A-Z]{2}\\\\d+$")
    '^[A-Z]{2}\\\\d+(?:\\\\r\\\\n|[\\\\n\\\\r\\\\x{85}\\\\x{2028}\\\\x{2029}])?\\\\z'
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    written = _rewritten(text)
    try:
        pc.match_substring_regex(pa.array([""]), written)
    except pa.ArrowInvalid as error:
        reason = str(error).partition("error compiling")[2] or str(error)
        raise PatternError(f"the regular expression cannot be read: {reason.strip(' :')[:80]}") from None
    return written


def _rewritten(text: str) -> str:
    """``.`` and ``$`` with Java's line ends, ``\\s`` with its blanks, ``(?<name>`` in RE2's spelling."""
    flags = re.findall(r"\(\?([a-zA-Z]+)", text)
    dots_match_all, lines = any("s" in f for f in flags), any("m" in f for f in flags)
    parts, index, inside = [], 0, False
    while index < len(text):
        sign, two = text[index], text[index : index + 2]
        if (refused := _REFUSED.match(text, index)) and (not inside or sign == "\\"):
            raise PatternError(f"'{refused[0]}' in a regular expression is not supported")
        if sign == "\\" and len(two) == 2:
            if two == "\\Q":
                end = text.find("\\E", index)
                end = len(text) if end < 0 else end
                parts.append(re.escape(text[index + 2 : end]))
                index = end + 2
                continue
            blanks = {"\\s": _BLANKS if inside else f"[{_BLANKS}]", "\\S": f"[^{_BLANKS}]"}
            if two == "\\S" and inside:
                raise PatternError("'\\S' in a class of a regular expression is not supported")
            parts.append(blanks.get(two, two))
            index += 2
            continue
        if inside:
            if sign == "[" or two == "&&":
                raise PatternError("a class within a class of a regular expression is not supported")
            inside = sign != "]"
            parts.append(sign)
        elif sign == "[":
            inside = True
            parts.append(sign)
        elif sign == "." and not dots_match_all:
            parts.append(f"[^{_LINE_ENDS}]")
        elif sign == "$" and not lines:
            parts.append(rf"(?:\r\n|[{_LINE_ENDS}])?\z")
        elif text.startswith("(?<", index):
            parts.append("(?P<")
            index += 3
            continue
        else:
            parts.append(sign)
        index += 1
    return "".join(parts)
