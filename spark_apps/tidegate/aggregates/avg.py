"""AVG(x)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.aggregates.accumulators import TOTAL, Partial
from tidegate.aggregates.base import AggregateFunction
from tidegate.aggregates.decimal_totals import averages
from tidegate.aggregates.numbers import decimal_or_double, not_a_number, unseen
from tidegate.values.limbs import is_decimal
from tidegate.values.types import MAX_PRECISION, ColumnType, decimal_type, digits_of


class Average(AggregateFunction):
    """The exact sum of the values over how many they are."""

    name = "avg"
    nodes = (exp.Avg,)
    shapes = ("AVG(x)",)
    sums = (TOTAL,)
    estimated = "average"

    def refusal(self, kind: ColumnType) -> tuple[str, str] | None:
        """Numbers alone have one."""
        return not_a_number(self, kind)

    def result(self, kind: ColumnType | None) -> ColumnType:
        """As in Spark, four more digits for decimals."""
        digits = digits_of(kind or "")
        if digits is None:
            return "double"
        return decimal_type(min(digits.precision + 4, MAX_PRECISION), min(digits.scale + 4, MAX_PRECISION))

    def measured(self, kind: ColumnType) -> ColumnType:
        """Decimals are added as they are, all others as doubles."""
        return decimal_or_double(kind)

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """NULL where there is no value."""
        total, counts = partial.column(TOTAL.name), partial.counts
        if is_decimal(partial.kind):
            return averages(total.combine_chunks(), counts.combine_chunks(), partial.kind)
        number = counts.cast(pa.float64())
        return pc.divide(total, pc.if_else(pc.greater(number, 0.0), number, pa.scalar(None, pa.float64())))

    def lost(self, partial: Partial, value: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
        """An average of decimals that has more digits than its type."""
        return unseen(partial, value)
