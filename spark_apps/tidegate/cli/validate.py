"""The command ``tidegate validate``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, Commands, command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands, "validate", "report all mistakes of a pipeline at once", "tidegate validate dags/pipelines/flights"
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.set_defaults(action=_validate)


def _validate(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline

    # `--data` belongs here: the first records of each stream's files, read and judged as a run would, by reason.
    pipeline = load_pipeline(arguments.pipeline)
    print(f"{pipeline.name}: {len(pipeline.streams)} streams and {len(pipeline.queries)} queries, no mistakes")
