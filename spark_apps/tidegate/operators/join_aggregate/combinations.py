"""Small integers for combinations of small integers, given out once and kept from batch to batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.operators.codes import NULL
from tidegate.operators.join_aggregate.codebook import Codebook
from tidegate.operators.schedule import Int64s

SHIFT = 32
LOW = (1 << SHIFT) - 1
# A table of so many places for each pair takes less time than a search among the known ones.
SPREAD = 4


def _nothing() -> Int64s:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class PairBook:
    """Distinct pairs of numbers from 0 on; a pair's code is its place among them.

    Args:
        pairs: int64[n], each code's pair, as first << 32 | second.
        ordered, code_of: int64[n], the same pairs in ascending order, and their codes.

    **Cost**: per call O(rows + distinct pairs) if the numbers are small, as the cells of a table; otherwise the rows
    are sorted and merged with the known pairs: O(rows · log rows + distinct pairs).

    >>> book, codes = PairBook().encode(np.array([7, 0, 7]), np.array([1, 0, 1]))
    >>> codes.tolist(), book.encode(np.array([9, 7]), np.array([9, 1]))[1].tolist()
    ([1, 0, 1], [2, 1])
    """

    pairs: Int64s = field(default_factory=_nothing)
    ordered: Int64s = field(default_factory=_nothing)
    code_of: Int64s = field(default_factory=_nothing)

    def __len__(self) -> int:
        """Count the codes given out."""
        return len(self.pairs)

    def encode(self, first: Int64s, second: Int64s) -> tuple[PairBook, Int64s]:
        """The codes of pairs, and the book with those that it did not know."""
        if not len(first):
            return self, first
        width = max(int(second.max()), int((self.pairs & LOW).max(initial=0))) + 1
        height = max(int(first.max()), int(self.ordered[-1]) >> SHIFT if len(self) else 0) + 1
        if height * width <= SPREAD * (len(first) + len(self)):
            return self._looked_up(first, second, height, width)
        pairs = (first << SHIFT) | second
        order = np.argsort(pairs)
        sorted_pairs = pairs[order]
        new_run = np.ones(len(order), dtype=bool)
        new_run[1:] = sorted_pairs[1:] != sorted_pairs[:-1]
        distinct = sorted_pairs[new_run]
        at = np.searchsorted(self.ordered, distinct)
        known = np.zeros(len(distinct), dtype=bool)
        inside = at < len(self)
        known[inside] = self.ordered[at[inside]] == distinct[inside]
        codes = np.empty(len(distinct), dtype=np.int64)
        codes[known] = self.code_of[at[known]]
        new = distinct[~known]
        codes[~known] = len(self) + np.arange(len(new))
        found = np.empty(len(order), dtype=np.int64)
        found[order] = codes[np.cumsum(new_run) - 1]
        return self._with(new, at[~known]), found

    def _looked_up(self, first: Int64s, second: Int64s, height: int, width: int) -> tuple[PairBook, Int64s]:
        code_at = np.full(height * width, NULL, dtype=np.int32)
        code_at[(self.pairs >> SHIFT) * width + (self.pairs & LOW)] = np.arange(len(self), dtype=np.int32)
        cells = first * width + second
        codes = code_at[cells]
        unknown = codes == NULL
        if not unknown.any():
            return self, codes.astype(np.int64)
        new_cells = np.unique(cells[unknown])
        code_at[new_cells] = len(self) + np.arange(len(new_cells), dtype=np.int32)
        new = (new_cells // width << SHIFT) | new_cells % width
        return self._with(new, np.searchsorted(self.ordered, new)), code_at[cells].astype(np.int64)

    def _with(self, new: Int64s, at: Int64s) -> PairBook:
        """With new pairs, in ascending order, and their places among the ordered ones."""
        if not len(new):
            return self
        codes = len(self) + np.arange(len(new))
        return PairBook(
            np.concatenate([self.pairs, new]), np.insert(self.ordered, at, new), np.insert(self.code_of, at, codes)
        )


@dataclass(frozen=True, eq=False)
class Combinations:
    """One code per combination of several slots' codes, as a chain of books of pairs.

    A single slot's combinations are its own codes + 1 (NULL's is 0), and without slots there is the one combination 0:
    neither needs a book. ``books[i]`` holds (combination of the slots up to i, code of slot i + 1).
    """

    slots: tuple[str, ...]
    books: tuple[PairBook, ...]

    @staticmethod
    def empty(slots: Sequence[str]) -> Combinations:
        """No combinations yet."""
        return Combinations(tuple(slots), tuple(PairBook() for _ in slots[1:]))

    def encode(self, codes: Sequence[Int64s], rows: int) -> tuple[Combinations, Int64s]:
        """The combinations' codes, from those of the slots in their order."""
        if not self.slots:
            return self, np.zeros(rows, dtype=np.int64)
        combined, books = codes[0] + 1, []
        for book, following in zip(self.books, codes[1:], strict=True):
            more, combined = book.encode(combined, following + 1)
            books.append(more)
        return Combinations(self.slots, tuple(books)), combined

    def count(self, slot_books: Mapping[str, Codebook]) -> int:
        """How many combinations have a code, given the slots' own books."""
        if self.books:
            return len(self.books[-1])
        return len(slot_books[self.slots[0]]) + 1 if self.slots else 1

    def slot_codes(self, codes: Int64s) -> dict[str, Int64s]:
        """The slots' codes in each of the combinations."""
        parts: list[Int64s] = []
        for book in reversed(self.books):
            pairs = book.pairs[codes]
            parts.append((pairs & LOW) - 1)
            codes = pairs >> SHIFT
        return dict(zip(self.slots, [codes - 1, *reversed(parts)], strict=True)) if self.slots else {}
