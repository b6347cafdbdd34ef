"""BOOL_OR(x)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.accumulators import GREATEST
from tidegate.aggregates.extremes import ExtremeValue
from tidegate.values.types import ColumnType


class AnyTrue(ExtremeValue):
    """Whether a value is true; false comes before true."""

    name = "bool_or"
    nodes = (exp.LogicalOr,)
    shapes = ("BOOL_OR(condition)",)
    extreme = GREATEST
    estimated = "some"

    def refusal(self, kind: ColumnType) -> tuple[str, str] | None:
        """Conditions alone are true."""
        return None if kind == "boolean" else (f"BOOL_OR of {kind} is not defined", "a condition")
