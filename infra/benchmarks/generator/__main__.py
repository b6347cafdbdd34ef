"""Write a seeded workload as Parquet: ``python -m infra.benchmarks.generator keyed|nexmark --out DIR``."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from infra.benchmarks.generator.faults import Faults
from infra.benchmarks.generator.keys import Pairs, Uniform, Zipf
from infra.benchmarks.generator.lateness import Departures, Exponential, LogNormal, Pareto, Punctual
from infra.benchmarks.generator.shapes import Sine, Spikes, Square, Steady
from infra.benchmarks.generator.timing import Timing
from infra.benchmarks.generator.workloads import KeyedStreams, Nexmark

EXAMPLES = """\
Every variant is NAME or NAME:field=value,field=value; what is not named keeps its default:

{variants}

examples:
  # two streams of two million tuples for a join, Zipf keys, out of order by 5 s on average
  python -m infra.benchmarks.generator keyed --out .tidegate/feed --stream left=2000 --stream right=2000 \\
      --seconds 1000 --keys zipf:count=10000,s=1.1 --lateness exponential:mean_s=5

  # highest scores report last, with a power-law tail; bursts ten times the low rate
  python -m infra.benchmarks.generator keyed --out .tidegate/feed --stream events=5000 \\
      --rate square:period_s=60,high=10,duty=0.2 --lateness pareto:least_s=1,alpha=1.2 --correlation 0.8

  # delays of real flights (an hour as a minute), bad clocks, records twice and broken, one file a minute of arrival
  python -m infra.benchmarks.generator keyed --out .tidegate/feed --stream events=1000 --seconds 600 \\
      --lateness departures --skew-s 0.5 --duplicates 0.01 --malformed 0.001 --file-seconds 60

  # NEXMark, ten thousand events a second
  python -m infra.benchmarks.generator nexmark --out .tidegate/nexmark --seconds 60 --lateness lognormal
"""

SHAPES = {"steady": Steady, "square": Square, "sine": Sine, "spikes": Spikes}
LATENESS = {
    "punctual": Punctual,
    "exponential": Exponential,
    "lognormal": LogNormal,
    "pareto": Pareto,
    "departures": Departures,
}
KEYS = {"uniform": Uniform, "zipf": Zipf, "pairs": Pairs}
POSITIVE = {"period_s", "every_s", "width_s", "high", "mean_s", "median_s", "least_s", "alpha", "factor"}
POSITIVE |= {"count", "pairs", "sources"}
MOST_FILES = 100_000


def variant(text: str, choices: dict[str, type]) -> Any:
    """What ``NAME:field=value,…`` says, as one of these dataclasses; argparse.ArgumentTypeError if it says nonsense.

    >>> variant("square:high=5", SHAPES)
    Square(period_s=60.0, high=5.0, duty=0.2)
    """
    name, _, rest = text.partition(":")
    if name not in choices:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(choices)}{_nearest(name, choices)}")
    kinds = {field.name: type(field.default) for field in dataclasses.fields(choices[name])}
    values = {}
    for assignment in filter(None, rest.split(",")):
        key, _, value = assignment.partition("=")
        if key not in kinds:
            known = ", ".join(kinds) or "no fields"
            raise argparse.ArgumentTypeError(f"{name} has {known}, not {key!r}{_nearest(key, kinds)}")
        values[key] = _number(value, kinds[key], key)
    return choices[name](**values)


def _number(text: str, kind: type, name: str) -> Any:
    try:
        number = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{name}: expected a number, found {text!r}") from None
    if not np.isfinite(number) or number < 0 or (name in POSITIVE and number == 0):
        least = "above 0" if name in POSITIVE else "of at least 0"
        raise argparse.ArgumentTypeError(f"{name}: expected a finite number {least}, found {text}")
    if name in ("duty", "swing") and number > 1:
        raise argparse.ArgumentTypeError(f"{name}: expected a share of at most 1, found {text}")
    return number


def _nearest(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _stream(text: str) -> tuple[str, float]:
    name, _, rate = text.partition("=")
    if not name.isidentifier():
        raise argparse.ArgumentTypeError(f"expected NAME=RATE, found {text!r}")
    return name, _number(rate, float, f"rate of {name}")


def _share(text: str) -> float:
    share = _number(text, float, "share")
    if share > 1:
        raise argparse.ArgumentTypeError(f"expected a share of at most 1, found {text}")
    return share


def _clocks(text: str) -> int:
    return int(_number(text, int, "sources"))


def _correlation(text: str) -> float:
    magnitude = _share(text.removeprefix("-"))
    return -magnitude if text.startswith("-") else magnitude


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a time as 2013-01-01T00:00, found {text!r}") from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _seconds(text: str) -> float:
    return _number(text, float, "period_s")


def _describe() -> str:
    lines = []
    for title, choices in (("--rate, --lateness-shape", SHAPES), ("--lateness", LATENESS), ("--keys", KEYS)):
        lines.append(f"  {title}")
        for name, kind in choices.items():
            fields = ",".join(f"{f.name}={f.default:.6g}" for f in dataclasses.fields(kind))
            lines.append(f"    {name}{':' if fields else ''}{fields}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.generator",
        description="Write a seeded workload with explicit event and arrival times as Parquet, in order of arrival.",
        epilog=EXAMPLES.format(variants=_describe()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workload", choices=["keyed", "nexmark"])
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="gets <stream>.parquet, or a folder a stream of files")
    add("--seed", type=int, default=1, metavar="N", help="the same seed, the same bytes (1)")
    add("--start", type=_instant, default=Timing.start, metavar="TIME", help="of event time, UTC (2013-01-01)")
    add("--seconds", type=_seconds, default=60.0, metavar="S", help="of event time (60)")
    add("--stream", type=_stream, action="append", metavar="NAME=RATE", help="keyed: a stream and its tuples/s")
    add("--events", type=_seconds, default=10_000.0, metavar="RATE", help="nexmark: events/s over all streams (10000)")
    add("--keys", type=lambda t: variant(t, KEYS), default=Zipf(), metavar="VARIANT", help="keyed (zipf)")
    add("--rate", type=lambda t: variant(t, SHAPES), default=Steady(), metavar="VARIANT", help="over time (steady)")
    add("--lateness", type=lambda t: variant(t, LATENESS), default=Punctual(), metavar="VARIANT", help="(punctual)")
    add("--lateness-shape", type=lambda t: variant(t, SHAPES), default=Steady(), metavar="VARIANT", help="(steady)")
    add("--correlation", type=_correlation, default=0.0, metavar="R", help="of score and lateness, −1 to 1 (0)")
    add(
        "--sources",
        type=lambda t: _number(t, int, "sources"),
        default=10,
        metavar="N",
        help="clocks stamping (10)",
    )
    add("--skew-s", type=lambda t: _number(t, float, "skew"), default=0.0, metavar="S", help="sd of their errors (0)")
    add("--duplicates", type=_share, default=0.0, metavar="SHARE", help="of records that come twice (0)")
    add("--malformed", type=_share, default=0.0, metavar="SHARE", help="of records that are broken (0)")
    add("--file-seconds", type=_seconds, metavar="S", help="one file per so much arrival time: <stream>/<its start>")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0, or 2 for arguments that make no workload."""
    args = parser().parse_args(arguments)
    faults = Faults(args.sources, args.skew_s, args.duplicates, args.malformed)
    timing = Timing(args.seconds, args.start, args.rate, args.lateness, args.lateness_shape, args.correlation, faults)
    rates = dict(args.stream or [("events", 1_000.0)])
    if len(rates) < len(args.stream or []):
        print("error: --stream: two streams have the same name", file=sys.stderr)
        return 2
    workload = Nexmark(args.events, timing) if args.workload == "nexmark" else KeyedStreams(rates, args.keys, timing)
    try:
        for name, table in workload.tables(args.seed).items():
            table = table.replace_schema_metadata({"generator": repr(workload), "seed": str(args.seed)})
            files = write(table, args.out, name, args.file_seconds)
            print(f"{name}: {len(table):,} records in {files} file{'s' if files > 1 else ''} under {args.out}")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def write(table: pa.Table, out: Path, stream: str, file_seconds: float | None) -> int:
    """Write one stream, sorted by arrival; returns the number of files.

    A period without arrivals gets an empty file; ValueError if there would be too many of them.
    """
    if file_seconds is None or not len(table):
        out.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, out / f"{stream}.parquet")
        return 1
    arrival_us = table["arrival_time"].cast(pa.int64()).to_numpy()
    period_us = round(file_seconds * 1e6)
    periods = np.arange(arrival_us[0] // period_us, arrival_us[-1] // period_us + 1)
    if len(periods) > MOST_FILES:
        raise ValueError(f"{stream}: {len(periods):,} files; longer --file-seconds or a lighter tail makes fewer")
    begins = np.searchsorted(arrival_us, periods * period_us)
    folder = out / stream
    folder.mkdir(parents=True, exist_ok=True)
    for period, begin, end in zip(periods.tolist(), begins, [*begins[1:], len(table)], strict=True):
        start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=period * period_us)
        pq.write_table(table.slice(begin, end - begin), folder / f"{start:%Y-%m-%dT%H-%M-%S}.parquet")
    return len(periods)


if __name__ == "__main__":
    sys.exit(main())
