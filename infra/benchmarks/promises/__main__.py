"""Promises over real streams and laws of delays: kept in which share of the periods, and at which wait.

Interval by interval K is chosen as `calibrate` does, from what was known by then; the first 21 periods are left out.
Beside it, known only afterwards: the least K of each period (oracle), the best fixed K that keeps as many periods, and
MP-K-slack, AQ-K-slack and Wu and Fang's search, each at the best setting that keeps as many.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from infra.benchmarks.generator.randomness import Floats
from infra.benchmarks.promises import memory, pictures
from infra.benchmarks.promises.cases import DATA, Case, flights_2001
from infra.benchmarks.promises.replay import WARM_UP, Laws, Windows, course
from infra.benchmarks.promises.rivals import AqKSlackCourses, rivals

HEADS = ["data", "query", "promise", "periods", "kept", "unit", "K", "oracle", "fixed", "as accurate", "K/fixed"]
HEADS += [f"{name} {what}" for name in ("MP-K", "AQ-K", "W-F") for what in ("kept", "K")] + ["expected", "measured"]
SAID = f"Windows after the first {WARM_UP} periods; memory is ample, so K alone decides."


def row(windows: Windows, laws: Laws, courses: AqKSlackCourses) -> tuple[list[str], tuple[Floats, Floats]]:
    """A row of the table; what was expected of each judged window, and what it reached."""
    asked, found = windows.case.asked, course(windows, laws)
    kept, own = windows.kept(found.slack_s), windows.judged
    unit_s, unit = (3600.0, "h") if asked.period_s > 3600 else (1.0, "s")
    slack_s, fixed_s = float(found.slack_s[own].mean()), windows.fixed_s(int(kept.sum()))
    others = [
        text
        for _, one in rivals(windows, courses, float(kept.mean()))
        for text in (f"{one.kept:.1%}", f"{one.slack_s / unit_s:.2f}")
    ]
    expected, reached = found.expected[own], found.accuracy[own]
    known, as_accurate_s = ~np.isnan(expected), windows.as_accurate_s(float(reached.mean()))
    promise = f"{asked.target:.0%}" if asked.error is None else f"ERROR {asked.error:.0%}"
    cells = [
        windows.case.data,
        asked.name,
        promise,
        str(len(kept)),
        f"{kept.mean():.1%}",
        unit,
        *(f"{one / unit_s:.2f}" for one in (slack_s, float(windows.oracle_s.mean()), fixed_s, as_accurate_s)),
        f"{slack_s / fixed_s:.2f}" if fixed_s > 0 else "",
        *others,
        f"{expected[known].mean():.1%}",
        f"{reached[known].mean():.1%}",
    ]
    return cells, (expected, reached)


def cases(names: Sequence[str], file_2001: Path | None) -> Iterator[Case]:
    """What is asked for."""
    for name in names:
        yield from DATA[name]()
    if file_2001 is not None:
        yield from flights_2001(file_2001)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; with --out also draw and write it."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.promises",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", nargs="*", choices=list(DATA), default=list(DATA), help="which (default: all)")
    parser.add_argument("--flights-2001", type=Path, metavar="FILE", help="flights-3m.parquet of npm's vega-datasets")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for promises.csv and calibration.png")
    parser.add_argument(
        "--memory", action="store_true", help="how much of the time memory that suffices is used, instead"
    )
    asked = parser.parse_args(arguments)
    if asked.memory:
        print("data | M over the most needed | at level A | fits M")
        for data, tick_s, held in memory.sets():
            for one in memory.reached(data, tick_s, held):
                print(f"{data} | {one.share:.0%} | {one.level_a:.2%} | {one.fits:.2%}", flush=True)
        return 0
    laws, courses, table, expectations = Laws(), AqKSlackCourses(), [], defaultdict(list)
    print(" | ".join(HEADS))
    for case in cases(asked.data, asked.flights_2001):
        cells, both = row(Windows(case, case.needed(case.stream, case.asked)), laws, courses)
        print(" | ".join(cells), flush=True)
        table.append(cells)
        expectations[case.data].append(both)
    print("\nall windows of a data set: expected, measured, difference in points")
    for data, found in expectations.items():
        expected, reached = pictures.pooled(found)
        print(f"{data:<40} {expected:.2%} {reached:.2%} {100 * (expected - reached):+.2f}")
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        with (asked.out / "promises.csv").open("w", newline="") as file:
            csv.writer(file).writerows([HEADS, *table])
        pictures.draw(expectations, asked.out, SAID)
    return 0


if __name__ == "__main__":
    sys.exit(main())
