"""The level of an answer follows from what its windows held, and a window that held nothing held no less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tidegate.declarations import load_pipeline
from tidegate.operators.window_sizing import QueryPlanRow
from tidegate.queries.plans import Emissions, PlanHistory

MINUTE_US = 60_000_000
PIPELINE = """
name: little
owner: o
start: 2024-03-01T00:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 1 KiB
process_budget: 1 GiB
streams:
  s:
    format: jsonl
    path: s.jsonl
    id: i
    event_time: t
    arrival_time: t
    columns: {i: string, t: timestamp}
    rate: 1 per minute
    max_early: 0 seconds
    max_late: 1 hour
"""


@pytest.mark.parametrize(
    ("held_min", "tolerable_s", "level"),
    [(3, 60.0, "A"), (2, 60.0, "B"), (0, 60.0, "unsupported"), (0, 0.0, "B"), (-2, 0.0, "B"), (-2, 1.0, "unsupported")],
)
def test_what_was_held_decides(tmp_path: Path, held_min: int, tolerable_s: float, level: str) -> None:
    (tmp_path / "little" / "queries").mkdir(parents=True)
    (tmp_path / "little" / "pipeline.yml").write_text(PIPELINE)
    sql = "SELECT COUNT(*) AS n FROM s [3 MINUTES] ERROR 100% EVERY 1 MINUTE\n"
    (tmp_path / "little" / "queries" / "q.sql").write_text(sql)
    pipeline = load_pipeline(tmp_path / "little")
    row = QueryPlanRow("q", 0, "B", {"s": tolerable_s})
    end_us = 10 * MINUTE_US
    given = Emissions(np.array([end_us]), np.array([end_us]), np.array([0]))
    history = PlanHistory(pipeline, {}, {"q": [row]}, {})
    held_from_us = {"s": np.array([end_us - held_min * MINUTE_US])}
    assert history.support_level(pipeline.query("q"), given, held_from_us).tolist() == [level]
