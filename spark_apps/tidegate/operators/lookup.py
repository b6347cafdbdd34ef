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

    Every column of the key is encoded by its different values, and a key is one number made of these codes, found by
    binary search. Where rows are valid for a time, rows of a key are sorted by the instant from which they are, and the
    last one that began by the instant is looked at.

    Args:
        columns: of the table's key, without NULLs.
        from_us, to_us: int64[n], when each row is valid, half-open; None: always.

    **Cost**: O(n log n) to make; O(m log n) to ask for m keys. **Guarantee**: exact.

    >>> keyed = Keyed.of([pa.array(["a", "b"]), pa.array([1, 1])])
    >>> keyed.places([pa.array(["b", "a", None]), pa.array([1, 2, 1])], np.zeros(3, np.int64)).tolist()
    [1, -1, -1]
    """

    levels: tuple[tuple[pa.Array, Int64s], ...]
    order: Int64s
    codes: Int64s
    from_us: Int64s
    to_us: Int64s

    @classmethod
    def of(cls, columns: Sequence[pa.Array], from_us: Int64s | None = None, to_us: Int64s | None = None) -> Keyed:
        """The rows, encoded."""
        rows = len(columns[0])
        starts = np.full(rows, _FIRST_US) if from_us is None else from_us
        codes = np.zeros(rows, np.int64)
        levels = []
        for column in columns:
            values = pc.unique(column)
            combined = codes * max(len(values), 1) + _codes(column, values)
            different, codes = np.unique(combined, return_inverse=True)
            levels.append((values, different))
        order = np.lexsort((starts, codes))
        starts, codes = starts[order], codes[order]
        if to_us is not None:
            ends = to_us[order]
        else:
            ends = np.full(rows, _LAST_US)
            followed = codes[1:] == codes[:-1]
            ends[:-1][followed] = starts[1:][followed]
        return cls(tuple(levels), order, codes, starts, ends)

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
        codes = np.zeros(len(at_us), np.int64)
        known = np.full(len(at_us), len(self.codes) > 0)
        for key, (values, different) in zip(keys, self.levels, strict=True):
            code = _codes(key, values)
            combined = codes * max(len(values), 1) + code
            codes = np.minimum(np.searchsorted(different, combined), max(len(different) - 1, 0))
            known &= (code >= 0) & (different[codes] == combined if len(different) else False)
        if not known.any():
            return np.full(len(at_us), -1)
        instants = np.unique(np.concatenate([self.from_us, at_us]))
        began = self.codes * len(instants) + np.searchsorted(instants, self.from_us)
        asked = codes * len(instants) + np.searchsorted(instants, at_us)
        last = np.searchsorted(began, asked, side="right") - 1
        row = np.maximum(last, 0)
        known &= (last >= 0) & (self.codes[row] == codes) & (at_us < self.to_us[row])
        return np.where(known, self.order[row], -1)


def _codes(column: pa.Array, values: pa.Array) -> Int64s:
    """int64[n]: which of the values each is, −1 of others and of NULL."""
    codes = pc.index_in(column, values, skip_nulls=True)
    return np.asarray(pc.fill_null(codes, -1).cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
