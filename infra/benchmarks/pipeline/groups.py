"""GROUP BY with as many groups as you like: ``python -m infra.benchmarks.pipeline.groups --groups 1000000``."""

from __future__ import annotations

import argparse
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from infra.benchmarks.pipeline.landed import HOUR, START, land
from infra.benchmarks.rivals.meter import TreeMeter

from tidegate.declarations import load_pipeline
from tidegate.engine import Slice
from tidegate.engine.context import RunContext
from tidegate.stages.run import run
from tidegate.store.intervals import intervals_between

STAGES = ("ingest", "join_aggregate", "calibrate")
QUERY = """\
SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM orders [30 MINUTES] GROUP BY customer ERROR 10%{on_miss}
EVERY 10 MINUTES
"""


class Weighed(RunContext):
    """Knows how many bytes slices gave to the driver."""

    given_bytes = 0

    def run_slices(self, work: Callable[[Slice], Any], parts: Sequence[Any], rows: int) -> list[Any]:
        """Run them."""
        results = super().run_slices(work, parts, rows)
        self.given_bytes += len(pickle.dumps(results))
        return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Two hours, each customer with an order or so in each; what it took, stage by stage of the second hour."""
    parser = argparse.ArgumentParser(prog="python -m infra.benchmarks.pipeline.groups", description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000_000, metavar="N", help="customers (1000000)")
    parser.add_argument("--on-miss", choices=["omit", "correct"], help="what the query declares ON MISS (nothing)")
    args = parser.parse_args(arguments)
    on_miss = f" ON MISS {args.on_miss.upper()}" if args.on_miss else ""
    with tempfile.TemporaryDirectory(prefix="tidegate-groups-") as name:
        folder = Path(name)
        queries = {"by_customer": QUERY.format(on_miss=on_miss)}
        land(folder, args.groups * 5 // 4, ["parquet"], args.groups, queries=queries)
        pipeline = load_pipeline(folder / "parquet")
        print("| groups | stage | CPU s | peak MiB, all processes | bytes to the driver |\n|---|---|---|---|---|")
        with (
            open(os.devnull, "w") as nobody,
            Weighed(pipeline, folder / "warehouse", output=nobody) as context,
            TreeMeter(os.getpid()) as meter,
        ):
            for hour in range(2):
                intervals = intervals_between(pipeline, START + hour * HOUR, START + (hour + 1) * HOUR)
                for stage in STAGES:
                    cpu_s, given = meter.cpu_s(), context.given_bytes
                    run(context, intervals, [stage])
                    if hour:
                        told = f"{meter.cpu_s() - cpu_s:.1f} | {meter.peak_bytes / 2**20:.0f}"
                        print(f"| {args.groups} | {stage} | {told} | {context.given_bytes - given} |", flush=True)
            rows = {kind: context.warehouse.read_arrow(f"{kind}_by_customer").num_rows for kind in ("answers", "truth")}
        print(f"\nRows of answers: {rows['answers']}, of truth: {rows['truth']}.")


if __name__ == "__main__":
    main()
