"""Why the slack K of a query goes up and down: what the report says beside its course."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tidegate.operators.accuracy.slack import Float64s
from tidegate.readable import duration

LOOKED_AT = pd.Timedelta(days=7)
_LEAST_RATIO = 2.0
"""By less than this K has not gone up and down in any way that matters."""
_MEMORY, _SWITCHED = "memory", "switched"
_WHY = {
    "alike": "K follows what past windows needed at the same time of the promise period and after delays like those of "
    "now; over the past periods answers waited less with it than with a steady K",
    "delays": "K follows how late all tuples are at the time, which has foretold what windows need",
    "periods": "what past periods needed has changed",
    "warm_up": "few periods are known yet, and each new one counts for much",
    _MEMORY: "memory does not always hold the windows that the K of the promise needs (slack_needed_s and bytes_needed "
    "of table slack_plan)",
    _SWITCHED: "the way K is chosen has changed (method of table slack_plan)",
}
_KIND = {
    "alike": "alike",
    "scaled": "delays",
    "changed": "delays",
    "all_delays": "delays",
    "winners": "periods",
    "periods": "periods",
    "warm_up": "warm_up",
    "initial": "warm_up",
    "carried": "warm_up",
    "memory": _MEMORY,
}


def swings_sentence(slacks: pd.DataFrame) -> str:
    """How often K went up and down of late, between which waits, and why; empty if it did not.

    Args:
        slacks: the query's rows of ``slack_plan``, by ``effective_from``.

    A change counts if it is more than half of what lies between the shortest and the longest K of the last week; one
    alone does not.

    >>> at = pd.date_range("2013-01-01", periods=6, freq="12h")
    >>> plan = pd.DataFrame({"effective_from": at, "slack_s": [0.0, 60.0] * 3, "method": ["alike"] * 6})
    >>> swings_sentence(plan.assign(slack_needed_s=plan["slack_s"])).partition(" Why:")[0]
    'In the last 7 days K was between 0 s and 1 min, and changed 5 times by more than half of that.'
    """
    if not len(slacks):
        return ""
    slacks = slacks[slacks["effective_from"] > slacks["effective_from"].max() - LOOKED_AT]
    slack_s = slacks["slack_s"].to_numpy(dtype=np.float64)
    least_s, most_s = float(slack_s.min()), float(slack_s.max())
    if most_s <= 0 or most_s < _LEAST_RATIO * least_s:
        return ""
    turns = turning_points(slack_s, (most_s - least_s) / 2)
    changes = list(zip(turns[:-1], turns[1:], strict=True))
    if len(changes) < 2:
        return ""
    wanted = slacks["slack_needed_s"].to_numpy(dtype=np.float64)
    wanted = np.where(np.isnan(wanted), slack_s, wanted)
    methods = slacks["method"].astype(str).tolist()
    reasons = Counter(_reason(slack_s, wanted, methods, *change) for change in changes)
    if len(reasons) == 1:
        why = _WHY[next(iter(reasons))]
    else:
        why = "; ".join(f"{count} times {_WHY[reason]}" for reason, count in reasons.most_common())
    return (
        f"In the last {LOOKED_AT.days} days K was between {duration(least_s)} and {duration(most_s)}, and changed "
        f"{len(changes)} times by more than half of that. Why: {why}."
    )


def turning_points(values: Float64s, least: float) -> list[int]:
    """The places between which values go up or down by more than ``least`` each time, without a way back of as much.

    >>> turning_points(np.array([1.0, 0.0, 4.0, 3.0, 9.0, 2.0, 2.0]), 5.0), turning_points(np.array([0.0, 5.0]), 5.0)
    ([1, 4, 5], [])
    """
    turns: list[int] = []
    low = high = 0
    rising: bool | None = None
    for place in range(1, len(values)):
        if values[place] > values[high]:
            high = place
        if values[place] < values[low]:
            low = place
        if rising is not True and values[place] - values[low] > least:
            turns, rising, high = [*turns, low], True, place
        elif rising is not False and values[high] - values[place] > least:
            turns, rising, low = [*turns, high], False, place
        elif rising is True and values[place] >= values[high]:
            low = place
        elif rising is False and values[place] <= values[low]:
            high = place
    return [*turns, high if rising else low] if turns else []


def _reason(slack_s: Float64s, wanted_s: Float64s, methods: Sequence[str], first: int, last: int) -> str:
    """What made most of the change of K from one place to another."""
    cut_s = wanted_s - slack_s
    if abs(cut_s[last] - cut_s[first]) > abs(slack_s[last] - slack_s[first]) / 2:
        return _MEMORY
    # What a K that is cut for memory was chosen by is not known any more.
    kinds = {_KIND.get(method, _SWITCHED) for method in (methods[first], methods[last])} - {_MEMORY}
    return kinds.pop() if len(kinds) == 1 else _SWITCHED if kinds else _MEMORY
