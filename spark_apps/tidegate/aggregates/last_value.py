"""LAST_VALUE(x), also called LAST."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.accumulators import GREATEST
from tidegate.aggregates.chosen import Chosen


class Last(Chosen):
    """The x of the latest event, NULL too; of several such the largest x, NULL last."""

    name = "last_value"
    nodes = (exp.LastValue, exp.Last)
    shapes = ("LAST_VALUE(x)",)
    extreme = GREATEST
