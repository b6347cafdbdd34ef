"""SUM(DISTINCT x)."""

from __future__ import annotations

from tidegate.aggregates.accumulators import TOTAL
from tidegate.aggregates.sums import Sum


class SumDistinct(Sum):
    """The sum of the different values; of a narrow window of those that it holds."""

    name = "sum_distinct"
    shapes = ("SUM(DISTINCT x)",)
    distinct = True
    scaled = False
    sums = ()
    by_value = True
    of_distinct = (TOTAL,)
    estimated = None

    def duckdb(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """Its own."""
        return f"sum(DISTINCT {argument})"

    def called(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """As it is written."""
        return f"SUM(DISTINCT {argument})"
