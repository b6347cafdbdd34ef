"""The command ``tidegate explain``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, WAREHOUSE, Commands, command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "explain",
        "show streams, queries, the memory that each support level needs, and what memory and waiting buy",
        "tidegate explain dags/pipelines/flights | less\n"
        "  tidegate explain dags/pipelines/flights --warehouse warehouse",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument("--warehouse", metavar="DIR", help=WAREHOUSE + ": shows memory × wait → accuracy of its past")
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
    if arguments.warehouse is not None:
        from tidegate.cli.trade_off import described
        from tidegate.sql.relations import require_tables
        from tidegate.store.warehouse import Warehouse

        warehouse = Warehouse(arguments.warehouse, pipeline)
        require_tables(warehouse)
        print(described(warehouse))
