"""PERCENTILE(x, p)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
from sqlglot import exp

from tidegate.aggregates.accumulators import Partial, ranked
from tidegate.aggregates.base import AggregateFunction, Call, CallError, Estimated
from tidegate.aggregates.exact import Float64s, Int64s
from tidegate.aggregates.numbers import as_doubles, not_a_number
from tidegate.values.types import ColumnType


def fraction(node: exp.Expression | None, written: str) -> float:
    """The number from 0 to 1 that a literal is; ``written``: how the call may be written."""
    if isinstance(node, exp.Literal) and not node.is_string and 0 <= float(node.this) <= 1:
        return float(node.this)
    raise CallError("the fraction of a percentile is a number from 0 to 1", written)


class Percentile(AggregateFunction):
    """The value at a fraction of the values in order, exact: between two of them in proportion, as in Spark."""

    name = "percentile"
    nodes: ClassVar[tuple[type[exp.Expression], ...]] = (exp.Quantile,)
    shapes: ClassVar[tuple[str, ...]] = ("PERCENTILE(x, 0.95)",)
    by_value = True
    of_ranks = 2
    estimated: ClassVar[Estimated | None] = "percentile"

    def read(self, node: exp.Expression) -> Call:
        """The value, and the fraction."""
        if node.this is None or isinstance(node.this, exp.Star):
            raise CallError("PERCENTILE needs a value", self.shapes[0])
        return Call(self, node.this, parameters=(fraction(node.args.get("quantile"), self.shapes[0]),))

    def refusal(self, kind: ColumnType) -> tuple[str, str] | None:
        """Numbers alone have something between two of them."""
        return not_a_number(self, kind)

    def result(self, kind: ColumnType | None) -> ColumnType:
        """As in Spark."""
        return "double"

    def measured(self, kind: ColumnType) -> ColumnType:
        """The values as they are."""
        return kind

    def ranks(self, numbers: Int64s, parameters: tuple[float, ...]) -> tuple[Int64s, ...]:
        """Of the values between which the fraction lies."""
        position = _position(numbers, parameters)
        return np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64)

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """NULL where there is no value."""
        number = partial.counts.fill_null(0).to_numpy()
        position = _position(np.maximum(number, 1), partial.parameters)
        share = position - np.floor(position)
        low, high = (as_doubles(partial.column(ranked(place)).combine_chunks()) for place in range(self.of_ranks))
        with np.errstate(invalid="ignore", over="ignore"):
            return pa.array(np.where(low == high, low, low * (1 - share) + high * share), mask=number == 0)

    def duckdb(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """Its own."""
        return f"quantile_cont(CAST({argument} AS DOUBLE), {parameters[0]!r})"

    def called(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """As it is written."""
        return f"PERCENTILE({argument}, {parameters[0]:g})"


def _position(numbers: Int64s, parameters: tuple[float, ...]) -> Float64s:
    """Where among so many values in order, from 0, the fraction lies: a rank, or between two of them."""
    return np.asarray(parameters[0] * (numbers - 1), dtype=np.float64)
