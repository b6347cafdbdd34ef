"""What a running aggregate holds of the values that it has seen: how they are added, taken back and put together.

An aggregate names those that it needs. How they go through windows is the operator's business, which looks at what is
named here and never at an aggregate's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.aggregates.exact import Part, split, split_squares

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Total:
    """A sum over the values, without rounding (see ``exact``): values are added, taken back, and sums added up.

    ``name``: what the partial answers' column is called, behind the slot. ``split``: a column of values as parts.
    ``rounded``: whether partial answers have its nearest number; otherwise its parts (``exact.PARTS``).
    """

    name: str
    split: Callable[[Column], Mapping[Part, Column]]
    rounded: bool = True


TOTAL = Total("sum", split)
UNROUNDED = Total("parts", split, rounded=False)
SQUARES = Total("squares", split_squares, rounded=False)


@dataclass(frozen=True)
class Extreme:
    """The least or the largest of the values. It cannot be taken back: the operator keeps what may still be it.

    ``name``: what the partial answers' column is called, and Arrow's name of it. ``absent``: no value is as good.
    ``sign``: what a value is multiplied by so that the least is the best.
    """

    name: str
    pick: np.ufunc
    absent: int
    sign: int


LEAST = Extreme("min", np.minimum, int(np.iinfo(np.int64).max), 1)
GREATEST = Extreme("max", np.maximum, int(np.iinfo(np.int64).min), -1)


VALUES = "values"
"""What the partial answers' column of an aggregate by value is called: its values, and how many there are of each."""


DISTINCT = "distinct"
"""What the column is called of how many different values there are."""


def ranked(number: int) -> str:
    """What the column is called of the values of an aggregate's rank of this number (``AggregateFunction.ranks``)."""
    return f"rank{number}"


def values_type(kind: pa.DataType) -> pa.DataType:
    """The type of that column."""
    return pa.list_(pa.struct([pa.field("value", kind), pa.field("number", pa.int64())]))


def value_lists(row: npt.NDArray[np.int64], rows: int, values: pa.Array, numbers: npt.NDArray[np.int64]) -> pa.Array:
    """The column, from each value's row (ascending), the values, and how many there are."""
    offsets = np.append(0, np.cumsum(np.bincount(row, minlength=rows))).astype(np.int32)
    kind = values_type(values.type)
    pairs = pa.StructArray.from_arrays([values, pa.array(numbers)], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=kind)


@dataclass(frozen=True, eq=False)
class Partial:
    """One aggregate's partial answers, a row a window and group, from which its values follow.

    Args:
        slot: the aggregate's.
        rows: the partial answers of all aggregates: ``<slot>_count``, how many values there are, and a column for each
            accumulator.
        share: float64[n], the share of its range that each window holds; NULL if it holds nothing.
        kind: the type that the values shall have.
        parameters: the call's.
    """

    slot: str
    rows: pa.Table
    share: pa.Array
    kind: pa.DataType
    parameters: tuple[float, ...] = ()

    def column(self, name: str) -> pa.ChunkedArray:
        """An accumulator's column."""
        return self.rows.column(f"{self.slot}_{name}")

    @property
    def counts(self) -> pa.ChunkedArray:
        """How many values there are; NULL in a row that stands for an empty window."""
        return self.column("count")
