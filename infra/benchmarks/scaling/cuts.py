"""A join cut in two by time and by keys: ``python -m infra.benchmarks.scaling.cuts --minutes 5 60``."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from infra.benchmarks.pipeline.landed import HOUR, START, land

from tidegate.declarations import load_pipeline
from tidegate.engine.context import RunContext
from tidegate.operators.schedule import Int64s, Schedule, ticks_between
from tidegate.queries.questions import Answering, Question
from tidegate.queries.slices import question
from tidegate.stages import ingest
from tidegate.store.intervals import intervals_between

QUERY = """\
SELECT o.country, COUNT(*) AS paid, SUM(p.fee) AS fees FROM orders [{n} MINUTES] AS o, payments [{n} MINUTES] AS p
WHERE o.order_id = p.order_ref GROUP BY o.country EVERY 1 MINUTE
"""


def cpu_s(asked: Question) -> float:
    """CPU seconds of a question, read and answered."""
    began = time.process_time()
    for _ in Answering(asked).partials():
        pass
    return time.process_time() - began


def main(arguments: Sequence[str] | None = None) -> None:
    """The answers at the windows' ends, and their truth after an hour: whole, cut by time, cut by keys."""
    parser = argparse.ArgumentParser(prog="python -m infra.benchmarks.scaling.cuts", description=__doc__)
    parser.add_argument("--tuples", type=int, default=1_000_000, metavar="N", help="an hour (1000000)")
    parser.add_argument("--minutes", type=int, nargs="+", default=[5, 60], metavar="N", help="range of the windows")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tidegate-cuts-") as name:
        folder = Path(name)
        queries = {f"paid_{minutes}": QUERY.format(n=minutes) for minutes in args.minutes}
        land(folder, args.tuples, ["parquet"], queries=queries)
        pipeline = load_pipeline(folder / "parquet")
        ends_us = ticks_between(*(round((START + n * HOUR).timestamp()) * 1_000_000 for n in (1, 2)), 60_000_000)
        print("| range | asked | whole, CPU s | halves by time | gain on 2 | halves by keys | gain on 2 |")
        print("|---|---|---|---|---|---|---|")
        with open(os.devnull, "w") as nobody, RunContext(pipeline, folder / "wh", output=nobody, here=True) as context:
            ingest.run(context, intervals_between(pipeline, START, START + 2 * HOUR))
            for minutes in args.minutes:
                for asked, slack_s in (("answers", 0), ("truth", 3600)):

                    def of(
                        ends: Int64s, minutes: int = minutes, slack_s: int = slack_s, asked: str = asked
                    ) -> Question:
                        ranges_us = {alias: minutes * 60_000_000 for alias in ("o", "p")}
                        schedule = Schedule.from_ticks(ends, slack_s * 1_000_000, ranges_us)
                        query = pipeline.query(f"paid_{minutes}")
                        return question(context, query, schedule, looking_back=asked == "truth")

                    everything = of(ends_us)
                    cpu_s(everything)  # files are in memory then
                    whole = cpu_s(everything)
                    times = [cpu_s(of(own)) for own in np.array_split(ends_us, 2)]
                    keys = [cpu_s(replace(everything, part=(index, 2))) for index in range(2)]
                    cells = [f"{minutes} min", asked, f"{whole:.2f}"]
                    for halves in (times, keys):
                        cells += [" + ".join(f"{half:.2f}" for half in halves), f"{whole / max(halves):.1f}"]
                    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
