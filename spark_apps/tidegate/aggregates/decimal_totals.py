"""SUM and AVG of decimals as they are emitted: exact totals scaled up, divided and rounded once, HALF_UP.

A total that has more digits than its type is no number of that type: the value is NULL, and the row is counted as one
that failed.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.values.limbs import divided, from_unscaled, unscaled


def scaled_up(totals: pa.Array, share: pa.Array, kind: pa.DataType) -> pa.Array:
    """Totals divided by the shares of their ranges that were held, as decimals of a type.

    >>> totals = pa.array([1, 2, None, 10**5], pa.decimal256(76, 0))
    >>> scaled_up(totals, pa.array([0.3, 1.0, 1.0, 1.0]), pa.decimal128(5, 0)).to_pylist()
    [Decimal('3'), Decimal('2'), None, None]
    """
    whole = pc.fill_null(pc.equal(share, 1.0), False)
    if pc.all(whole).as_py():
        try:
            return totals.cast(kind)
        except pa.ArrowInvalid:  # some total has too many digits
            return _shown(totals, 0, kind, lambda row, n: n)
    fractions = [Fraction(one or 1.0) for one in share.to_pylist()]
    shown = _shown(totals, 0, kind, lambda row, n: divided(n * fractions[row].denominator, fractions[row].numerator))
    return pc.if_else(pc.is_valid(share), shown, pa.scalar(None, kind))


def averages(totals: pa.Array, counts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Totals divided by how many values they are of, as decimals of a type.

    >>> totals = pa.array([2, -5, None], pa.decimal256(76, 0))
    >>> averages(totals, pa.array([3, 2, None]), pa.decimal128(9, 4)).to_pylist()
    [Decimal('0.6667'), Decimal('-2.5000'), None]
    """
    numbers = counts.to_pylist()
    return _shown(totals, kind.scale - totals.type.scale, kind, lambda row, n: divided(n, numbers[row]))


def _shown(totals: pa.Array, places: int, kind: pa.DataType, value: Callable[[int, int], int]) -> pa.Array:
    """What is made of each total, at a scale of so many more digits; NULL where there is no total."""
    known = totals.is_valid().to_pylist()
    factor = 10**places
    numbers = (n * factor for n in unscaled(totals))
    return from_unscaled([value(row, n) if known[row] else None for row, n in enumerate(numbers)], kind)
