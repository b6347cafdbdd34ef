"""One query, every engine, one table: ``python -m infra.benchmarks.join_aggregate``."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.benchmarks.join_aggregate import flink_engine, spark_streaming_engine
from infra.benchmarks.join_aggregate.job import Job
from infra.benchmarks.join_aggregate.measuring import Engine, Measured, measured, own_python
from infra.benchmarks.join_aggregate.workload import Data, Workload, written

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

ENGINES = {
    engine.name: engine
    for engine in (
        Engine("numpy", ("kernel",), ("kernel",), environment={"OPENBLAS_NUM_THREADS": "1"}),
        Engine("tidegate", ("sql",), ("sql",)),
        Engine("duckdb", ("delta", "naive"), ("delta", "naive")),
        Engine("spark_batch", ("delta", "naive"), ("delta", "naive")),
        Engine("spark_streaming", ("factored", "naive"), ("factored", "naive"), spark_streaming_engine.prepare),
        Engine(
            "flink",
            ("delta", "factored", "naive"),
            ("delta", "factored"),
            flink_engine.prepare,
            {"JVM_ARGS": f"-Xmx{flink_engine.HEAP}"},
        ),
    )
}
REFERENCE = ("numpy", "kernel")
WORK_DIR = Path(".tidegate") / "benchmarks"
DISTRIBUTIONS = ("uniform", "zipf")
MOST_CELLS = 1e11
REFERENCE_LIMIT_S = 600.0


@dataclass(frozen=True)
class Window:
    """A range and its slide, in seconds."""

    range_s: int
    every_s: int

    def __str__(self) -> str:
        return f"{self.range_s} s by {self.every_s} s"


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
        """Tuples of both sides a CPU second."""
        return self.tuples / max(self.took.cpu_s, 1e-3)

    @property
    def verdict(self) -> str:
        """Whether the answers are the reference's, or why there are none."""
        return self.took.failure or ("yes" if self.same else "WRONG")


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 if an answer was wrong, or Tidegate failed; 2 for nonsense. A rival that fails says so in its row."""
    parser = _parser()
    args = parser.parse_args(argv)
    _check(parser, args)
    args.work_dir.mkdir(parents=True, exist_ok=True)
    rows = list(_fan_out(args) if args.fan_out else _table(args))
    if args.json:
        args.json.write_text(json.dumps([_as_json(row) for row in rows], indent=1) + "\n")
    wrong = [row for row in rows if not row.took.failure and not row.same]
    broken = [row for row in rows if row.took.failure and row.engine == "tidegate"]
    for row in (*wrong, *broken):
        print(f"{row.engine}:{row.form}, {row.window}, {row.distribution}: {row.verdict}", file=sys.stderr)
    return 1 if wrong or broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.join_aggregate",
        description="The same continuous join-aggregate in Tidegate and its rivals.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = ", ".join(f"{name}[:{'|'.join(engine.forms)}]" for name, engine in ENGINES.items())
    add = parser.add_argument
    add("--rows", type=_positive, default=2_000_000, metavar="N", help="tuples a side (2000000)")
    add("--rate", type=_positive, default=1_000, metavar="N", help="tuples a second and side (1000)")
    add("--keys", type=_positive, default=10_000, metavar="N", help="distinct keys (10000)")
    add(
        "--windows",
        type=_window,
        nargs="+",
        default=[Window(60, 5), Window(600, 1)],
        metavar="RANGE/EVERY",
        help="60/5 600/1",
    )
    add("--distributions", nargs="+", default=list(DISTRIBUTIONS), choices=DISTRIBUTIONS, help="of the keys (both)")
    add("--engines", type=_engine, nargs="+", metavar="ENGINE[:FORM]", help=f"{known} (all but flink:naive)")
    add("--fan-out", type=_positive, nargs="+", metavar="N", help="Tidegate's curve for so many matches per tuple")
    add("--time-limit", type=_seconds, default=300.0, metavar="S", help="after which a run is stopped (300)")
    add("--lateness", type=_seconds, default=5.0, metavar="S", help="mean of arrival - event time (5)")
    add("--files", type=_positive, default=8, metavar="N", help="of a stream; Spark streaming's micro-batches (8)")
    add("--warm", action="store_true", help="measure the second answer of each session, not the first")
    add("--seed", type=int, default=1, metavar="N", help="of everything random (1)")
    add("--json", type=Path, metavar="FILE", help="also write the rows there")
    add("--work-dir", type=Path, default=WORK_DIR, metavar="DIR", help=f"for data, logs, Flink ({WORK_DIR})")
    return parser


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected seconds, found {text!r}") from None
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"expected seconds above 0 and below a million, found {text}")
    return seconds


def _window(text: str) -> Window:
    try:
        range_s, every_s = map(int, text.split("/"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected RANGE/EVERY in seconds as 60/5, found {text!r}") from None
    if every_s < 1 or range_s < every_s or range_s % every_s:
        raise argparse.ArgumentTypeError(f"{text}: the range must be a multiple of the slide, which is at least 1")
    if 3600 % every_s:
        raise argparse.ArgumentTypeError(f"{text}: the slide must divide an hour, Tidegate's interval here")
    return Window(range_s, every_s)


def _engine(text: str) -> list[tuple[str, str]]:
    name, _, form = text.partition(":")
    if name not in ENGINES:
        near = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(ENGINES)}{hint}")
    engine = ENGINES[name]
    if form and form not in engine.forms:
        raise argparse.ArgumentTypeError(f"{name} has the forms {', '.join(engine.forms)}, not {form!r}")
    return [(name, each) for each in ((form,) if form else engine.default_forms)]


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit 2 for arguments that do not go together."""
    if args.fan_out and args.engines:
        parser.error("--fan-out is about Tidegate alone: leave --engines out")
    if args.files > args.rows:
        parser.error(f"--files {args.files}: more files than the {args.rows} tuples of a side")
    seconds = -(-args.rows // args.rate)
    if seconds > 86_400:
        parser.error(f"{args.rows} rows at {args.rate}/s last {seconds} s; a day at most: raise --rate")
    for window in args.windows:
        if seconds < window.every_s:
            parser.error(f"{args.rows} rows at {args.rate}/s last {seconds} s: no window of {window} ends")
        for fan_out in args.fan_out or ():
            if not args.rate * window.range_s >= fan_out:
                most = args.rate * window.range_s
                parser.error(f"--fan-out {fan_out}: a window of {window} holds only {most} tuples")
        if seconds // window.every_s * float(args.keys) > MOST_CELLS:
            parser.error(f"--keys {args.keys}: too many for the numpy kernel to check windows of {window}")


def _jobs(args: argparse.Namespace, distribution: str, keys: int) -> Iterator[tuple[Window, Data]]:
    workload = Workload(args.rows, float(args.rate), keys, distribution, args.lateness, args.files, args.seed)
    data = written(workload, args.work_dir.resolve())
    for window in args.windows:
        yield window, data


def _table(args: argparse.Namespace) -> Iterator[Row]:
    asked = args.engines or [_engine(name) for name in ENGINES]
    pairs = list(dict.fromkeys(pair for given in asked for pair in given))
    if ("tidegate", "sql") in pairs:
        # First, since the others' rows say how they compare.
        pairs = [("tidegate", "sql"), *(pair for pair in pairs if pair[0] != "tidegate")]
    header = ["engine", "form", "window", "keys", "rate", "tuples", "wall s", "CPU s", "tuples/CPU s", "peak MB"]
    _print([*header, "start s", "tidegate ×", "same answers"])
    for distribution in args.distributions:
        for window, data in _jobs(args, distribution, args.keys):
            reference = _reference(args, window, data)
            own = None
            for pair in pairs:
                row = reference if pair == REFERENCE else _run(args, pair, window, data)
                row.same = bool(row.took.checksum) and row.took.checksum == reference.took.checksum
                own = row if row.engine == "tidegate" and not row.took.failure else own
                if own is not None and row.took.cpu_s:
                    row.tidegate_times = own.per_cpu_s / row.per_cpu_s
                took = row.took
                stopped = ">" if took.failure else ""
                _print(
                    [
                        row.engine,
                        row.form,
                        str(window),
                        f"{row.keys} {distribution}",
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


def _fan_out(args: argparse.Namespace) -> Iterator[Row]:
    header = ["fan-out", "window", "keys", "tuples", "wall s", "CPU s", "tuples/CPU s", "operator MB", "peak MB"]
    _print([*header, "same answers"], FAN_OUT_WIDTHS)
    for window in args.windows:
        alone = argparse.Namespace(**{**vars(args), "windows": [window]})
        for fan_out in args.fan_out:
            keys = max(1, round(args.rate * window.range_s / fan_out))
            for _, data in _jobs(alone, "uniform", keys):
                reference = _reference(args, window, data)
                row = _run(args, ("tidegate", "sql"), window, data)
                row.same = bool(row.took.checksum) and row.took.checksum == reference.took.checksum
                took = row.took
                _print(
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


def _reference(args: argparse.Namespace, window: Window, data: Data) -> Row:
    """The numpy kernel's row, whatever the time limit; an error that ends the benchmark if it has none."""
    unhurried = argparse.Namespace(**{**vars(args), "time_limit": max(args.time_limit, REFERENCE_LIMIT_S)})
    row = _run(unhurried, REFERENCE, window, data)
    if row.took.failure:
        raise SystemExit(f"error: nothing to compare with, the numpy kernel: {row.took.failure}")
    return row


def _run(args: argparse.Namespace, pair: tuple[str, str], window: Window, data: Data) -> Row:
    name, form = pair
    engine, workload, work_dir = ENGINES[name], data.workload, args.work_dir.resolve()
    case = f"{name}-{form}-{window.range_s}-{window.every_s}"
    runs = work_dir / "runs" / workload.name
    runs.mkdir(parents=True, exist_ok=True)
    prepared = data.folder / f"for_{name}"
    row = Row(name, form, window, workload.distribution, workload.keys, workload.rate, 2 * workload.rows, Measured())
    try:
        python = flink_engine.interpreter(work_dir / "flink-venv", _say) if name == "flink" else own_python()
    except RuntimeError as error:
        row.took.failure = str(error)
        return row
    if engine.prepare is not None and not prepared.exists():
        making = prepared.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        engine.prepare(data, making)
        making.rename(prepared)
    job = Job(
        form,
        str(data.folder),
        str(prepared),
        str(runs / f"{case}.parquet"),
        str(work_dir / f"scratch-{os.getpid()}"),
        data.start_us,
        workload.seconds,
        window.range_s,
        window.every_s,
        data.slack_s,
        workload.keys,
        workload.rows,
        args.warm,
    )
    row.took = measured(engine, python, job, args.time_limit, runs / f"{case}.log")
    return row


def _as_json(row: Row) -> dict[str, object]:
    window = f"{row.window.range_s}/{row.window.every_s}"
    figures = {"tuples_per_cpu_s": row.per_cpu_s if row.took.cpu_s else None, "verdict": row.verdict}
    flat = {key: value for key, value in asdict(row).items() if key != "took"}
    return flat | {"window": window} | asdict(row.took) | figures


WIDTHS = (-15, -8, -13, -13, 7, 10, 8, 8, 12, 8, 7, 10, -12)
FAN_OUT_WIDTHS = (7, -13, 7, 10, 8, 8, 12, 11, 8, -12)


def _print(cells: Sequence[str], widths: Sequence[int] = WIDTHS) -> None:
    padded = (cell.ljust(-width) if width < 0 else cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    print("  ".join(padded).rstrip(), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
