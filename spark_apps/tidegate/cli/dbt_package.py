"""The command ``tidegate dbt-package``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, Commands, command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "dbt-package",
        "write a dbt package with answers, marts and promises as sources, for other dbt projects",
        "tidegate dbt-package dags/pipelines/flights --out ../analytics/tidegate_flights",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the package")
    parser.add_argument(
        "--schema",
        metavar="NAME",
        help="SCHEMA or CATALOG.SCHEMA, as `tidegate register` was told (default: the pipeline's name)",
    )
    parser.set_defaults(action=_dbt_package)


def _dbt_package(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.stages.dbt_package import package_name, write_package
    from tidegate.store.warehouse import Warehouse

    warehouse = Warehouse(arguments.out, load_pipeline(arguments.pipeline))
    sources = write_package(warehouse, arguments.out, arguments.schema)
    print(
        f"{package_name(warehouse.pipeline)}: {len(sources)} sources in {arguments.out}; README.md says how to use it"
    )
