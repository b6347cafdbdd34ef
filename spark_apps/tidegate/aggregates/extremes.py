"""What MIN, MAX and their like share."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from tidegate.aggregates.accumulators import Extreme, Partial
from tidegate.aggregates.base import AggregateFunction
from tidegate.values.types import ColumnType


class ExtremeValue(AggregateFunction):
    """One of the values: the best in their order."""

    extreme: ClassVar[Extreme]

    def result(self, kind: ColumnType | None) -> ColumnType:
        """That of the values."""
        assert kind is not None
        return kind

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """NULL where there is no value."""
        return partial.column(self.extreme.name)
