"""Top-k by definition, to test against: every window sorted as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key, partial
from typing import Any

from tidegate.operators.schedule import Schedule
from tidegate.operators.top_k.spec import Spec


def answers(spec: Spec, schedule: Schedule, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers that the operator owes, in its order, from rows like those of its batches."""
    result = []
    for window in range(len(schedule)):
        contents = [
            row
            for row in rows
            if row["arrival_us"] <= schedule.emit_us[window]
            and schedule.lower_us[spec.alias][window] <= row["event_us"] < schedule.window_end_us[window]
        ]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in sorted(contents, key=cmp_to_key(partial(_compare, spec))):
            groups.setdefault(tuple(row[name] for name in spec.groups), []).append(row)
        for group in sorted(groups, key=_nulls_first):
            best = groups[group][: spec.k]
            result += [{"window_index": window, "rank": rank, **row} for rank, row in enumerate(best, start=1)]
    return result


def _nulls_first(group: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    values = (value.encode() if isinstance(value, str) else value for value in group)
    return [() if value is None else (value,) for value in values]


def _compare(spec: Spec, a: dict[str, Any], b: dict[str, Any]) -> int:
    """Negative if a comes first."""
    for term in spec.order:
        left, right = a[term.slot], b[term.slot]
        if left is None or right is None:
            if left is not right:
                return 1 if left is None else -1
            continue
        # NaN equals NaN and is the largest number.
        left, right = ((value != value, 0 if value != value else value) for value in (left, right))
        if left != right:
            return -1 if (left < right) != term.descending else 1
    left, right = ((row["event_us"], row["event_id"].encode()) for row in (a, b))
    return -1 if left < right else int(left > right)
