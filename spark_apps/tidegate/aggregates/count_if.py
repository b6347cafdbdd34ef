"""COUNT_IF(condition)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.base import Call, CallError
from tidegate.aggregates.count import Count


class CountIf(Count):
    """How many rows a condition is true of: COUNT(*) FILTER (WHERE condition)."""

    name = "count_if"
    nodes = (exp.CountIf,)
    shapes = ("COUNT_IF(condition)",)

    def read(self, node: exp.Expression) -> Call:
        """The same count, written otherwise."""
        if node.this is None or isinstance(node.this, exp.Star):
            raise CallError("COUNT_IF needs a condition", "COUNT_IF(x > 0)")
        return Call(Count(), None, condition=node.this)
