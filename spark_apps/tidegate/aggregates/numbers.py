"""What aggregates of numbers share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.aggregates.accumulators import Partial
from tidegate.aggregates.base import AggregateFunction
from tidegate.aggregates.exact import Float64s
from tidegate.values import limbs
from tidegate.values.limbs import is_decimal
from tidegate.values.types import ColumnType, digits_of, is_number


def not_a_number(function: AggregateFunction, kind: ColumnType) -> tuple[str, str] | None:
    """Why an aggregate of numbers takes no values of a type; None if it does."""
    return None if is_number(kind) else (f"{function.name.upper()} of {kind} is not defined", "a number")


def decimal_or_double(kind: ColumnType) -> ColumnType:
    """The type of what is divided: decimals as they are, all others as doubles."""
    return kind if digits_of(kind) else "double"


def as_doubles(values: pa.Array) -> Float64s:
    """float64[n], the nearest doubles of numbers of any type; 0 for NULL."""
    if is_decimal(values.type):
        return limbs.as_doubles(values)
    doubles: Float64s = values.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
    return doubles


def scaled_integers(totals: pa.Array | pa.ChunkedArray, share: pa.Array) -> pa.Array:
    """Whole numbers divided by the shares of their ranges that were held, HALF_UP; NULL beyond 64 bits.

    >>> scaled_integers(pa.array([3, -3, 2**62 + 1, 2**62, None]), pa.array([0.4, 0.4, 1.0, 0.4, 1.0])).to_pylist()
    [8, -8, 4611686018427387905, None, None]
    """
    whole = totals.combine_chunks() if isinstance(totals, pa.ChunkedArray) else totals
    held = pc.fill_null(share, 0.0).to_numpy(zero_copy_only=False)
    known = pc.and_(pc.is_valid(whole), pc.is_valid(share)).to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(whole, 0).to_numpy(zero_copy_only=False)
    parts = np.flatnonzero(known & (held != 1.0))
    if len(parts):
        estimates = numbers[parts] / held[parts]
        size = np.abs(estimates)
        nearest = np.trunc(size)
        nearest = np.copysign(nearest + (size - nearest >= 0.5), estimates)
        fits = np.abs(nearest) < 2.0**63
        numbers = numbers.copy()
        numbers[parts] = np.where(fits, nearest, 0.0).astype(np.int64)
        known = known.copy()
        known[parts[~fits]] = False
    return pa.array(numbers, pa.int64(), mask=~known)


def unseen(partial: Partial, value: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
    """Where a decimal or an integer is NULL though there are values: it has more digits than its type."""
    if not (is_decimal(partial.kind) or pa.types.is_integer(partial.kind)):
        return None
    some = pc.greater(pc.fill_null(partial.counts, 0), 0)
    return pc.and_(pc.and_(some, pc.is_valid(partial.share)), pc.is_null(value))
