"""Totals that change from window to window, as numpy columns: how they are added up, joined and summed away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.operators.join_aggregate.exact import PART_BITS, Part, narrowed
from tidegate.operators.join_aggregate.rows import ABSENT, added, extreme_over, rows_for, running
from tidegate.operators.schedule import Int64s

INT64_LIMIT = 2**63
# Sums below this stay below the limit, roundings of their bounds included.
SAFE = 2**61
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
            lengths = np.diff(self.first, append=len(self.window))
            return np.arange(len(self.window)), np.repeat(np.arange(len(self)), lengths)
        lengths = np.diff(self.first, append=len(self.window))[histories]
        owner = np.repeat(np.arange(len(histories)), lengths)
        begin = np.cumsum(lengths) - lengths
        return np.arange(len(owner)) + (self.first[histories] - begin)[owner], owner


def product(sides: Sequence[Histories], keep: Sequence[str], functions: Mapping[str, str]) -> Histories:
    """Sides whose histories have the same keys and rows, joined history by history and summed up by the keys to keep.

    **Cost**: O(rows · sides).

    Raises:
        OverflowError: more than 2^63 pairs, or sums over more than 2^60.
    """
    one = sides[0]
    group, keys = _groups({name: one.keys[name] for name in keep}, len(one))
    return _multiplied([(side, slice(None)) for side in sides], one.first, one.window, group, keys, functions)


def joined(
    left: Histories, right: Histories, on: Sequence[str], keep: Sequence[str], functions: Mapping[str, str]
) -> Histories:
    """Histories of two relations joined on the classes ``on`` and summed up by the keys to keep.

    **Idea.** Two histories that match change where either does.
    **Cost**: O(rows of the matching histories); the join of their tuples is never formed. Raises as ``product``.
    """
    from_left, from_right = _matches(left, right, on)
    codes = {name: left.keys[name][from_left] if name in left.keys else right.keys[name][from_right] for name in keep}
    group, keys = _groups(codes, len(from_left))
    windows = left.windows
    rows_left, owner_left = left.rows_of(from_left)
    rows_right, owner_right = right.rows_of(from_right)
    marks = [owner_left * windows + left.window[rows_left], owner_right * windows + right.window[rows_right]]
    first, window, (at_left, at_right) = rows_for(marks, len(from_left), windows)
    rows = rows_left[_filled(at_left, len(window))], rows_right[_filled(at_right, len(window))]
    return _multiplied([(left, rows[0]), (right, rows[1])], first, window, group, keys, functions)


def _multiplied(
    sides: Sequence[tuple[Histories, Any]],
    first: Int64s,
    window: Int64s,
    group: Int64s,
    keys: dict[str, Int64s],
    functions: Mapping[str, str],
) -> Histories:
    """The product of the sides' histories, of each the rows given, summed up by group.

    The pairs multiply, a sum multiplies with the other sides' pairs, an extreme stays what it is.
    """
    windows, groups = sides[0][0].windows, len(next(iter(keys.values()))) if keys else 1
    own_pairs = [side.pairs[rows] for side, rows in sides]
    pairs = _times(own_pairs[0], own_pairs[1:])
    summing = _Summing(first, window, group, groups, windows)
    total_pairs = summing.totals(pairs)
    _refuse_overflow(own_pairs, summing, len(first))
    most, bits = int(total_pairs.max(initial=0)), min(side.bits for side, _ in sides)
    while bits > 1 and most << bits > SAFE:
        bits //= 2
    if most << bits > SAFE and any(side.parts for side, _ in sides):
        raise OverflowError(f"sums over {most:.3g} pairs do not fit")
    parts: dict[tuple[str, Part], Int64s] = {}
    extremes: dict[str, Int64s] = {}
    for index, (side, rows) in enumerate(sides):
        others = [other for i, other in enumerate(own_pairs) if i != index]
        for slot in dict.fromkeys(slot for slot, _ in side.parts):
            columns = {part: column for (name, part), column in side.parts.items() if name == slot}
            for part, column in (narrowed(columns, side.bits, bits) if side.bits > bits else columns).items():
                parts[slot, part] = summing.totals(_times(column[rows], others))
        for slot, column in side.extremes.items():
            extremes[slot] = summing.extreme(functions[slot], column[rows], pairs > 0)
    return Histories(windows, keys, summing.first, summing.window, total_pairs, parts, extremes, bits)


def _times(column: Int64s, factors: Sequence[Int64s]) -> Int64s:
    for factor in factors:
        column = column * factor
    return column


def _filled(marked: Int64s, size: int) -> Int64s:
    """For every row the number of the last mark at or before it; the first row of each history is marked."""
    flags = np.zeros(size, dtype=np.int64)
    flags[marked] = 1
    return np.cumsum(flags) - 1


def _matches(left: Histories, right: Histories, on: Sequence[str]) -> tuple[Int64s, Int64s]:
    """Which histories match, of those that have pairs at all."""
    some_left, some_right = _with_pairs(left), _with_pairs(right)
    rows = len(some_left) + len(some_right)
    ids = combined([np.concatenate([left.keys[name][some_left], right.keys[name][some_right]]) for name in on], rows)
    left_ids, right_ids = ids[: len(some_left)], ids[len(some_left) :]
    order = np.argsort(right_ids)
    begin = np.searchsorted(right_ids[order], left_ids, side="left")
    matches = np.searchsorted(right_ids[order], left_ids, side="right") - begin
    from_left = np.repeat(np.arange(len(left_ids)), matches)
    offset = np.arange(len(from_left)) - np.repeat(np.cumsum(matches) - matches, matches)
    return some_left[from_left], some_right[order[np.repeat(begin, matches) + offset]]


def _with_pairs(histories: Histories) -> Int64s:
    if not len(histories):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.maximum.reduceat(histories.pairs, histories.first) > 0)


def _groups(codes: Mapping[str, Int64s], rows: int) -> tuple[Int64s, dict[str, Int64s]]:
    """The group that each row is in, and the groups' keys."""
    if not codes:
        return np.zeros(rows, dtype=np.int64), {}
    _, one_of_each, group = np.unique(combined(list(codes.values()), rows), return_index=True, return_inverse=True)
    return group, {name: column[one_of_each] for name, column in codes.items()}


def combined(keys: Sequence[Int64s], rows: int) -> Int64s:
    """A number per row: rows have the same one iff all their codes (−1 …) are equal."""
    if not keys:
        return np.zeros(rows, dtype=np.int64)
    ids = keys[0]
    for key in keys[1:]:
        _, dense = np.unique(ids, return_inverse=True)
        ids = dense * (int(key.max(initial=0)) + 2) + key + 1
    return ids


class _Summing:
    """Histories summed up by group: the same places for every column."""

    def __init__(self, first: Int64s, window: Int64s, group: Int64s, groups: int, windows: int) -> None:
        self._first = first
        if groups == 1:
            self.first, self.window, self._row = np.zeros(1, dtype=np.int64), np.arange(windows), window
        else:
            owner = np.repeat(group, np.diff(first, append=len(window)))
            self.first, self.window, (self._row,) = rows_for([owner * windows + window], groups, windows)
        self._last_of = np.append(self.first[1:], len(self.window))[group]

    def totals(self, column: Int64s) -> Int64s:
        """The groups' totals of a column of totals."""
        changes = np.empty_like(column)
        np.subtract(column[1:], column[:-1], out=changes[1:])
        changes[self._first] = column[self._first]
        return running(added(self._row, changes, len(self.window)), self.first)[0]

    def rough_totals(self, column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The same of doubles, rounded."""
        changes = np.diff(column, prepend=0.0)
        changes[self._first] = column[self._first]
        totals = np.bincount(self._row, changes, len(self.window))
        totals[self.first[1:]] -= np.add.reduceat(totals, self.first)[:-1]
        return np.cumsum(totals)

    def extreme(self, function: str, column: Int64s, alive: npt.NDArray[np.bool_]) -> Int64s:
        """The groups' extremes of a column of extremes, where they are of anything."""
        some = np.flatnonzero(alive & (column != ABSENT[function]))
        end = np.append(self._row[1:], 0)
        end[np.append(self._first[1:], len(self._row))[: len(self._first)] - 1] = self._last_of
        return extreme_over(function, self._row[some], end[some], column[some], len(self.window))


def _refuse_overflow(factors: Sequence[Int64s], summing: _Summing, histories: int) -> None:
    """Raise if the factors' products, or their sums, are beyond 64 bits."""
    bound = float(histories)
    for factor in factors:
        bound *= float(factor.max(initial=0))
    if bound < SAFE:
        return
    rough = factors[0].astype(np.float64)
    for factor in factors[1:]:
        rough = rough * factor
    most = max(float(rough.max()), float(summing.rough_totals(rough).max()))
    if most >= INT64_LIMIT:
        raise OverflowError(f"an integer total of about {most:.3g} does not fit into 64 bits")
