"""COUNT(*) and COUNT(x)."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.aggregates.accumulators import Partial
from tidegate.aggregates.base import AggregateFunction, Call
from tidegate.aggregates.numbers import scaled_integers
from tidegate.values.types import ColumnType


class Count(AggregateFunction):
    """How many rows there are, or how many have a value."""

    name = "count"
    nodes = (exp.Count,)
    shapes: ClassVar[tuple[str, ...]] = ("COUNT(*)", "COUNT(x)")
    scaled = True
    valued = False
    estimated = "count"
    of_nothing = "0"
    zero_of_nothing = True

    def read(self, node: exp.Expression) -> Call:
        """COUNT(*) and COUNT(1) are of every row."""
        argument = node.this
        if isinstance(argument, exp.Star) or (isinstance(argument, exp.Literal) and not argument.is_string):
            return Call(self, None)
        return super().read(node)

    def result(self, kind: ColumnType | None) -> ColumnType:
        """A whole number; of a part of a window the nearest to the estimate."""
        return "integer"

    def measured(self, kind: ColumnType) -> ColumnType:
        """Whether there is a value."""
        return "boolean"

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """0 where there is nothing."""
        return scaled_integers(pc.fill_null(partial.counts, 0), partial.share)

    def lost(self, partial: Partial, value: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
        """An estimate beyond 64 bits."""
        return pc.and_(pc.is_valid(partial.share), pc.is_null(value))
