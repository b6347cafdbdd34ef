"""Nested JSON lines of twenty fields, five of them declared: ``python -m infra.benchmarks.pipeline.nested``.

Two hours of events, one after the other, each way in a process of its own: "first" pays for imports and sessions,
"warm" is the second hour. All read the same five paths, drop ids that come again, sort by arrival and write Parquet;
Tidegate's ingest refuses, names and counts what is wrong besides.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from infra.benchmarks.rivals.meter import TreeMeter

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)
RUNS = ("first", "warm")
_MARK = "measured "
_ROWS_A_FILE = 250_000
_PIPELINE = """\
name: nested
owner: nobody
start: 2026-01-05T08:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 1 GiB
process_budget: 4 GiB
streams:
  events:
    format: jsonl
    path: landing/%Y-%m-%dT%H-*.jsonl
    columns:
      id: string
      login: {type: string, from: actor.login}
      size: {type: integer, from: payload.size}
      created_at: timestamp
      amount: double
    id: id
    event_time: created_at
    arrival_time: created_at
    rate: 300 per second
    max_late: 1 day
"""


def land(folder: Path, records: int) -> None:
    """Write two hours of so many records."""
    (folder / "queries").mkdir(parents=True)
    (folder / "landing").mkdir()
    (folder / "pipeline.yml").write_text(_PIPELINE)
    (folder / "queries" / "n.sql").write_text("SELECT COUNT(*) AS n FROM events [10 MINUTES] EVERY 1 MINUTE\n")
    for hour in range(2):
        chance, start = Random(hour), START + hour * HOUR
        for part, first in enumerate(range(0, records, _ROWS_A_FILE)):
            count = min(_ROWS_A_FILE, records - first)
            with open(folder / "landing" / f"{start:%Y-%m-%dT%H}-{part:03d}.jsonl", "w") as file:
                for n in range(first, first + count):
                    at = start + timedelta(microseconds=n * 3_600_000_000 // records)
                    file.write(json.dumps(_record(chance, hour * records + n, at)) + "\n")


def _record(chance: Random, n: int, at: datetime) -> dict[str, object]:
    """An event as archives of code hosts have them: twenty fields at the top, objects and a list below."""
    return {
        "id": f"e{n}",
        "type": chance.choice(["PushEvent", "WatchEvent"]),
        "actor": {"id": n % 1000, "login": f"user{n % 1000}", "url": f"https://example.org/users/{n % 1000}"},
        "repo": {"id": n % 99, "name": f"a/b{n % 99}"},
        "payload": {
            "size": n % 7,
            "push_id": n * 3,
            "ref": "refs/heads/main",
            "commits": [{"sha": f"{n:040x}", "n": 1, "message": "some text"}],
        },
        "public": True,
        "org": None,
        "created_at": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z",
        "amount": round(chance.random() * 100, 2),
        **{
            f"field_{i}": value
            for i, value in enumerate((n, "abc", 1.5, False, "x" * 10, n * 2, None, "q", "r", "s", "t"))
        },
    }


def tidegate(folder: Path, hour: int) -> int:
    """The stage ingest."""
    from tidegate.declarations import load_pipeline
    from tidegate.engine.context import RunContext
    from tidegate.stages import ingest
    from tidegate.store.intervals import intervals_between

    pipeline = load_pipeline(folder)
    intervals = intervals_between(pipeline, START + hour * HOUR, START + (hour + 1) * HOUR)
    with RunContext(pipeline, folder / "warehouse", output=io.StringIO(), here=True) as context:
        ingest.run(context, intervals)
        return context.warehouse.rows("events_events", intervals[0].label)


def duckdb(folder: Path, hour: int) -> int:
    """``read_json`` of the five paths; two threads."""
    import duckdb as database

    files, target = _files(folder, hour), folder / f"duckdb-{hour}.parquet"
    columns = (
        "{id: 'VARCHAR', actor: 'STRUCT(login VARCHAR)', payload: 'STRUCT(size BIGINT)', created_at: 'TIMESTAMPTZ', "
    )
    columns += "amount: 'DOUBLE'}"
    with database.connect() as connection:
        connection.execute("SET threads = 2")
        connection.execute(
            "COPY (SELECT id, actor.login AS login, payload.size AS size, created_at, amount "
            f"FROM read_json('{files}', format = 'newline_delimited', columns = {columns}) QUALIFY row_number() OVER "
            f"(PARTITION BY id ORDER BY created_at) = 1 ORDER BY created_at, id) TO '{target}' (FORMAT parquet)"
        )
    return int(pq.read_metadata(target).num_rows)


def polars(folder: Path, hour: int) -> int:
    """Its streaming engine; two threads by POLARS_MAX_THREADS."""
    import polars as pl

    target = folder / f"polars-{hour}.parquet"
    schema = {
        "id": pl.String,
        "actor": pl.Struct({"login": pl.String}),
        "payload": pl.Struct({"size": pl.Int64}),
        "created_at": pl.String,
        "amount": pl.Float64,
    }
    frame = pl.scan_ndjson(_files(folder, hour), schema=schema).select(
        "id",
        pl.col("actor").struct.field("login"),
        pl.col("payload").struct.field("size"),
        pl.col("created_at").str.to_datetime("%Y-%m-%dT%H:%M:%S%.6fZ", time_unit="us"),
        "amount",
    )
    frame.sort("created_at", "id").unique("id", keep="first", maintain_order=True).sink_parquet(target)
    return int(pq.read_metadata(target).num_rows)


def spark(folder: Path, hour: int) -> int:
    """Plain Spark in ``local[2]``; its session is started once."""
    from infra.benchmarks.pipeline.ways import session

    target = folder / f"spark-{hour}"
    schema = "id string, actor struct<login:string>, payload struct<size:bigint>, created_at timestamp, amount double"
    frame = session().read.schema(schema).json(_files(folder, hour))
    frame = frame.selectExpr("id", "actor.login AS login", "payload.size AS size", "created_at", "amount")
    frame.dropDuplicates(["id"]).sort("created_at", "id").write.parquet(str(target))
    return sum(pq.read_metadata(file).num_rows for file in target.glob("*.parquet"))


def _files(folder: Path, hour: int) -> str:
    return str(folder / "landing" / f"{START + hour * HOUR:%Y-%m-%dT%H}-*.jsonl")


WAYS: dict[str, Callable[[Path, int], int]] = {"tidegate": tidegate, "duckdb": duckdb, "polars": polars, "spark": spark}


def _measure(way: str, folder: Path) -> None:
    for hour, run in enumerate(RUNS):
        with TreeMeter(os.getpid()) as meter:
            cpu_s, began = meter.cpu_s(), time.monotonic()
            records = WAYS[way](folder, hour)
            figures = {"run": run, "records": records, "cpu_s": meter.cpu_s() - cpu_s}
            figures |= {"wall_s": time.monotonic() - began, "peak_bytes": meter.peak_bytes}
        print(_MARK + json.dumps(figures), flush=True)


def measured(way: str, folder: Path) -> Iterator[dict[str, float | str]]:
    """CPU and wall seconds, and peak bytes, of a way's two hours, in a process of its own with its children."""
    command = [sys.executable, "-m", "infra.benchmarks.pipeline.nested", "--measure", way, str(folder)]
    environment = {**os.environ, "POLARS_MAX_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{way} failed:\n{done.stderr[-3000:]}")
    yield from (json.loads(x.removeprefix(_MARK)) for x in done.stdout.splitlines() if x.startswith(_MARK))


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate, measure, print a table as it comes."""
    parser = argparse.ArgumentParser(prog="python -m infra.benchmarks.pipeline.nested", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, metavar="N", help="an hour")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "DIR"), help="one way, in this process")
    args = parser.parse_args(arguments)
    if args.measure:
        _measure(args.measure[0], Path(args.measure[1]))
        return
    print("| records | by | run | CPU s | wall s | peak MiB | records per CPU s |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="tidegate-nested-") as name:
        folder = Path(name) / "nested"
        land(folder, args.records)
        for way in args.ways:
            for one in measured(way, folder):
                cpu_s, wall_s, peak = (float(one[name]) for name in ("cpu_s", "wall_s", "peak_bytes"))
                row = f"| {one['records']} | {way} | {one['run']} | {cpu_s:.2f} | {wall_s:.2f} | {peak / 2**20:.0f} "
                print(f"{row}| {float(one['records']) / max(cpu_s, 0.01):,.0f} |", flush=True)


if __name__ == "__main__":
    main()
