"""MIN_BY(x, y)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.accumulators import LEAST
from tidegate.aggregates.base import Call, CallError
from tidegate.aggregates.chosen import Chosen


class LeastBy(Chosen):
    """The x of the least y that is not NULL; of several such the least x, NULL last."""

    name = "min_by"
    nodes = (exp.ArgMin,)
    shapes = ("MIN_BY(x, y)",)
    extreme = LEAST

    def read(self, node: exp.Expression) -> Call:
        """The value, and what it is chosen by."""
        by = node.args.get("expression")
        if by is None or node.args.get("count"):
            raise CallError("MIN_BY takes two values", "MIN_BY(x, y)")
        return Call(self, super().read(node).argument, by=by)
