"""Joins of two sides that have few tuples with the same key: by the pairs themselves, without totals per key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.operators.join_aggregate.chains import Bounds
from tidegate.operators.join_aggregate.conditions import Conditions, Meets
from tidegate.operators.join_aggregate.flows import Flow
from tidegate.operators.join_aggregate.held import Held
from tidegate.operators.join_aggregate.histories import Histories
from tidegate.operators.join_aggregate.joins import combined, groups_of, matched
from tidegate.operators.join_aggregate.rows import extreme_over, rows_for
from tidegate.operators.join_aggregate.running import Orders, Running, Totals
from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.join_aggregate.tuples import AllCombinations, Books, Tuples, side_slots, together
from tidegate.operators.schedule import Int64s

PAIRS_PER_TUPLE = 1
"""Of more pairs for each tuple in view the totals per key cost less: 0.5 took half their time, 2 took 1.4 times it."""


@dataclass(frozen=True, eq=False)
class _InView:
    """A side's tuples that windows of a block see.

    ``codes``: slot → int64[n]. ``enter``, ``leave``: int64[n], the first window that sees each, and the first that no
    longer does.
    """

    tuples: Tuples
    codes: dict[str, Int64s]
    enter: Int64s
    leave: Int64s

    def __len__(self) -> int:
        return len(self.enter)


def joined_by_pairs(
    spec: Spec, sides: Sequence[Held], bounds: Bounds, books: Books, combinations: AllCombinations, orders: Orders
) -> Histories | None:
    """What ``joins`` makes of the sides' histories, for each combination of the groups' keys; None if pairs are many.

    **Idea.** Where a key is an order's number, it has a tuple or two a side: a total per key, and a history of it, is
    most of the work, and what is left after the join are few groups. So the tuples in view are matched for each block
    anew, and each pair comes where both its tuples have come and goes where the first of them goes.

    Args:
        spec: the query; only of two sides with a class in common is there an answer.
        sides: the tuples held.
        bounds: the block's windows, as those of a new chain.
        books, combinations: what the tuples' codes stand for.
        orders: slot → rank of each code's value, for extremes that have a codebook.

    **Cost**: O(tuples in view + pairs) and a sort of one side. **Guarantee**: exact, as ``through_block`` is.
    """
    on = [name for name in spec.sides[0].classes if name in spec.sides[-1].classes]
    if len(spec.sides) != 2 or not on:
        return None
    if any(part.weight is not None for side in sides for part in side.parts):
        return None
    keys = math.prod(max(len(books[name]), 1) for name in on)
    held = [len(side) for side in sides]
    # So many pairs there would be if all keys came equally often: then nothing is looked at for it.
    if held[0] * held[1] > PAIRS_PER_TUPLE * sum(held) * keys:
        return None
    left, right = (_in_view(spec, side, own, bounds, combinations) for side, own in enumerate(sides))
    meets = Conditions.of(spec, books).between(left.codes, right.codes)
    matching = _matching(left, right, on, meets)
    return None if matching is None else _histories(spec, bounds, (left, right), matching, orders)


def _in_view(spec: Spec, side: int, held: Held, bounds: Bounds, combinations: AllCombinations) -> _InView:
    slots, parts, enters, leaves = side_slots(spec, side), [], [], []
    for part in held.parts:
        if part.earliest_us >= bounds.end_us[-1]:
            continue
        enter, leave = bounds.entered(part), bounds.left(side, part)
        seen = (enter < leave) & (enter < len(bounds))
        rows: Any = slice(None) if seen.all() else np.flatnonzero(seen)
        parts.append(part[rows])
        enters.append(enter[rows])
        leaves.append(leave[rows])
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        values = {m.slot: nothing for m in spec.measures_of(spec.sides[side].alias) if m.stored}
        return _InView(Tuples(nothing, nothing, nothing, values), dict.fromkeys(slots, nothing), nothing, nothing)
    every = together(parts)
    codes = combinations[slots].slot_codes(every.code)
    return _InView(every, codes, np.concatenate(enters), np.concatenate(leaves))


def _matching(left: _InView, right: _InView, on: Sequence[str], meets: Meets | None) -> tuple[Int64s, Int64s] | None:
    """The tuples of each side that make the pairs which some window sees; None if too many have equal keys.

    ``meets``: of those which count; None: all.
    """
    rows = len(left) + len(right)
    ids = combined([np.concatenate([left.codes[name], right.codes[name]]) for name in on], rows)
    left_ids, right_ids = ids[: len(left)], ids[len(left) :]
    number = np.bincount(right_ids, minlength=int(ids.max(initial=-1)) + 1)
    matches = number[left_ids]
    if int(matches.sum()) > PAIRS_PER_TUPLE * rows:
        return None
    from_left, place = matched((np.cumsum(number) - number)[left_ids], matches)
    from_right = np.argsort(right_ids)[place]
    met = np.maximum(left.enter[from_left], right.enter[from_right]) < np.minimum(
        left.leave[from_left], right.leave[from_right]
    )
    from_left, from_right = from_left[met], from_right[met]
    if meets is not None:
        codes = {name: column[from_left] for name, column in left.codes.items()}
        met = meets(codes | {name: column[from_right] for name, column in right.codes.items()})
        from_left, from_right = from_left[met], from_right[met]
    return from_left, from_right


def _histories(
    spec: Spec, bounds: Bounds, sides: tuple[_InView, _InView], matching: tuple[Int64s, Int64s], orders: Orders
) -> Histories:
    """The pairs' totals by group, through the windows."""
    windows, pairs = len(bounds), len(matching[0])
    enter = np.maximum(*(side.enter[rows] for side, rows in zip(sides, matching, strict=True)))
    leave = np.minimum(*(side.leave[rows] for side, rows in zip(sides, matching, strict=True)))
    codes = {}
    for name in dict.fromkeys([*spec.group_keys.values(), *spec.value_slots]):
        side = 0 if name in sides[0].codes else 1
        codes[name] = sides[side].codes[name][matching[side]]
    group, keys = groups_of(codes, pairs)
    groups = len(next(iter(keys.values()))) if keys else 1
    values: dict[Any, Any] = {}
    nulls: dict[str, Any] = {}
    measures = [measure for measure in spec.aggregates if measure.alias is not None]
    for in_view, rows in zip(sides, matching, strict=True):
        values |= _taken(in_view.tuples.values, rows)
        nulls |= _taken(in_view.tuples.nulls, rows)
    goes = np.flatnonzero(leave < windows)
    nothing = np.zeros(0, dtype=np.int64)
    coming = Flow(group, enter, values, nulls, nothing)
    going = Flow(group[goes], leave[goes], _taken(values, goes), _taken(nulls, goes), nothing)
    marks = [flow.code * windows + flow.window for flow in (coming, going)]
    first, window, places = rows_for(marks, groups, windows)
    moving = coming, going, Flow.of([], measures)
    totals, parts, _ = Totals(first, len(window), moving, (places[0], places[1])).of(measures, Running())
    begin, stop = places[0], np.append(first[1:], len(window))[group]
    stop[goes] = places[1]
    extremes = {}
    for measure in measures:
        if measure.extreme is not None:
            slot = measure.slot
            known: Any = ~nulls[slot] if slot in nulls else slice(None)
            value = values[slot][known]
            if slot in orders:  # of the NULLs, left out by now, there is no rank
                value = orders[slot][value]
            extremes[slot] = extreme_over(measure.extreme, begin[known], stop[known], value, len(window))
    return Histories(windows, keys, first, window, totals, parts, extremes)


def _taken(columns: Mapping[Any, Any], rows: Int64s) -> dict[Any, Any]:
    return {slot: column[rows] for slot, column in columns.items()}
