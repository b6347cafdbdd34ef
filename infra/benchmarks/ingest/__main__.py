"""Tuples per CPU second of ingest, from JSON lines and Parquet, beside DuckDB on the same files.

    python -m infra.benchmarks.ingest [--tuples 1000000] [--files 12]

One interval of orders: six columns, ids that are checked against each other, rows sorted by arrival. CPU seconds of a
process and its children, each way in a process of its own. Slices run in that process, not in Spark's tasks. The first
run pays for imports; "warm" is the second run in the same process. DuckDB reads the same files with the same schema,
drops ids that come again, sorts by arrival and writes Parquet: it refuses, names and counts nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2024, 3, 1, 10, tzinfo=UTC)
PIPELINE = """\
name: {name}
owner: nobody
start: 2024-03-01T00:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 1 GiB
process_budget: 8 GiB
streams:
  orders:
    format: {format}
    path: feed/%Y-%m-%dT%H-*.{format}
    columns:
      order_id: string
      placed_at: timestamp
      received_at: timestamp
      customer: string
      country: string
      amount: double
    id: order_id
    event_time: placed_at
    arrival_time: received_at
    rate: 100 per second
    max_late: 1 day
"""
QUERY = "SELECT country, SUM(amount) AS sales FROM orders [1 HOUR] WHERE amount > 5 GROUP BY country EVERY 1 MINUTE\n"


def generate(folder: Path, tuples: int, files: int) -> None:
    """The same tuples as JSON lines and as Parquet: a pipeline for each."""
    chance = np.random.default_rng(1)
    seen_s = np.sort(chance.uniform(0, 3600, tuples))
    late_s = chance.lognormal(2, 1.5, tuples).clip(0, 80_000)
    kinds = {kind: folder / f"orders_{kind}" for kind in ("jsonl", "parquet")}
    for kind, place in kinds.items():
        (place / "queries").mkdir(parents=True)
        (place / "feed").mkdir()
        (place / "queries" / "sales.sql").write_text(QUERY)
        (place / "pipeline.yml").write_text(PIPELINE.format(name=f"orders_{kind}", format=kind))
    for number in range(files):
        rows = []
        for i in range(tuples * number // files, tuples * (number + 1) // files):
            seen = START + timedelta(seconds=seen_s[i])
            row = {"order_id": f"o{i:09d}", "placed_at": (seen - timedelta(seconds=late_s[i])).isoformat()}
            row |= {"received_at": seen.isoformat(), "customer": f"c{i % 25_000}", "country": "DFIPE"[i % 5] + "X"}
            rows.append({**row, "amount": round(float(late_s[i]), 2)})
        name = f"2024-03-01T10-{number:03d}"
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (kinds["jsonl"] / "feed" / f"{name}.jsonl").write_text(text)
        table = pa.Table.from_pylist(rows)
        for time_ in ("placed_at", "received_at"):
            place = table.column_names.index(time_)
            table = table.set_column(place, time_, table.column(time_).cast(pa.timestamp("us", "UTC")))
        pq.write_table(table, kinds["parquet"] / "feed" / f"{name}.parquet")


def tidegate(folder: Path, kind: str, run: int) -> int:
    """Ingest the hour; how many tuples were written."""
    from tidegate.declarations import load_pipeline
    from tidegate.engine.context import RunContext
    from tidegate.stages import ingest
    from tidegate.store.intervals import intervals_between

    pipeline = load_pipeline(folder / f"orders_{kind}")
    where = folder / f"warehouse-{kind}-{run}"
    with RunContext(pipeline, where, output=open(os.devnull, "w"), here=True) as context:
        ingest.read(context, intervals_between(pipeline, START, START + timedelta(hours=1)))
        return context.warehouse.rows("events_orders", "2024-03-01T10")


def duckdb(folder: Path, kind: str, run: int) -> int:
    """The same files, sorted and without ids that come again; how many rows were written."""
    import duckdb as database

    columns = "order_id: 'VARCHAR', placed_at: 'TIMESTAMPTZ', received_at: 'TIMESTAMPTZ', customer: 'VARCHAR', "
    columns += "country: 'VARCHAR', amount: 'DOUBLE'"
    files = folder / f"orders_{kind}" / "feed" / f"*.{kind}"
    source = f"read_parquet('{files}')"
    if kind == "jsonl":
        source = f"read_json('{files}', format = 'newline_delimited', columns = {{{columns}}})"
    target = folder / f"duckdb-{kind}-{run}.parquet"
    with database.connect() as connection:
        connection.execute("SET threads = 2")
        connection.execute(
            f"COPY (SELECT * FROM {source} QUALIFY row_number() OVER (PARTITION BY order_id ORDER BY received_at) = 1 "
            f"ORDER BY received_at, order_id) TO '{target}' (FORMAT parquet)"
        )
    return pq.read_metadata(target).num_rows


def measured(way: Callable[[Path, str, int], int], folder: Path, kind: str) -> None:
    """Run twice, and print rows, CPU seconds and wall seconds of each."""
    for run in range(2):
        cpu, wall = _cpu_s(), time.monotonic()
        rows = way(folder, kind, run)
        print(json.dumps([rows, _cpu_s() - cpu, time.monotonic() - wall]), flush=True)


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Generate, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--measure", nargs=3, metavar=("WAY", "FORMAT", "DIR"), help="one way alone, in this process")
    arguments = parser.parse_args()
    ways = {"tidegate": tidegate, "duckdb": duckdb}
    if arguments.measure:
        way, kind, name = arguments.measure
        measured(ways[way], Path(name), kind)
        return
    print("| format | by | run | tuples | CPU s | wall s | tuples per CPU s |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name), arguments.tuples, arguments.files)
        for kind, way in itertools.product(("jsonl", "parquet"), ways):
            command = [sys.executable, "-m", "infra.benchmarks.ingest", "--measure", way, kind, name]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found = [json.loads(line) for line in said.splitlines() if line.startswith("[")]
            for run, (rows, cpu_s, wall_s) in zip(("first", "warm"), found, strict=True):
                print(
                    f"| {kind} | {way} | {run} | {rows} | {cpu_s:.2f} | {wall_s:.2f} | {rows / cpu_s:,.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
