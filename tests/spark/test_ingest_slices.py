"""Ingest by Spark's tasks gives the rows of ingest in one process, bit by bit."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidegate.declarations import load_pipeline
from tidegate.engine.context import RunContext
from tidegate.queries.planner import ARRIVALS
from tidegate.stages import ingest
from tidegate.store.intervals import intervals_between

pytestmark = pytest.mark.spark

START = datetime(2024, 3, 1, 10, tzinfo=UTC)
PIPELINE = """\
name: cut
owner: nobody
start: 2024-03-01T00:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 3 GiB
streams:
  s:
    format: jsonl
    path: feed/%Y-%m-%dT%H*.jsonl
    columns: {id: string, at: timestamp, seen: timestamp, kind: string, value: double}
    id: id
    event_time: at
    arrival_time: seen
    rate: 10 per hour
    max_late: 1 hour
"""
QUERIES = {
    "dear": "SELECT kind, COUNT(*) AS n FROM s [1 HOUR] WHERE value > 10 GROUP BY kind EVERY 5 MINUTES\n",
    "not_b": "SELECT kind, COUNT(*) AS n FROM s [1 HOUR] WHERE UPPER(kind) <> 'B' GROUP BY kind EVERY 5 MINUTES\n",
}


def feed(folder: Path) -> None:
    chance = random.Random(3)
    folder.mkdir()
    for hour in range(3):
        lines = []
        for _ in range(600):
            seen = START + timedelta(hours=hour, seconds=chance.randrange(3600))
            at = seen - timedelta(seconds=chance.randrange(5000))
            record = {"id": f"i{chance.randrange(2500)}", "at": at.isoformat(), "seen": seen.isoformat()}
            record |= {"kind": chance.choice("abcä"), "value": chance.randrange(100)}
            lines.append(json.dumps(record) if chance.random() < 0.97 else "{broken")
        (folder / f"2024-03-01T{10 + hour}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("queries", [("dear",), ("dear", "not_b")])
def test_tasks_give_the_rows_of_one_process(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: tuple[str, ...]
) -> None:
    folder = tmp_path / "cut"
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    for name in queries:
        (folder / "queries" / f"{name}.sql").write_text(QUERIES[name])
    feed(folder / "feed")
    pipeline = load_pipeline(folder)
    intervals = intervals_between(pipeline, START, START + timedelta(hours=3))
    found = []
    monkeypatch.setattr("tidegate.engine.context.cores", lambda master: 7)
    for size, worth in ((1 << 30, 1 << 20), (40_000, 900), (9_000, 250)):
        # Ids that come again are looked for in one slice, and in a few.
        monkeypatch.setattr(ingest, "_HASHES_WORTH", worth)
        context = RunContext(pipeline, tmp_path / f"warehouse-{size}", beside=spark, here=False)
        context.warehouse.folder.mkdir(parents=True)
        ingest.read(context, intervals, slice_bytes=size)
        tables = [context.warehouse.read_arrow(t).to_pylist() for t in ("events_s", "quarantine", "source_files")]
        arrivals = [context.warehouse.read_state(ARRIVALS, i.label).to_pylist() for i in intervals]
        found.append((tables, arrivals))
    assert found[0] == found[1] == found[2]
    (events, quarantine, files), arrivals = found[0]
    assert len(events) + len(quarantine) == sum(row["rows"] for row in files) == 1800
    assert sum(row["tuples"] for own in arrivals for row in own) == len(events)
    weights = {"dear": lambda r: r["value"] > 10, "not_b": lambda r: r["kind"] != "b"}
    # One string: a bit of validity a column rounded up to an octet, four for where it starts, and its octets.
    own = sum(5 + len(r["kind"].encode()) for name in queries for r in events if weights[name](r))
    assert sum(row["bytes"] for own_ in arrivals for row in own_) >= own > 0
