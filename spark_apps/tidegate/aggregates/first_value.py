"""FIRST_VALUE(x), also called FIRST."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.accumulators import LEAST
from tidegate.aggregates.chosen import Chosen


class First(Chosen):
    """The x of the earliest event, NULL too; of several such the least x, NULL last."""

    name = "first_value"
    nodes = (exp.FirstValue, exp.First)
    shapes = ("FIRST_VALUE(x)",)
    extreme = LEAST
