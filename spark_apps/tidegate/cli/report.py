"""The command ``tidegate report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, WAREHOUSE, Commands, add_as_of, command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "report",
        "write an HTML report: slack, accuracy, widths and memory compared with the promises",
        "tidegate report dags/pipelines/flights --warehouse warehouse\n"
        "  tidegate report dags/pipelines/flights --warehouse warehouse --output storm.html",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument("--warehouse", required=True, metavar="DIR", help=WAREHOUSE)
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: <warehouse>/<pipeline>/_docs/report.html")
    add_as_of(parser)
    parser.set_defaults(action=_report)


def _report(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.report.report import run as report

    print(report(load_pipeline(arguments.pipeline), arguments.warehouse, arguments.output, arguments.as_of))
