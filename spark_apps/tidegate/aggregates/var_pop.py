"""VAR_POP(x)."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.moments import Moment


class PopulationVariance(Moment):
    """The variance: of integers and decimals as doubles."""

    name = "var_pop"
    nodes = (exp.VariancePop,)
    shapes = ("VAR_POP(x)",)
    freedom = 0
    estimated = "var_pop"
