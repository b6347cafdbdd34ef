"""Joins whose pairs meet further conditions: a run's answers, truths and accuracies against DuckDB."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from infra.oracle.answers import check_accuracy, check_answers, check_truth
from tests.command import run_stages
from tests.e2e.test_calendar import START, write

from tidegate.declarations import load_pipeline
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e

STAGES = ("ingest", "join_aggregate", "calibrate")
END = START + timedelta(days=1)
QUERIES = {
    "dearer": "SELECT COUNT(*) AS n, SUM(b.price) AS total FROM orders [6 HOURS] AS a, orders [3 HOURS] AS b "
    "WHERE a.`table` = b.`table` AND a.price > b.price AND a.id <> b.id ERROR 20% EVERY 1 HOUR",
    "soon_after": "SELECT a.`table` AS seat, COUNT(*) AS n, MAX(b.price) AS dearest FROM orders [6 HOURS] AS a "
    "JOIN orders [6 HOURS] AS b ON a.`table` = b.`table` AND b.ordered BETWEEN a.ordered AND a.ordered + "
    "INTERVAL 30 MINUTES WHERE a.price + b.price > 100 OR b.price IS NULL GROUP BY a.`table` EVERY 1 HOUR",
    "three": "SELECT COUNT(*) AS n, AVG(a.price) AS price FROM orders [2 HOURS] AS a, orders [2 HOURS] AS b, "
    "orders [1 HOUR] AS c WHERE a.`table` = b.`table` AND b.`table` = c.`table` AND a.price < c.price "
    "AND a.price + b.price > c.price EVERY 1 HOUR",
}


@pytest.fixture(scope="module", params=["1 MiB", "4 KiB"])
def warehouse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder = tmp_path_factory.mktemp("pairs")
    pipeline = load_pipeline(write(folder, request.param, QUERIES))
    run_stages(pipeline, folder / "warehouse", START, END, STAGES)
    return Warehouse(folder / "warehouse", pipeline)


@pytest.mark.parametrize("query_id", list(QUERIES))
def test_pairs_that_meet_conditions_are_counted(warehouse: Warehouse, query_id: str) -> None:
    pipeline, query = warehouse.pipeline, warehouse.pipeline.query(query_id)
    folder = Path(str(warehouse.root)) / pipeline.name
    for check in (check_answers, check_truth, check_accuracy):
        compared = check(pipeline, query, folder, START, END)
        assert compared.differences == [], compared.differences[:3]
        assert compared.windows >= 12
    counts = warehouse.read_arrow(f"truth_{query_id}").column("n").to_pylist()
    assert max(counts) > 3
