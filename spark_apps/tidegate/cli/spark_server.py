"""The command ``tidegate spark-server``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tidegate.cli.arguments import Commands, command
from tidegate.declarations.units import UnreadableError, read_bytes

# What Delta's connector asks for.


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "spark-server",
        "run a Spark Connect server on this machine for stages to use, until stopped; started anew when it dies",
        "tidegate spark-server --folder ~/.local/state/tidegate/spark\n"
        "  TIDEGATE_SPARK_MASTER=sc://localhost:15002 tidegate run …       # in another shell",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path.home() / ".local" / "state" / "tidegate" / "spark",
        metavar="DIR",
        help="where its event logs are kept, for a week (default ~/.local/state/tidegate/spark)",
    )
    parser.add_argument(
        "--master", default="local[*]", help="where its tasks run (default local[*]: here, on every core)"
    )
    parser.add_argument(
        "--port", type=int, default=15002, metavar="N", help="port for clients, on loopback (default 15002)"
    )
    parser.add_argument("--ui-port", type=int, default=4040, metavar="N", help="port of Spark's UI (default 4040)")
    parser.add_argument(
        "--memory",
        type=_bytes,
        default=2 * 2**30,
        metavar="SIZE",
        help="what its JVM may take, like '2 GiB', the default; Python workers are beside it",
    )
    parser.set_defaults(action=_serve)


def _bytes(text: str) -> int:
    try:
        return read_bytes(text)
    except UnreadableError as error:
        raise argparse.ArgumentTypeError(f"{error.message}: write it like '2 GiB'") from None


def _serve(arguments: argparse.Namespace) -> None:
    from tidegate.engine.delta_spark import DELTA_CATALOG
    from tidegate.engine.jars import jars
    from tidegate.engine.spark_server import SparkServer, serve
    from tidegate.stages.extras import require_extra

    require_extra("spark-server", "connect")
    server = SparkServer(
        folder=arguments.folder.expanduser().absolute(),
        master=arguments.master,
        port=arguments.port,
        ui_port=arguments.ui_port,
        memory_bytes=arguments.memory,
        jars=tuple(jar for group in ("kafka", "delta", "s3") for jar in jars(group)),
        settings=tuple(DELTA_CATALOG.items()) if jars("delta") else (),
    )
    serve(server, lambda line: print(line, file=sys.stderr, flush=True))
