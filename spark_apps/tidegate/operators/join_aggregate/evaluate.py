"""One window's partial answers, from per-key totals of its sides.

Values of any type are first replaced by codes that order as the values do; from there on it is integer arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.operators.codes import NULL, decode, encode, group_ids, runs
from tidegate.operators.join_aggregate.spec import Measure, Spec
from tidegate.operators.schedule import Int64s

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]
SomeNumbers = TypeVar("SomeNumbers", npt.NDArray[np.int64], npt.NDArray[np.float64])
NO_MINIMUM = int(np.iinfo(np.int64).max)
NO_MAXIMUM = -1
INT64_LIMIT = 2.0**63


@dataclass
class Totals:
    """What is known per combination of key codes.

    ``keys``: slot → code per row. ``pairs``: how many combinations of tuples the row stands for. ``counts``: measure →
    in how many of them its value is not NULL. ``values``: measure → their sum, or the code of their extreme.
    """

    keys: dict[str, Int64s]
    pairs: Int64s
    counts: dict[str, Int64s] = field(default_factory=dict)
    values: dict[str, Numbers] = field(default_factory=dict)


def evaluate(spec: Spec, window: int, contents: Sequence[pa.Table]) -> pa.Table:
    """The partial answers of one window.

    Args:
        spec: the query.
        window: its index in the schedule.
        contents: per side the tuples in the window, with the columns of ``spec.side_schema``; no NULL join keys.

    Returns:
        Rows of ``spec.output_schema``, ascending by group.
    """
    if any(table.num_rows == 0 for table in contents):
        return spec.output_schema.empty_table()
    functions = {measure.slot: measure.function for measure in spec.aggregates}
    dictionaries: dict[str, pa.Array] = {}
    sides = [Totals({}, np.ones(table.num_rows, dtype=np.int64)) for table in contents]
    for slot in (*spec.classes, *spec.groups):
        owners = [i for i, side in enumerate(spec.sides) if slot in side.classes or slot in side.groups]
        chunks = [chunk for i in owners for chunk in contents[i].column(slot).chunks]
        codes, dictionaries[slot] = encode(pa.chunked_array(chunks, type=contents[owners[0]].column(slot).type))
        cuts = np.cumsum([contents[i].num_rows for i in owners])[:-1]
        for owner, part in zip(owners, np.split(codes, cuts), strict=True):
            sides[owner].keys[slot] = part
    for side, total, table in zip(spec.sides, sides, contents, strict=True):
        for measure in spec.measures_of(side.alias):
            _add_measure(total, measure, table.column(measure.slot), spec, dictionaries)
    joined = _join_all(spec, sides, functions)
    return _decode(spec, window, joined, dictionaries)


def _add_measure(
    totals: Totals, measure: Measure, column: pa.ChunkedArray, spec: Spec, dictionaries: dict[str, pa.Array]
) -> None:
    slot = measure.slot
    totals.counts[slot] = column.is_valid().to_numpy().astype(np.int64)
    if measure.function in ("sum", "avg"):
        kind = spec.sum_type(slot)
        totals.values[slot] = column.cast(kind).fill_null(0).to_numpy()
    elif measure.function in ("min", "max"):
        codes, dictionaries[slot] = encode(column)
        absent = NO_MINIMUM if measure.function == "min" else NO_MAXIMUM
        totals.values[slot] = np.where(codes == NULL, absent, codes)


def _join_all(spec: Spec, sides: list[Totals], functions: Mapping[str, str]) -> Totals:
    """Join the sides one by one, each next one connected if possible, summing away what nobody needs any more.

    The order depends on the spec alone, never on the data: products of doubles round the same way in every run.
    """
    left = list(range(1, len(sides)))
    joined = _summed(sides[0], _kept(spec, sides[0], [spec.sides[i].classes for i in left]), functions)
    while left:
        chosen = next((i for i in left if any(name in joined.keys for name in spec.sides[i].classes)), left[0])
        left.remove(chosen)
        later = [spec.sides[i].classes for i in left]
        side = _summed(sides[chosen], _kept(spec, sides[chosen], [*later, tuple(joined.keys)]), functions)
        joined = _joined(joined, side, [name for name in spec.sides[chosen].classes if name in joined.keys], functions)
        joined = _summed(joined, _kept(spec, joined, later), functions)
    return joined


def _kept(spec: Spec, totals: Totals, others: Sequence[tuple[str, ...]]) -> list[str]:
    """The keys that are still needed: groups, and classes that another side has too."""
    return [name for name in totals.keys if name in spec.groups or any(name in other for other in others)]


def _summed(totals: Totals, keys: Sequence[str], functions: Mapping[str, str]) -> Totals:
    """The totals per combination of the keys; sums of doubles are formed in ascending order of value."""
    rows = len(totals.pairs)
    if rows == 0:
        return Totals(
            {name: totals.keys[name] for name in keys}, totals.pairs, dict(totals.counts), dict(totals.values)
        )
    order, first, ids = runs([totals.keys[name] for name in keys], rows)
    summed = Totals({name: totals.keys[name][order][first] for name in keys}, _added(totals.pairs[order], first))
    for slot, counts in totals.counts.items():
        summed.counts[slot] = _added(counts[order], first)
    for slot, values in totals.values.items():
        ordered = values[order]
        if functions[slot] == "min":
            summed.values[slot] = np.minimum.reduceat(ordered, first)
        elif functions[slot] == "max":
            summed.values[slot] = np.maximum.reduceat(ordered, first)
        elif ordered.dtype == np.int64:
            summed.values[slot] = _added(ordered.astype(np.int64, copy=False), first)
        else:
            # Groups are runs already, so sorting by (group, value) leaves each group where it is.
            summed.values[slot] = np.add.reduceat(ordered[np.lexsort((ordered, ids))], first)
    return summed


def _joined(left: Totals, right: Totals, on: Sequence[str], functions: Mapping[str, str]) -> Totals:
    """All combinations of rows that agree on the classes ``on``; the cross product if there are none."""
    split = len(left.pairs)
    rows = split + len(right.pairs)
    ids = group_ids([np.concatenate([left.keys[name], right.keys[name]]) for name in on], rows)
    left_ids, right_ids = ids[:split], ids[split:]
    right_order = np.argsort(right_ids, kind="stable")
    first = np.searchsorted(right_ids[right_order], left_ids, side="left")
    matches = np.searchsorted(right_ids[right_order], left_ids, side="right") - first
    from_left = np.repeat(np.arange(split), matches)
    offset = np.arange(len(from_left)) - np.repeat(np.cumsum(matches) - matches, matches)
    from_right = right_order[np.repeat(first, matches) + offset]

    joined = Totals(
        {name: codes[from_left] for name, codes in left.keys.items()}
        | {name: codes[from_right] for name, codes in right.keys.items() if name not in left.keys},
        _multiplied(left.pairs[from_left], right.pairs[from_right]),
    )
    for own, rows_of_own, other_pairs in (
        (left, from_left, right.pairs[from_right]),
        (right, from_right, left.pairs[from_left]),
    ):
        for slot, counts in own.counts.items():
            joined.counts[slot] = _multiplied(counts[rows_of_own], other_pairs)
        for slot, values in own.values.items():
            matched: Any = values[rows_of_own]
            extreme = functions[slot] in ("min", "max")
            joined.values[slot] = matched if extreme else _multiplied(matched, other_pairs)
    return joined


def _multiplied(values: SomeNumbers, pairs: Int64s) -> SomeNumbers:
    product: SomeNumbers = values * pairs
    if product.dtype == np.int64:
        _refuse_overflow(np.abs(values.astype(np.float64) * pairs))
    return product


def _added(values: SomeNumbers, first: Int64s) -> SomeNumbers:
    if len(values) and values.dtype == np.int64:
        _refuse_overflow(np.add.reduceat(np.abs(values.astype(np.float64)), first))
    added: SomeNumbers = np.add.reduceat(values, first)
    return added


def _refuse_overflow(magnitudes: npt.NDArray[np.float64]) -> None:
    if len(magnitudes) and magnitudes.max() >= INT64_LIMIT:
        raise OverflowError(f"an integer total of about {magnitudes.max():.3g} does not fit into 64 bits")


def _decode(spec: Spec, window: int, totals: Totals, dictionaries: dict[str, pa.Array]) -> pa.Table:
    rows = len(totals.pairs)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {"window_index": pa.array(np.full(rows, window, dtype=np.int64))}
    # NULL sorts last: its code becomes the largest.
    ranks = [np.where(totals.keys[slot] == NULL, NO_MINIMUM, totals.keys[slot]) for slot in spec.groups]
    order = np.lexsort(tuple(reversed(ranks))) if ranks else np.arange(rows)
    for slot in spec.groups:
        columns[slot] = decode(totals.keys[slot][order], dictionaries[slot])
    columns["pairs"] = pa.array(totals.pairs[order])
    for measure in spec.aggregates:
        slot = measure.slot
        counts = totals.pairs[order] if measure.alias is None else totals.counts[slot][order]
        columns[f"{slot}_count"] = pa.array(counts)
        if measure.function in ("sum", "avg"):
            columns[f"{slot}_sum"] = pa.array(totals.values[slot][order], mask=counts == 0)
        elif measure.function in ("min", "max"):
            codes = np.where(counts == 0, NULL, totals.values[slot][order])
            columns[f"{slot}_{measure.function}"] = decode(codes, dictionaries[slot])
    return pa.table(columns).cast(spec.output_schema)
