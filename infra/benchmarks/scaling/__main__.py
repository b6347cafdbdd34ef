"""What slices and the driver cost, and what follows for many workers.

    python -m infra.benchmarks.scaling [--tuples 500000] [--slices 1 2 4 8]
    python -m infra.benchmarks.scaling --tuples 10000000 --cluster

Hours of orders and payments through all stages but publish. Slices run in this process, one behind the other, and the
CPU seconds of each are taken: what a stage would need on N workers is the driver's share, and of each job its slices
dealt out longest first. That is a computation, not a run: workers that wait for the same disk, network or memory are
slower. With ``--cluster`` the stages run on a standalone cluster of one and of two workers instead, a core each, and on
two clusters of one worker at once: what this machine can give two cores at a time.

The driver's cost per task and per file is taken from jobs that do nothing and commits of files without rows. From all
this an hour of ever more tuples on up to a thousand workers is computed (`simulated`).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from infra.benchmarks.pipeline.landed import COLUMNS, HOUR, START, land

from tidegate.declarations import load_pipeline
from tidegate.engine import Slice
from tidegate.engine.context import RunContext
from tidegate.queries import slices
from tidegate.stages import calibrate, ingest, sample_history
from tidegate.stages.run import run
from tidegate.store.intervals import Interval, intervals_between

STAGES = ("ingest", "join_aggregate", "top_k", "sample_history", "calibrate")
WORKERS = (1, 2, 4, 8)
RANGE = START, START + 2 * HOUR


@dataclass
class Account:
    """CPU seconds of a run: ``jobs``, stage → of each of its jobs, of each slice; ``driver``, stage → all the rest."""

    jobs: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    driver: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def on(self, workers: int) -> float:
        """Seconds that the run would take on so many workers, a core each, one job behind the other."""
        jobs = (job for own in self.jobs.values() for job in own)
        return sum(self.driver.values()) + sum(dealt(job, workers) for job in jobs)


def dealt(job: Sequence[float], workers: int) -> float:
    """When the last of a job's slices is done, if each worker takes the longest that is left.

    >>> dealt([3, 1, 1, 1], 2)
    3.0
    """
    busy = [0.0] * workers
    for seconds in sorted(job, reverse=True):
        busy[busy.index(min(busy))] += seconds
    return max(busy)


class Measured(RunContext):
    """Runs slices here, one by one, and takes the time of each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.account = Account()
        self.working = ""

    @contextmanager
    def stage(self, stage: str, intervals: Sequence[Interval]) -> Iterator[Any]:
        """A stage: what its slices do not take is the driver's."""
        began, before, self.working = time.process_time(), self._sliced(), stage
        with super().stage(stage, intervals) as found:
            yield found
        self.account.driver[stage] += time.process_time() - began - (self._sliced() - before)

    def _sliced(self) -> float:
        return sum(seconds for own in self.account.jobs.values() for job in own for seconds in job)

    def most_slices(self, rows: int) -> int:
        """Any number: the benchmark cuts by rows."""
        return 10_000

    def run_slices(self, work: Callable[[Slice], Any], parts: Sequence[Any], rows: int) -> list[Any]:
        """One by one, here."""
        results, job = [], []
        for number, part in enumerate(parts):
            began = time.process_time()
            results.append(work(Slice(number, part)))
            job.append(time.process_time() - began)
        self.account.jobs[self.working].append(job)
        return results


def prepare(folder: Path, tuples: int) -> Path:
    """The pipeline and its hours; the pipeline's folder."""
    land(folder, tuples, ["jsonl"])
    return folder / "jsonl"


def cut(home: Path, tuples: int, number: int) -> None:
    """Have work be cut into about so many slices."""
    for module in (slices, calibrate, sample_history):
        module.ROWS_OF_A_SLICE = max(tuples // number, 1)  # type: ignore[attr-defined]
    size = sum(file.stat().st_size for stream in COLUMNS for file in (home / stream).iterdir()) / 2
    ingest.read = functools.partial(_READ, slice_bytes=int(size / number) + 1)
    ingest._FILE_ROWS = tuples // number + 1


_READ = ingest.read


def measured(home: Path, warehouse: Path, tuples: int, number: int) -> Account:
    """The hours, each cut into about so many slices."""
    cut(home, tuples, number)
    pipeline = load_pipeline(home)
    with open(os.devnull, "w") as nowhere, Measured(pipeline, warehouse, output=nowhere) as context:
        run(context, intervals_between(pipeline, *RANGE), STAGES)
    return context.account


def nothing(part: Slice) -> int:
    """A slice without work."""
    return part.number


def per_task(home: Path, warehouse: Path) -> float:
    """Seconds of the driver (its JVM included) for one task more, on a cluster, once its code is compiled."""
    with RunContext(load_pipeline(home), warehouse) as context:
        spent = []
        for count in (20, 400, 20, 420):
            began = _tree_seconds()
            context.run_slices(nothing, [("x" * 2000, number) for number in range(count)])
            spent.append(_tree_seconds() - began)
    return (spent[3] - spent[2]) / 400


def _tree_seconds() -> float:
    """CPU seconds of this process and its JVM, without the JVM's Python workers."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    times = [one.cpu_times() for one in tree if one.name() == "java" or one.pid == os.getpid()]
    return sum(t.user + t.system for t in times)


def per_file(home: Path, warehouse: Path) -> float:
    """CPU seconds of the driver for one file more in a commit."""
    pipeline = load_pipeline(home)
    context = RunContext(pipeline, warehouse, output=sys.stderr)
    (interval,) = intervals_between(pipeline, START, START + HOUR)
    empty = context.warehouse.schema("answers_sales").empty_table()
    spent = []
    for count in (10, 10, 1010):
        with context.warehouse.commit(f"files{len(spent)}", [interval]) as commit:
            folder = commit.stage_folder("answers_sales", interval.label)
            for number in range(count):
                pa.parquet.write_table(empty, folder / f"part-{number:05d}-{commit.id}.parquet")
            began = time.process_time()
        spent.append(time.process_time() - began)
    return (spent[2] - spent[1]) / 1000


def simulated(account: Account, tuples: int, task_s: float, file_s: float) -> Iterator[tuple[int, int, float, float]]:
    """Tuples an hour, workers → seconds on workers' side, and on the driver's; slices of a million tuples."""
    per_tuple = sum(seconds for own in account.jobs.values() for job in own for seconds in job) / tuples
    jobs = sum(len(own) for own in account.jobs.values())
    fixed = sum(account.driver.values())
    for size in (10**7, 10**8, 10**9, 10**10):
        pieces = max(size // 1_000_000, 1)
        for workers in (10, 100, 1000):
            # Every job has as many slices as there are millions of tuples, and leaves a file each.
            waves = -(-pieces // workers)
            working = waves * 1_000_000 * per_tuple
            yield size, workers, working, fixed + jobs * pieces * (task_s + file_s)


def on_cluster(home: Path, folder: Path, workers: int, what: str, apart: str = "") -> dict[str, float]:
    """What a driver of its own measures on a cluster: ``run_once`` or ``per_task``; ``apart``: its folders' name."""
    from infra.deploy.cluster import Cluster, wheel

    name = f"{what}-{workers}{apart}"
    with Cluster(folder / name, wheel(folder / f"wheel-{name}"), workers, memory="6g") as cluster:
        asked = ["--run", what, str(home), str(folder / f"wh-{name}")]
        environment = {**os.environ, "TIDEGATE_SPARK_MASTER": cluster.master}
        environment.pop("PYSPARK_PYTHON", None)
        done = subprocess.run(
            [sys.executable, "-m", "infra.benchmarks.scaling", *asked],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found: dict[str, float] = json.loads(done.stdout)
        return found


def run_once(home: Path, warehouse: Path) -> dict[str, float]:
    """Wall seconds of the second hour's stages, cut as a cluster has them cut; the session is up and has worked."""
    pipeline, found = load_pipeline(home), dict[str, float]()
    with RunContext(pipeline, warehouse) as context:
        for interval in intervals_between(pipeline, *RANGE):
            for stage in STAGES:
                began = time.monotonic()
                run(context, [interval], [stage])
                found[stage] = time.monotonic() - began
    return found


def compared(home: Path, folder: Path) -> None:
    """The stages on one worker, on two, and twice at once with nothing in common, as Markdown.

    Two that have nothing in common could do twice as much in the time of one, if the machine gave each what it gives to
    one alone: what they do is the most that any way of cutting the work could reach here.
    """
    one, two = (on_cluster(home, folder, workers, "run_once") for workers in (1, 2))
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda apart: on_cluster(home, folder, 1, "run_once", apart), ("-left", "-right")))
    at_once = {stage: (both[0][stage] + both[1][stage]) / 2 for stage in STAGES}
    print("| stage | 1 worker, s | 2 workers, s | times as fast | 1 worker beside another, s | at most |")
    print("|---|---|---|---|---|---|")
    rows = {stage: (one[stage], two[stage], at_once[stage]) for stage in STAGES}
    rows["all"] = sum(one.values()), sum(two.values()), sum(at_once.values())
    for stage, (alone, shared, beside) in rows.items():
        cells = f"{alone:.1f} | {shared:.1f} | {alone / shared:.2f} | {beside:.1f} | {2 * alone / beside:.2f}"
        print(f"| {stage} | {cells} |", flush=True)


def main() -> None:
    """Measure, and say it as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m infra.benchmarks.scaling", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--tuples", type=lambda text: int(float(text)), default=500_000, metavar="N")
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--cluster", action="store_true", help="on clusters of one and two workers instead")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        what, home, warehouse = arguments.run[0], *map(Path, arguments.run[1:])
        once = what == "run_once"
        print(json.dumps(run_once(home, warehouse) if once else {"task": per_task(home, warehouse)}))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home, tuples = prepare(folder, arguments.tuples), arguments.tuples
        if arguments.cluster:
            compared(home, folder)
            return
        measured(home, folder / "wh-first", tuples, 1)  # what is imported and compiled
        print(f"{tuples} tuples an hour, CPU seconds of two hours\n\n| slices | slices' | driver's | " + " | ".join(
            f"on {n}" for n in WORKERS) + " |\n|---|---|---|" + "---|" * len(WORKERS))  # fmt: skip
        for number in arguments.slices:
            account = measured(home, folder / f"wh-{number}", tuples, number)
            work = sum(seconds for own in account.jobs.values() for job in own for seconds in job)
            cells = " | ".join(f"{account.on(n):.2f}" for n in WORKERS)
            print(f"| {number} | {work:.2f} | {sum(account.driver.values()):.2f} | {cells} |", flush=True)
            if number == max(arguments.slices):
                by_stage = {s: (sum(map(sum, j)), account.driver[s], len(j)) for s, j in account.jobs.items()}
        print("\n| stage | slices' | driver's | jobs |\n|---|---|---|---|")
        for stage, (work, rest, jobs) in by_stage.items():
            print(f"| {stage} | {work:.2f} | {rest:.2f} | {jobs} |")
        task_s, file_s = on_cluster(home, folder, 1, "per_task")["task"], per_file(home, folder / "wh-first")
        print(f"\nA task more: {task_s * 1e3:.2f} ms of the driver's CPU; a file more: {file_s * 1e3:.2f} ms.\n")
        print("| tuples an hour | workers | workers' seconds | driver's seconds |\n|---|---|---|---|")
        for size, workers, working, driving in simulated(account, tuples, task_s, file_s):
            print(f"| {size:.0e} | {workers} | {working:.0f} | {driving:.0f} |")


if __name__ == "__main__":
    main()
