"""`tidegate explain` tells how each query runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.command import ROOT

from tidegate.cli.query_work import query_work
from tidegate.declarations import load_pipeline

STREAM = """
    format: jsonl
    path: /nowhere/%Y-%m-%dT%H.jsonl
    columns: {{id: string, happened: timestamp, came: timestamp, k: string, m: string, v: double}}
    id: id
    event_time: happened
    arrival_time: came
    rate: {rate} per second
"""
PIPELINE = """
name: work
owner: tests
start: 2026-01-01T00:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 1 GiB
process_budget: 3 GiB
streams:
  a:{a}
  b:{b}
  c:{c}
"""


def told(folder: Path, sql: str, rate: float = 1.0) -> str:
    folder = folder / "work"
    (folder / "queries").mkdir(parents=True)
    streams = {name: STREAM.format(rate=f"{rate:.0f}") for name in "abc"}
    (folder / "pipeline.yml").write_text(PIPELINE.format(**streams))
    (folder / "queries" / "q.sql").write_text(sql)
    return " ".join(query_work(load_pipeline(folder)).split())


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT COUNT(*) FROM a [10 MINUTES]", "panes a 10 of 1 min;"),
        ("SELECT COUNT(*) FROM a [10 MINUTES]", "600 tuples in whole windows"),
        ("SELECT MAX(v) FROM a [10 MINUTES]", "; MAX: times the logarithm"),
        ("SELECT COUNT(*) FROM a [1 MINUTE], b [2 MINUTES] WHERE a.k = b.k", "keys a.k = b.k joins a × b key by key"),
        (
            "SELECT a.m, COUNT(*) FROM a [1 MINUTE], b [1 MINUTE], c [1 MINUTE]"
            " WHERE a.k = b.k AND b.m = c.m GROUP BY a.m",
            "joins (a ⋈ b on k per m, a.m) ⋈ c on m per a.m",
        ),
        ("SELECT v FROM a [10 MINUTES] ORDER BY v DESC LIMIT 3", "at most 30 candidates, the 3 best of each pane"),
        ("SELECT v FROM a [10 MINUTES] GROUP BY v ORDER BY v LIMIT 3", "the 3 best of each pane and group (v)"),
    ],
)
def test_what_is_told(tmp_path: Path, sql: str, expected: str) -> None:
    assert expected in told(tmp_path, sql)


def test_every_flights_query_is_told_of() -> None:
    pipeline = load_pipeline(ROOT / "dags" / "pipelines" / "flights")
    text = query_work(pipeline, columns=80)
    assert all(f"\n  {query.id}\n" in text for query in pipeline.queries)
    assert max(map(len, text.splitlines())) <= 80
