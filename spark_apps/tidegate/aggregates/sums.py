"""SUM(x)."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.aggregates.accumulators import TOTAL, Partial, Total
from tidegate.aggregates.base import AggregateFunction, Estimated
from tidegate.aggregates.decimal_totals import scaled_up
from tidegate.aggregates.numbers import not_a_number, scaled_integers, unseen
from tidegate.values.limbs import is_decimal
from tidegate.values.types import MAX_PRECISION, ColumnType, decimal_type, digits_of


class Sum(AggregateFunction):
    """The sum of the values: of integers and decimals exact, of doubles rounded once."""

    name = "sum"
    nodes = (exp.Sum,)
    shapes = ("SUM(x)",)
    scaled: ClassVar[bool] = True
    sums: ClassVar[tuple[Total, ...]] = (TOTAL,)
    estimated: ClassVar[Estimated | None] = "sum"
    zero_of_nothing: ClassVar[bool] = True

    def refusal(self, kind: ColumnType) -> tuple[str, str] | None:
        """Numbers alone are added."""
        return not_a_number(self, kind)

    def result(self, kind: ColumnType | None) -> ColumnType:
        """As in Spark: of integers an integer, of decimals one with ten more digits."""
        assert kind is not None
        digits = digits_of(kind)
        if digits is None:
            return kind
        return decimal_type(min(digits.precision + 10, MAX_PRECISION), digits.scale)

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """NULL where there is no value, or the sum is larger than its type."""
        total, share = partial.column(TOTAL.name), partial.share
        if not self.scaled:
            share = pc.if_else(pc.is_valid(share), 1.0, share)
        if is_decimal(partial.kind):
            return scaled_up(total.combine_chunks(), share, partial.kind)
        if pa.types.is_integer(partial.kind):
            return scaled_integers(total, share)
        return pc.divide(total, share)

    def lost(self, partial: Partial, value: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
        """A sum that is larger than its type."""
        return unseen(partial, value)
