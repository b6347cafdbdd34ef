"""Measure history: ``python -m infra.benchmarks.history [--tuples N] [--rivals]``."""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from infra.benchmarks.history.store import LEAF_TUPLES, Store
from infra.benchmarks.history.stream import INTERVAL_TUPLES, KINDS, intervals

from tidegate.declarations.models import History

SEED, QUERIES, WINDOW_SHARE = 5, 200, 0.01
CELL_TUPLES = LEAF_TUPLES // 10
"""The truth is known of cells: tenths of leaves, so that simple questions cut leaves at both ends."""
Truth = Callable[[int, int, int | None], float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.history",
        description="A synthetic stream through sampler and tree: bytes, seconds, errors, query times.",
        epilog="example:\n  python -m infra.benchmarks.history --tuples 100000000 --capacity 4000000 --rivals",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tuples", type=int, default=10**8, metavar="N", help="in all (10^8; try 10^9)")
    parser.add_argument("--capacity", type=int, default=4_000_000, metavar="D", help="sampled tuples kept (4 million)")
    parser.add_argument("--rivals", action="store_true", help="DuckDB on all data, a uniform sample, rollups as well")
    parser.add_argument(
        "--spark",
        type=int,
        default=0,
        metavar="N",
        help="N questions a part of the past to Spark on all data",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the files go (a temporary folder)")
    args = parser.parse_args(arguments)
    if args.tuples < 10 * INTERVAL_TUPLES:
        parser.error(f"--tuples is at least {10 * INTERVAL_TUPLES:,}")
    if not 0 <= args.spark <= QUERIES:
        parser.error(f"--spark asks from 1 to {QUERIES} questions; 0 asks none")
    folder = args.out or Path(tempfile.mkdtemp())
    try:
        _measure(folder, args.tuples, args.capacity, args.rivals, args.spark)
    finally:
        if args.out is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _measure(folder: Path, tuples: int, capacity: int, rivals: bool, spark: int) -> None:
    (folder / "bands").mkdir(parents=True)
    spec = History(leaf_s=10, capacity_tuples=capacity, law="inverse_age", min_fraction=1e-4, bands=2)
    store, full = Store(folder / "bands", spec), folder / "full.parquet"
    sums = np.zeros((KINDS, tuples // CELL_TUPLES + 1))
    counts = np.zeros_like(sums)

    def watched():  # type: ignore[no-untyped-def]
        """The stream, with the truth of whole leaves kept aside, and all of it on disk for the rivals."""
        writer = None
        for number, interval in enumerate(intervals(tuples, SEED)):
            kind, value = interval.column("kind").to_numpy(), interval.column("value").to_numpy()
            cell = np.arange(len(kind)) // CELL_TUPLES + number * (INTERVAL_TUPLES // CELL_TUPLES) + 1
            np.add.at(sums, (kind, cell), value)
            np.add.at(counts, (kind, cell), 1)
            if rivals or spark:
                kept = interval.select(["event_us", "value", "kind"])
                writer = writer or pq.ParquetWriter(full, kept.schema, compression="zstd")
                writer.write_table(kept)
            yield interval
        if writer:
            writer.close()

    store.fill(watched())
    np.cumsum(sums, axis=1, out=sums)
    np.cumsum(counts, axis=1, out=counts)

    def truth(start: int, end: int, kind: int | None) -> float:
        of = slice(None) if kind is None else kind
        edges = [start // CELL_TUPLES, end // CELL_TUPLES]
        total, count = (np.diff(np.atleast_2d(x[of])[:, edges]).sum() for x in (sums, counts))
        return float(total / count)

    held = sum(file.stat().st_size for file in (folder / "bands").iterdir())
    print(f"{tuples:,} tuples, capacity {capacity:,}")
    print(
        f"  store            {held / 1e6:,.1f} MB of samples, {store.held():,} tuples (most ever {store.most_rows:,})"
    )
    print(
        f"  tree             {len(store.tree):,} leaves, height {store.tree.height}, {store.tree.nbytes / 1e6:,.1f} MB"
    )
    print(f"  time             {store.seconds / (tuples / 1e7):,.1f} s per 10^7 tuples")
    print(f"  memory           {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:,.2f} GB at most")
    _ask(store, tuples, truth)
    if rivals:
        from infra.benchmarks.history.rivals import ask_rivals

        ask_rivals(full, tuples, store.held(), windows(tuples), truth)
    if spark:
        from infra.benchmarks.history.rivals import ask_spark

        ask_spark(full, folder / "scratch", windows(tuples), truth, spark)


def windows(tuples: int) -> dict[str, list[tuple[int, int, int]]]:
    """(start, end, kind) of windows of 1 % of the history, whole leaves: in the recent half and in the oldest tenth."""
    rng, length = np.random.default_rng(SEED), int(tuples * WINDOW_SHARE) // LEAF_TUPLES
    leaves, found = tuples // LEAF_TUPLES, {}
    for name, low, high in (("recent half", leaves // 2, leaves - length), ("oldest tenth", 0, leaves // 10 - length)):
        starts, kinds = rng.integers(low, high + 1, QUERIES), rng.integers(0, KINDS, QUERIES)
        spans = zip(starts.tolist(), kinds.tolist(), strict=True)
        found[name] = [(s * LEAF_TUPLES, (s + length) * LEAF_TUPLES, k) for s, k in spans]
    return found


def report(name: str, errors: list[float], seconds: list[float]) -> None:
    """One line: errors and times."""
    p50, p95 = (100 * np.quantile(errors, q) for q in (0.5, 0.95))
    print(
        f"  {name:<46} error p50 {p50:7.4f} %  p95 {p95:7.4f} %   time p50 {1e3 * np.median(seconds):8.2f} ms  "
        f"p95 {1e3 * np.quantile(seconds, 0.95):8.2f} ms"
    )


def _ask(store: Store, tuples: int, truth: Truth) -> None:
    rng, errors, seconds = np.random.default_rng(SEED), [], []
    for _ in range(QUERIES):
        # 100 leaves or more, nearly always cut at both ends.
        length = int(rng.integers(100 * LEAF_TUPLES, tuples // 2)) // CELL_TUPLES * CELL_TUPLES
        start = int(rng.integers(0, tuples - length)) // CELL_TUPLES * CELL_TUPLES
        begun = time.perf_counter()
        found = store.mean(start, start + length, None)
        seconds.append(time.perf_counter() - begun)
        exact = truth(start, start + length, None)
        errors.append(abs((found.estimate or 0.0) - exact) / abs(exact))
    report("simple AVG, 100 leaves or more", errors, seconds)
    for name, spans in windows(tuples).items():
        errors, seconds, hits = [], [], 0
        for start, end, kind in spans:
            begun = time.perf_counter()
            found = store.mean(start, end, kind)
            seconds.append(time.perf_counter() - begun)
            exact = truth(start, end, kind)
            errors.append(abs((found.estimate or 0.0) - exact) / abs(exact))
            hits += (found.low or -np.inf) <= exact <= (found.high or np.inf)
        report(f"AVG, one kind of 25, 1 % windows, {name}", errors, seconds)
        print(f"  {'':<46} {hits} of {len(spans)} intervals of 95 % hold the truth")


if __name__ == "__main__":
    raise SystemExit(main())
