"""ANY_VALUE(x)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.accumulators import LEAST
from tidegate.aggregates.extremes import ExtremeValue


class AnyValue(ExtremeValue):
    """One of the values: always the least, so that the same tuples give the same value; NULL if there is none."""

    name = "any_value"
    nodes = (exp.AnyValue,)
    shapes = ("ANY_VALUE(x)",)
    extreme = LEAST
    estimated = "least"

    def duckdb(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """The least."""
        return f"min({argument})"
