"""MIN(x)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.accumulators import LEAST
from tidegate.aggregates.extremes import ExtremeValue


class Least(ExtremeValue):
    """The least value; NaN is larger than any other number."""

    name = "min"
    nodes = (exp.Min,)
    shapes = ("MIN(x)",)
    extreme = LEAST
    estimated = "least"
