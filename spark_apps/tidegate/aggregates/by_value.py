"""What aggregates by value share: how many there are of each value, in ascending order, group by group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.aggregates.exact import Int64s


@dataclass(frozen=True, eq=False)
class ByValue:
    """The values of all rows, one row behind the other.

    Args:
        first: int64[rows], where each row's values begin.
        lengths: int64[rows], how many different ones it has.
        values: each once a row, ascending; NaN is the largest.
        numbers: int64[values], how many there are of each.
    """

    first: Int64s
    lengths: Int64s
    values: pa.Array
    numbers: Int64s

    @staticmethod
    def of(column: pa.Array) -> ByValue:
        """A column of partial answers (``accumulators.VALUES``)."""
        lengths: Int64s = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        pairs = column.flatten()
        return ByValue(np.cumsum(lengths) - lengths, lengths, pairs.field("value"), pairs.field("number").to_numpy())

    @property
    def rows(self) -> Int64s:
        """int64[values], whose each is."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def places(self, ranks: Int64s) -> Int64s:
        """int64[rows], of each row the place of its value of a rank, from 0; any where the row has none."""
        running = np.cumsum(self.numbers)
        place = np.searchsorted(running, self._up_to(self.first) + ranks, side="right")
        return np.minimum(place, max(len(running) - 1, 0))

    def _up_to(self, place: Int64s) -> Int64s:
        found: Int64s = np.append(0, np.cumsum(self.numbers))[place]
        return found
