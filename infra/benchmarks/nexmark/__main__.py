"""NEXMark's questions, right and measured: ``python -m infra.benchmarks.nexmark --events 1000000``."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from infra.benchmarks.nexmark.answers import ends, expected, truths
from infra.benchmarks.nexmark.feed import START, write_events, write_pipeline
from infra.benchmarks.nexmark.questions import QUESTIONS
from infra.benchmarks.rivals.meter import TreeMeter

WAYS = ("tidegate", "tidegate_all", "flink", "structured_streaming")
SPAN_S = 600.0
_HORIZON = timedelta(minutes=10)
_ANSWERS = ("ingest", "join_aggregate", "top_k")
_EXAMPLES = """\
examples:
  # every query right, at a hundred thousand events
  python -m infra.benchmarks.nexmark --events 100000 --ways tidegate_all --check

  # beside Flink, which is installed when first asked for, and the others
  python -m infra.benchmarks.nexmark --events 1000000

ways: tidegate ingests and answers; tidegate_all also learns and finds the truth, which --check compares with DuckDB's
rows; the others answer alone, they refuse nothing and look for no id twice.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write events, run each way in a process of its own, print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.nexmark",
        description="NEXMark's windowed queries over ten minutes of events, beside others.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000], metavar="N", help="in ten minutes")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="compare Tidegate's truths with DuckDB, row by row")
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "DIR"), help="one way, in this process")
    args = parser.parse_args(arguments)
    if args.measure:
        measure(args.measure[0], Path(args.measure[1]))
        return
    print("| events | by | CPU s | wall s | peak MiB | events per CPU s |")
    print("|---|---|---|---|---|---|", flush=True)
    for events in args.events:
        with tempfile.TemporaryDirectory(prefix="tidegate-nexmark-") as name:
            folder = Path(name)
            (folder / "feed").mkdir()
            records = write_events(folder / "feed", events, events / SPAN_S, args.seed)
            write_pipeline(folder / "auction", folder / "feed", events / SPAN_S, memory_mib=2048)
            for way in args.ways:
                told = _measured(way, folder)
                cpu_s, wall_s, peak = told["cpu_s"], told["wall_s"], told["peak_bytes"] / 2**20
                print(
                    f"| {records} | {way} | {cpu_s:.1f} | {wall_s:.1f} | {peak:.0f} | {records / cpu_s:,.0f} |",
                    flush=True,
                )
            if args.check:
                _check(folder)


def measure(way: str, folder: Path) -> None:
    """One way in this process; a line of JSON with CPU and wall seconds and peak bytes of it and its children."""
    with TreeMeter(os.getpid()) as meter:
        cpu_s, began = meter.cpu_s(), time.monotonic()
        if way.startswith("tidegate"):
            _tidegate(folder, way)
        elif way == "flink":
            _flink(folder)
        else:
            from infra.benchmarks.nexmark.structured_streaming import answer

            print(answer(folder / "feed", folder / "streaming"), file=sys.stderr)
        told = {"cpu_s": meter.cpu_s() - cpu_s, "wall_s": time.monotonic() - began, "peak_bytes": meter.peak_bytes}
        print("measured " + json.dumps(told), flush=True)


def _measured(way: str, folder: Path) -> Mapping[str, float]:
    command = [sys.executable, "-m", "infra.benchmarks.nexmark", "--measure", way, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("measured ")]
    if done.returncode or not lines:
        sys.exit(f"{way} failed:\n{done.stderr[-3000:]}")
    told: Mapping[str, float] = json.loads(lines[0].removeprefix("measured "))
    return told


def _tidegate(folder: Path, way: str) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.engine.context import RunContext
    from tidegate.stages.run import run
    from tidegate.store.intervals import intervals_between

    pipeline = load_pipeline(folder / "auction")
    stages = _ANSWERS if way == "tidegate" else (*_ANSWERS, "calibrate")
    intervals = intervals_between(pipeline, START, START + timedelta(seconds=SPAN_S) + 2 * _HORIZON)
    with RunContext(pipeline, folder / way, output=io.StringIO(), here=True) as context:
        run(context, intervals, stages)


def _flink(folder: Path) -> None:
    from infra.benchmarks.rivals import flink

    venv = Path(os.environ.get("TIDEGATE_FLINK_VENV", folder / "flink"))
    python = flink.interpreter(venv, lambda text: print(text, file=sys.stderr))
    command = [str(python), "-m", "infra.benchmarks.nexmark.flink", str(folder / "feed")]
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, **flink.ENVIRONMENT})


def _check(folder: Path) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.store.warehouse import Warehouse

    warehouse = Warehouse(folder / "tidegate_all", load_pipeline(folder / "auction"))
    for name, question in QUESTIONS.items():
        mine, theirs = truths(warehouse, name, question), expected(folder / "feed", question, ends(question, SPAN_S))
        other = [end for end in mine.keys() | theirs.keys() if mine.get(end) != theirs.get(end)]
        rows = sum(map(len, theirs.values()))
        print(f"{name}: {len(theirs)} windows, {rows} rows: {f'{len(other)} windows differ' if other else 'the same'}")


if __name__ == "__main__":
    main()
