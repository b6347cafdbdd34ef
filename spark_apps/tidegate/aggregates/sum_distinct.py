"""SUM(DISTINCT x)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.aggregates.accumulators import Partial
from tidegate.aggregates.by_value import ByValue
from tidegate.aggregates.decimal_totals import scaled_up
from tidegate.aggregates.exact import Int64s, Part, split, totals
from tidegate.aggregates.sums import Sum
from tidegate.values.limbs import WIDE, is_decimal, limbs


class SumDistinct(Sum):
    """The sum of the different values; of a narrow window of those that it holds."""

    name = "sum_distinct"
    shapes = ("SUM(DISTINCT x)",)
    distinct = True
    scaled = False
    sums = ()
    by_value = True
    estimated = None

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """NULL where there is no value, or the sum is larger than its type."""
        held = ByValue.of(partial)
        decimal = is_decimal(held.values.type)
        numbers = limbs(held.values) if decimal else held.values.to_numpy(zero_copy_only=False)
        parts: dict[Part, Int64s] = {}
        for part, column in split(numbers).items():
            parts[part] = np.zeros(len(held.lengths), dtype=np.int64)
            np.add.at(parts[part], held.rows, column.astype(np.int64))
        kind = pa.decimal256(WIDE, held.values.type.scale) if decimal else held.values.type
        found = totals(parts, len(held.lengths), kind, held.lengths == 0)
        return scaled_up(found, pa.array(np.ones(len(found))), partial.kind) if decimal else found

    def duckdb(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """Its own."""
        return f"sum(DISTINCT {argument})"

    def called(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """As it is written."""
        return f"SUM(DISTINCT {argument})"
