"""MEDIAN(x)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.base import Call
from tidegate.aggregates.percentile import Percentile


class Median(Percentile):
    """The value in the middle, or between the two that are: PERCENTILE(x, 0.5)."""

    name = "median"
    nodes = (exp.Median,)
    shapes = ("MEDIAN(x)",)

    def read(self, node: exp.Expression) -> Call:
        """A percentile by another name."""
        return Call(self, super(Percentile, self).read(node).argument, parameters=(0.5,))

    def called(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """As it is written."""
        return f"MEDIAN({argument})"
