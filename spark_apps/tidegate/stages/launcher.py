"""How a stage is started by spark-submit, or alone: one parser, one place where a user's errors are caught."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.units import UnreadableError, read_duration_us, read_share
from tidegate.engine.context import RunContext
from tidegate.stages.machine_errors import of_the_machine
from tidegate.store.intervals import Interval, intervals_between


def instant(text: str) -> datetime:
    """A UTC instant written as 2013-02-08, 2013-02-08T10, 2013-02-08T10:30 or with seconds, Z or an offset."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a valid timestamp: write it like 2013-02-08, 2013-02-08T10 or 2013-02-08T10:30:00Z (UTC)"
        ) from None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def as_of(text: str) -> str | datetime:
    """An instant, or else the id of a run."""
    try:
        return instant(text)
    except argparse.ArgumentTypeError:
        return text


def duration_s(text: str) -> float:
    """A duration as seconds, written as in a pipeline (10 seconds, 5 minutes), or shortly: 10s, 5m, 1h."""
    short = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}.get(text[-1:])
    spelled = f"{text[:-1]} {short}" if short is not None and text[-2:-1].isdigit() else text
    try:
        seconds = read_duration_us(spelled) / 1e6
    except UnreadableError as error:
        raise argparse.ArgumentTypeError(f"{error.message}: write it like 10s, 5m or '10 seconds'") from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive duration: write it like 10s, 5m or '10 seconds'")
    return seconds


def share(text: str) -> float:
    """A share as a fraction, written as a percentage: 1%, 0.5 %."""
    try:
        found = read_share(text)
    except UnreadableError as error:
        raise argparse.ArgumentTypeError(f"{error.message}: write it like 1%") from None
    return found


def add_range_arguments(parser: argparse.ArgumentParser, end_needed: bool = True) -> None:
    """The arguments that every stage takes."""
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help="folder with pipeline.yml and queries/")
    parser.add_argument(
        "--warehouse",
        required=True,
        metavar="DIR",
        help="folder that holds the tables, or a URI such as s3://bucket/folder",
    )
    parser.add_argument(
        "--from", dest="start", type=instant, required=True, metavar="T", help="start of the first interval (UTC)"
    )
    parser.add_argument(
        "--to", dest="end", type=instant, required=end_needed, metavar="T", help="end of the last interval (UTC)"
    )
    parser.add_argument("--cold-start", action="store_true", help="start here without the state of earlier intervals")


def guarded(action: Callable[[], int | None]) -> int:
    """Run; show a user's error and the machine's without a traceback. Any other is ours, and keeps its traceback."""
    try:
        return action() or 0
    except UserError as error:
        print(f"tidegate: error: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("tidegate: interrupted; completed work is kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read the output has seen enough (`| head`); what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        sentence = of_the_machine(error)
        if sentence is None:
            raise
        print(f"tidegate: error: {sentence}", file=sys.stderr)
        return 1


def launch(stage: str) -> None:
    """Parse the command line, run one stage, exit: 0 done, 1 a critical check failed, 2 a user's error."""
    # Not the module that was started: what its slices are made of would be unknown to tasks, as `__main__`'s.
    run: Callable[[RunContext, Sequence[Interval]], None] = importlib.import_module(f"tidegate.stages.{stage}").run
    parser = argparse.ArgumentParser(
        prog=f"{stage}.py",
        description=f"Run the stage {stage} of a pipeline for every interval of a range.",
        epilog=f"example: spark-submit {stage}.py dags/pipelines/flights --warehouse warehouse "
        "--from 2013-02-08T10 --to 2013-02-08T11",
    )
    add_range_arguments(parser)
    arguments = parser.parse_args()
    # Ended from outside, it leaves no work behind on a Spark that stays: the session is released on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def action() -> None:
        pipeline = load_pipeline(arguments.pipeline)
        intervals = intervals_between(pipeline, arguments.start, arguments.end)
        with RunContext(pipeline, arguments.warehouse, app=stage, cold_start=arguments.cold_start) as context:
            run(context, intervals)

    sys.exit(guarded(action))
