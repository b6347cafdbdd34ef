"""Measure a backfill: ``python -m infra.benchmarks.backfill [--hours N] [--against REVISION]``."""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from infra.benchmarks.backfill.accounts import Account
from infra.benchmarks.backfill.scheduled import backfill

ROOT = Path(__file__).parents[3]
EXAMPLES = """\
examples:
  # the day of the storm, all stages, this checkout alone
  python -m infra.benchmarks.backfill

  # the same beside the checkout as it stood at a revision: six hours of each
  python -m infra.benchmarks.backfill --hours 6 --against c5d8014

  # this checkout with and without its Spark Connect server
  python -m infra.benchmarks.backfill --hours 6 --without-server
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.backfill",
        description="Backfill hours of the flights through a real Airflow, every stage, from an empty warehouse.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hours", type=int, default=24, metavar="N", help="intervals (24)")
    parser.add_argument(
        "--start",
        type=lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
        default="2013-02-08T00",
        metavar="T",
        help="the first interval's start, UTC (2013-02-08T00)",
    )
    parser.add_argument("--against", metavar="REVISION", help="measure a revision of this repository first, then this")
    parser.add_argument(
        "--without-server", action="store_true", help="measure this checkout without a Spark server first, then with"
    )
    parser.add_argument("--slots", type=int, default=2, metavar="N", help="applications at a time (2, as in the demo)")
    parser.add_argument("--timeout", type=int, default=7200, metavar="S", help="give up an alternative then (7200)")
    args = parser.parse_args(arguments)
    if args.hours < 1:
        parser.error("--hours is at least 1")
    # Ended from outside, it still brings its Airflow down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    end = args.start + timedelta(hours=args.hours)
    found = []
    with tempfile.TemporaryDirectory(prefix="tidegate-backfill-") as folder:
        for name, revision, environment in _alternatives(args.against, args.without_server):
            environment["TIDEGATE_SPARK_SLOTS"] = str(args.slots)
            with _checkout(revision, Path(folder)) as project:
                print(f"{name}: {args.hours} intervals from {args.start:%Y-%m-%dT%H} on …", flush=True)
                state = Path(folder) / "state"
                account = backfill(name, project, state, args.start, end, environment, args.timeout)
                shutil.rmtree(state)
            print(account.text(), flush=True)
            found.append(account)
    if len(found) > 1:
        print(_compared(found))
    return 0


def _alternatives(revision: str | None, without_server: bool) -> Iterator[tuple[str, str | None, dict[str, str]]]:
    if revision:
        yield revision, revision, {}
    if without_server:
        yield "without a server", None, {"TIDEGATE_SPARK_SERVER": "no"}
    yield "this checkout", None, {}


@contextmanager
def _checkout(revision: str | None, folder: Path) -> Iterator[Path]:
    """The project's folder at a revision: this one, or a worktree that goes again."""
    if revision is None:
        yield ROOT
        return
    tree = folder / "checkout"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision], cwd=ROOT, check=True)
    try:
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def _compared(found: Sequence[Account]) -> str:
    last = found[-1]
    lines = [
        f"{other.name} / {last.name}: wall {other.wall_s / last.wall_s:.2f}, CPU {other.cpu_s / last.cpu_s:.2f}"
        for other in found[:-1]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
