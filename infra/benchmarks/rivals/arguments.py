"""The arguments that the benchmarks against rivals have in common, and what makes no sense of them."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.benchmarks.rivals.measuring import Engine

WORK_DIR = Path(".tidegate") / "benchmarks"


@dataclass(frozen=True)
class Window:
    """A range and its slide, in seconds."""

    range_s: int
    every_s: int

    def __str__(self) -> str:
        return f"{self.range_s} s by {self.every_s} s"


def parser_of(
    package: str, description: str, examples: str, engines: Mapping[str, Engine], stream: str, left_out: str
) -> argparse.ArgumentParser:
    """Rows, rate, windows, engines and how they are run.

    ``stream``: what has so many rows, in the help. ``left_out``: the forms that are not run by themselves.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {package}",
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = ", ".join(f"{name}[:{'|'.join(engine.forms)}]" for name, engine in engines.items())
    add = parser.add_argument
    add("--rows", type=positive, default=2_000_000, metavar="N", help=f"tuples{stream} (2000000)")
    add("--rate", type=positive, default=1_000, metavar="N", help=f"tuples a second{stream and ' and side'} (1000)")
    add(
        "--windows",
        type=window,
        nargs="+",
        default=[Window(60, 5), Window(600, 1)],
        metavar="RANGE/EVERY",
        help="60/5 600/1",
    )
    add("--engines", type=_engine_of(engines), nargs="+", metavar="ENGINE[:FORM]", help=f"{known} (all but {left_out})")
    add("--time-limit", type=seconds, default=300.0, metavar="S", help="after which a run is stopped (300)")
    add("--lateness", type=seconds, default=5.0, metavar="S", help="mean of arrival - event time (5)")
    add("--files", type=positive, default=8, metavar="N", help="of a stream; Spark streaming's micro-batches (8)")
    add("--warm", action="store_true", help="measure the second answer of each session, not the first")
    add("--seed", type=int, default=1, metavar="N", help="of everything random (1)")
    add("--json", type=Path, metavar="FILE", help="also write the rows there")
    add("--work-dir", type=Path, default=WORK_DIR, metavar="DIR", help=f"for data, logs, Flink ({WORK_DIR})")
    return parser


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """Exit 2 for arguments that do not go together; how many seconds the streams last."""
    if args.files > args.rows:
        parser.error(f"--files {args.files}: more files than the {args.rows} tuples of a stream")
    lasting_s: int = -(-args.rows // args.rate)
    if lasting_s > 86_400:
        parser.error(f"{args.rows} rows at {args.rate}/s last {lasting_s} s; a day at most: raise --rate")
    for each in args.windows:
        if lasting_s < each.every_s:
            parser.error(f"{args.rows} rows at {args.rate}/s last {lasting_s} s: no window of {each} ends")
    return lasting_s


def positive(text: str) -> int:
    """A whole number from 1 on."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {text}")
    return number


def seconds(text: str) -> float:
    """A time above 0."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected seconds, found {text!r}") from None
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"expected seconds above 0 and below a million, found {text}")
    return number


def window(text: str) -> Window:
    """A window as RANGE/EVERY."""
    try:
        range_s, every_s = map(int, text.split("/"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected RANGE/EVERY in seconds as 60/5, found {text!r}") from None
    if every_s < 1 or range_s < every_s or range_s % every_s:
        raise argparse.ArgumentTypeError(f"{text}: the range must be a multiple of the slide, which is at least 1")
    if 3600 % every_s:
        raise argparse.ArgumentTypeError(f"{text}: the slide must divide an hour, Tidegate's interval here")
    return Window(range_s, every_s)


def _engine_of(engines: Mapping[str, Engine]) -> Callable[[str], list[tuple[str, str]]]:
    def engine(text: str) -> list[tuple[str, str]]:
        name, _, form = text.partition(":")
        if name not in engines:
            near = difflib.get_close_matches(name, engines, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(engines)}{hint}")
        if form and form not in engines[name].forms:
            raise argparse.ArgumentTypeError(f"{name} has the forms {', '.join(engines[name].forms)}, not {form!r}")
        return [(name, each) for each in ((form,) if form else engines[name].default_forms)]

    return engine
