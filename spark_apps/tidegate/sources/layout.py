"""Where in a stream's records its columns are, and what reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tidegate.declarations.models import Column, PathStep, Stream
from tidegate.values import value_format
from tidegate.values.base import ValueFormat


@dataclass(frozen=True)
class Field:
    """A column and what reads its values. ``required``: a record without a value is none."""

    column: Column
    values: ValueFormat
    required: bool


@dataclass(frozen=True)
class Layout:
    """The fields of a stream's records, in declared order.

    ``tops``: the first steps of all paths: what else a record has at its top no column is read from.
    """

    fields: tuple[Field, ...]
    tops: frozenset[PathStep]
    refuses_others: bool


@lru_cache(maxsize=64)
def layout_of(stream: Stream) -> Layout:
    """The layout that a stream declares."""
    fields = tuple(
        Field(
            column,
            value_format(column.type, column.format, column.zone, stream.csv.decimal),
            not column.nullable or column.name in stream.required,
        )
        for column in stream.columns
    )
    tops = frozenset(column.steps[0] for column in stream.columns)
    return Layout(fields, tops, stream.other_columns == "refuse")
