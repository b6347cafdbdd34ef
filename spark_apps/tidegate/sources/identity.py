"""What identifies a tuple: the value of a column, the values of several, or its place in its file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Stream
from tidegate.sources.files import SourceFile
from tidegate.values.clock import moment_text


def event_ids(stream: Stream, file: SourceFile, typed: Mapping[str, pa.Array], positions: pa.Array) -> pa.Array:
    """The ids of records: strings. Of several columns the JSON array of their values, of none ``file:position``.

    ``typed``: declared column → values; ``positions``: int64[n], places in the file.
    """
    if not stream.id:
        return pc.binary_join_element_wise(pa.scalar(file.identity), positions.cast(pa.string()), ":")
    if len(stream.id) == 1:
        return typed[stream.id[0]].cast(pa.string())
    texts = [_JSON.get(str(typed[name].type), _json_texts)(typed[name]) for name in stream.id]
    inside = pc.binary_join_element_wise(*texts, ",")
    return pc.binary_join_element_wise(pa.scalar("["), inside, pa.scalar("]"), "")


def _plain(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _quoted(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar('"'), values, pa.scalar('"'), "")


def _json_texts(values: pa.Array) -> pa.Array:
    """Strings and times as JSON strings."""
    if pa.types.is_date32(values.type):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_timestamp(values.type):
        us = values.cast(pa.int64()).to_pylist()
        return _quoted(pa.array([None if x is None else moment_text(x) for x in us], pa.string()))
    # Whatever JSON would escape: quotes, backslashes, and what is no printable character.
    if not pc.any(pc.match_substring_regex(values, r'["\\\x00-\x1f]')).as_py():
        return _quoted(values)
    texts = [None if x is None else json.dumps(x, ensure_ascii=False) for x in values.to_pylist()]
    return pa.array(texts, pa.string())


_JSON: dict[str, Callable[[pa.Array], pa.Array]] = {"int64": _plain, "bool": _plain}
