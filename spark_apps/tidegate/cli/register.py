"""The command ``tidegate register``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, WAREHOUSE, Commands, command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "register",
        "give all tables and marts names in a catalog of Spark's; those that came since are added",
        "tidegate register dags/pipelines/flights --warehouse warehouse --metastore ~/catalog\n"
        "  SPARK_REMOTE=sc://spark:15002 tidegate register dags/pipelines/flights --warehouse s3://lake/wh\n"
        "  tidegate register dags/pipelines/flights --warehouse s3://lake/wh --scheme s3 --schema main.flights --sql",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument("--warehouse", required=True, metavar="DIR", help=WAREHOUSE)
    parser.add_argument(
        "--schema", metavar="NAME", help="SCHEMA or CATALOG.SCHEMA, made if it is not there (default: the pipeline's)"
    )
    parser.add_argument(
        "--scheme",
        choices=("s3a", "s3"),
        default="s3a",
        help="how Spark calls an S3 store: s3a (open Spark; default) or s3 (Databricks, EMR, Glue)",
    )
    parser.add_argument(
        "--metastore",
        type=Path,
        metavar="DIR",
        help="a folder for a Hive catalog of its own; without it, the one that Spark's configuration names",
    )
    parser.add_argument("--sql", action="store_true", help="start no Spark; print the statements, for any catalog")
    parser.set_defaults(action=_register)


def _register(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.engine.delta_spark import delta_session
    from tidegate.sql.registration import register, script, tables
    from tidegate.store.warehouse import Warehouse

    warehouse = Warehouse(arguments.warehouse, load_pipeline(arguments.pipeline))
    registered = tables(warehouse, arguments.schema, arguments.scheme)
    if arguments.sql:
        print(script(registered), end="")
        return
    metastore = arguments.metastore.absolute() if arguments.metastore else None
    spark = delta_session(f"tidegate-{warehouse.pipeline.name}-register", warehouse.folder, metastore)
    try:
        new = register(spark, registered)
    finally:
        spark.stop()
    of = f"{len(new)} of {len(registered)} tables are new" if new else f"all {len(registered)} tables were there"
    print(f"{registered[0].schema}: {of}")
