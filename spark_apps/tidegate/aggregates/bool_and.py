"""BOOL_AND(x)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.accumulators import LEAST
from tidegate.aggregates.extremes import ExtremeValue
from tidegate.values.types import ColumnType


class AllTrue(ExtremeValue):
    """Whether every value is true; false comes before true."""

    name = "bool_and"
    nodes = (exp.LogicalAnd,)
    shapes = ("BOOL_AND(condition)",)
    extreme = LEAST
    estimated = "every"

    def refusal(self, kind: ColumnType) -> tuple[str, str] | None:
        """Conditions alone are true."""
        return None if kind == "boolean" else (f"BOOL_AND of {kind} is not defined", "a condition")
