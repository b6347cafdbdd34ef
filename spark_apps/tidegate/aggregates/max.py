"""MAX(x)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.accumulators import GREATEST
from tidegate.aggregates.extremes import ExtremeValue


class Greatest(ExtremeValue):
    """The largest value; NaN is larger than any other number."""

    name = "max"
    nodes = (exp.Max,)
    shapes = ("MAX(x)",)
    extreme = GREATEST
    estimated = "greatest"
