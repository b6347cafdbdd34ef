"""The command ``tidegate fill``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, Commands, about_the_past, command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "fill",
        "complete, from history, the answers of windows that were narrower than their range",
        "tidegate fill dags/pipelines/flights ground_speed --warehouse warehouse \\\n"
        "    --from 2013-02-08T12 --to 2013-02-08T18",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument("query", metavar="QUERY", help="one of its aggregate queries over one stream")
    about_the_past(parser, "first time of emission (UTC)", "end of the times of emission, exclusive (UTC)")
    parser.set_defaults(action=_fill)


def _fill(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.history.filled import fill_answers, render_filled

    pipeline = load_pipeline(arguments.pipeline)
    span = (arguments.start, arguments.end)
    result = fill_answers(pipeline, arguments.warehouse, arguments.query, *span, arguments.confidence, arguments.as_of)
    print(json.dumps(result, indent=2, default=str) if arguments.json else render_filled(result))
