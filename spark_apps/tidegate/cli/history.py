"""The command ``tidegate history``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, Commands, about_the_past, command
from tidegate.stages.launcher import share


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "history",
        "estimate an aggregate over any past period from the history store",
        "tidegate history dags/pipelines/flights --warehouse warehouse --from 2013-02-07 --to 2013-02-09 \\\n"
        '    "SELECT origin, AVG(dep_delay) FROM departures GROUP BY origin"',
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument("query", metavar="SQL", help="SELECT aggregates FROM a stream [WHERE …] [GROUP BY …]")
    about_the_past(parser, "first event time (UTC)", "end of the event times, exclusive (UTC)")
    parser.add_argument(
        "--within",
        type=share,
        metavar="SHARE",
        help="read the sparsest samples first and stop as soon as every interval is this narrow (such as 1%%); prints "
        "each step",
    )
    parser.set_defaults(action=_history)


def _history(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.history.questions import query_history, render

    pipeline = load_pipeline(arguments.pipeline)
    result = query_history(
        pipeline,
        arguments.warehouse,
        arguments.query,
        arguments.start,
        arguments.end,
        arguments.confidence,
        arguments.within,
        arguments.as_of,
    )
    print(json.dumps(result, indent=2, default=str) if arguments.json else render(result))
