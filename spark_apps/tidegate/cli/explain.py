"""The command ``tidegate explain``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, Commands, command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "explain",
        "show streams, queries and the memory that each support level needs",
        "tidegate explain dags/pipelines/flights | less",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.set_defaults(action=_explain)


def _explain(arguments: argparse.Namespace) -> None:
    from tidegate.cli.memory_ladder import needs, render
    from tidegate.cli.query_work import query_work
    from tidegate.declarations import load_pipeline
    from tidegate.declarations.explain import describe

    pipeline = load_pipeline(arguments.pipeline)
    print(describe(pipeline))
    print(query_work(pipeline))
    print(render(needs(pipeline)))
