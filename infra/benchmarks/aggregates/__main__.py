"""Aggregates in groups, measured: ``python -m infra.benchmarks.aggregates``."""

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
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from infra.benchmarks.aggregates.questions import QUESTIONS
from infra.benchmarks.rivals import arguments, workload
from infra.benchmarks.rivals.arguments import Window
from infra.benchmarks.rivals.job import SECOND_US, Job
from infra.benchmarks.rivals.meter import TreeMeter
from infra.benchmarks.rivals.tidegate import pipeline_of
from infra.benchmarks.rivals.workload import Data, Workload

WAYS = ("tidegate", "duckdb")
_STREAM = "events"
_MARK = "measured "
_EXAMPLES = """\
examples:
  # ten million tuples of ten thousand keys in a thousand seconds
  python -m infra.benchmarks.aggregates

  # a tenth of it, one question
  python -m infra.benchmarks.aggregates --rows 1000000 --rate 1000 --questions distinct --windows 60/5

Each way answers every question for every tick from the same Parquet, in a process of its own, to memory; the answers
are compared by a checksum of each window. Starting Python, imports and reading are in the CPU seconds. DuckDB's form is
the best that we know (questions.py): one-shot, no watermark, no arrival; the slack covers the latest arrival, so the
answers are the same.
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if answers differ."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.aggregates",
        description="Aggregates in groups over sliding windows, beside DuckDB.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rows", type=arguments.positive, default=10_000_000, metavar="N", help="tuples (10000000)")
    add("--rate", type=arguments.positive, default=10_000, metavar="N", help="tuples a second (10000)")
    add("--keys", type=arguments.positive, default=10_000, metavar="N", help="distinct keys (10000)")
    add("--windows", type=arguments.window, nargs="+", default=[Window(60, 5), Window(600, 1)], metavar="RANGE/EVERY")
    add("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    add("--seed", type=int, default=1)
    add("--work-dir", type=Path, default=arguments.WORK_DIR, metavar="DIR")
    add("--time-limit", type=arguments.seconds, default=900.0, metavar="S", help="after which a way is stopped (900)")
    add("--measure", nargs=2, metavar=("WAY", "JOB"), help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.measure:
        _measure(args.measure[0], json.loads(args.measure[1]))
        return 0
    data = workload.written(
        Workload(args.rows, float(args.rate), args.keys, "uniform", 5.0, 8, args.seed),
        args.work_dir.resolve(),
        [_STREAM],
        ("value", pc.floor),
    )
    span_s = data.workload.seconds
    print(f"{args.rows:,} tuples, {args.keys:,} keys, {span_s} s of event time")
    print("| question | window | by | rows of answers | CPU s | wall s | peak MiB | (tuples + rows) a CPU s | same |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    different = False
    for window in args.windows:
        for name in args.questions:
            sums: list[list[float]] = []
            for way in args.ways:
                with tempfile.TemporaryDirectory(prefix="tidegate-aggregates-") as scratch:
                    told = _measured(way, _job(data, window, name, scratch), name, args.time_limit)
                line = f"| {name} | {window} | {way} |"
                if told is None:
                    print(f"{line} | > {args.time_limit:g} | | | | |", flush=True)
                    continue
                sums.append(told["sums"])
                same = len(sums) < 2 or _same(*sums)
                different |= not same
                print(
                    f"{line} {told['rows']:,} | {told['cpu_s']:.1f} | {told['wall_s']:.1f} | "
                    f"{told['peak_bytes'] / 2**20:,.0f} | {(args.rows + told['rows']) / told['cpu_s']:,.0f} | "
                    f"{'yes' if same else 'NO'} |",
                    flush=True,
                )
    return int(different)


def _job(data: Data, window: Window, name: str, scratch: str) -> dict[str, Any]:
    job = Job(
        form=name,
        data=str(data.folder),
        prepared="",
        out="",
        scratch=scratch,
        start_us=data.start_us,
        seconds=data.workload.seconds,
        range_s=window.range_s,
        every_s=window.every_s,
        slack_s=data.slack_s,
        keys=data.workload.keys,
        rows=data.workload.rows,
        warm=False,
    )
    return dict(vars(job))


def _measured(way: str, job: dict[str, Any], name: str, limit_s: float) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "infra.benchmarks.aggregates", "--measure", way, json.dumps(job)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode or not lines:
        sys.exit(f"{way}, {name}: failed\n{done.stderr[-3000:]}")
    told: dict[str, Any] = json.loads(lines[0].removeprefix(_MARK))
    return told


def _measure(way: str, words: dict[str, Any]) -> None:
    """One way in this process; a line of JSON with what it took and a checksum of each window."""
    job, began = Job(**words), time.monotonic()
    with TreeMeter(os.getpid()) as meter:
        windows, answers = (_tidegate if way == "tidegate" else _duckdb)(job)
        told = {"cpu_s": meter.cpu_s(), "wall_s": time.monotonic() - began, "peak_bytes": meter.peak_bytes}
    told |= {"rows": len(windows), "sums": _checksum(job, windows, answers)}
    print(_MARK + json.dumps(told), flush=True)


def _tidegate(job: Job) -> tuple[np.ndarray, np.ndarray]:
    """Its parser, its operators, on Parquet; window numbers from 1 on, and values."""
    from tidegate.declarations.tables import schema
    from tidegate.operators.schedule import Schedule
    from tidegate.queries.questions import Answering, Question
    from tidegate.queries.scan import EventFiles

    question = QUESTIONS[job.form]
    lines = [
        f"SELECT key, {question.output} AS answer FROM {_STREAM} [{job.range_s} SECONDS] AS e",
        f"GROUP BY key{question.tail} EVERY {job.every_s} SECONDS",
    ]
    pipeline = pipeline_of(job, {_STREAM: job.stream(_STREAM)}, "value", lines)
    query = pipeline.query("asked")
    schedule = Schedule.from_ticks(job.ends_us, job.slack_s * SECOND_US, {"e": job.range_s * SECOND_US})
    files = tuple(sorted(str(path) for path in Path(job.stream(_STREAM)).rglob("*.parquet")))
    events = {_STREAM: EventFiles(files, schema(pipeline, f"events_{_STREAM}"))}
    asked = Question(query, schedule, np.ones(len(schedule)), events, job.every_s * SECOND_US)
    windows, answers = [], []
    for part in Answering(asked):
        windows.append(part.column("_window_index").combine_chunks().to_numpy())
        answers.append(_numbers(part.column("answer")))
    return np.concatenate(windows) + 1, np.concatenate(answers)


def _duckdb(job: Job) -> tuple[np.ndarray, np.ndarray]:
    """The same by DuckDB."""
    sql = QUESTIONS[job.form].duckdb.format(
        start_us=job.start_us,
        every_us=job.every_s * SECOND_US,
        files=f"{job.stream(_STREAM)}/*/*.parquet",
        windows=len(job.ends_us),
        width=job.range_s // job.every_s,
    )
    settings: dict[str, Any] = {
        "temp_directory": job.scratch,
        "memory_limit": "12GB",
        "preserve_insertion_order": False,
    }
    with duckdb.connect(config=settings) as database:
        rows = database.execute(f"SELECT w, answer FROM ({sql})").to_arrow_table()
    return rows.column("w").combine_chunks().to_numpy(), _numbers(rows.column("answer"))


def _numbers(values: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0).combine_chunks().to_numpy()
    return numbers


def _checksum(job: Job, windows: np.ndarray, answers: np.ndarray) -> list[float]:
    """Of each window how many rows there are and their sum, one after the other."""
    here = (windows >= 1) & (windows <= len(job.ends_us))
    counts = np.bincount(windows[here].astype(np.int64), minlength=len(job.ends_us) + 1)
    sums = np.bincount(windows[here].astype(np.int64), answers[here], minlength=len(job.ends_us) + 1)
    return [*counts.astype(float).tolist(), *sums.tolist()]


def _same(mine: Sequence[float], theirs: Sequence[float]) -> bool:
    return len(mine) == len(theirs) and bool(np.allclose(mine, theirs, rtol=1e-6, atol=1e-3))


if __name__ == "__main__":
    sys.exit(main())
