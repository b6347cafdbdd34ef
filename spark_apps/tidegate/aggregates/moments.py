"""What VARIANCE and STDDEV share: from exact Σx and Σx², rounded once, however their windows were cut."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from tidegate.aggregates.accumulators import SQUARES, UNROUNDED, Partial
from tidegate.aggregates.base import AggregateFunction
from tidegate.aggregates.exact import Float64s, Int64s, from_lists, variation
from tidegate.aggregates.numbers import not_a_number
from tidegate.values.types import ColumnType


class Moment(AggregateFunction):
    """A function of the variance. ``freedom``: what is taken off the count: 1 of a sample, 0 of a population."""

    sums = (UNROUNDED, SQUARES)
    freedom: ClassVar[int]

    def refusal(self, kind: ColumnType) -> tuple[str, str] | None:
        """Numbers alone vary."""
        return not_a_number(self, kind)

    def result(self, kind: ColumnType | None) -> ColumnType:
        """As in Spark."""
        return "double"

    def measured(self, kind: ColumnType) -> ColumnType:
        """As in Spark, of integers and decimals too."""
        return "double"

    def of_variance(self, variance: Float64s) -> Float64s:
        """The value, of the variance."""
        return variance

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """NULL of no values, and of a sample of one."""
        counts: Int64s = partial.counts.combine_chunks().fill_null(0).to_numpy(zero_copy_only=False)
        lists = (partial.column(total.name).combine_chunks() for total in self.sums)
        every = np.arange(len(counts))
        parts, squares = (from_lists(column, every, len(counts)) for column in lists)
        number = counts.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            variance = variation(parts, squares, counts) / (number * (number - self.freedom))
            return pa.array(self.of_variance(variance), mask=counts <= self.freedom)
