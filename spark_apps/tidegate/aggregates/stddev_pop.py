"""STDDEV_POP(x)."""

from __future__ import annotations

import numpy as np
from sqlglot import exp

from tidegate.aggregates.exact import Float64s
from tidegate.aggregates.moments import Moment


class PopulationDeviation(Moment):
    """The standard deviation of all values: of integers and decimals as doubles."""

    name = "stddev_pop"
    nodes = (exp.StddevPop,)
    shapes = ("STDDEV_POP(x)",)
    freedom = 0
    estimated = "stddev_pop"

    def of_variance(self, variance: Float64s) -> Float64s:
        """Its root."""
        return np.sqrt(variance)
