"""The window planner alone, ``tidegate plan-windows``: JSON in, JSON out."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tidegate.cli.arguments import Commands, command
from tidegate.declarations.errors import UserError

if TYPE_CHECKING:
    from tidegate.operators.window_sizing import Method

MOST_BYTES = 2**28
"""Larger files are not read."""

METHODS: tuple[Method, ...] = ("joint", "exact", "dp", "ap")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "plan-windows",
        "plan window widths for a problem given as JSON",
        "tidegate plan-windows instance.json --method ap\n"
        '  echo \'{"memory_budget_bytes": 4000, "windows": [{"id": "w", "tuple_bytes": 40, "rate": 1}],\n'
        '    "queries": [{"id": "q", "ranges_s": {"w": 60}, "slack_width_s": 10, "delay_s": 60}]}\''
        " | tidegate plan-windows -",
    )
    parser.add_argument(
        "instance", metavar="INSTANCE.json", help="file with memory budget, windows and queries; - reads standard input"
    )
    parser.add_argument(
        "--method",
        choices=METHODS,
        default="joint",
        help="how level C is planned: joint (the default) lets windows grow and shrink at staggered times; with the "
        "others the windows of a group take turns, as in the paper: exact, dp (optimal; dp up to 20 windows), ap "
        "(first fit)",
    )
    parser.set_defaults(action=_plan_windows)


def _plan_windows(arguments: argparse.Namespace) -> None:
    try:
        with sys.stdin.buffer if arguments.instance == "-" else Path(arguments.instance).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"{arguments.instance} cannot be read: {reason}") from None
    if len(content) > MOST_BYTES:
        raise UserError(f"{arguments.instance} is too large: an instance has at most {MOST_BYTES >> 20} MiB")
    print(plan_windows(text, arguments.method))


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
    from tidegate.cli.planning_instance import nearest, read_instance
    from tidegate.operators.window_sizing import TooManyWindowsError, plan

    if method not in METHODS:
        raise UserError(f"method '{method}' is unknown; expected {', '.join(METHODS)}{nearest(method, METHODS)}")
    needs, budget_bytes = read_instance(text)
    try:
        planned = plan(needs, budget_bytes, cast("Method", method))
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
