"""One query, every engine, one table: ``python -m infra.benchmarks.join_aggregate``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from infra.benchmarks.join_aggregate import flink_engine, spark_streaming_engine
from infra.benchmarks.join_aggregate.answers import checksum
from infra.benchmarks.join_aggregate.job import Job
from infra.benchmarks.join_aggregate.workload import Data, Workload, written
from infra.benchmarks.rivals import arguments, flink
from infra.benchmarks.rivals.arguments import Window
from infra.benchmarks.rivals.measuring import Engine
from infra.benchmarks.rivals.table import OWN, Benchmark, Row, concluded, print_row, reference, run, table

EXAMPLES = """\
The query, at every tick: COUNT(*) and SUM of the left value over the equi-join of two sliding windows. Its slack covers
the latest arrival, so engines that know no arrival give the same answers. Every answer is compared with the numpy
kernel's by a checksum; another one is marked WRONG, and the command ends with 1.

forms     naive: as one would write it (a tuple once for each of its windows, windows joined). Written by hand are
          factored: totals per key and window of both sides, then their products; delta: signed changes per key and
          tick, running totals, the changes of the products.
--warm    measures the second answer of a session: compilers are warm, as in an engine that runs on; else the first.
columns   CPU s, peak MB: the whole process tree, sessions' start (start s: its CPU time) not counted as CPU, but as
          memory; MB is the proportional set size. tuples are both sides'. tidegate ×: Tidegate's tuples per CPU second
          over this row's; '>' where the row was stopped. numpy, DuckDB and Spark batch are one-shot: no watermark, no
          continuity, and (but for Spark) no cluster.
Flink     is installed from PyPI into its own environment under --work-dir; it reads CSV, having no Parquet there.

examples:
  # everything, two million tuples a side; hours where the naive forms run into --time-limit
  python -m infra.benchmarks.join_aggregate

  # the hand-written rivals only, a tenth of the size
  python -m infra.benchmarks.join_aggregate --rows 200000 --windows 60/5 --engines numpy tidegate duckdb:delta \\
      spark_batch:delta spark_streaming:factored flink:factored flink:delta

  # Tidegate's peak operator memory against matches per tuple
  python -m infra.benchmarks.join_aggregate --fan-out 1 10 100 1000 --windows 60/5
"""

PACKAGE = "infra.benchmarks.join_aggregate"
ENGINES = {
    engine.name: replace(engine, module=f"{PACKAGE}.{engine.name}_engine")
    for engine in (
        Engine("numpy", ("kernel",), ("kernel",), environment={"OPENBLAS_NUM_THREADS": "1"}),
        Engine("tidegate", ("sql",), ("sql",)),
        Engine("duckdb", ("delta", "naive"), ("delta", "naive")),
        Engine("spark_batch", ("delta", "naive"), ("delta", "naive")),
        Engine("spark_streaming", ("factored", "naive"), ("factored", "naive"), spark_streaming_engine.prepare),
        Engine("flink", ("delta", "factored", "naive"), ("delta", "factored"), flink_engine.prepare, flink.ENVIRONMENT),
    )
}
BENCHMARK = Benchmark(ENGINES, checksum, Job, streams=2)
DISTRIBUTIONS = ("uniform", "zipf")
MOST_CELLS = 1e11
FAN_OUT_WIDTHS = (7, -13, 7, 10, 8, 8, 12, 11, 8, -12)


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 if an answer was wrong, or Tidegate failed; 2 for nonsense. A rival that fails says so in its row."""
    parser = _parser()
    args = parser.parse_args(argv)
    _check(parser, args)
    args.work_dir.mkdir(parents=True, exist_ok=True)
    rows = _fan_out(args) if args.fan_out else table(BENCHMARK, args, _cases(args))
    return concluded(list(rows), args.json)


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser_of(
        PACKAGE,
        "The same continuous join-aggregate in Tidegate and its rivals.",
        EXAMPLES,
        ENGINES,
        " a side",
        "flink:naive",
    )
    add = parser.add_argument
    add("--keys", type=arguments.positive, default=10_000, metavar="N", help="distinct keys (10000)")
    add("--distributions", nargs="+", default=list(DISTRIBUTIONS), choices=DISTRIBUTIONS, help="of the keys (both)")
    add(
        "--fan-out",
        type=arguments.positive,
        nargs="+",
        metavar="N",
        help="Tidegate's curve for so many matches per tuple",
    )
    return parser


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit 2 for arguments that do not go together."""
    if args.fan_out and args.engines:
        parser.error("--fan-out is about Tidegate alone: leave --engines out")
    seconds = arguments.check(parser, args)
    for window in args.windows:
        for fan_out in args.fan_out or ():
            if not args.rate * window.range_s >= fan_out:
                most = args.rate * window.range_s
                parser.error(f"--fan-out {fan_out}: a window of {window} holds only {most} tuples")
        if seconds // window.every_s * float(args.keys) > MOST_CELLS:
            parser.error(f"--keys {args.keys}: too many for the numpy kernel to check windows of {window}")


def _cases(args: argparse.Namespace) -> Iterator[tuple[Window, Data]]:
    for distribution in args.distributions:
        data = _data(args, distribution, args.keys)
        for window in args.windows:
            yield window, data


def _data(args: argparse.Namespace, distribution: str, keys: int) -> Data:
    workload = Workload(args.rows, float(args.rate), keys, distribution, args.lateness, args.files, args.seed)
    return written(workload, args.work_dir.resolve())


def _fan_out(args: argparse.Namespace) -> Iterator[Row]:
    header = ["fan-out", "window", "keys", "tuples", "wall s", "CPU s", "tuples/CPU s", "operator MB", "peak MB"]
    print_row([*header, "same answers"], FAN_OUT_WIDTHS)
    for window in args.windows:
        for fan_out in args.fan_out:
            keys = max(1, round(args.rate * window.range_s / fan_out))
            data = _data(args, "uniform", keys)
            row = run(BENCHMARK, args, OWN, window, data, reference(BENCHMARK, args, window, data))
            took = row.took
            print_row(
                [
                    f"{args.rate * window.range_s / keys:g}",
                    str(window),
                    str(keys),
                    f"{row.tuples:,}",
                    f"{took.wall_s:.2f}",
                    f"{took.cpu_s:.2f}",
                    f"{row.per_cpu_s:,.0f}",
                    f"{took.told.get('peak_state_bytes', 0) / 1e6:.2f}",
                    f"{took.peak_bytes / 1e6:,.0f}",
                    row.verdict,
                ],
                FAN_OUT_WIDTHS,
            )
            yield row


if __name__ == "__main__":
    sys.exit(main())
