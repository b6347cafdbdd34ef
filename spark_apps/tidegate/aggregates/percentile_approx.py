"""PERCENTILE_APPROX(x, p, accuracy)."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from sqlglot import exp

from tidegate.aggregates.accumulators import Partial, ranked
from tidegate.aggregates.base import Call, CallError
from tidegate.aggregates.exact import Float64s, Int64s
from tidegate.aggregates.numbers import as_doubles
from tidegate.aggregates.percentile import Percentile, fraction
from tidegate.values.types import ColumnType

DEFAULT_ACCURACY = 10_000
# Buckets of positive numbers are counted from here: no logarithm of a double is so far from 0.
_MIDDLE = 1 << 40
_INFINITE, _NAN = 1 << 50, 1 << 51


class PercentileApprox(Percentile):
    """The value at a fraction of the values in order, to within a relative error of 1/accuracy.

    **Idea.** Values are held as buckets whose bounds grow by a factor, mirrored for negative numbers, with one for 0.
    Buckets are counted like values: in any order, taken back, merged, always with the same result.
    **Guarantee**: the value of rank ⌈p · n⌉ differs from the answer by at most 1/accuracy of itself. (Spark's third
    argument bounds the error of the rank instead.)
    **Source**: Masson, Rim, Lee, "DDSketch" (2019), without its collapsing.
    """

    name = "percentile_approx"
    nodes = (exp.ApproxQuantile,)
    shapes = ("PERCENTILE_APPROX(x, 0.95, 1000)",)
    of_ranks = 1
    estimated = "percentile_approx"

    def read(self, node: exp.Expression) -> Call:
        """The value, the fraction and the accuracy."""
        call = super().read(node)
        accuracy = node.args.get("accuracy") or exp.Literal.number(DEFAULT_ACCURACY)
        if not (isinstance(accuracy, exp.Literal) and accuracy.this.isdigit() and 1 < int(accuracy.this) <= 10**6):
            raise CallError("the accuracy of a percentile is a whole number from 2 to 1000000", self.shapes[0])
        share = fraction(node.args.get("quantile"), self.shapes[0])
        return Call(self, call.argument, parameters=(share, float(accuracy.this)))

    def held_type(self, measured: ColumnType) -> pa.DataType:
        """A bucket's number."""
        return pa.int64()

    def held(self, values: pa.Array, by: pa.Array | None, parameters: tuple[float, ...]) -> pa.Array:
        """The values' buckets; NULL stays NULL."""
        null = values.is_null().to_numpy(zero_copy_only=False)
        doubles = as_doubles(values)
        size, known = np.abs(doubles), np.isfinite(doubles)
        far = known & (size > 0)
        bucket = np.zeros(len(doubles), dtype=np.int64)
        bucket[far] = np.ceil(np.log(size[far]) / _step(parameters)).astype(np.int64) + _MIDDLE
        bucket[np.isinf(doubles)] = _INFINITE
        bucket = np.where(doubles < 0, -bucket, bucket)
        bucket[np.isnan(doubles)] = _NAN
        return pa.array(bucket, mask=null)

    def ranks(self, numbers: Int64s, parameters: tuple[float, ...]) -> tuple[Int64s, ...]:
        """Of the value that no smaller share is up to."""
        return (np.maximum(np.ceil(parameters[0] * numbers).astype(np.int64) - 1, 0),)

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """The middle of the bucket that the value of that rank is in; NULL where there is none."""
        none = partial.counts.fill_null(0).to_numpy() == 0
        bucket = partial.column(ranked(0)).fill_null(0).to_numpy()
        return pa.array(_middles(bucket, partial.parameters), mask=none)

    def shown(self, values: Float64s, parameters: tuple[float, ...]) -> Float64s:
        """The middles of their buckets."""
        return _middles(self.held(pa.array(values), None, parameters).to_numpy(), parameters)

    def called(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """As it is written."""
        return f"PERCENTILE_APPROX({argument}, {parameters[0]:g}, {parameters[1]:.0f})"


def _middles(bucket: Int64s, parameters: tuple[float, ...]) -> Float64s:
    """float64[n], the middles of buckets."""
    size = np.abs(bucket)
    factor = math.exp(_step(parameters))
    with np.errstate(over="ignore"):
        # The factor is put in before the power, so that numbers near the largest do not overflow.
        middle = np.exp((size - _MIDDLE) * _step(parameters) + math.log(2 / (factor + 1)))
    # The middle of the last bucket may be beyond the doubles; no value in it is.
    middle = np.minimum(middle, np.finfo(np.float64).max)
    middle = np.where(bucket == 0, 0.0, np.where(size == _INFINITE, np.inf, middle))
    return np.where(size == _NAN, np.nan, np.copysign(middle, bucket))


def _step(parameters: tuple[float, ...]) -> float:
    """The logarithm of the factor between a bucket's bounds."""
    return math.log1p(2 / (parameters[1] - 1))
