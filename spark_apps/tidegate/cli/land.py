"""The command ``tidegate land``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, WAREHOUSE, Commands, command
from tidegate.declarations.errors import UserError
from tidegate.stages.launcher import duration_s


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "land",
        "land what the sources of streams that come through Spark (Kafka, and others) have now",
        "tidegate land clicks --warehouse warehouse\n"
        "  tidegate land clicks --warehouse warehouse --live --every 1s\n"
        "  tidegate land clicks --warehouse warehouse --anew clicks",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument("--warehouse", required=True, metavar="DIR", help=WAREHOUSE)
    parser.add_argument("--stream", action="append", metavar="NAME", help="only this stream; may be repeated")
    parser.add_argument("--live", action="store_true", help="go on landing what comes, until stopped")
    parser.add_argument(
        "--every", type=duration_s, default=1.0, metavar="TIME", help="with --live: how often (default 1s)"
    )
    parser.add_argument(
        "--anew",
        metavar="STREAM",
        help="first forget which of the stream's intervals are closed, so that a history that was loaded later, or a "
        "feed that was closed too early, can be ingested anew; says which intervals have to be run again",
    )
    parser.set_defaults(action=_land)


def _land(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.engine.context import RunContext
    from tidegate.stages.land import begin_anew, land_all

    pipeline = load_pipeline(arguments.pipeline)
    names = [stream.name for stream in pipeline.landed_streams]
    for name in [*(arguments.stream or ()), *([arguments.anew] if arguments.anew else ())]:
        if name not in names:
            known = f"those are {', '.join(names)}" if names else "the pipeline has none: its streams are files"
            raise UserError(f"'{name}' is no stream that comes through Spark: {known}")
    if not names:
        raise UserError(
            f"pipeline {pipeline.name} has no stream that comes through Spark: its files are read by tidegate run"
        )
    streams = [s for s in pipeline.landed_streams if not arguments.stream or s.name in arguments.stream]
    with RunContext(pipeline, arguments.warehouse, app="land") as context:
        if arguments.anew:
            print(begin_anew(context, pipeline.stream(arguments.anew)))
        for stream, landed in land_all(context, streams, arguments.every if arguments.live else None).items():
            print(f"{stream}: {landed.records} records landed in {landed.batches} batches")
