"""Draw the papers' figures: ``python -m infra.research.figures [PAPER …]``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from infra.research.figures import history, join_aggregate, top_k, window_sizing
from infra.research.figures.running import Figure, Settings, Skipped

DEFAULT_OUT = Path(".tidegate/figures")
PAPERS: dict[str, tuple[Figure, ...]] = {
    "window_sizing": window_sizing.FIGURES,
    "join_aggregate": join_aggregate.FIGURES,
    "top_k": top_k.FIGURES,
    "history": history.FIGURES,
}

EXAMPLES = """\
examples:
  # every figure of every paper, under .tidegate/figures
  python -m infra.research.figures

  # one paper, few seeds: a quick look
  python -m infra.research.figures window_sizing --seeds 10 --out .tidegate/quick

  # one figure, and what a run really held against its budget
  python -m infra.research.figures window_sizing --only held_bytes --warehouse .tidegate/warehouse
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0, or 2 for arguments that name nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.research.figures",
        description="Draw the papers' figures: PNG, and the numbers as CSV with generator and seeds in the header.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = sorted(figure.name for figures in PAPERS.values() for figure in figures)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"{', '.join(PAPERS)} (all)")
    parser.add_argument("--only", choices=names, action="append", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="random instances a point (100)")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, metavar="DIR", help=f"({DEFAULT_OUT})")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="(one a core)")
    parser.add_argument("--warehouse", type=Path, metavar="DIR", help="with the flights pipeline's tables")
    args = parser.parse_args(arguments)
    unknown = sorted(set(args.papers) - set(PAPERS))
    if unknown or args.seeds < 1 or args.processes < 1:
        parser.error(f"no paper {', '.join(unknown)}" if unknown else "--seeds and --processes are at least 1")
    settings = Settings(args.out, args.seeds, args.processes, args.warehouse)
    begun = time.perf_counter()
    for paper in args.papers or PAPERS:
        for figure in PAPERS[paper]:
            if args.only is None or figure.name in args.only:
                _draw(paper, figure, settings)
    print(f"figures: {time.perf_counter() - begun:.0f} s, under {args.out}")
    return 0


def _draw(paper: str, figure: Figure, settings: Settings) -> None:
    begun = time.perf_counter()
    label = f"{paper} {figure.name}"
    try:
        figure.draw(Settings(settings.out / paper, settings.seeds, settings.processes, settings.warehouse))
    except Skipped as reason:
        print(f"{label:<42} skipped: {reason}", flush=True)
    else:
        print(f"{label:<42} {time.perf_counter() - begun:6.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
