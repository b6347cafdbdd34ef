"""The window planner alone, ``tidegate plan-windows``: JSON in, JSON out."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import cast

from tidegate.cli.planning_instance import nearest, read_instance
from tidegate.declarations.errors import UserError
from tidegate.operators.window_sizing import Method, TooManyWindowsError, plan
from tidegate.readable import format_bytes, format_seconds

__all__ = ["METHODS", "MOST_BYTES", "format_bytes", "format_seconds", "plan_windows"]

MOST_BYTES = 2**28
"""Larger files are not read."""

METHODS: tuple[Method, ...] = ("joint", "exact", "dp", "ap")


def plan_windows(text: str, method: str = "joint") -> str:
    """The plan of an instance, JSON in and JSON out.

    Arguments: ``text``: the instance as in ``tidegate plan-windows --help``; a window may also give ``max_width_s``, a
    query ``weight`` and ``priority``. ``method``: how level C is planned (:func:`plan`).

    Raises UserError that names every wrong place by its JSON pointer.

    >>> text = '''{"memory_budget_bytes": 119, "windows": [{"id": "w", "tuple_bytes": 2, "rate": 1}],
    ...   "queries": [{"id": "q", "ranges_s": {"w": 60}, "slack_width_s": 10, "delay_s": 20}]}'''
    >>> planned = json.loads(plan_windows(text))
    >>> planned["support_level"], planned["windows"][0]["width_s"], planned["accumulated_error_s"]
    ('B', 59.5, 0.5)
    """
    if method not in METHODS:
        raise UserError(f"method '{method}' is unknown; expected {', '.join(METHODS)}{nearest(method, METHODS)}")
    needs, budget_bytes = read_instance(text)
    try:
        planned = plan(needs, budget_bytes, cast(Method, method))
    except TooManyWindowsError as error:
        raise UserError(f"/windows: {error}") from None
    return json.dumps(
        {
            "support_level": planned.support_level,
            "needed_bytes": asdict(planned.needed),
            "planned_bytes": planned.planned_bytes,
            "accumulated_error_s": planned.accumulated_error_s,
            "windows": [asdict(window) for window in planned.windows],
            "groups": [asdict(group) for group in planned.groups],
            "unsupported_queries": list(planned.unsupported),
            "optimal": planned.optimal,
            "gap": planned.gap,
        },
        indent=2,
        allow_nan=False,
    )
