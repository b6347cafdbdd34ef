"""Rows of a table by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
_FIRST_US, _LAST_US = -(2**62), 2**62


@dataclass(frozen=True, eq=False)
class Keyed:
    """Which row of a table a key names, for many keys at once.

    Every column of the key is encoded by its different values, and so are the pairs of one column's code and the next.
    Where rows are valid for a time, rows of a key are sorted by the instant from which they are, and the last one that
    began by the instant is looked at.

    Args:
        columns: of the table's key, without NULLs.
        from_us, to_us: int64[n], when each row is valid, half-open; None: always.

    **Cost**: O(n log n) to make; O(m) to ask for m keys, O(m log n) where rows are valid for a time.
    **Guarantee**: exact.

    >>> keyed = Keyed.of([pa.array(["a", "b"]), pa.array([1, 1])])
    >>> keyed.places([pa.array(["b", "a", None]), pa.array([1, 2, 1])], np.zeros(3, np.int64)).tolist()
    [1, -1, -1]
    """

    levels: tuple[tuple[pa.Array, pa.Array], ...]
    order: Int64s
    codes: Int64s
    from_us: Int64s
    to_us: Int64s
    timed: bool

    @classmethod
    def of(cls, columns: Sequence[pa.Array], from_us: Int64s | None = None, to_us: Int64s | None = None) -> Keyed:
        """The rows, encoded."""
        rows = len(columns[0])
        starts = np.full(rows, _FIRST_US) if from_us is None else from_us
        codes = np.zeros(rows, np.int64)
        levels = []
        for column in columns:
            values = pc.unique(column)
            combined = pa.array(codes * len(values) + _codes(column, values))
            different = pc.unique(combined)
            codes = _codes(combined, different)
            levels.append((values, different))
        order = np.lexsort((starts, codes))
        starts, codes = starts[order], codes[order]
        if to_us is not None:
            ends = to_us[order]
        else:
            ends = np.full(rows, _LAST_US)
            followed = codes[1:] == codes[:-1]
            ends[:-1][followed] = starts[1:][followed]
        return cls(tuple(levels), order, codes, starts, ends, from_us is not None)

    def clash(self) -> tuple[int, int] | None:
        """Two rows of the table that one key names at one instant; None if there are none."""
        same = self.codes[1:] == self.codes[:-1]
        both = np.flatnonzero(same & ((self.to_us[:-1] > self.from_us[1:]) | (self.from_us[1:] == self.from_us[:-1])))
        if len(both) == 0:
            return None
        first, second = sorted(self.order[both[0] : both[0] + 2].tolist())
        return first, second

    def places(self, keys: Sequence[pa.Array], at_us: Int64s) -> Int64s:
        """int64[m]: the row of each key, valid at its instant; −1 where there is none, or the key has a NULL."""
        codes = _codes(keys[0], self.levels[0][0])
        for key, (values, different) in zip(keys[1:], self.levels[1:], strict=True):
            code = _codes(key, values)
            known = (codes >= 0) & (code >= 0)
            codes = _codes(pa.array(codes * len(values) + code, mask=~known), different)
        if not self.timed:
            # Every key has one row, and the rows are in the order of the keys.
            return np.append(self.order, -1)[codes]
        instants = np.unique(self.from_us)
        began = self.codes * (len(instants) + 1) + np.searchsorted(instants, self.from_us) + 1
        wanted = codes * (len(instants) + 1) + np.searchsorted(instants, at_us, side="right")
        last = np.searchsorted(began, wanted, side="right") - 1
        row = np.maximum(last, 0)
        if not len(self.codes):
            return np.full(len(at_us), -1)
        known = (codes >= 0) & (last >= 0) & (self.codes[row] == codes) & (at_us < self.to_us[row])
        return np.where(known, self.order[row], -1)


def _codes(column: pa.Array, values: pa.Array) -> Int64s:
    """int64[n]: which of the values each is, −1 of others and of NULL."""
    codes = pc.index_in(column, values, skip_nulls=True)
    return np.asarray(pc.fill_null(codes, -1).cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
