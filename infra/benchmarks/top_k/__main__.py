"""One query, every engine, one table: ``python -m infra.benchmarks.top_k``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from infra.benchmarks.rivals import arguments, flink
from infra.benchmarks.rivals.arguments import Window
from infra.benchmarks.rivals.measuring import Engine
from infra.benchmarks.rivals.table import Benchmark, concluded, table
from infra.benchmarks.top_k import flink_engine, spark_streaming_engine, tidegate_engine
from infra.benchmarks.top_k.answers import checksum
from infra.benchmarks.top_k.job import Job
from infra.benchmarks.top_k.workload import Data, Workload, written

EXAMPLES = """\
The query, at every tick: the k tuples with the highest score of a sliding window over a stream that arrives out of
order. Its slack covers the latest arrival, so engines that know no arrival give the same answers. Every answer is
compared with the numpy kernel's by a checksum; another one is marked WRONG, and the command ends with 1.

forms     naive: as one would write it (a tuple once for each of its windows). panes: written by hand, the best of every
          slide, then of every window from these.
tidegate  sql: the stage top_k. learn: what calibration costs beside it (the truth of every window, the slack that each
          would have needed, the slack in effect from then on), as a share of the top-k run: its `tidegate ×`.
          learn+sql: both, in the order of `tidegate run`.
--warm    measures the second answer of a session: compilers are warm, as in an engine that runs on; else the first.
columns   CPU s, peak MB: the whole process tree, sessions' start (start s: its CPU time) not counted as CPU, but as
          memory; MB is the proportional set size. tidegate ×: Tidegate's tuples per CPU second over this row's; '>'
          where the row was stopped. numpy, DuckDB and Spark batch are one-shot: no watermark, no continuity, and (but
          for Spark) no cluster.
Flink     is installed from PyPI into its own environment under --work-dir; it reads CSV, having no Parquet there.

examples:
  # everything, two million tuples; the naive forms run into --time-limit
  python -m infra.benchmarks.top_k

  # the hand-written rivals only, each session's second answer
  python -m infra.benchmarks.top_k --warm --engines numpy tidegate duckdb:panes spark_batch:panes \\
      spark_streaming:panes flink:panes

  # the best three of each of 50 groups
  python -m infra.benchmarks.top_k --groups 50 --k 3 --windows 60/5 --engines numpy tidegate duckdb:panes
"""

PACKAGE = "infra.benchmarks.top_k"
FORMS = ("panes", "naive")
ENGINES = {
    engine.name: replace(engine, module=f"{PACKAGE}.{engine.name}_engine")
    for engine in (
        Engine("numpy", ("kernel",), ("kernel",), environment={"OPENBLAS_NUM_THREADS": "1"}),
        Engine("tidegate", ("sql", "learn", "learn+sql"), ("sql", "learn"), tidegate_engine.prepare),
        Engine("duckdb", FORMS, FORMS),
        Engine("spark_batch", FORMS, FORMS),
        Engine("spark_streaming", FORMS, FORMS, spark_streaming_engine.prepare),
        Engine("flink", FORMS, FORMS, flink_engine.prepare, flink.ENVIRONMENT),
    )
}
MOST_CELLS = 1e8


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 if an answer was wrong, or Tidegate failed; 2 for nonsense. A rival that fails says so in its row."""
    parser = _parser()
    args = parser.parse_args(argv)
    seconds = arguments.check(parser, args)
    for window in args.windows:
        if seconds // window.every_s * args.groups * args.k > MOST_CELLS:
            parser.error(f"--groups {args.groups} --k {args.k}: too many for the numpy kernel to check {window}")
    args.work_dir.mkdir(parents=True, exist_ok=True)
    benchmark = Benchmark(ENGINES, checksum, Job, streams=1, own={"k": args.k})
    return concluded(list(table(benchmark, args, _cases(args))), args.json)


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser_of(
        PACKAGE, "The same continuous top-k in Tidegate and its rivals.", EXAMPLES, ENGINES, "", "tidegate:learn+sql"
    )
    parser.add_argument("--k", type=arguments.positive, default=5, metavar="N", help="how many of each window (5)")
    parser.add_argument(
        "--groups", type=arguments.positive, default=1, metavar="N", help="each with a top-k of its own (1: no groups)"
    )
    return parser


def _cases(args: argparse.Namespace) -> Iterator[tuple[Window, Data]]:
    workload = Workload(args.rows, float(args.rate), args.groups, "uniform", args.lateness, args.files, args.seed)
    data = written(workload, args.work_dir.resolve())
    for window in args.windows:
        yield window, data


if __name__ == "__main__":
    sys.exit(main())
