"""COUNT(DISTINCT x)."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tidegate.aggregates.accumulators import Partial
from tidegate.aggregates.base import AggregateFunction
from tidegate.aggregates.by_value import ByValue
from tidegate.values.types import ColumnType


class CountDistinct(AggregateFunction):
    """How many different values there are; of a narrow window as many as it holds."""

    name = "count_distinct"
    nodes = (exp.Count,)
    shapes = ("COUNT(DISTINCT x)",)
    distinct = True
    by_value = True
    of_nothing = "0"

    def result(self, kind: ColumnType | None) -> ColumnType:
        """A whole number."""
        return "integer"

    def measured(self, kind: ColumnType) -> ColumnType:
        """The values as they are."""
        return kind

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """0 where there is nothing."""
        return pa.array(ByValue.of(partial).lengths)

    def duckdb(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """Its own."""
        return f"count(DISTINCT {argument})"

    def called(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """As it is written."""
        return f"COUNT(DISTINCT {argument})"
