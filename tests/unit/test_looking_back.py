"""What all windows wait for is taken off arrivals where nobody asks what was held: answers stay the same."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.test_internal_names import MIDNIGHT, OWN, load

from tidegate.declarations.models import to_us
from tidegate.declarations.tables import schema
from tidegate.operators.schedule import Schedule
from tidegate.queries import scan
from tidegate.queries.questions import Answering, Question
from tidegate.queries.scan import EventFiles

QUERIES = {
    "grouped": "SELECT side, COUNT(*) AS n, SUM(`drop`) AS total, MAX(`drop`) AS most FROM s [10 MINUTES] "
    "GROUP BY side EVERY 1 MINUTE",
    "joined": "SELECT a.side, COUNT(*) AS n FROM s [10 MINUTES] AS a, s [5 MINUTES] AS b "
    "WHERE a.`drop` = b.`drop` GROUP BY a.side EVERY 1 MINUTE",
}


@pytest.mark.parametrize("query_id", list(QUERIES))
@pytest.mark.parametrize("least_s", [0, 600, 3600])
def test_windows_that_wait_are_answered_alike_without_their_wait(query_id, least_s, tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "BATCH_ROWS", 64)
    pipeline = load(tmp_path, QUERIES, ", ".join(f"{name}: integer" for name in OWN))
    chance = random.Random(least_s)
    rows: list[dict[str, Any]] = []
    for i in range(1500):
        event = MIDNIGHT + timedelta(seconds=chance.randrange(7200))
        late_s = chance.choice([-5, 0, 0, chance.randrange(60), least_s, least_s + 1, chance.randrange(5000)])
        more: dict[str, Any] = {name: chance.randrange(2) if name == "side" else chance.randrange(40) for name in OWN}
        more |= {"event_id": str(i), "event_time": event, "arrival_time": event + timedelta(seconds=late_s)}
        rows.append(more)
    rows.sort(key=lambda row: row["arrival_time"])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema(pipeline, "events_s")), tmp_path / "events.parquet")
    events = {"s": EventFiles((str(tmp_path / "events.parquet"),), schema(pipeline, "events_s"))}
    ends_us = to_us(MIDNIGHT) + np.arange(10, 121, 3) * 60_000_000
    slack_us = np.array([chance.choice([least_s, least_s, least_s + 60, least_s + 300]) for _ in ends_us]) * 1_000_000
    ranges_us = {w.alias: round(w.range_s * 1e6) for w in pipeline.query(query_id).windows}
    schedule = Schedule.from_ticks(ends_us, slack_us, ranges_us)
    asked = Question(pipeline.query(query_id), schedule, np.ones(len(schedule)), events, 60_000_000)
    waiting, early = Answering(asked), Answering(replace(asked, waited_us=int(least_s * 1e6)))
    expected = waiting.table().combine_chunks()
    assert early.table().combine_chunks() == expected and expected.num_rows >= len(ends_us)
    assert early.peak_state_bytes <= waiting.peak_state_bytes
