"""The command ``tidegate validate``."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, Commands, command
from tidegate.declarations.errors import UserError


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "validate",
        "report all mistakes of a pipeline at once",
        "tidegate validate dags/pipelines/flights\n  tidegate validate shop --data",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument(
        "--data",
        action="store_true",
        help="also read the newest files of every stream and say what would be refused (then exit status 1); not of "
        "streams that come through Spark",
    )
    parser.set_defaults(action=_validate)


class WouldRefuseError(UserError):
    """Records of the newest files would be refused."""

    exit_status = 1


def _validate(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline

    pipeline = load_pipeline(arguments.pipeline)
    streams, queries = len(pipeline.streams), len(pipeline.queries)
    counts = f"{streams} stream{'s' * (streams != 1)} and {queries} quer{'ies' if queries != 1 else 'y'}"
    print(f"{pipeline.name}: {counts}, no mistakes")
    if not arguments.data:
        return
    landed = [stream.name for stream in pipeline.landed_streams]
    if landed:
        come = "it comes" if len(landed) == 1 else "they come"
        print(f"not tried: {', '.join(landed)} ({come} through Spark, not as files)")
    if len(landed) == streams:
        return
    from tidegate.cli.records_read import account_of
    from tidegate.stages.try_files import try_newest_files

    summary = try_newest_files(pipeline)
    text, refused = account_of(pipeline, summary, shutil.get_terminal_size(fallback=(80, 24)).columns)
    print(text, end="")
    if refused:
        raise WouldRefuseError("some records would be refused: see above why")
