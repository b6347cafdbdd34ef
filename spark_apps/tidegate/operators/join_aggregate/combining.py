"""Partial answers of hash partitions put together without rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.aggregates.accumulators import VALUES, Extreme, value_lists
from tidegate.aggregates.exact import as_lists, from_lists, totals
from tidegate.operators.arrivals import int64s
from tidegate.operators.codes import encode, runs
from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.join_aggregate.values import distinct_of, ranked_of
from tidegate.operators.schedule import Int64s
from tidegate.values.ordered import as_ordered_integers, from_ordered_integers, orders_as_integers


def combined(spec: Spec, partials: pa.Table) -> pa.Table:
    """The answers that the partial answers of disjoint hash partitions make together.

    Args:
        spec: the query, ``in_parts``.
        partials: rows of ``spec.output_schema`` of all partitions that answered these windows, in any order.

    Returns:
        Rows of the output schema with sums rounded once, ascending by window.

    **Cost**: O(rows · parts of a sum).
    **Guarantee**: the bytes of one partition's answers, however many there were.

    >>> from tidegate.operators.join_aggregate import Measure, Side, Spec
    >>> spec = Spec((Side("d"),), (Measure("a0", "sum", "d"),), pa.schema([("a0", pa.float64())]), in_parts=True)
    >>> part = {"window_index": [0], "pairs": [1], "a0_count": [1]}
    >>> sums = [[{"exponent": 0, "units": 2**53}], [{"exponent": 0, "units": 1}], [{"exponent": 0, "units": 1}]]
    >>> rows = [pa.table({**part, "a0_sum": [units]}, schema=spec.output_schema) for units in sums]
    >>> combined(spec, pa.concat_tables(rows))["a0_sum"].to_pylist()  # 2^53 + 1 is no double, 2^53 + 2 is one
    [9007199254740994.0]
    """
    keys = ["window_index", *spec.groups]
    rows = partials.append_column("_row", pa.array(np.arange(len(partials))))
    grouped = rows.group_by(keys, use_threads=False).aggregate([("_row", "list"), ("pairs", "sum")])
    group = np.empty(len(partials), dtype=np.int64)
    members = _one(grouped.column("_row_list"))
    group[int64s(members.flatten())] = np.repeat(np.arange(len(grouped)), np.diff(members.offsets.to_numpy()))
    output = replace(spec, in_parts=False).output_schema
    columns = {name: grouped.column(name) for name in keys}
    columns["pairs"] = grouped.column("pairs_sum")
    for measure in spec.aggregates:
        name = f"{measure.slot}_count"
        counts = np.zeros(len(grouped), dtype=np.int64)
        np.add.at(counts, group, int64s(partials.column(name)))
        columns[name] = pa.array(counts)
        for name, total in measure.sums:
            parts = from_lists(_one(partials.column(name)), group, len(grouped))
            columns[name] = (
                totals(parts, len(grouped), spec.sum_type(measure.slot), counts == 0)
                if total.rounded
                else as_lists(parts, len(grouped))
            )
        if measure.by_value:
            name = f"{measure.slot}_{VALUES}"
            merged = _merged(_one(partials.column(name)), group, len(grouped))
            if measure.called.is_listed:
                columns[name] = merged
            elif measure.called.of_ranks:
                columns |= ranked_of(measure, merged, counts)
            else:
                columns |= distinct_of(spec, measure, merged, len(grouped))
        if measure.extreme is not None:
            name = f"{measure.slot}_{measure.extreme.name}"
            columns[name] = _extreme(measure.extreme, _one(partials.column(name)), group, counts == 0)
    table = pa.table([columns[f.name] for f in output], schema=output)
    return table.take(np.argsort(int64s(table.column("window_index")), kind="stable"))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _merged(lists: pa.Array, group: Int64s, groups: int) -> pa.Array:
    """The values of each group in ascending order, and how many there are of each."""
    owner = np.repeat(group, pc.fill_null(pc.list_value_length(lists), 0).to_numpy())
    pairs = lists.flatten()
    code, values = encode(pa.chunked_array([pairs.field("value")]))
    order, first, _ = runs([owner, code], len(owner))
    numbers = int64s(pairs.field("number"))[order]
    numbers = np.add.reduceat(numbers, first) if len(first) else numbers
    return value_lists(owner[order][first], groups, values.take(pa.array(code[order][first])), numbers)


def _extreme(extreme: Extreme, column: pa.Array, group: Int64s, none: np.ndarray) -> pa.Array:
    if orders_as_integers(column.type):
        some = column.is_valid().to_numpy(zero_copy_only=False)
        keys = as_ordered_integers(column)
        best = np.full(len(none), extreme.absent, dtype=np.int64)
        extreme.pick.at(best, group[some], keys[some])
        return from_ordered_integers(np.where(none, 0, best), column.type, none)
    table = pa.table({"group": group, "value": column}).group_by("group", use_threads=False)
    found = table.aggregate([("value", extreme.name)]).sort_by("group")
    return _one(found.column(f"value_{extreme.name}"))
