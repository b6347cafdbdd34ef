"""Accuracy by definition, to test against: plain loops over rows of Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Any

Row = dict[str, Any]


def hit_rate(answers: Sequence[Row], truth: Sequence[Row], windows: Sequence[Any]) -> list[float]:
    """Per window |answer ∩ truth| / |truth|; 1 where the truth is empty."""
    rates = []
    for window in windows:
        named = {row["event_id"] for row in answers if row["window_end"] == window}
        winners = {row["event_id"] for row in truth if row["window_end"] == window}
        rates.append(len(named & winners) / len(winners) if winners else 1.0)
    return rates


def relative_error(
    answers: Sequence[Row],
    truth: Sequence[Row],
    windows: Sequence[Any],
    groups: Sequence[str],
    values: Sequence[str],
    groups_within: Fraction = Fraction(1),
    least: Mapping[str, float] = MappingProxyType({}),
) -> list[float]:
    """Per window the ⌈share · n⌉-th smallest of the errors of its n groups; of all of them the largest.

    A group's is the largest relative error of any value. A missing or extra group counts 1; if all columns have a least
    number to which errors are relative, as one of zeros.
    """
    errors = []
    for window in windows:
        answered, true = (
            {tuple(row[name] for name in groups): row for row in rows if row["window_end"] == window}
            for rows in (answers, truth)
        )
        of_groups = []
        for group in answered.keys() | true.keys():
            both = group in answered and group in true
            if both or all(name in least for name in values):
                one, other = (rows.get(group, dict.fromkeys(values)) for rows in (answered, true))
                of_groups.append(max(_value_error(one[name], other[name], least.get(name)) for name in values))
            else:
                of_groups.append(1.0)
        rank = ceil(groups_within * len(of_groups))
        errors.append(sorted(of_groups)[rank - 1] if of_groups else 0.0)
    return errors


def needed_slack_on_grid(errors: Sequence[float], grid_s: Sequence[float], tolerated: float) -> float:
    """The least K of the grid such that for it and all larger ones the error is tolerated; else the largest."""
    for position, slack_s in enumerate(grid_s):
        if all(error <= tolerated for error in errors[position:]):
            return slack_s
    return grid_s[-1]


def least_covering(needed_s: Sequence[float], hits: int) -> int:
    """The least whole number of seconds that covers so many of the needed slacks."""
    slack_s = 0
    while sum(needed <= slack_s for needed in needed_s) < hits:
        slack_s += 1
    return slack_s


def _value_error(answer: Any, true: Any, least: float | None = None) -> float:
    if least is not None:
        return float(abs((answer or 0) - (true or 0)) / max(abs(true or 0), least))
    if answer == true or (answer != answer and true != true):
        return 0.0
    if answer is None or true is None or isinstance(true, str) or true == 0:
        return 1.0
    error = float(abs(answer - true) / abs(true))
    return 1.0 if error != error else error
