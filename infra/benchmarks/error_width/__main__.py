"""Replay f_q over real and synthetic streams: ``python -m infra.benchmarks.error_width [--out DIR]``."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from infra.benchmarks.error_width.errors import Question
from infra.benchmarks.error_width.panes import Panes, departures, landings, synthetic
from infra.benchmarks.error_width.replay import study

HOUR = 12  # ticks
EPILOG = """\
columns: coverage, worst_month of the learnt width; width, its mean share of the range; over_hindsight and over_monthly,
how much more that is than the smallest fixed width that would have kept 95 % of the year, of each month; then the same
of the formula that takes tuples for independent.

examples:
  python -m infra.benchmarks.error_width
  python -m infra.benchmarks.error_width --out .tidegate/error_width --seeds 10 --evidence-days 7 14 28
"""
COLUMNS = ["stream", "query", "error", "evidence_days", "coverage", "worst_month", "width", "hindsight"]
COLUMNS += ["over_hindsight", "over_monthly", "formula_coverage", "formula_width"]

DEPARTURES: list[tuple[Question, tuple[float, ...]]] = [
    (Question("count", HOUR, by_group=True), (0.1, 0.3)),
    (Question("count", 3 * HOUR, by_group=True), (0.3,)),
    (Question("count", 6 * HOUR, by_group=True), (0.3, 0.5)),
    (Question("count", 6 * HOUR), (0.3, 0.5)),
    (Question("avg", 6 * HOUR, ("dep_delay",)), (0.2, 0.5)),
    (Question("avg", 24 * HOUR, ("dep_delay",)), (0.2, 0.3)),
    (Question("sum", 24 * HOUR, ("dep_delay",)), (0.2, 0.5)),
    (Question("max", 6 * HOUR, ("dep_delay",)), (0.3,)),
    (Question("max", 24 * HOUR, ("dep_delay",)), (0.1, 0.3)),
    (Question("avg", 6 * HOUR, ("distance",)), (0.2, 0.3)),
    (Question("avg", 24 * HOUR, ("distance",)), (0.05, 0.1)),
    (Question("avg", 24 * HOUR, ("distance",), by_group=True), (0.05, 0.1)),
    (Question("avg", 48 * HOUR, ("distance",)), (0.02, 0.05)),
    # Beyond its reach: two weeks of evidence are but two such ranges.
    (Question("avg", 168 * HOUR, ("distance",)), (0.02, 0.05)),
]
LANDINGS: list[tuple[Question, tuple[float, ...]]] = [
    (Question("ratio", 6 * HOUR, ("distance", "air_time")), (0.05, 0.1, 0.2)),
]
SYNTHETIC: list[tuple[Question, tuple[float, ...]]] = [
    (Question("count", 6 * HOUR), (0.2,)),
    (Question("sum", 6 * HOUR, ("value",)), (0.2,)),
    (Question("avg", 6 * HOUR, ("value",)), (0.05, 0.1)),
]


def cases(seeds: int) -> Iterator[tuple[str, Panes, Question, float]]:
    """Every stream, query and ERROR that is studied."""
    for stream, questions in ((departures(), DEPARTURES), (landings(), LANDINGS)):
        for question, errors in questions:
            for error in errors:
                yield stream.name, stream, question, error
    for seed in range(seeds):
        for correlation_h in (2, 12):
            stream = synthetic(seed, days=120, rates_per_hour=(20, 120), correlation_h=correlation_h)
            for question, errors in SYNTHETIC:
                for error in errors:
                    yield f"Markov rate, AR(1) values, {correlation_h} h, seed {seed}", stream, question, error


def rows(seeds: int, evidence_days: Sequence[float | None]) -> Iterator[list[str]]:
    """The table's rows, one a case and period of evidence."""
    for name, stream, question, error in cases(seeds):
        for days in evidence_days:
            found = study(stream, question, error, days)
            learnt, formula = found.learnt, found.formula
            yield [
                name,
                str(question),
                f"{error:g}",
                "as learnt" if days is None else f"{days:g}",
                f"{learnt.coverage:.4f}",
                f"{learnt.worst_month:.3f}",
                f"{learnt.width:.3f}",
                f"{found.hindsight:.3f}",
                f"{learnt.width / found.hindsight - 1:+.1%}",
                f"{learnt.width / found.monthly - 1:+.1%}",
                "" if formula is None else f"{formula.coverage:.3f}",
                "" if formula is None else f"{formula.width:.3f}",
            ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; with --out also write it as CSV."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.error_width",
        description="Coverage and width of the learnt error-to-width map, month by month.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for error_width.csv")
    parser.add_argument("--seeds", type=int, default=3, help="synthetic streams of each kind (default 3)")
    parser.add_argument(
        "--evidence-days", type=float, nargs="+", default=[None], metavar="DAYS", help="other periods of evidence"
    )
    options = parser.parse_args(arguments)
    table = []
    print(" | ".join(COLUMNS))
    for row in rows(options.seeds, options.evidence_days):
        print(" | ".join(row), flush=True)
        table.append(row)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "error_width.csv").open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *table])
    return 0


if __name__ == "__main__":
    sys.exit(main())
