"""The command ``tidegate``: for whoever writes pipelines. One module per command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from tidegate.cli import (
    completion,
    dbt_package,
    explain,
    fill,
    history,
    init,
    land,
    migrate,
    plan_windows,
    register,
    report,
    run,
    spark_server,
    sql,
    validate,
)
from tidegate.cli.arguments import EXIT_CODES
from tidegate.stages.launcher import guarded

_COMMANDS = (
    init,
    validate,
    explain,
    plan_windows,
    land,
    run,
    history,
    fill,
    report,
    sql,
    spark_server,
    register,
    dbt_package,
    migrate,
    completion,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    return guarded(lambda: arguments.action(arguments))


class _Parser(argparse.ArgumentParser):
    """Names the command that was probably meant."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = get_close_matches(str(value), [str(choice) for choice in action.choices], n=1)
            expected = f"did you mean '{near[0]}'?" if near else f"expected {', '.join(map(str, action.choices))}"
            raise argparse.ArgumentError(action, f"invalid choice '{value}'; {expected}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tidegate",
        description="Continuous queries over out-of-order event streams within a memory budget.",
        epilog="start here:\n  tidegate init shop       # and run the command that it prints\n\n"
        f"shell completion: source <(tidegate completion bash)\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add(commands)
    return parser
