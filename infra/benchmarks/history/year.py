"""How long questions take on a warehouse of many intervals: ``python -m infra.benchmarks.history.year``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from infra.benchmarks.history.past import START, fill, pipeline_of

from tidegate.declarations.models import Pipeline, to_us
from tidegate.history.answers import Question
from tidegate.history.index import FOLDER
from tidegate.history.past import Past
from tidegate.history.questions import query_history
from tidegate.operators.history.query import parse_history_query
from tidegate.store.warehouse import Warehouse

SEED, LEAST_DAYS, TUPLES_PER_HOUR, CAPACITY = 5, 10, 200, 100_000
INTERVALS_S = {"hour": 3600, "day": 86_400}
SIMPLE = "SELECT COUNT(*), AVG(level), MAX(units) FROM readings"
COMPLEX = "SELECT AVG(level) FROM readings WHERE site = 'centre' AND units > 2"
GROUPED = "SELECT site, AVG(level) FROM readings GROUP BY site"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.history.year",
        description="A stream's past in many intervals, made by the stages: how long it takes to open and to ask.",
        epilog="example:\n  python -m infra.benchmarks.history.year --interval hour --days 365 --out /tmp/year",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--interval", choices=INTERVALS_S, default="day", help="length of the pipeline's interval (day)")
    add("--days", type=int, default=365, metavar="N", help=f"at least {LEAST_DAYS} (365; hourly takes half an hour)")
    add("--capacity", type=int, default=CAPACITY, metavar="D", help=f"sampled tuples kept ({CAPACITY:,})")
    add("--questions", type=int, default=50, metavar="N", help="of each kind (50)")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the warehouse goes, or is from an earlier run (a temporary folder)",
    )
    args = parser.parse_args(arguments)
    for name, least in (("days", LEAST_DAYS), ("capacity", 1_000), ("questions", 1)):
        if getattr(args, name) < least:
            parser.error(f"--{name} is at least {least:,}")
    folder = args.out or Path(tempfile.mkdtemp())
    try:
        pipeline = pipeline_of(INTERVALS_S[args.interval], TUPLES_PER_HOUR, args.capacity)
        root = folder / args.interval
        if not Warehouse(root, pipeline).labels("history_leaves"):
            print(f"filling {args.days} days …", file=sys.stderr)
            fill(pipeline, root, args.days, TUPLES_PER_HOUR, SEED)
        measure(Warehouse(root, pipeline), args.questions)
    finally:
        if args.out is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def measure(warehouse: Warehouse, questions: int) -> None:
    """Print what is there, how long it takes to open it, and how long questions take."""
    pipeline, stream = warehouse.pipeline, warehouse.pipeline.streams[0]
    labels = warehouse.labels("history_leaves")
    files = len(warehouse.files("history_samples_readings", labels))
    copies = warehouse.folder / "_state" / FOLDER
    whole = (START, START + timedelta(seconds=pipeline.interval_s * len(labels)))

    def without() -> None:
        shutil.rmtree(copies, ignore_errors=True)
        query_history(pipeline, warehouse.root, COMPLEX, *whole)

    print(f"{len(labels):,} intervals, {files:,} files of samples")
    _report("the first question to all of the past, without the copies", _times([without] * 3))
    past = Past.open(warehouse, stream)
    mebibytes = sum(file.stat().st_size for file in copies.iterdir()) / 2**20
    strata = past.view.strata
    print(f"  {len(strata.tuples):,} rows of leaves, {strata.sampled.sum():,} samples; copies of {mebibytes:,.1f} MiB")
    _report("open", _times([lambda: Past.open(warehouse, stream)] * 10))
    past.view.tree.query(0, 0)
    rng = np.random.default_rng(SEED)
    for name, sql, share in (
        ("simple, any period", SIMPLE, None),
        ("GROUP BY a declared column, any period", GROUPED, None),
        ("complex, 1 % of the past", COMPLEX, 0.01),
        ("complex, 10 % of the past", COMPLEX, 0.1),
        ("complex, all of it", COMPLEX, 1.0),
    ):
        spans = [_span(whole, share, rng) for _ in range(questions)]
        _report(f"{name}: opened before", _times([_asked(past, sql, *span) for span in spans]))
        _report(f"{name}: opening included", _times([_whole_query(pipeline, warehouse, sql, *s) for s in spans]))


def _span(whole: tuple[datetime, datetime], share: float | None, rng: np.random.Generator) -> tuple[datetime, datetime]:
    """A part of the past, to the second: so long, or of any length."""
    length = (whole[1] - whole[0]).total_seconds() - 86_400
    wanted = length * (share if share is not None else rng.uniform(0.01, 1))
    start = whole[0] + timedelta(seconds=int(rng.uniform(0, length - wanted)))
    return start, start + timedelta(seconds=int(wanted))


def _asked(past: Past, sql: str, start: datetime, end: datetime) -> Callable[[], object]:
    query = parse_history_query(sql, past.warehouse.pipeline.streams)
    return Question(query, past, to_us(start), to_us(end), 0.95).answer


def _whole_query(
    pipeline: Pipeline, warehouse: Warehouse, sql: str, start: datetime, end: datetime
) -> Callable[[], object]:
    return lambda: query_history(pipeline, warehouse.root, sql, start, end)


def _times(questions: Sequence[Callable[[], object]]) -> list[float]:
    seconds = []
    for question in questions:
        begun = time.perf_counter()
        question()
        seconds.append(time.perf_counter() - begun)
    return seconds


def _report(name: str, seconds: Sequence[float]) -> None:
    median, p95 = (1e3 * np.quantile(seconds, q) for q in (0.5, 0.95))
    print(f"  {name:<60} median {median:9.1f} ms   p95 {p95:9.1f} ms")


if __name__ == "__main__":
    raise SystemExit(main())
