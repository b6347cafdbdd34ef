"""What of a query's cost is reading its tuples: ``python -m infra.benchmarks.pipeline.scans --tuples 4000000``."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from infra.benchmarks.pipeline.landed import HOUR, START, land

from tidegate.declarations import load_pipeline
from tidegate.engine.context import RunContext
from tidegate.queries import scan
from tidegate.stages.run import run
from tidegate.store.intervals import intervals_between

QUERIES = (
    "SELECT AVG(amount) AS mean FROM orders [5 MINUTES] EVERY 1 MINUTE",
    "SELECT SUM(amount) AS total, COUNT(*) AS n FROM orders [10 MINUTES] EVERY 1 MINUTE",
    "SELECT country, SUM(amount) AS total FROM orders [5 MINUTES] GROUP BY country EVERY 1 MINUTE",
    "SELECT MAX(amount) AS most, MIN(amount) AS least FROM orders [30 MINUTES] EVERY 5 MINUTES",
    "SELECT COUNT(*) AS n FROM orders [5 MINUTES] WHERE amount > 100 EVERY 1 MINUTE",
)
_READ = scan._batches


class Reading:
    """Takes the CPU seconds in which a question waits for the next batch of its files."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def batches(self, *asked: Any) -> Iterator[Any]:
        """In place of what a question reads its files by."""
        given = _READ(*asked)
        while True:
            began = time.process_time()
            batch = next(given, None)
            self.spent_s += time.process_time() - began
            if batch is None:
                return
            yield batch


def main(arguments: Sequence[str] | None = None) -> None:
    """Two hours of one stream and five aggregates over it, in this process; the second hour's cost."""
    parser = argparse.ArgumentParser(prog="python -m infra.benchmarks.pipeline.scans", description=__doc__)
    parser.add_argument("--tuples", type=lambda text: int(float(text)), default=4_000_000, metavar="N", help="an hour")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tidegate-scans-") as name:
        home = Path(name) / "parquet"
        queries = {f"q{number}": f"{text}\n" for number, text in enumerate(QUERIES)}
        land(Path(name), args.tuples, ["parquet"], queries=queries)
        reading = Reading()
        scan._batches = reading.batches
        print("| stage | CPU s | of these reading | share |\n|---|---|---|---|")
        with (
            open(os.devnull, "w") as nobody,
            RunContext(load_pipeline(home), Path(name) / "warehouse", output=nobody, here=True) as context,
        ):
            first, second = intervals_between(context.pipeline, START, START + 2 * HOUR)
            run(context, [first], ["ingest", "join_aggregate", "calibrate"])
            run(context, [second], ["ingest"])
            for stage in ("join_aggregate", "calibrate"):
                began, reading.spent_s = time.process_time(), 0.0
                run(context, [second], [stage])
                spent = time.process_time() - began
                print(f"| {stage} | {spent:.2f} | {reading.spent_s:.2f} | {reading.spent_s / spent:.0%} |", flush=True)


if __name__ == "__main__":
    main()
