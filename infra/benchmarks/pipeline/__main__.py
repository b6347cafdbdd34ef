"""Tuples per CPU second from landed files on: ``python -m infra.benchmarks.pipeline --tuples 10000 1000000``.

``--tuples 100000000 --formats jsonl --ways tidegate --hours 1 --stages ingest`` takes in an hour alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from infra.benchmarks.pipeline.landed import FORMATS, land
from infra.benchmarks.pipeline.ways import STAGES, WAYS
from infra.benchmarks.rivals.meter import TreeMeter

RUNS = ("first", "warm")
_MARK = "measured "


def measure(way: str, kind: str, folder: Path, hours: int, stages: Sequence[str]) -> None:
    """Run a way on the hours, one after the other, in this process; a line of JSON a step. ``stages``: of Tidegate.

    It says which run and step, and has tuples, CPU and wall seconds, and peak bytes, of the process and its children.
    """
    for number, run in enumerate(RUNS[:hours]):
        with TreeMeter(os.getpid()) as meter:
            cpu_s, began = meter.cpu_s(), time.monotonic()
            for step, tuples in WAYS[way](folder, kind, number, stages):
                told = {"run": run, "step": step, "tuples": tuples, "cpu_s": meter.cpu_s() - cpu_s}
                told |= {"wall_s": time.monotonic() - began, "peak_bytes": meter.peak_bytes}
                print(_MARK + json.dumps(told), flush=True)
                cpu_s, began = meter.cpu_s(), time.monotonic()


def measured(way: str, kind: str, folder: Path, hours: int, stages: Sequence[str]) -> list[dict[str, float | str]]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "infra.benchmarks.pipeline", "--measure", way, kind, str(folder)]
    command += ["--hours", str(hours), "--stages", *stages]
    environment = {**os.environ, "POLARS_MAX_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{way} on {kind} failed:\n{done.stderr[-3000:]}")
    return [json.loads(line.removeprefix(_MARK)) for line in done.stdout.splitlines() if line.startswith(_MARK)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate, measure, print a table as it comes."""
    parser = argparse.ArgumentParser(prog="python -m infra.benchmarks.pipeline", description=__doc__)
    parser.add_argument("--tuples", type=int, nargs="+", default=[10_000, 1_000_000], metavar="N", help="an interval")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--hours", type=int, choices=(1, 2), default=2, help="1: no warm second hour")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES), help="of Tidegate (all)")
    parser.add_argument("--measure", nargs=3, metavar=("WAY", "FORMAT", "DIR"), help="one way, in this process")
    args = parser.parse_args(arguments)
    if args.measure:
        way, kind, folder = args.measure
        measure(way, kind, Path(folder), args.hours, args.stages)
        return
    print("| tuples | format | by | run | step | CPU s | wall s | peak MiB | tuples per CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for tuples in args.tuples:
        with tempfile.TemporaryDirectory(prefix="tidegate-pipeline-") as name:
            land(Path(name), tuples, args.formats, hours=args.hours)
            for kind in args.formats:
                for way in args.ways:
                    _show(tuples, kind, way, measured(way, kind, Path(name), args.hours, args.stages))


def _show(tuples: int, kind: str, way: str, steps: Sequence[dict[str, float | str]]) -> None:
    for run in dict.fromkeys(str(step["run"]) for step in steps):
        own = [step for step in steps if step["run"] == run]
        whole = {"step": "all", "tuples": own[0]["tuples"]}
        whole |= {name: sum(float(step[name]) for step in own) for name in ("cpu_s", "wall_s")}
        whole["peak_bytes"] = max(float(step["peak_bytes"]) for step in own)
        for step in [*own, *([whole] if len(own) > 1 else [])]:
            cpu_s, peak = float(step["cpu_s"]), float(step["peak_bytes"]) / 2**20
            speed = float(step["tuples"]) / max(cpu_s, 0.01)
            print(
                f"| {tuples} | {kind} | {way} | {run} | {step['step']} | {cpu_s:.2f} | {float(step['wall_s']):.2f} "
                f"| {peak:.0f} | {speed:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
