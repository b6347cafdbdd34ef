"""MAX_BY(x, y)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.accumulators import GREATEST
from tidegate.aggregates.base import Call, CallError
from tidegate.aggregates.chosen import Chosen


class LargestBy(Chosen):
    """The x of the largest y that is not NULL; of several such the largest x, NULL last."""

    name = "max_by"
    nodes = (exp.ArgMax,)
    shapes = ("MAX_BY(x, y)",)
    extreme = GREATEST

    def read(self, node: exp.Expression) -> Call:
        """The value, and what it is chosen by."""
        by = node.args.get("expression")
        if by is None or node.args.get("count"):
            raise CallError("MAX_BY takes two values", "MAX_BY(x, y)")
        return Call(self, super().read(node).argument, by=by)
