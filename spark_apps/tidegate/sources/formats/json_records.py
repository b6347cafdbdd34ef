"""Objects of JSON text: one at a time, which is the definition, or a block of them at once.

An object is UTF-8 without NUL, at most 100 levels deep, with at least one member, and nothing behind it. No member on
the way to a column comes twice.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from tidegate.declarations.models import PathStep, Stream
from tidegate.declarations.source_paths import show_path
from tidegate.sources.formats.arrays import follow, whole
from tidegate.sources.formats.base import Batch, Others, Places, Raw
from tidegate.sources.judge import Record
from tidegate.sources.layout import Field, Layout, layout_of
from tidegate.sources.text import Block, is_utf8, shown
from tidegate.values.base import Nested, Number, RawValue, Untyped, valid

_MOST_LEVELS = 100
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_EXAMPLES = 24


class _Object(dict):  # type: ignore[type-arg]
    """Members; ``repeated``: the names that come more than once; ``pairs``: then all of them, in their order."""

    repeated: frozenset[str] = frozenset()
    pairs: Sequence[tuple[str, Any]] = ()


class _UnreadableError(Exception):
    """A member on the way to a column comes twice, or text holds half of a surrogate pair."""


def parse_object(text: bytes) -> _Object | None:
    """An object of JSON text, numbers as written; None if it is none."""
    try:
        if text.count(b"{") + text.count(b"[") > _MOST_LEVELS and _levels(text) > _MOST_LEVELS:
            return None  # beyond some depth it would matter how deep this program's own stack is
        parsed = json.loads(
            text.decode(), parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=_members
        )
        if not isinstance(parsed, _Object) or not parsed or b"\0" in text:
            return None
    except (ValueError, RecursionError):
        return None
    return parsed


def _levels(text: bytes) -> int:
    level = deepest = 0
    for sign in _TEXT.sub(b"", text):
        level += (sign in b"{[") - (sign in b"}]")
        deepest = max(level, deepest)
    return deepest


def _members(pairs: list[tuple[str, Any]]) -> _Object:
    members = _Object(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        members.repeated = frozenset(name for name in members if names.count(name) > 1)
        members.pairs = pairs
    return members


def record_of(layout: Layout, parsed: _Object | None) -> Record | None:
    """The record that an object is."""
    if parsed is None or (layout.refuses_others and parsed.repeated):
        return None
    try:
        values = {f.column.name: _value(parsed, f) for f in layout.fields}
    except _UnreadableError:
        return None
    others = {name.encode(errors="backslashreplace").decode() for name in parsed.keys() - layout.tops}
    if not layout.refuses_others:
        others = {name for name in others if parsed.get(name) is not None}
    return Record(values, frozenset(others))


def _value(parsed: _Object, field: Field) -> RawValue:
    value: Any = parsed
    for step in field.column.steps:
        if value is None:
            return None
        if isinstance(step, str):
            if not isinstance(value, _Object):
                return Untyped("")
            if step in value.repeated:
                raise _UnreadableError
            value = value.get(step)
        elif isinstance(value, list):
            value = value[step] if step < len(value) else None
        else:
            return Untyped("")
    if isinstance(value, _Object | list):
        return Nested(_whole(compact(value)) if field.column.type == "string" else "")
    return _whole(value) if isinstance(value, str) and not value.isascii() else value


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _UnreadableError from None
    return text


def compact(value: Any) -> str:
    """A value as JSON text without blanks, numbers as written.

    >>> compact({"a": [Number("1.50"), None, True, "ü"]})
    '{"a":[1.50,null,true,"ü"]}'
    """
    if isinstance(value, dict):
        members = (isinstance(value, _Object) and value.pairs) or value.items()
        return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{compact(x)}" for name, x in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def names_in(parsed: Any, most: int = 200) -> list[str]:
    """The paths of an object's members, as ``from`` has them; at most so many.

    >>> names_in({"actor": {"login": "x"}, "tags": [{"a.b": 1}]})
    ['actor', 'actor.login', 'tags', 'tags[0]', 'tags[0].`a.b`']
    """
    names: list[str] = []
    ahead: list[tuple[tuple[PathStep, ...], Any]] = [((), parsed)]
    while ahead and len(names) < most:
        steps, value = ahead.pop(0)
        if steps:
            names.append(show_path(steps))
        inside: list[tuple[PathStep, Any]] = list(value.items()) if isinstance(value, dict) else []
        inside = [(0, value[0])] if isinstance(value, list) and value and steps else inside
        ahead = [((*steps, step), below) for step, below in inside] + ahead
    return names


def advice_on_text(texts: Sequence[str]) -> str:
    """What text may be that is no JSON."""
    if any(text.lstrip()[:1] in ("{", "[") for text in texts):
        return ""
    return "is no JSON: format: csv?" if texts and any(sign in texts[0] for sign in ",;\t|") else ""


@dataclass
class Habits:
    """What the blocks of a piece have been like so far; how they are read, never what is read, depends on it.

    ``surprises``: whether there are members that no column is read from; ``mixed``: whether these are of several types.
    ``nested_texts``: whether objects or lists are to be text, which Arrow does not make of them. ``others``: whether
    whoever reads wants to know which members no column is read from.
    """

    surprises: bool = False
    mixed: bool = False
    nested_texts: bool = False
    others: bool = True


@dataclass
class JsonBatch(Batch):
    """Objects of JSON text. ``lines_only``: none is longer than its line."""

    stream: Stream
    block: Block
    lines_only: bool
    habits: Habits = field(default_factory=Habits)

    def __post_init__(self) -> None:
        self.positions, self.lines = self.block.positions, self.block.lines

    def record(self, row: int) -> Record | None:
        """One record."""
        return record_of(layout_of(self.stream), parse_object(self.block.record(row)))

    def text(self, row: int) -> str:
        """The object as it is written."""
        return shown(self.block.record(row))

    def part(self, rows: Places) -> Batch:
        """Some of the objects."""
        return JsonBatch(self.stream, self.block.take(rows), self.lines_only, self.habits)

    def kinds(self) -> Places | None:
        """By the types of the values at the columns' paths, where they are not those of most objects."""
        fields = layout_of(self.stream).fields
        objects = [_plain_object(text) for text in self.block.records()]
        types = [_types_at(objects, field) for field in fields]
        usual = [Counter(kind for kind in column if kind is not None).most_common(1) for column in types]
        unusual = [
            [None if most and kind == most[0][0] else kind for kind in column]
            for column, most in zip(types, usual, strict=True)
        ]
        numbers: dict[tuple[type | None, ...], int] = {}
        kinds = [numbers.setdefault(one, len(numbers)) for one in zip(*unusual, strict=True)] if fields else []
        return np.array([-1 if one is None else kind for one, kind in zip(objects, kinds, strict=True)], np.int64)

    def columns(self) -> Raw | None:
        """Numbers typed, the rest as text; None if any object is unlike the others."""
        block, layout = self.block, layout_of(self.stream)
        data = np.frombuffer(block.data, np.uint8)
        # Each record begins and ends an object, and as many objects as records are read: so each is one object.
        if not ((data[block.starts] == ord("{")).all() and (data[block.ends - 1] == ord("}")).all()):
            return None
        if not is_utf8(block.data):
            return None
        types = self._types_by_example(layout)
        if types is None or (b"-0" in block.data and self._numbers_as_text(types)):
            return None
        schema = _schema(types)
        if not self.habits.others and not layout.refuses_others:
            table = self._read(schema, "ignore")
            return None if table is None else self._raw(layout, {n: table.column(n) for n in table.column_names}, ())
        table = self._read(schema, "error") if layout.refuses_others or not self.habits.surprises else None
        if table is None and not layout.refuses_others:
            self.habits.surprises = True
            table = self._read(schema, "infer") if not self.habits.mixed else None
        if table is not None:
            columns = {name: table.column(name) for name in table.column_names}
            return self._raw(layout, columns, _others(layout, columns))
        return self._raw_of_mixed(layout, schema) if not layout.refuses_others else None

    @property
    def alike(self) -> bool:
        """Not if objects or lists are to be text."""
        return not self.habits.nested_texts

    def _types_by_example(self, layout: Layout) -> dict[tuple[PathStep, ...], pa.DataType] | None:
        """Path → as what its values are best read, judging by some records; None if they cannot be read at once."""
        some = range(min(len(self.block), _EXAMPLES))
        examples = [parsed for row in some if (parsed := parse_object(self.block.record(row))) is not None]
        types: dict[tuple[PathStep, ...], pa.DataType] = {}
        for one in layout.fields:
            try:
                values = [value for parsed in examples if (value := _value(parsed, one)) is not None]
            except _UnreadableError:
                return None
            if one.column.type == "string" and any(isinstance(value, Nested) for value in values):
                self.habits.nested_texts = True
            kind = _type_of(values, one)
            if kind is None or types.setdefault(one.column.steps, kind) != kind:
                return None
        return types

    def _numbers_as_text(self, types: Mapping[tuple[PathStep, ...], pa.DataType]) -> bool:
        """Whether numbers may be read as such that are text: written as -0 they would lose their sign."""
        strings = [f.column.steps for f in layout_of(self.stream).fields if f.column.type == "string"]
        return any(not pa.types.is_string(types[steps]) for steps in strings)

    def _read(self, schema: pa.Schema, unexpected: str) -> pa.Table | None:
        data = self.block.data
        try:
            table = pa_json.read_json(
                pa.BufferReader(data),
                read_options=pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pa_json.ParseOptions(
                    explicit_schema=schema,
                    unexpected_field_behavior=unexpected,
                    newlines_in_values=not self.lines_only,
                ),
            )
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        return table if table.num_rows == len(self.block) else None

    def _raw_of_mixed(self, layout: Layout, schema: pa.Schema) -> Raw | None:
        """As ``columns``, where members that no column is read from are now text, now numbers."""
        table = self._read(schema, "ignore")
        if table is None:
            return None
        self.habits.mixed = True
        rows: dict[str, list[int]] = {}
        for row in range(len(self.block)):
            parsed = parse_object(self.block.record(row))
            if parsed is None:
                return None
            for name in parsed.keys() - layout.tops:
                if parsed[name] is not None:
                    rows.setdefault(name, []).append(row)
        columns = {name: table.column(name) for name in table.column_names}
        return self._raw(
            layout, columns, [Others(name, _mask(places, len(self.block))) for name, places in rows.items()]
        )

    def _raw(self, layout: Layout, columns: Mapping[str, pa.ChunkedArray], others: Sequence[Others]) -> Raw:
        tops = {str(name): whole(columns[str(name)]) for name in layout.tops if name in columns}
        raw = {f.column.name: follow(tops, f.column.steps) for f in layout.fields}
        return Raw({name: values for name, values in raw.items() if values is not None}, others)


def _plain_object(text: bytes) -> _Object | None:
    """As ``parse_object``, in half its time: numbers are not kept as written. None, too, where a member is repeated."""
    try:
        parsed = json.loads(text.decode(), parse_constant=Number, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, _Object) and parsed and not parsed.repeated else None


def _types_at(objects: Sequence[Any], field: Field) -> list[type | None]:
    """The types of objects' values at a column's path; a whole number is a float where these are read alike."""
    kinds = [field.values.json_numbers(fraction) for fraction in (True, False)]
    as_float = int if field.column.type != "string" and kinds[0] == kinds[1] else None
    types: list[type | None] = []
    for value in objects:
        for step in field.column.steps:
            if isinstance(step, str):
                value = value.get(step) if isinstance(value, dict) else None
            else:
                value = value[step] if isinstance(value, list) and step < len(value) else None
        kind = None if value is None else type(value)
        types.append(float if kind is not None and kind is as_float else kind)
    return types


def _mask(rows: Iterable[int], count: int) -> np.ndarray:
    mask = np.zeros(count, dtype=bool)
    mask[list(rows)] = True
    return mask


def _others(layout: Layout, columns: Mapping[str, pa.ChunkedArray]) -> list[Others]:
    others = []
    for name, values in columns.items():
        if name not in layout.tops and values.null_count < len(values):
            there = None if not values.null_count else valid(whole(values))
            others.append(Others(name, there))
    return others


def _type_of(values: Sequence[RawValue], one: Field) -> pa.DataType | None:
    if any(isinstance(value, Nested | Untyped) for value in values):
        return None
    numbers = [value for value in values if isinstance(value, Number)]
    if 0 < len(numbers) < len(values):
        return None
    if numbers and len(numbers) == len(values):
        fraction = any(not value.lstrip("-").isdigit() for value in numbers)
        if one.column.type == "string":
            return None if fraction else pa.int64()
        return one.values.json_numbers(fraction)
    if values and all(isinstance(value, bool) for value in values):
        return pa.bool_()
    if not values and one.column.type in ("boolean",):
        return pa.bool_()
    return (one.values.json_numbers(False) if not values else None) or pa.string()


def _schema(types: Mapping[tuple[PathStep, ...], pa.DataType]) -> pa.Schema:
    """The Arrow schema of objects that have values of these types at these paths."""
    tree: dict[PathStep, Any] = {}
    for steps, kind in types.items():
        at = tree
        for step in steps[:-1]:
            at = at.setdefault(step, {})
        at[steps[-1]] = kind
    return pa.schema([(str(name), _arrow(inside)) for name, inside in tree.items()])


def _arrow(inside: dict[PathStep, Any] | pa.DataType) -> pa.DataType:
    if not isinstance(inside, dict):
        return inside
    elements = [step for step in inside if isinstance(step, int)]
    if elements:
        merged = _merged([inside[step] for step in elements])
        return pa.list_(_arrow(merged))
    return pa.struct([(str(name), _arrow(below)) for name, below in inside.items()])


def _merged(kinds: Sequence[dict[PathStep, Any] | pa.DataType]) -> dict[PathStep, Any] | pa.DataType:
    """What all elements of a list may have."""
    merged: dict[PathStep, Any] = {}
    for kind in kinds:
        if not isinstance(kind, dict):
            return kind
        for step, below in kind.items():
            both = step in merged and isinstance(below, dict) and isinstance(merged[step], dict)
            merged[step] = _merged([merged[step], below]) if both else below
    return merged
