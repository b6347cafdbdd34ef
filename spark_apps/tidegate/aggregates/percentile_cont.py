"""PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY x)."""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

from tidegate.aggregates.base import Call, CallError
from tidegate.aggregates.percentile import Percentile, fraction


class PercentileCont(Percentile):
    """PERCENTILE, as the standard writes it."""

    name = "percentile_cont"
    nodes = (exp.WithinGroup,)
    shapes = ("PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY x)",)

    def read(self, node: exp.Expression) -> Call:
        """The same percentile; of a descending order that of what is left."""
        ordered = node.expression.expressions if isinstance(node.expression, exp.Order) else []
        if not isinstance(node.this, exp.PercentileCont) or len(ordered) != 1:
            text = node.sql("spark", comments=False)[:60]
            raise CallError(f"aggregate '{text}' is not supported", self.shapes[0])
        share = fraction(node.this.this, self.shapes[0])
        if ordered[0].args.get("desc"):
            share = float(1 - Decimal(repr(share)))
        return Call(Percentile(), ordered[0].this, parameters=(share,))
