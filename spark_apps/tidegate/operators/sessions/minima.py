"""The least value within any stretch of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.operators.schedule import Int64s


@dataclass(frozen=True, eq=False)
class Minima:
    """The least of each 1, 2, 4 … values in a row: two of them span any stretch.

    **Cost.** O(n log w) time and space for n values and stretches of w at most; O(1) a question, or O(log w).

    >>> minima = Minima.of(np.array([5, 3, 9, 4]), longest=3)
    >>> minima.any_by(np.array([0, 2, 3]), np.array([3, 4, 3]), np.array([3, 3, 9])).tolist()
    [True, False, False]
    """

    levels: tuple[Int64s, ...]

    @classmethod
    def of(cls, values: Int64s, longest: int) -> Minima:
        """For stretches of so many values at most."""
        levels = [values]
        while 1 << len(levels) <= min(longest, len(values)):
            half, below = 1 << (len(levels) - 1), levels[-1]
            levels.append(np.minimum(below[: len(below) - half], below[half:]))
        return cls(tuple(levels))

    def any_by(self, first: Int64s, behind: Int64s, at: Int64s) -> np.ndarray:
        """Whether any value in [first, behind) is at most ``at``: bool[n]; of empty stretches none is."""
        found = np.zeros(len(first), dtype=bool)
        length = behind - first
        for number, level in enumerate(self.levels):
            own = np.flatnonzero((length >= 1 << number) & (length < 2 << number))
            least = np.minimum(level[first[own]], level[behind[own] - (1 << number)])
            found[own] = least <= at[own]
        return found

    def last_by(self, first: Int64s, behind: Int64s, at: Int64s) -> Int64s:
        """The last place in [first, behind) with a value of at most ``at``, or ``first`` − 1.

        >>> Minima.of(np.array([5, 3, 9, 4]), longest=4).last_by(np.array([0, 1]), np.array([3, 4]), np.array([5, 2]))
        array([1, 0])
        """
        place = behind.copy()
        for number in reversed(range(len(self.levels))):
            own = np.flatnonzero(place - (1 << number) >= first)
            own = own[self.levels[number][place[own] - (1 << number)] > at[own]]
            place[own] -= 1 << number
        return place - 1

    def first_by(self, first: Int64s, behind: Int64s, at: Int64s) -> Int64s:
        """The first place in [first, behind) with a value of at most ``at``, or ``behind``."""
        place = first.copy()
        for number in reversed(range(len(self.levels))):
            own = np.flatnonzero(place + (1 << number) <= behind)
            own = own[self.levels[number][place[own]] > at[own]]
            place[own] += 1 << number
        return place
