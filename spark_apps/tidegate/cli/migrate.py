"""The command ``tidegate migrate``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, WAREHOUSE, Commands, command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "migrate",
        "raise a warehouse that an older version has written to this version's format, without writing a row anew",
        "tidegate migrate dags/pipelines/flights --warehouse warehouse",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument("--warehouse", required=True, metavar="DIR", help=WAREHOUSE)
    parser.set_defaults(action=_migrate)


def _migrate(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.store.format import FORMAT
    from tidegate.store.migrate import migrate
    from tidegate.store.warehouse import Warehouse

    warehouse = Warehouse(arguments.warehouse, load_pipeline(arguments.pipeline))
    tables = migrate(warehouse, lambda message: print(message, file=sys.stderr))
    made = f"{tables} tables are Delta tables now, " if tables else ""
    print(f"{warehouse.pipeline.name}: {made}format {FORMAT}, in {warehouse.folder}")
