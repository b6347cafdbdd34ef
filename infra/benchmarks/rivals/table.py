"""One query, every engine, one table: run, compare, print."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from infra.benchmarks.rivals import flink
from infra.benchmarks.rivals.arguments import Window
from infra.benchmarks.rivals.job import Job
from infra.benchmarks.rivals.measuring import Checksum, Engine, Measured, measured, own_python
from infra.benchmarks.rivals.workload import Data

REFERENCE = ("numpy", "kernel")
OWN = ("tidegate", "sql")
REFERENCE_LIMIT_S = 600.0
HEADER = ("engine", "form", "window", "keys", "rate", "tuples", "wall s", "CPU s", "tuples/CPU s", "peak MB")
WIDTHS = (-15, -11, -13, -13, 7, 10, 8, 8, 12, 8, 7, 10, -12)


@dataclass(frozen=True)
class Benchmark:
    """A query that is asked of several engines.

    ``job``: the kind of job. ``own``: what it has beside what all jobs have. ``streams``: how many there are.
    """

    engines: Mapping[str, Engine]
    checksum: Checksum
    job: Callable[..., Job]
    streams: int
    own: Mapping[str, object] = field(default_factory=dict)


@dataclass
class Row:
    """One line of the table."""

    engine: str
    form: str
    window: Window
    distribution: str
    keys: int
    rate: float
    tuples: int
    took: Measured
    same: bool = False
    tidegate_times: float | None = None

    @property
    def per_cpu_s(self) -> float:
        """Tuples of all streams a CPU second."""
        return self.tuples / max(self.took.cpu_s, 1e-3)

    @property
    def verdict(self) -> str:
        """Whether the answers are the reference's, or why there are none."""
        return self.took.failure or ("yes" if self.same else "WRONG")


def table(benchmark: Benchmark, args: argparse.Namespace, cases: Iterable[tuple[Window, Data]]) -> Iterator[Row]:
    """Every engine asked for, on every case; printed as they come."""
    asked = args.engines or [[(e.name, form) for form in e.default_forms] for e in benchmark.engines.values()]
    pairs = list(dict.fromkeys(pair for given in asked for pair in given))
    if OWN in pairs:
        # First, since the others' rows say how they compare.
        pairs = [OWN, *(pair for pair in pairs if pair != OWN)]
    print_row([*HEADER, "start s", "tidegate ×", "same answers"])
    for window, data in cases:
        own = None
        kernel = reference(benchmark, args, window, data)
        for pair in pairs:
            row = kernel if pair == REFERENCE else run(benchmark, args, pair, window, data, kernel)
            own = row if pair == OWN and not row.took.failure else own
            if own is not None and row.took.cpu_s:
                row.tidegate_times = own.per_cpu_s / row.per_cpu_s
            took = row.took
            stopped = ">" if took.failure else ""
            print_row(
                [
                    row.engine,
                    row.form,
                    str(window),
                    f"{row.keys} {row.distribution}",
                    f"{row.rate:g}/s",
                    f"{row.tuples:,}",
                    f"{took.wall_s:.2f}",
                    f"{took.cpu_s:.2f}",
                    f"{'<' if stopped else ''}{row.per_cpu_s:,.0f}" if took.cpu_s else "",
                    f"{took.peak_bytes / 1e6:,.0f}",
                    f"{took.start_cpu_s:.1f}",
                    "" if row.tidegate_times is None else f"{stopped}{row.tidegate_times:.3g}",
                    row.verdict,
                ]
            )
            yield row


def reference(benchmark: Benchmark, args: argparse.Namespace, window: Window, data: Data) -> Row:
    """The numpy kernel's row, whatever the time limit; an error that ends the benchmark if it has none."""
    unhurried = argparse.Namespace(**{**vars(args), "time_limit": max(args.time_limit, REFERENCE_LIMIT_S)})
    row = run(benchmark, unhurried, REFERENCE, window, data)
    if row.took.failure:
        raise SystemExit(f"error: nothing to compare with, the numpy kernel: {row.took.failure}")
    return row


def run(
    benchmark: Benchmark,
    args: argparse.Namespace,
    pair: tuple[str, str],
    window: Window,
    data: Data,
    kernel: Row | None = None,
) -> Row:
    """One engine in one form on one case, compared with the kernel's row (with itself if there is none)."""
    name, form = pair
    engine, workload, work_dir = benchmark.engines[name], data.workload, args.work_dir.resolve()
    case = "-".join(map(str, (name, form, window.range_s, window.every_s, *benchmark.own.values())))
    runs = work_dir / "runs" / data.folder.name
    runs.mkdir(parents=True, exist_ok=True)
    prepared = data.folder / f"for_{name}"
    tuples = benchmark.streams * workload.rows
    row = Row(name, form, window, workload.distribution, workload.keys, workload.rate, tuples, Measured())
    try:
        python = flink.interpreter(work_dir / "flink-venv", _say) if name == "flink" else own_python()
    except RuntimeError as error:
        row.took.failure = str(error)
        return row
    if engine.prepare is not None and not prepared.exists():
        making = prepared.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        engine.prepare(data, making)
        making.rename(prepared)
    job = benchmark.job(
        form=form,
        data=str(data.folder),
        prepared=str(prepared),
        out=str(runs / f"{case}.parquet"),
        scratch=str(work_dir / f"scratch-{os.getpid()}"),
        start_us=data.start_us,
        seconds=workload.seconds,
        range_s=window.range_s,
        every_s=window.every_s,
        slack_s=data.slack_s,
        keys=workload.keys,
        rows=workload.rows,
        warm=args.warm,
        **benchmark.own,
    )
    row.took = measured(engine, python, job, benchmark.checksum, args.time_limit, runs / f"{case}.log")
    row.same = bool(row.took.checksum) and row.took.checksum == (kernel or row).took.checksum
    return row


def concluded(rows: Sequence[Row], json_file: Path | None) -> int:
    """0; 1 if an answer was wrong, or Tidegate failed. A rival that fails has said so in its row."""
    if json_file:
        json_file.write_text(json.dumps([_as_json(row) for row in rows], indent=1) + "\n")
    wrong = [row for row in rows if not row.took.failure and not row.same]
    broken = [row for row in rows if row.took.failure and row.engine == "tidegate"]
    for row in (*wrong, *broken):
        print(f"{row.engine}:{row.form}, {row.window}, {row.distribution}: {row.verdict}", file=sys.stderr)
    return 1 if wrong or broken else 0


def _as_json(row: Row) -> dict[str, object]:
    window = f"{row.window.range_s}/{row.window.every_s}"
    figures = {"tuples_per_cpu_s": row.per_cpu_s if row.took.cpu_s else None, "verdict": row.verdict}
    flat = {key: value for key, value in asdict(row).items() if key != "took"}
    return flat | {"window": window} | asdict(row.took) | figures


def print_row(cells: Sequence[str], widths: Sequence[int] = WIDTHS) -> None:
    """A line of a table; negative widths are flush left."""
    padded = (cell.ljust(-width) if width < 0 else cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    print("  ".join(padded).rstrip(), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
