"""VAR_SAMP(x), also called VARIANCE."""

from __future__ import annotations

from sqlglot import exp

from tidegate.aggregates.moments import Moment


class SampleVariance(Moment):
    """The variance of a sample: of integers and decimals as doubles."""

    name = "var_samp"
    nodes = (exp.Variance,)
    shapes = ("VAR_SAMP(x)",)
    freedom = 1
    estimated = "var_samp"
