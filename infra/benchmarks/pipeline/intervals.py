"""Many intervals by one run, and what one more costs then: ``python -m infra.benchmarks.pipeline.intervals``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from infra.benchmarks.rivals.meter import TreeMeter

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext, StageRun
from tidegate.examples import land_flights
from tidegate.stages.check_quality import QualityError
from tidegate.stages.run import STAGES, run
from tidegate.store.intervals import Interval, intervals_between

FLIGHTS = Path(__file__).parents[3] / "dags" / "pipelines" / "flights"
START = datetime(2013, 1, 1, tzinfo=UTC)
# dbt takes its time to start, whatever the warehouse holds.
ONE_BY_ONE = tuple(stage for stage in STAGES if stage != "publish")


class Measured(RunContext):
    """Notes the CPU seconds of every stage: those of this process, in which slices of little data run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cpu_s: dict[str, float] = {}

    @contextmanager
    def stage(self, stage: str, intervals: Sequence[Interval]) -> Iterator[StageRun]:
        """Run a stage."""
        before = time.process_time()
        with super().stage(stage, intervals) as found:
            yield found
        self.cpu_s[stage] = self.cpu_s.get(stage, 0.0) + time.process_time() - before


def alone(
    pipeline: Pipeline, warehouse: Path, intervals: Sequence[Interval], before: Sequence[Interval] = ()
) -> dict[str, float]:
    """Stage → CPU seconds an interval, of intervals run one after the other in this process, once those ``before`` are.

    What the quality of those is does not matter: there may have been nothing that they could continue from.
    """
    with Measured(pipeline, warehouse, output=open(os.devnull, "w")) as context:
        for interval in before:
            with suppress(QualityError):
                run(context, [interval], ONE_BY_ONE)
        context.cpu_s.clear()
        for interval in intervals:
            run(context, [interval], ONE_BY_ONE)
    return {stage: cpu_s / len(intervals) for stage, cpu_s in context.cpu_s.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Land, run the days at once, then a day hour by hour: early in a warehouse and late; print what it took."""
    parser = argparse.ArgumentParser(prog="python -m infra.benchmarks.pipeline.intervals", description=__doc__)
    parser.add_argument("--days", type=int, default=40, metavar="N", help="of flights, from 2013-01-01 on (40)")
    parser.add_argument("--alone", type=int, default=24, metavar="N", help="intervals run one by one, twice (24)")
    parser.add_argument("--publish", action="store_true", help="with the marts")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tidegate-intervals-") as name:
        os.environ["TIDEGATE_LANDING"] = str(Path(name) / "landing")
        end = START + timedelta(days=args.days)
        land_flights.main(["--landing", os.environ["TIDEGATE_LANDING"], "--from", f"{START:%Y-%m-%d}",
                           "--to", f"{end + timedelta(hours=args.alone):%Y-%m-%dT%H}"])  # fmt: skip
        pipeline, warehouse = load_pipeline(FLIGHTS), Path(name) / "warehouse"
        intervals = intervals_between(pipeline, START, end + timedelta(hours=args.alone))
        early, many = intervals[9 : 9 + args.alone], intervals[: -args.alone]
        alone(pipeline, Path(name) / "warming", intervals[:1])
        with RunContext(pipeline, Path(name) / "few", output=open(os.devnull, "w")) as context:
            run(context, intervals[:9], ONE_BY_ONE)
        first = alone(pipeline, Path(name) / "few", early)
        command = [sys.executable, "-m", "tidegate.cli", "run", str(FLIGHTS), "--warehouse", str(warehouse)]
        command += ["--from", f"{many[0].start:%Y-%m-%dT%H}", "--to", f"{many[-1].end:%Y-%m-%dT%H}"]
        if not args.publish:
            command += [part for stage in ONE_BY_ONE for part in ("--stage", stage)]
        with TreeMeter(os.getpid()) as meter:
            cpu_s, began = meter.cpu_s(), datetime.now(UTC)
            subprocess.run(command, check=True, capture_output=True)
            wall_s = (datetime.now(UTC) - began).total_seconds()
            print(f"{len(many)} intervals by one run: {wall_s:.0f} s, {meter.cpu_s() - cpu_s:.0f} CPU s")
        last = alone(pipeline, warehouse, intervals[-args.alone :])
        print(f"| CPU s an interval, alone | from the 10th on | from the {len(many) + 1}th on | ratio |")
        print("|---|---|---|---|")
        for stage in [*first, None]:
            a, b = (sum(cpu.values()) if stage is None else cpu.get(stage, 0.0) for cpu in (first, last))
            print(f"| {stage or 'all'} | {a:.2f} | {b:.2f} | {b / max(a, 0.01):.2f} |", flush=True)


if __name__ == "__main__":
    main()
