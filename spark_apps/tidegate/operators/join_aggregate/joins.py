"""Joins of histories: what the totals of two relations make together, summed up by the keys to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.aggregates.accumulators import Extreme
from tidegate.aggregates.exact import Part, narrowed
from tidegate.operators.join_aggregate.conditions import Meets
from tidegate.operators.join_aggregate.grids import PairGrid
from tidegate.operators.join_aggregate.histories import Histories
from tidegate.operators.join_aggregate.rows import rows_for
from tidegate.operators.join_aggregate.summing import Summing
from tidegate.operators.schedule import Int64s

INT64_LIMIT = 2**63
# Sums below this stay below the limit, roundings of their bounds included.
SAFE = 2**61
# A table of so many places for each number takes less time than sorting them.
SPREAD = 8
# Of histories that match, so many are looked at together for conditions, and so many that meet them are summed up.
LOOKED_AT, SUMMED_UP = 1 << 18, 1 << 19


def product(sides: Sequence[Histories], keep: Sequence[str], kinds: Mapping[str, Extreme]) -> Histories:
    """Sides whose histories have the same keys and rows, joined history by history and summed up by the keys to keep.

    **Cost**: O(rows · sides).

    Raises:
        OverflowError: more than 2^63 pairs, or sums over more than 2^60.
    """
    one = sides[0]
    if len(keep) == len(one.keys):  # every history is a group of its own
        group, keys = None, dict(one.keys)
    else:
        group, keys = groups_of({name: one.keys[name] for name in keep}, len(one))
    return _multiplied([(side, slice(None)) for side in sides], one.first, one.window, group, keys, kinds)


def joined(
    left: Histories,
    right: Histories,
    on: Sequence[str],
    keep: Sequence[str],
    kinds: Mapping[str, Extreme],
    meets: Meets | None = None,
) -> Histories:
    """Histories of two relations joined on the classes ``on`` and summed up by the keys to keep.

    With ``meets`` those that match are looked at one by one, some at a time, and count if it is true of their codes:
    O(matches) time, O(``LOOKED_AT`` + ``SUMMED_UP``) space beside the result.

    **Idea.** Two histories that match change where either does. Where that is at most windows, they are joined window
    by window (``PairGrid``).
    **Cost**: O(rows of the matching histories), or less; the join of their tuples is never formed. Raises as
    ``product``.
    """
    if meets is not None:
        parts = [_joined(left, right, some, keep, kinds) for some in _meeting(left, right, on, meets)]
        return _together(parts, kinds)
    return _joined(left, right, _matches(left, right, on), keep, kinds)


def _joined(
    left: Histories,
    right: Histories,
    matching: tuple[Int64s, Int64s],
    keep: Sequence[str],
    kinds: Mapping[str, Extreme],
) -> Histories:
    from_left, from_right = matching
    codes = {name: left.keys[name][from_left] if name in left.keys else right.keys[name][from_right] for name in keep}
    group, keys = groups_of(codes, len(from_left))
    windows, groups = left.windows, len(next(iter(keys.values()))) if keys else 1
    grid = PairGrid((left, right), (from_left, from_right), group, groups)
    if grid.is_cheaper_than(int(left.lengths[from_left].sum() + right.lengths[from_right].sum())):
        return _on_grid(grid, keys, kinds)
    rows_left, owner_left = left.rows_of(from_left)
    rows_right, owner_right = right.rows_of(from_right)
    marks = [owner_left * windows + left.window[rows_left], owner_right * windows + right.window[rows_right]]
    first, window, (at_left, at_right) = rows_for(marks, len(from_left), windows)
    rows = rows_left[_filled(at_left, len(window))], rows_right[_filled(at_right, len(window))]
    return _multiplied([(left, rows[0]), (right, rows[1])], first, window, group, keys, kinds)


def _meeting(left: Histories, right: Histories, on: Sequence[str], meets: Meets) -> Iterator[tuple[Int64s, Int64s]]:
    """The histories that match and meet a condition, in parts; at least one."""
    found: list[tuple[Int64s, Int64s]] = []
    waiting = given = 0
    for from_left, from_right in _matches_in_parts(left, right, on):
        codes = {name: column[from_left] for name, column in left.keys.items()}
        met = meets(codes | {name: column[from_right] for name, column in right.keys.items()})
        found.append((from_left[met], from_right[met]))
        waiting += len(found[-1][0])
        if waiting >= SUMMED_UP:
            yield tuple(map(np.concatenate, zip(*found, strict=True)))  # type: ignore[misc]
            found, waiting, given = [], 0, given + 1
    if waiting or not given:
        nothing = np.zeros(0, dtype=np.int64)
        yield tuple(map(np.concatenate, zip((nothing, nothing), *found, strict=True)))  # type: ignore[misc]


def _together(parts: Sequence[Histories], kinds: Mapping[str, Extreme]) -> Histories:
    """Histories of the same keys and windows, added up."""
    if len(parts) == 1:
        return parts[0]
    bits = min(part.bits for part in parts)
    sums = [_of_bits(part, bits) for part in parts]
    offsets = np.cumsum([0, *(len(part.window) for part in parts)])
    names = dict.fromkeys(name for own in sums for name in own)
    every = Histories(
        parts[0].windows,
        {name: np.concatenate([part.keys[name] for part in parts]) for name in parts[0].keys},
        np.concatenate([part.first + offset for part, offset in zip(parts, offsets[:-1], strict=True)]),
        np.concatenate([part.window for part in parts]),
        np.concatenate([part.pairs for part in parts]),
        {
            name: np.concatenate(
                [own.get(name, np.zeros(len(part.window), np.int64)) for own, part in zip(sums, parts, strict=True)]
            )
            for name in names
        },
        {slot: np.concatenate([part.extremes[slot] for part in parts]) for slot in parts[0].extremes},
        bits,
    )
    group, keys = groups_of(every.keys, len(every))
    return _multiplied([(every, slice(None))], every.first, every.window, group, keys, kinds)


def _of_bits(side: Histories, bits: int) -> dict[tuple[str, Part], Int64s]:
    """The parts of a side's sums, none larger than 2^bits · pairs."""
    if side.bits == bits:
        return dict(side.parts)
    found: dict[tuple[str, Part], Int64s] = {}
    for slot in dict.fromkeys(slot for slot, _ in side.parts):
        columns = {part: column for (name, part), column in side.parts.items() if name == slot}
        found |= {(slot, part): column for part, column in narrowed(columns, side.bits, bits).items()}
    return found


def _multiplied(
    sides: Sequence[tuple[Histories, Any]],
    first: Int64s,
    window: Int64s,
    group: Int64s | None,
    keys: dict[str, Int64s],
    kinds: Mapping[str, Extreme],
) -> Histories:
    """The product of the sides' histories, of each the rows given, summed up by group (None: each is one).

    The pairs multiply, a sum multiplies with the other sides' pairs, an extreme stays what it is.
    """
    windows, groups = sides[0][0].windows, len(next(iter(keys.values()))) if keys else 1
    own_pairs = [side.pairs[rows] for side, rows in sides]
    pairs = _times(own_pairs[0], own_pairs[1:])
    summing = Summing(first, window, group, groups, windows)

    def rough_totals() -> npt.NDArray[np.float64]:
        rough = own_pairs[0].astype(np.float64)
        for factor in own_pairs[1:]:
            rough = rough * factor
        return np.append(summing.rough_totals(rough), rough.max(initial=0.0))

    _refuse_overflow(own_pairs, len(first), rough_totals)

    def times_the_others(index: int, column: Int64s) -> Int64s:
        others = [other for i, other in enumerate(own_pairs) if i != index]
        return summing.totals(_times(column[sides[index][1]], others))

    def extreme(index: int, slot: str, column: Int64s) -> Int64s:
        return summing.extreme(kinds[slot], column[sides[index][1]], pairs > 0)

    totals = summing.totals(pairs)
    parts, extremes, bits = _measured([side for side, _ in sides], totals, times_the_others, extreme)
    return Histories(windows, keys, summing.first, summing.window, totals, parts, extremes, bits)


def _on_grid(grid: PairGrid, keys: dict[str, Int64s], kinds: Mapping[str, Extreme]) -> Histories:
    """The product of the grid's pairs of histories."""
    left, right = grid.sides

    def rough_totals() -> npt.NDArray[np.float64]:
        return grid.sums(left.pairs.astype(np.float64), right.pairs.astype(np.float64))

    _refuse_overflow([left.pairs, right.pairs], len(grid), rough_totals)

    def times_the_others(index: int, column: Int64s) -> Int64s:
        return grid.sums(left.pairs, column) if index else grid.sums(column, right.pairs)

    def extreme(index: int, slot: str, column: Int64s) -> Int64s:
        return grid.extremes(kinds[slot], index, column)

    totals = grid.sums(left.pairs, right.pairs)
    parts, extremes, bits = _measured([left, right], totals, times_the_others, extreme)
    first = np.arange(grid.groups, dtype=np.int64) * grid.windows
    window = np.tile(np.arange(grid.windows), grid.groups)
    return Histories(grid.windows, keys, first, window, totals, parts, extremes, bits)


def _measured(
    sides: Sequence[Histories],
    pairs: Int64s,
    times_the_others: Callable[[int, Int64s], Int64s],
    extreme: Callable[[int, str, Int64s], Int64s],
) -> tuple[dict[tuple[str, Part], Int64s], dict[str, Int64s], int]:
    """The parts of the sums, the extremes, and the parts' bits, of a join with so many pairs."""
    most, bits = int(pairs.max(initial=0)), min(side.bits for side in sides)
    while bits > 1 and most << bits > SAFE:
        bits //= 2
    if most << bits > SAFE and any(side.parts for side in sides):
        raise OverflowError(f"sums over {most:.3g} pairs do not fit")
    parts: dict[tuple[str, Part], Int64s] = {}
    extremes: dict[str, Int64s] = {}
    for index, side in enumerate(sides):
        for slot in dict.fromkeys(slot for slot, _ in side.parts):
            columns = {part: column for (name, part), column in side.parts.items() if name == slot}
            for part, column in (narrowed(columns, side.bits, bits) if side.bits > bits else columns).items():
                parts[slot, part] = times_the_others(index, column)
        for slot, column in side.extremes.items():
            extremes[slot] = extreme(index, slot, column)
    return parts, extremes, bits


def _times(column: Int64s, factors: Sequence[Int64s]) -> Int64s:
    for factor in factors:
        column = column * factor
    return column


def _matches_in_parts(left: Histories, right: Histories, on: Sequence[str]) -> Iterator[tuple[Int64s, Int64s]]:
    """What ``_matches`` gives, ``LOOKED_AT`` at a time, or all of one history of the left."""
    some_left, some_right, begin, matches = _match(left, right, on)
    upto = np.cumsum(matches)
    first = 0
    while first < len(matches):
        taken = int(upto[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(upto, taken + LOOKED_AT, side="right")))
        row, place = matched(begin[first:last], matches[first:last])
        yield some_left[first:last][row], some_right[place]
        first = last


def _filled(marked: Int64s, size: int) -> Int64s:
    """For every row the number of the last mark at or before it; the first row of each history is marked."""
    flags = np.zeros(size, dtype=np.int64)
    flags[marked] = 1
    return np.cumsum(flags) - 1


def _matches(left: Histories, right: Histories, on: Sequence[str]) -> tuple[Int64s, Int64s]:
    """Which histories match, of those that have pairs at all."""
    some_left, some_right = _with_pairs(left), _with_pairs(right)
    if len(some_left) < len(some_right):
        from_right, from_left = _matches(right, left, on)
        return from_left, from_right
    from_left, from_right, begin, matches = _match(left, right, on)
    row, place = matched(begin, matches)
    return from_left[row], from_right[place]


def _match(left: Histories, right: Histories, on: Sequence[str]) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Which histories have pairs at all, and for each of the left where those of the right that match it begin.

    Returns:
        The histories of the left; those of the right, by their keys; where among these the matching ones begin, and
        how many there are.
    """
    some_left, some_right = _with_pairs(left), _with_pairs(right)
    rows = len(some_left) + len(some_right)
    ids = combined([np.concatenate([left.keys[name][some_left], right.keys[name][some_right]]) for name in on], rows)
    left_ids, right_ids = ids[: len(some_left)], ids[len(some_left) :]
    order = np.argsort(right_ids)
    ordered = right_ids[order]
    if int(ids.max(initial=0)) < SPREAD * rows:
        at = np.searchsorted(ordered, np.arange(int(ids.max(initial=0)) + 2))
        begin, matches = at[left_ids], np.diff(at)[left_ids]
    else:
        begin = np.searchsorted(ordered, left_ids, side="left")
        matches = np.searchsorted(ordered, left_ids, side="right") - begin
    return some_left, some_right[order], begin, matches


def matched(begin: Int64s, matches: Int64s) -> tuple[Int64s, Int64s]:
    """Pairs of each row with the places ``begin`` … ``begin + matches − 1``: the rows, and the places.

    >>> matched(np.array([7, 0, 3]), np.array([2, 0, 1]))
    (array([0, 0, 2]), array([7, 8, 3]))
    """
    row = np.repeat(np.arange(len(begin)), matches)
    return row, np.arange(len(row)) + np.repeat(begin - (np.cumsum(matches) - matches), matches)


def _with_pairs(histories: Histories) -> Int64s:
    if not len(histories):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.maximum.reduceat(histories.pairs, histories.first) > 0)


def groups_of(codes: Mapping[str, Int64s], rows: int) -> tuple[Int64s, dict[str, Int64s]]:
    """The group that each row is in, and the groups' keys."""
    if not codes:
        return np.zeros(rows, dtype=np.int64), {}
    one_of_each, group = _distinct(combined(list(codes.values()), rows))
    return group, {name: column[one_of_each] for name, column in codes.items()}


def _distinct(ids: Int64s) -> tuple[Int64s, Int64s]:
    """A place of each distinct number (−1 …), in ascending order of these, and each number's place among them."""
    most = int(ids.max(initial=-1))
    if most >= SPREAD * len(ids):
        _, one_of_each, place = np.unique(ids, return_index=True, return_inverse=True)
        return one_of_each, place
    at = np.full(most + 2, -1, dtype=np.int64)
    at[ids] = np.arange(len(ids))  # −1 is the last entry
    found = np.flatnonzero(np.roll(at, 1) >= 0) - 1
    one_of_each = at[found]
    at[found] = np.arange(len(found))
    return one_of_each, at[ids]


def combined(keys: Sequence[Int64s], rows: int) -> Int64s:
    """A number per row: rows have the same one iff all their codes (−1 …) are equal."""
    if not keys:
        return np.zeros(rows, dtype=np.int64)
    ids = keys[0]
    for key in keys[1:]:
        _, dense = _distinct(ids)
        ids = dense * (int(key.max(initial=0)) + 2) + key + 1
    return ids


def _refuse_overflow(
    factors: Sequence[Int64s], products: int, rough_totals: Callable[[], npt.NDArray[np.float64]]
) -> None:
    """Raise if so many of the factors' products, or their sums, are beyond 64 bits."""
    bound = float(products)
    for factor in factors:
        bound *= float(factor.max(initial=0))
    if bound < SAFE:
        return
    most = float(rough_totals().max(initial=0.0))
    if most >= INT64_LIMIT:
        raise OverflowError(f"an integer total of about {most:.3g} does not fit into 64 bits")
