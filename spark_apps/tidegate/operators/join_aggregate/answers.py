"""From the sides' histories to the partial answers: which join comes first, and the rows that are owed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tidegate.operators.codes import NULL, decode
from tidegate.operators.join_aggregate.codebook import from_ordered_integers, orders_as_integers
from tidegate.operators.join_aggregate.exact import integers, rounded
from tidegate.operators.join_aggregate.histories import NULLS, Histories, joined, product
from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.join_aggregate.tuples import Books
from tidegate.operators.schedule import Int64s


def joined_all(spec: Spec, families: Sequence[Sequence[Histories]]) -> Histories:
    """Join the sides, those with the same keys first, then family by family, each next one connected if possible.

    A class that no later family has is summed away with each join, so that chains and stars need no more than the
    totals per key.
    """
    functions = {measure.slot: measure.function for measure in spec.aggregates}

    def kept(names: Iterable[str], later: Iterable[Sequence[Histories]]) -> list[str]:
        needed = {*spec.groups, *(name for family in later for name in family[0].keys)}
        return [name for name in names if name in needed]

    left = list(families[1:])
    result = product(families[0], kept(families[0][0].keys, left), functions)
    while left:
        place = next((i for i, family in enumerate(left) if any(name in result.keys for name in family[0].keys)), 0)
        family = left.pop(place)
        following = product(family, kept(family[0].keys, [[result], *left]), functions)
        on = [name for name in following.keys if name in result.keys]
        keep = kept(dict.fromkeys([*result.keys, *following.keys]), left)
        result = joined(result, following, on, keep, functions)
    return result


def answer_rows(
    spec: Spec, histories: Histories, windows: Int64s, books: Books, orders: Mapping[str, Int64s]
) -> pa.Table:
    """A row per window and group that has pairs, ascending by window and group (NULL last).

    Args:
        spec: the query.
        histories: per combination of its groups.
        windows: each window's place in the schedule.
        books: slot → its values.
        orders: slot → rank of each code's value, for extremes that have a codebook.
    """
    lengths = np.diff(histories.window, append=histories.windows)
    ends = histories.first[1:] - 1
    lengths[ends] = histories.windows - histories.window[ends]
    lengths[histories.pairs == 0] = 0
    row = np.repeat(np.arange(len(lengths)), lengths)
    window = histories.window[row] + np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    owner = np.repeat(np.arange(len(histories)), np.diff(histories.first, append=len(histories.window)))[row]
    if len(histories) > 1:
        place = _places(spec, histories, books)
        order = np.argsort(window * len(histories) + place[owner])
        row, window, owner = row[order], window[order], owner[order]
    columns: dict[str, pa.Array] = {"window_index": pa.array(windows[window])}
    for slot in spec.groups:
        columns[slot] = decode(histories.keys[slot][owner], books[slot].values)
    used, place_of = np.unique(row, return_inverse=True)
    columns["pairs"] = pa.array(histories.pairs[row])
    for measure in spec.aggregates:
        slot, kind = measure.slot, spec.output_schema
        parts = {part: column[used] for (name, part), column in histories.parts.items() if name == slot}
        counts = histories.pairs[used] - parts.pop(NULLS, 0)
        columns[f"{slot}_count"] = pa.array(counts[place_of])
        none = (counts == 0)[place_of]
        if measure.function in ("sum", "avg"):
            whole = pa.types.is_integer(spec.sum_type(slot))
            sums = integers(parts, len(used)) if whole else rounded(parts, len(used))
            columns[f"{slot}_sum"] = pa.array(sums[place_of], mask=none)
        elif measure.function in ("min", "max"):
            name = f"{slot}_{measure.function}"
            values = histories.extremes[slot][row]
            if orders_as_integers(kind.field(name).type):
                columns[name] = from_ordered_integers(np.where(none, 0, values), kind.field(name).type, none)
            else:
                code_of = np.append(np.argsort(orders[slot]), NULL)
                columns[name] = decode(code_of[np.where(none, NULL, values)], books[slot].values)
    return pa.table(columns, schema=spec.output_schema)


def _places(spec: Spec, histories: Histories, books: Books) -> Int64s:
    """Each history's place in the order of the groups' values, NULL last."""
    ranks = []
    for slot in spec.groups:
        book, codes = books[slot].keeping(histories.keys[slot])
        ranks.append(np.append(book.ranks(), len(book))[codes[histories.keys[slot]]])
    order = np.lexsort(tuple(reversed(ranks)))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place
