"""What aggregates of numbers share."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.aggregates.accumulators import TOTAL, Partial
from tidegate.aggregates.base import AggregateFunction
from tidegate.values.limbs import is_decimal
from tidegate.values.types import ColumnType, digits_of, is_number


def not_a_number(function: AggregateFunction, kind: ColumnType) -> tuple[str, str] | None:
    """Why an aggregate of numbers takes no values of a type; None if it does."""
    return None if is_number(kind) else (f"{function.name.upper()} of {kind} is not defined", "a number")


def decimal_or_double(kind: ColumnType) -> ColumnType:
    """As what numbers are added up: decimals as they are, all others as doubles."""
    return kind if digits_of(kind) else "double"


def unseen(partial: Partial, value: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
    """Where a decimal is NULL though there is a total of it: it has more digits than its type."""
    if not is_decimal(partial.kind):
        return None
    return pc.and_(pc.is_valid(partial.column(TOTAL.name)), pc.is_null(value))
