"""What one more interval costs, from the 10th to the 8760th: ``python -m infra.benchmarks.pipeline.growth``.

A tiny pipeline. What lies between the intervals that are measured is filled in by the warehouse's own commits: the
tables of an early interval, dated forward. Only tables of history, which are read as a whole, are dated forward
everywhere; of the others an interval further back than any stage looks has the early one's file under a second name.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from infra.benchmarks.pipeline.intervals import ONE_BY_ONE, alone

from tidegate.declarations import load_pipeline
from tidegate.engine.context import RunContext
from tidegate.stages.run import run
from tidegate.store.cut import SHARED
from tidegate.store.intervals import Interval, intervals_between
from tidegate.store.places import link
from tidegate.store.warehouse import Warehouse

START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
_TUPLES = 12
# What runs before anything is filled in, and before what is measured.
_EARLY, _WARMING = 6, 3
# No stage but those of history looks back further than this; so many intervals a commit.
_LOOKED_BACK, _AT_ONCE = 24 * 15, 500
_PIPELINE = """\
name: tiny
owner: nobody
start: 2024-01-01T00:00:00Z
interval: 1 hour
tick: 10 minutes
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 2 GiB
streams:
  readings:
    format: jsonl
    path: readings/%Y-%m-%dT%H.jsonl
    columns: {id: string, read_at: timestamp, received_at: timestamp, level: double}
    id: id
    event_time: read_at
    arrival_time: received_at
    rate: 1 per minute
    max_late: 2 hours
    history: {leaf: 1 hour, capacity: 500}
"""
_QUERIES = {
    "mean": "SELECT AVG(level) AS level FROM readings [1 HOUR] ERROR 5% EVERY 10 MINUTES\n",
    "highest": "SELECT id, level FROM readings [1 HOUR] ORDER BY level DESC LIMIT 3 ACCURACY 90% EVERY 10 MINUTES\n",
}


def land(folder: Path, hours: int) -> None:
    """A pipeline, and a file of a dozen tuples for each of its hours; some are late, in each hour the same.

    What an interval costs then differs by what is in the warehouse, not by what it is asked.
    """
    (folder / "queries").mkdir(parents=True)
    (folder / "readings").mkdir()
    (folder / "pipeline.yml").write_text(_PIPELINE)
    for name, text in _QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(text)
    for hour in range(hours):
        chance, lines = random.Random(7), []
        for number in range(_TUPLES):
            received = START + hour * HOUR + timedelta(seconds=300 * number + chance.randrange(299))
            read = received - timedelta(seconds=min(chance.expovariate(1 / 300), 7000))
            lines.append(
                {
                    "id": f"r{hour:05d}{number:02d}",
                    "read_at": f"{read:%Y-%m-%dT%H:%M:%SZ}",
                    "received_at": f"{received:%Y-%m-%dT%H:%M:%SZ}",
                    "level": round(chance.gauss(100, 20), 2),
                }
            )
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "readings" / f"{START + hour * HOUR:%Y-%m-%dT%H}.jsonl").write_text(text)


def fill(warehouse: Warehouse, pattern: Interval, intervals: Sequence[Interval]) -> None:
    """Give these intervals the rows of an earlier one."""
    for first in range(0, len(intervals), _AT_ONCE):
        part = intervals[first : first + _AT_ONCE]
        far = {interval.label for interval in part} - {interval.label for interval in intervals[-_LOOKED_BACK:]}
        with warehouse.commit("fill", part) as commit:
            for table in warehouse.tables():
                rows = warehouse.read_arrow(table, [pattern.label]).drop_columns(["interval"])
                files = [] if table.startswith("history_") else warehouse.live(table, pattern.label)
                for interval in part:
                    if files and interval.label in far:
                        folder = commit.stage_folder(table, interval.label)
                        link(warehouse.folder / table / files[0].path, folder / f"part-00000-{commit.id}.parquet")
                    elif table in SHARED:
                        commit.put_file(table, interval, "fill", rows)
                    elif table == "source_files":
                        # Dated forward, its files would have changed since they were read.
                        commit.put_arrow(table, interval, rows)
                    else:
                        commit.put_arrow(table, interval, dated(rows, interval.start - pattern.start))


def dated(rows: pa.Table, forward: timedelta) -> pa.Table:
    """The rows with all their instants so much later."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(number, field, pc.add(rows.column(number), pa.scalar(forward, pa.duration("us"))))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a few intervals; fill up to each of those asked for, and run some one by one from there; print their cost."""
    parser = argparse.ArgumentParser(prog="python -m infra.benchmarks.pipeline.growth", description=__doc__)
    parser.add_argument("--intervals", type=int, nargs="+", default=[10, 100, 1000, 8760], metavar="N")
    parser.add_argument("--alone", type=int, default=5, metavar="N", help="intervals run one by one at each (5)")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tidegate-growth-") as name:
        folder = Path(name) / "tiny"
        land(folder, max(args.intervals) + args.alone)
        os.environ["TIDEGATE_LANDING"] = str(folder)
        pipeline = load_pipeline(folder)
        every = intervals_between(pipeline, START, START + (max(args.intervals) + args.alone) * HOUR)
        warehouse, done, first = Path(name) / "warehouse", _EARLY, 0.0
        with RunContext(pipeline, warehouse, output=open(os.devnull, "w")) as context:
            run(context, every[:_EARLY], ONE_BY_ONE)
        print("| interval | CPU s | ratio | by stage |")
        print("|---|---|---|---|")
        for number in sorted(args.intervals):
            began = number - 1 - _WARMING
            fill(Warehouse(warehouse, pipeline), every[_EARLY - 1], every[done:began])
            done = number - 1 + args.alone
            cpu_s = alone(pipeline, warehouse, every[number - 1 : done], before=every[began : number - 1])
            whole = sum(cpu_s.values())
            first = first or whole
            stages = ", ".join(f"{stage} {spent:.2f}" for stage, spent in cpu_s.items())
            print(f"| {number} | {whole:.2f} | {whole / first:.2f} | {stages} |", flush=True)


if __name__ == "__main__":
    main()
