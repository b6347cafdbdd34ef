"""Small integers for values of any type, given out once and kept from batch to batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.arrivals import int64s
from tidegate.operators.codes import NULL
from tidegate.operators.duplicates import Hashes, hashes
from tidegate.operators.schedule import Int64s

# A table of so many places for each value takes less time than a hash table.
SPREAD = 4
# Below so many known strings a hash table of them is made in no time.
_MANY = 4096


@dataclass(frozen=True, eq=False)
class Codebook:
    """Distinct values in the order in which they were first met; a value's code is its place among them.

    **Cost**: per call O(rows + distinct values); integers that lie close together are looked up, not hashed. Where many
    strings are known, a column's are found by their 64-bit hashes, kept in order, and then compared.
    **Guarantee**: equal values have one code (−0.0 equals 0.0, NaN equals NaN); NULL has the code −1.

    >>> book, codes = Codebook.empty(pa.string()).encode(pa.array(["b", None, "a", "b"]))
    >>> codes.tolist(), book.values.to_pylist()
    ([0, -1, 1, 0], ['b', 'a'])
    >>> book.encode(pa.array(["c", "a"]))[1].tolist()
    [2, 1]
    """

    values: pa.Array
    ranked: tuple[Hashes, Int64s] | None = None
    """The values' hashes in ascending order, and their codes; None if nobody has asked for them."""

    @staticmethod
    def empty(kind: pa.DataType) -> Codebook:
        """No values yet."""
        return Codebook(pa.array([], type=kind))

    def __len__(self) -> int:
        """Count the codes given out."""
        return len(self.values)

    def encode(self, column: pa.Array) -> tuple[Codebook, Int64s]:
        """The codes of a column's values, and the book with those that it did not know."""
        if pa.types.is_integer(column.type) and not column.null_count and len(column):
            integers = int64s(column)
            least, most = int(integers.min()), int(integers.max())
            if most - least <= SPREAD * (len(column) + len(self)):
                return self._looked_up(integers, least, most)
        if pa.types.is_floating(column.type):
            column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 and 0.0 are one value
        if pa.types.is_string(column.type) and self._many_beside(len(column) - column.null_count):
            found = self._hashed(column.drop_null())
            if found is not None:
                return found[0], _with_nulls(column, found[1])
        encoded = column.dictionary_encode()
        if not len(encoded.dictionary):
            return self, np.full(len(column), NULL, dtype=np.int64)
        book, known = self._looked_for(encoded.dictionary)
        if encoded.null_count:
            return book, np.append(known, NULL)[int64s(encoded.indices.cast(pa.int64()).fill_null(len(known)))]
        return book, known[encoded.indices.to_numpy()]

    def _many_beside(self, rows: int) -> bool:
        """Whether so many values are known that a hash table of them, made anew, costs more than their order."""
        return len(self) > _MANY and SPREAD * len(self) > rows > 0

    def _hashed(self, column: pa.Array) -> tuple[Codebook, Int64s] | None:
        """What ``encode`` gives, by the order of hashes; None if two values that differ have one hash."""
        own = hashes(column)
        order = np.argsort(own)
        ranked = own[order]
        begins = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
        # Of equal values the one that was met first.
        first = np.minimum.reduceat(order, begins)
        group = np.empty(len(own), dtype=np.int64)
        group[order] = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(own)))
        again = np.flatnonzero(first[group] != np.arange(len(own)))
        if not _all_equal(column, again, column, first[group[again]]):
            return None
        past, codes = self.ranked or _ranked(self.values)
        distinct = ranked[begins]
        at = np.searchsorted(past, distinct)
        place = np.minimum(at, len(past) - 1)
        there = past[place] == distinct
        known = np.where(there, codes[place], NULL)
        met = np.flatnonzero(there)
        if not _all_equal(self.values, known[met], column, first[met]):
            return None
        new = np.flatnonzero(~there)
        if not len(new):
            return Codebook(self.values, (past, codes)), known[group]
        turn = np.argsort(first[new])
        known[new[turn]] = len(self) + np.arange(len(new))
        values = pa.concat_arrays([self.values, column.take(pa.array(first[new[turn]]))])
        return Codebook(values, _merged(past, codes, at[new], distinct[new], known[new])), known[group]

    def _looked_for(self, distinct: pa.Array) -> tuple[Codebook, Int64s]:
        """The codes of values, each there once, and the book with those that it did not know."""
        known = int64s(pc.index_in(distinct, value_set=self.values).cast(pa.int64()).fill_null(NULL))
        new = np.flatnonzero(known == NULL)
        if not len(new):
            return self, known
        known = known.copy()
        known[new] = len(self) + np.arange(len(new))
        return Codebook(pa.concat_arrays([self.values, distinct.take(pa.array(new))])), known

    def _looked_up(self, column: npt.NDArray[Any], least: int, most: int) -> tuple[Codebook, Int64s]:
        code_at = np.full(most - least + 1, NULL, dtype=np.int64)
        known = int64s(self.values)
        near = np.flatnonzero((known >= least) & (known <= most))
        code_at[known[near] - least] = near
        places = column - least
        codes = code_at[places]
        if codes.min() != NULL:
            return self, codes
        new = np.unique(column[codes == NULL])
        code_at[new - least] = len(self) + np.arange(len(new))
        return Codebook(pa.concat_arrays([self.values, pa.array(new, type=self.values.type)])), code_at[places]

    def keeping(self, codes: Int64s) -> tuple[Codebook, Int64s]:
        """The book of only these codes' values (NULL is ignored), and old code → new code (int64[len(self) + 1]).

        The entry behind the last is NULL's, so that it maps to itself when used as an index.
        """
        used = np.zeros(len(self) + 1, dtype=bool)
        used[codes] = True
        kept = np.flatnonzero(used[:-1])
        renamed = np.full(len(self) + 1, NULL, dtype=np.int64)
        renamed[kept] = np.arange(len(kept))
        ranked = None
        if self.ranked is not None:
            order, codes = self.ranked
            stay = used[codes]
            ranked = order[stay], renamed[codes[stay]]
        return Codebook(self.values.take(pa.array(kept)), ranked), renamed

    def ranks(self) -> Int64s:
        """code → place of its value in ascending order."""
        ranks = np.empty(len(self), dtype=np.int64)
        ranks[pc.sort_indices(self.values).to_numpy()] = np.arange(len(self))
        return ranks


def _ranked(values: pa.Array) -> tuple[Hashes, Int64s]:
    own = hashes(values)
    order = np.argsort(own)
    return own[order], order


def _with_nulls(column: pa.Array, codes: Int64s) -> Int64s:
    """The codes of a column's rows, given those of the rows that are not NULL."""
    if not column.null_count:
        return codes
    whole = np.full(len(column), NULL, dtype=np.int64)
    whole[column.is_valid().to_numpy(zero_copy_only=False)] = codes
    return whole


def _merged(past: Hashes, codes: Int64s, at: Int64s, new: Hashes, new_codes: Int64s) -> tuple[Hashes, Int64s]:
    """Two ascending runs of hashes, and their codes, as one; ``at``: before which of the past each new one comes."""
    places = at + np.arange(len(new))
    old = np.ones(len(past) + len(new), dtype=bool)
    old[places] = False
    ranked, ranked_codes = np.empty(len(old), dtype=np.uint64), np.empty(len(old), dtype=np.int64)
    ranked[places], ranked[old] = new, past
    ranked_codes[places], ranked_codes[old] = new_codes, codes
    return ranked, ranked_codes


def _all_equal(one: pa.Array, places: Int64s, other: pa.Array, other_places: Int64s) -> bool:
    """Whether the values at some places of two arrays are the same, pair by pair."""
    if not len(places):
        return True
    return bool(pc.all(pc.equal(one.take(pa.array(places)), other.take(pa.array(other_places)))).as_py())
