"""Totals that change from window to window, as numpy columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.aggregates.exact import PART_BITS, Part
from tidegate.operators.schedule import Int64s

# The part of a slot that counts its NULLs.
NULLS = "nulls"


@dataclass(frozen=True, eq=False)
class Histories:
    """For each combination of codes, how its totals went through the windows of a block.

    A history has a row for the block's first window and one for every window at which it may have changed; a row holds
    from its window up to the history's next row, or to the block's end.

    Args:
        windows: how many windows the block has.
        keys: slot → int64[h], code of each history.
        first: int64[h], each history's first row; its rows follow upon each other.
        window: int64[r], each row's window in the block.
        pairs: int64[r], combinations of tuples that the row stands for.
        parts: (slot, part) → int64[r], what a sum has of that power of two (see ``exact``), or how many of the pairs
            have a NULL in the slot. What is missing is 0.
        extremes: slot → int64[r], least or largest of the slot's ordered integers, ABSENT if there is none.
        bits: no part of a sum is larger than 2^bits · pairs.
    """

    windows: int
    keys: Mapping[str, Int64s]
    first: Int64s
    window: Int64s
    pairs: Int64s
    parts: Mapping[tuple[str, Part], Int64s] = field(default_factory=dict)
    extremes: Mapping[str, Int64s] = field(default_factory=dict)
    bits: int = PART_BITS

    def __len__(self) -> int:
        """Count the histories."""
        return len(self.first)

    def rows_of(self, histories: Int64s) -> tuple[Int64s, Int64s]:
        """The rows of some histories one behind the other, and whose they are (places in ``histories``)."""
        if len(histories) == len(self) and (histories == np.arange(len(self))).all():
            return np.arange(len(self.window)), np.repeat(np.arange(len(self)), self.lengths)
        lengths = self.lengths[histories]
        owner = np.repeat(np.arange(len(histories)), lengths)
        begin = np.cumsum(lengths) - lengths
        return np.arange(len(owner)) + (self.first[histories] - begin)[owner], owner

    @cached_property
    def lengths(self) -> Int64s:
        """int64[h], how many rows each history has."""
        return np.diff(self.first, append=len(self.window))

    @cached_property
    def lasting(self) -> Int64s:
        """int64[r], for how many windows each row holds."""
        result = np.diff(self.window, append=self.windows)
        ends = self.first[1:] - 1
        result[ends] = self.windows - self.window[ends]
        return result

    def spread(self, column: npt.NDArray[Any], histories: Int64s) -> npt.NDArray[Any]:
        """[histories, windows]: a column of the rows of some histories, with a value for every window."""
        rows, _ = self.rows_of(histories)
        return np.repeat(column[rows], self.lasting[rows]).reshape(-1, self.windows)
