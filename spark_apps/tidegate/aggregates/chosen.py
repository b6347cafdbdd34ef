"""What MAX_BY, MIN_BY, FIRST_VALUE and LAST_VALUE share: a value chosen by another one."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from tidegate.aggregates.accumulators import LEAST, Extreme, Partial
from tidegate.aggregates.base import AggregateFunction
from tidegate.aggregates.packed import pack, unpack
from tidegate.values.types import ColumnType


class Chosen(AggregateFunction):
    """The value where another one is the best; of several such the best value itself, NULL last. Exact, and merges."""

    chooses = True
    extreme: ClassVar[Extreme]

    def result(self, kind: ColumnType | None) -> ColumnType:
        """That of the values."""
        assert kind is not None
        return kind

    def held_type(self, measured: ColumnType) -> pa.DataType:
        """Both together."""
        return pa.binary()

    def held(self, values: pa.Array, by: pa.Array | None, parameters: tuple[float, ...]) -> pa.Array:
        """Both together, in the order of what is chosen by."""
        assert by is not None
        return pack(by, values, null_is_less=self.extreme is not LEAST)

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """NULL where there is nothing to choose from, or that value is NULL."""
        return unpack(partial.column(self.extreme.name).combine_chunks(), partial.kind)

    def duckdb(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """Its first in order."""
        order = "ASC" if self.extreme is LEAST else "DESC"
        ordered = f"ORDER BY {by} {order}, {argument} {order} NULLS LAST"
        return f"first({argument} {ordered}) FILTER (WHERE {by} IS NOT NULL)"
