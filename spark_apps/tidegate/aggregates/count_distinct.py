"""COUNT(DISTINCT x)."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tidegate.aggregates.accumulators import DISTINCT, Partial
from tidegate.aggregates.base import AggregateFunction
from tidegate.values.types import ColumnType


class CountDistinct(AggregateFunction):
    """How many different values there are; of a narrow window as many as it holds."""

    name = "count_distinct"
    nodes = (exp.Count,)
    shapes = ("COUNT(DISTINCT x)",)
    distinct = True
    by_value = True
    of_distinct = ()
    counts_values = True
    of_nothing = "0"
    zero_of_nothing = True

    def result(self, kind: ColumnType | None) -> ColumnType:
        """A whole number."""
        return "integer"

    def measured(self, kind: ColumnType) -> ColumnType:
        """The values as they are."""
        return kind

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """0 where there is nothing."""
        return partial.column(DISTINCT).combine_chunks().fill_null(0)

    def duckdb(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """Its own."""
        return f"count(DISTINCT {argument})"

    def called(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """As it is written."""
        return f"COUNT(DISTINCT {argument})"
