"""``python -m tests.strangers``: cases from seeds, judged one after another."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def main() -> int:
    """Run the cases; 1 if a law is broken."""
    from tests.strangers.case import Case, read_case
    from tests.strangers.datasets import DATASETS
    from tests.strangers.generator import generate
    from tests.strangers.machine import judge, shared_spark
    from tests.strangers.pool import Pool
    from tests.strangers.shrink import shrink

    parser = argparse.ArgumentParser(prog="python -m tests.strangers", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first case's seed")
    parser.add_argument("--count", type=int, default=1, metavar="M", help="how many seeds, one after another")
    parser.add_argument(
        "--step", type=int, default=1, metavar="S", help="from one seed to the next (for two processes)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where broken cases are kept, made small")
    parser.add_argument("--case", type=Path, action="append", metavar="FOLDER", help="a kept case instead of seeds")
    parser.add_argument("--data", choices=DATASETS, action="append", help="a real data set instead of seeds")
    parser.add_argument("--no-shrink", action="store_true", help="keep broken cases as they are")
    parser.add_argument(
        "--spark",
        action="store_true",
        help="what runs in parts, or live, as tasks: of TIDEGATE_SPARK_MASTER, else local",
    )
    parser.add_argument("--verbose", action="store_true", help="show what each phase took")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.count * arguments.step, arguments.step)
    cases: Iterator[Case] = (generate(seed) for seed in seeds)
    if arguments.case or arguments.data:
        kept = [read_case(folder) for folder in arguments.case or ()]
        cases = iter([*kept, *(DATASETS[name]() for name in arguments.data or ())])
    pool, broken, clock, number, spent = Pool(), [], time.monotonic(), 0, 0.0
    with shared_spark() if arguments.spark else contextlib.nullcontext() as spark:
        for case in cases:
            number += 1
            with tempfile.TemporaryDirectory(prefix="stranger-") as folder:
                verdict = judge(case, Path(folder), spark)
            pool.add(verdict.covered)
            seconds = sum(verdict.seconds.values())
            spent += seconds
            about = (
                f"{case.rows} rows, {len(case.files)} files, {len(case.queries)} queries, {case.intervals} intervals"
            )
            print(
                f"{case.name}: {'BROKEN' if verdict.breaches else 'ok'} ({about}, {seconds:.1f} processor s)",
                flush=True,
            )
            if arguments.verbose:
                print("   " + ", ".join(f"{key} {s:.1f}" for key, s in verdict.seconds.items()), flush=True)
                print("   " + ", ".join(f"{count} {what}" for what, count in verdict.compared.items()), flush=True)
            for breach in verdict.breaches:
                print(f"   {breach.law}: {breach.message}", flush=True)
            if verdict.breaches:
                broken.append(case.name)
                if arguments.keep:
                    small = case if arguments.no_shrink else shrink(case, verdict.breaches[0].law, spark)
                    target = arguments.keep / case.name.replace(" ", "-")
                    if not target.exists():
                        small.write(target)
                    print(f"   kept: python -m tests.strangers --case {target}", flush=True)
    total = time.monotonic() - clock
    each = spent / max(number, 1)
    print(f"{number} cases, {len(broken)} broken {broken or ''}, {total:.0f} s, {each:.1f} processor s a case; {pool}")
    return 1 if broken or pool.dishonest else 0


if __name__ == "__main__":
    sys.exit(main())
