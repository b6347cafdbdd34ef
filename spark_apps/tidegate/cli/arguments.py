"""What several commands take, and how each of them says what it does."""

from __future__ import annotations

import argparse
from typing import TypeAlias

from tidegate.stages.launcher import as_of, instant

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

EXIT_CODES = """exit status:
  0    done
  1    a critical data quality check failed (results and pages are written),
       every record was refused, or an internal error (a traceback)
  2    a command line, pipeline, file or warehouse that cannot be used; the
       message says why, nothing was done
  130  interrupted; completed work is kept"""
PIPELINE = "folder with pipeline.yml and queries/"
WAREHOUSE = "folder that holds the tables, or a URI such as s3://bucket/folder"


def command(commands: Commands, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """The parser of a new command; ``summary`` and ``example`` are its help."""
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def about_the_past(parser: argparse.ArgumentParser, start: str, end: str) -> None:
    """Add the arguments of the commands that estimate; ``start``, ``end``: what --from and --to are."""
    parser.add_argument("--warehouse", required=True, metavar="DIR", help=WAREHOUSE)
    parser.add_argument("--from", dest="start", type=instant, required=True, metavar="T", help=start)
    parser.add_argument("--to", dest="end", type=instant, required=True, metavar="T", help=end)
    parser.add_argument(
        "--confidence", type=float, default=0.95, metavar="P", help="confidence level of the intervals (default 0.95)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_as_of(parser)


def add_as_of(parser: argparse.ArgumentParser) -> None:
    """Add ``--as-of``."""
    parser.add_argument(
        "--as-of",
        type=as_of,
        metavar="RUN|T",
        help="read what had been committed by that time (UTC), or with that run (column run of table _commits); "
        "superseded rows stay for 7 days",
    )
