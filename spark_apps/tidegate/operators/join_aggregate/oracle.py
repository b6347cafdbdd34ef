"""Join-aggregates by definition, to test against: every combination of tuples of every window, one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from functools import reduce
from itertools import product
from typing import Any

import pyarrow as pa

from tidegate.aggregates.accumulators import LEAST
from tidegate.operators.expressions import truth
from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.schedule import Schedule


def answers(spec: Spec, schedule: Schedule, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The partial answers that the operator owes, in any order, from rows like those of its batches."""
    result = []
    for window in range(len(schedule)):
        contents = [
            [
                row
                for row in rows
                if row["side"] == index
                and row["arrival_us"] <= schedule.emit_us[window]
                and schedule.lower_us[side.alias][window] <= row["event_us"] < schedule.window_end_us[window]
            ]
            for index, side in enumerate(spec.sides)
        ]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for combination in product(*contents):
            joined = _join(spec, combination)
            if joined is not None:
                groups.setdefault(tuple(joined[name] for name in spec.groups), []).append(joined)
        for group, members in groups.items():
            row = {"window_index": window, **dict(zip(spec.groups, group, strict=True)), "pairs": len(members)}
            for measure in spec.aggregates:
                values = [m[measure.slot] for m in members if measure.alias is None or m[measure.slot] is not None]
                row[f"{measure.slot}_count"] = len(values)
                if measure.sums:
                    row[f"{measure.slot}_sum"] = _total(values) if values else None
                if measure.extreme is not None:
                    best = min if measure.extreme is LEAST else max
                    row[f"{measure.slot}_{measure.extreme.name}"] = best(values) if values else None
            result.append(row)
    return result


def _total(values: Sequence[Any]) -> Any:
    if all(isinstance(value, Decimal) for value in values):
        return reduce(Context(prec=200).add, values)
    return sum(values) if all(isinstance(value, int) for value in values) else math.fsum(values)


def _join(spec: Spec, combination: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The combined tuple, or None if two sides disagree on a class or a key is NULL."""
    joined: dict[str, Any] = {measure.slot: None for measure in spec.aggregates}
    for side, row in zip(spec.sides, combination, strict=True):
        for name in side.classes:
            if row[name] is None or (name in joined and joined[name] != row[name]):
                return None
            joined[name] = row[name]
        joined.update({name: row[name] for name in side.groups})
        joined.update({measure.slot: row[measure.slot] for measure in spec.measures_of(side.alias)})
    joined.update({group: joined[name] for group, name in spec.class_groups})
    compared = {name: row[name] for side, row in zip(spec.sides, combination, strict=True) for name in side.compared}
    if spec.conditions:
        schema = pa.schema([spec.columns.field(name) for name in compared])
        rows = pa.Table.from_pylist([compared], schema=schema)
        if not all(truth(condition, rows).all() for condition in spec.conditions):
            return None
    return joined
