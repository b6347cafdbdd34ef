"""STDDEV_SAMP(x), also called STDDEV."""

from __future__ import annotations

import numpy as np
from sqlglot import exp

from tidegate.aggregates.exact import Float64s
from tidegate.aggregates.moments import Moment


class SampleDeviation(Moment):
    """The standard deviation of a sample: of integers and decimals as doubles."""

    name = "stddev_samp"
    nodes = (exp.StddevSamp, exp.Stddev)
    shapes = ("STDDEV_SAMP(x)",)
    freedom = 1
    estimated = "stddev_samp"

    def of_variance(self, variance: Float64s) -> Float64s:
        """Its root."""
        return np.sqrt(variance)
