"""Functions of text. Positions count code points, from 1; numbers of code points are cut to what there is."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.patterns import PatternError, like_pattern, regular_expression
from tidegate.operators.expressions.columns import BOOLEAN, STRING, Value, each_distinct, is_constant

_ENDS = {"LEADING": (True, False), "TRAILING": (False, True)}
_UNBOUNDED = 2**31 - 1


def upper(value: Value) -> Value:
    """UPPER, by Unicode's full case mapping (ß becomes SS)."""
    return _cased(value, pc.ascii_upper, str.upper)


def lower(value: Value) -> Value:
    """LOWER, by Unicode's full case mapping."""
    return _cased(value, pc.ascii_lower, str.lower)


def _cased(value: Value, ascii_only: Callable[[Value], Value], full: Callable[[str], str]) -> Value:
    plain = pc.string_is_ascii(value)
    if bool((pc.all(plain) if isinstance(value, pa.Array) else plain).as_py() in (True, None)):
        return ascii_only(value)
    return each_distinct(full, STRING, value)


def length(value: Value) -> Value:
    """LENGTH in code points."""
    return pc.utf8_length(value).cast(pa.int64())


def trimmed(value: Value, position: str) -> Value:
    """TRIM, LTRIM, RTRIM: spaces, and nothing else."""
    left, right = _ENDS.get(position, (True, True))
    trim = pc.utf8_trim if left and right else pc.utf8_ltrim if left else pc.utf8_rtrim
    return trim(value, characters=" ")


def part(value: Value, start: Value, count: Value | None) -> Value:
    """SUBSTRING: from the start (0 is 1, negative from the end), at most so many."""
    if is_constant(start) and start.as_py() >= 0 and (count is None or is_constant(count)):
        first = max(start.as_py() - 1, 0)
        last = _UNBOUNDED if count is None else first + max(count.as_py(), 0)
        return pc.utf8_slice_codeunits(value, min(first, _UNBOUNDED), min(last, _UNBOUNDED))
    numbers = [start] if count is None else [start, count]
    return each_distinct(_part, STRING, value, *numbers)


def _part(text: str, start: int, count: int = 2**63) -> str:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(first, 0) : max(first + count, 0)] if count > 0 else ""


def first_part(value: Value, count: Value) -> Value:
    """LEFT."""
    return part(value, pa.scalar(1), count)


def last_part(value: Value, count: Value) -> Value:
    """RIGHT."""
    return each_distinct(lambda text, n: text[max(len(text) - n, 0) :] if n > 0 else "", STRING, value, count)


def joined(values: list[Value]) -> Value:
    """CONCAT and ``||``: NULL if any is."""
    if len(values) == 1:
        return values[0]
    return pc.binary_join_element_wise(*values, "", null_handling="emit_null")


def replaced(value: Value, what: Value, by: Value) -> Value:
    """REPLACE of every occurrence; of nothing, nothing."""
    if is_constant(what) and is_constant(by) and what.as_py():
        return pc.replace_substring(value, what.as_py(), by.as_py())
    return each_distinct(lambda text, old, new: text.replace(old, new) if old else text, STRING, value, what, by)


def contains(value: Value, what: Value) -> Value:
    """CONTAINS."""
    if is_constant(what):
        return pc.match_substring(value, what.as_py())
    return each_distinct(lambda text, part: part in text, BOOLEAN, value, what)


def starts_with(value: Value, what: Value) -> Value:
    """STARTSWITH."""
    if is_constant(what):
        return pc.starts_with(value, what.as_py())
    return each_distinct(str.startswith, BOOLEAN, value, what)


def ends_with(value: Value, what: Value) -> Value:
    """ENDSWITH."""
    if is_constant(what):
        return pc.ends_with(value, what.as_py())
    return each_distinct(str.endswith, BOOLEAN, value, what)


def like(value: Value, pattern: Value) -> Value:
    """LIKE; NULL where the pattern is none."""
    return _matched(value, pattern, lambda own, text: pc.match_like(own, like_pattern(text)))


def like_ignoring_case(value: Value, pattern: Value) -> Value:
    """ILIKE: both sides in lower case."""
    return like(lower(value), lower(pattern))


def matches(value: Value, pattern: Value) -> Value:
    """RLIKE: whether the pattern is found anywhere; NULL where it is none."""
    return _matched(value, pattern, lambda own, text: pc.match_substring_regex(own, regular_expression(text)))


def _matched(value: Value, pattern: Value, match: Callable[[Value, str], Value]) -> Value:
    """Each distinct pattern on the rows that have it."""
    if isinstance(pattern, pa.Scalar):
        known = pattern.is_valid and _readable(lambda: match(pa.array([""]), pattern.as_py()))
        if known:
            return match(value, pattern.as_py())
        nothing = pa.scalar(None, BOOLEAN)
        return nothing if isinstance(value, pa.Scalar) else pa.repeat(nothing, len(value))
    texts = pa.repeat(value, len(pattern)) if isinstance(value, pa.Scalar) else value
    found, valid = np.zeros(len(pattern), bool), np.zeros(len(pattern), bool)
    encoded = pattern.dictionary_encode()
    index = encoded.indices.fill_null(-1).to_numpy()
    for number, text in enumerate(encoded.dictionary.to_pylist()):
        if not _readable(lambda text=text: match(pa.array([""]), text)):  # type: ignore[misc]
            continue
        rows = np.flatnonzero(index == number)
        results = match(texts.take(pa.array(rows)), text)
        valid[rows] = results.is_valid().to_numpy(zero_copy_only=False)
        found[rows] = results.fill_null(False).to_numpy(zero_copy_only=False)
    return pa.array(found, mask=~valid)


def _readable(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (PatternError, pa.ArrowInvalid, re.error):
        return False
    return True
