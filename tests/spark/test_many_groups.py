"""GROUP BY with as many groups as tuples allow: they stay in the slices, whatever the stage."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.benchmarks.pipeline.groups import Weighed

from tidegate.declarations import load_pipeline
from tidegate.stages.run import run
from tidegate.store.intervals import intervals_between

START = datetime(2024, 3, 1, 10, tzinfo=UTC)
STAGES = ("ingest", "join_aggregate", "top_k", "sample_history", "calibrate")
PIPELINE = """\
name: many
owner: nobody
start: 2024-03-01T00:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: 1 GiB
process_budget: 3 GiB
streams:
  orders:
    format: parquet
    path: feed/%Y-%m-%dT%H.parquet
    columns: {id: string, at: timestamp, seen: timestamp, customer: string, amount: double}
    id: id
    event_time: at
    arrival_time: seen
    rate: 50000 per hour
    max_late: 1 hour
"""
QUERY = """\
SELECT customer, COUNT(*) AS n, SUM(amount) AS total
FROM orders [30 MINUTES] GROUP BY customer ERROR 10% EVERY 10 MINUTES
"""
TUPLES = 50_000


def answered(folder: Path, customers: int) -> tuple[int, int, list[float]]:
    """Bytes given to the driver, rows of answers and truth, and the errors of the answers."""
    (folder / "queries").mkdir(parents=True)
    (folder / "feed").mkdir()
    (folder / "pipeline.yml").write_text(PIPELINE)
    (folder / "queries" / "by_customer.sql").write_text(QUERY)
    random = np.random.default_rng(1)
    at_us = np.sort(random.integers(0, 3_600_000_000, TUPLES)) + int(START.timestamp()) * 1_000_000
    seen_us = np.maximum.accumulate(at_us + random.integers(0, 60_000_000, TUPLES))
    seen_us = np.minimum(seen_us, int((START + timedelta(hours=1)).timestamp()) * 1_000_000 - 1)
    tuples = {
        "id": [f"o{i}" for i in range(TUPLES)],
        "at": pa.array(at_us).cast(pa.timestamp("us", "UTC")),
        "seen": pa.array(seen_us).cast(pa.timestamp("us", "UTC")),
        "customer": [f"c{i}" for i in random.integers(0, customers, TUPLES)],
        "amount": random.gamma(2, 10, TUPLES),
    }
    pq.write_table(pa.table(tuples), folder / "feed" / "2024-03-01T10.parquet")
    pipeline = load_pipeline(folder)
    with Weighed(pipeline, folder / "warehouse", output=io.StringIO(), here=True) as context:
        run(context, intervals_between(pipeline, START, START + timedelta(hours=3)), STAGES)
        rows = [context.warehouse.read_arrow(f"{kind}_by_customer").num_rows for kind in ("answers", "truth")]
        errors = context.warehouse.read_arrow("accuracy").column("value").to_pylist()
    return context.given_bytes, sum(rows), errors


@pytest.mark.parametrize("customers", [20_000])
def test_what_comes_to_the_driver_does_not_grow_with_the_groups(customers: int, tmp_path: Path) -> None:
    few, few_rows, _ = answered(tmp_path / "few" / "many", 10)
    many, many_rows, errors = answered(tmp_path / "lots" / "many", customers)
    assert many_rows > 100 * few_rows
    assert many < 1.1 * few
    assert len(errors) > 5 and max(errors) > 0
