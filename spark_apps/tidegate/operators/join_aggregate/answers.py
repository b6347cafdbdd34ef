"""From the sides' histories to the partial answers: which join comes first, and the rows that are owed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa

from tidegate.aggregates.exact import as_lists, totals
from tidegate.operators.codes import NULL, decode
from tidegate.operators.join_aggregate.conditions import Conditions
from tidegate.operators.join_aggregate.histories import NULLS, Histories
from tidegate.operators.join_aggregate.joins import joined, product
from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.join_aggregate.tuples import Books
from tidegate.operators.join_aggregate.values import OfValues
from tidegate.operators.schedule import Int64s
from tidegate.values.ordered import from_ordered_integers, orders_as_integers


def joined_all(spec: Spec, families: Sequence[Sequence[Histories]], books: Books) -> Histories:
    """Join the sides, those with the same keys first, then two relations at a time until one is left.

    A class that no other relation has is summed away with each join. Of the relations that share a class those are
    joined that leave the fewest keys, so that chains and stars need no more than the totals per key. What conditions
    compare stays until the last of them has been looked at.
    """
    conditions = Conditions.of(spec, books)
    kinds = {m.slot: m.extreme for m in spec.aggregates if m.extreme is not None}
    relations: list[Histories] = []

    def kept(names: Iterable[str], others: Iterable[Iterable[str]]) -> list[str]:
        names = list(dict.fromkeys(names))
        needed = {*spec.group_keys.values(), *spec.value_slots, *(name for other in others for name in other)}
        needed |= conditions.awaited(names)
        return [name for name in names if name in needed]

    for place, family in enumerate(families):
        others = [other[0].keys for i, other in enumerate(families) if i != place]
        relations.append(product(family, kept(family[0].keys, others), kinds))
    while len(relations) > 1:
        choices = []
        for (i, left), (k, right) in combinations(enumerate(relations), 2):
            rest = [relation for place, relation in enumerate(relations) if place not in (i, k)]
            keep = kept([*left.keys, *right.keys], [relation.keys for relation in rest])
            on = [name for name in right.keys if name in left.keys]
            choices.append(((not on, len(keep), len(left) + len(right), i, k), (left, right, on, keep), rest))
        _, chosen, rest = min(choices, key=lambda choice: choice[0])
        meets = conditions.between(chosen[0].keys, chosen[1].keys)
        relations = [joined(*chosen, kinds, meets), *rest]
    return relations[0]


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
    by_value = histories
    if spec.value_slots:
        kinds = {m.slot: m.extreme for m in spec.aggregates if m.extreme is not None}
        histories = product([histories], list(dict.fromkeys(spec.group_keys.values())), kinds)
    row, window, owner = _rows_of_answers(spec, histories, books)
    columns: dict[str, pa.Array] = {"window_index": pa.array(windows[window])}
    for slot, key in spec.group_keys.items():
        columns[slot] = decode(histories.keys[key][owner], books[key].values)
    pairs = histories.pairs[row]
    columns["pairs"] = pa.array(pairs)
    used = np.flatnonzero(histories.pairs)
    place_of = (np.cumsum(histories.pairs != 0) - 1)[row]
    for measure in spec.aggregates:
        slot, kind = measure.slot, spec.output_schema
        if measure.alias is None:
            columns[f"{slot}_count"] = columns["pairs"]
            continue
        nulls = histories.parts.get((slot, NULLS))
        counts = histories.pairs[used] if nulls is None else histories.pairs[used] - nulls[used]
        columns[f"{slot}_count"] = pa.array(counts[place_of])
        none = (counts == 0)[place_of]
        for name, total in measure.sums:
            parts = {part: column[used] for (key, part), column in histories.parts.items() if key == name}
            if spec.in_parts or not total.rounded:
                columns[name] = as_lists(parts, len(used)).take(pa.array(place_of))
                continue
            sums = totals(parts, len(used), spec.sum_type(slot), counts == 0)
            columns[name] = sums.take(pa.array(place_of))
        if measure.by_value:
            own = OfValues(spec, measure, by_value, books[slot].values, histories, window, owner)
            if slot in spec.listed_slots:
                columns |= own.lists(orders[slot])
            elif measure.called.of_ranks:
                columns |= own.ranked(orders[slot], counts[place_of])
            else:
                columns |= own.distinct()
        if measure.extreme is not None:
            name = f"{slot}_{measure.extreme.name}"
            values = histories.extremes[slot][row]
            if orders_as_integers(kind.field(name).type):
                columns[name] = from_ordered_integers(np.where(none, 0, values), kind.field(name).type, none)
            else:
                code_of = np.append(np.argsort(orders[slot]), NULL)
                columns[name] = decode(code_of[np.where(none, NULL, values)], books[slot].values)
    return pa.table(columns, schema=spec.output_schema)


def _rows_of_answers(spec: Spec, histories: Histories, books: Books) -> tuple[Int64s, Int64s, Int64s]:
    """For each answer its row, window and history, by window and then group."""
    order = _in_order_of_groups(spec, histories, books)
    row, owner = histories.rows_of(order)
    lengths = np.where(histories.pairs == 0, 0, histories.lasting)[row]
    row, owner = np.repeat(row, lengths), np.repeat(order[owner], lengths)
    window = histories.window[row] + np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    if len(histories) > 1:
        # Numbers of 16 bits are sorted by counting.
        narrow = np.uint16 if histories.windows <= 1 << 16 else np.int64
        by_window = np.argsort(window.astype(narrow), kind="stable")
        row, window, owner = row[by_window], window[by_window], owner[by_window]
    return row, window, owner


def _in_order_of_groups(spec: Spec, histories: Histories, books: Books) -> Int64s:
    """The histories in the order of the groups' values, NULL last."""
    if len(histories) == 1:
        return np.zeros(1, dtype=np.int64)
    ranks = []
    for key in spec.group_keys.values():
        book, codes = books[key].keeping(histories.keys[key])
        ranks.append(np.append(book.ranks(), len(book))[codes[histories.keys[key]]])
    return np.lexsort(tuple(reversed(ranks))) if ranks else np.arange(len(histories))
