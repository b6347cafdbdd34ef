"""Windows of local days and weeks, while clocks change: a run's answers, truths and accuracies against DuckDB."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from infra.oracle.answers import check_accuracy, check_answers, check_truth
from tests.command import run_stages
from tests.live_files import contents

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import to_us
from tidegate.engine.context import RunContext
from tidegate.live.run import Live
from tidegate.store.intervals import interval_at
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e

START, END = datetime(2024, 10, 23, tzinfo=UTC), datetime(2024, 11, 6, tzinfo=UTC)
STAGES = ("ingest", "join_aggregate", "top_k", "calibrate")
# The stages run in the process of the tests, which has whatever tests before left in its memory.
PIPELINE = """
name: cafe
owner: tests
start: 2024-10-23T00:00:00Z
interval: 6 hours
tick: 15 minutes
horizon: 6 hours
memory_budget: {memory}
process_budget: 16 GiB
streams:
  orders:
    format: jsonl
    path: {folder}/orders-%Y-%m-%dT%H.jsonl
    columns: {{id: string, ordered: timestamp, came: timestamp, table: integer, price: double}}
    id: id
    event_time: ordered
    arrival_time: came
    rate: 4 per hour
    max_late: 6 hours
"""
# Berlin's and New York's clocks change within the two weeks, Lord Howe's (by half an hour) before, Kathmandu's never.
QUERIES = {
    "of_days": "SELECT COUNT(*) AS n, SUM(price) AS takings FROM orders ERROR 10% "
    "EVERY 1 DAY AT TIME ZONE 'Europe/Berlin'",
    "of_tables": "SELECT `table` AS seat, COUNT(*) AS n FROM orders [1 DAY] GROUP BY `table` HAVING COUNT(*) > 2 "
    "EVERY 1 DAY AT TIME ZONE 'Asia/Kathmandu'",
    "of_seven_days": "SELECT window_start, AVG(price) AS price FROM orders [RANGE 7 DAYS] "
    "EVERY 1 DAY AT TIME ZONE 'America/New_York'",
    "of_weeks": "SELECT COUNT(*) AS n FROM orders [1 WEEK] ERROR 5% EVERY 1 WEEK AT TIME ZONE 'Australia/Lord_Howe'",
    "of_evenings": "SELECT MAX(price) AS dearest FROM orders [6 HOURS] EVERY 1 DAY AT TIME ZONE 'Europe/Berlin'",
    "dearest": "SELECT id, price FROM orders ORDER BY price DESC LIMIT 3 ACCURACY 90% "
    "EVERY 1 DAY AT TIME ZONE 'America/New_York'",
    "best_tables": "SELECT `table` AS seat, SUM(price) AS takings FROM orders GROUP BY `table` "
    "ORDER BY takings DESC LIMIT 2 ACCURACY 90% EVERY 1 DAY AT TIME ZONE 'Europe/Berlin'",
    "pairs": "SELECT COUNT(*) AS n FROM orders AS a, orders [60 MINUTES] AS b WHERE a.`table` = b.`table` "
    "EVERY 1 DAY AT TIME ZONE 'Europe/Berlin'",
}
"""The best groups' answers are compared by other tests: the oracle has none."""
RANKED = "best_tables"


def write(folder: Path, memory: str, queries: dict[str, str] = QUERIES) -> Path:
    """A pipeline, and two weeks of orders that come up to four hours late."""
    chance = random.Random(7)
    files: dict[str, list[str]] = {}
    for number in range(int((END - START) / timedelta(minutes=11))):
        ordered = START + timedelta(minutes=11 * number, seconds=chance.randrange(660))
        came = ordered + timedelta(seconds=round(chance.choice((60, 60, 600, 14_000)) * chance.random()))
        record = {"id": f"o{number}", "ordered": ordered.isoformat(), "came": came.isoformat()}
        record |= {"table": chance.randrange(6), "price": chance.randrange(1, 400) / 4}
        arrived = came.replace(hour=came.hour // 6 * 6)
        files.setdefault(f"{arrived:%Y-%m-%dT%H}", []).append(json.dumps(record))
    (folder / "cafe" / "queries").mkdir(parents=True)
    for name, lines in files.items():
        (folder / f"orders-{name}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "cafe" / "pipeline.yml").write_text(PIPELINE.format(folder=folder, memory=memory))
    for query_id, text in queries.items():
        (folder / "cafe" / "queries" / f"{query_id}.sql").write_text(text)
    return folder / "cafe"


@pytest.fixture(scope="module", params=["1 MiB", "8 KiB"])
def warehouse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """All intervals at once, the memory ample or so small that windows are narrowed."""
    folder = tmp_path_factory.mktemp("calendar")
    pipeline = load_pipeline(write(folder, request.param))
    run_stages(pipeline, folder / "warehouse", START, END, STAGES)
    return Warehouse(folder / "warehouse", pipeline)


@pytest.mark.parametrize("query_id", [name for name in QUERIES if name != RANKED])
def test_answers_truths_and_accuracies_are_those_of_the_definition(warehouse: Warehouse, query_id: str) -> None:
    pipeline, query = warehouse.pipeline, warehouse.pipeline.query(query_id)
    folder = Path(str(warehouse.root)) / pipeline.name
    for check in (check_answers, check_truth, check_accuracy):
        compared = check(pipeline, query, folder, START, END)
        assert compared.differences == [], compared.differences[:3]
        assert compared.windows >= (1 if query_id == "of_weeks" else 11)


def test_days_are_those_of_the_clocks_and_so_are_promise_periods(warehouse: Warehouse) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for row in warehouse.read_arrow("answers_of_days").to_pylist():
        assert row["window_end"].astimezone(berlin).time().isoformat() == "00:00:00"
    lengths = {row["window_end"].date().day: row["range_s"][0][1] / 3600 for row in
               warehouse.read_arrow("answers_of_days").to_pylist()}  # fmt: skip
    assert (lengths[26], lengths[27], lengths[28]) == (24, 25, 24)
    for row in warehouse.read_arrow("answers_of_seven_days").to_pylist():
        begin, end = (row[name].astimezone(ZoneInfo("America/New_York")) for name in ("window_start", "window_end"))
        assert (begin.time(), end.date() - begin.date()) == (end.time(), timedelta(days=7))
    periods = warehouse.read_arrow("promise_periods").to_pylist()
    for row in (row for row in periods if row["query"] == "of_days"):
        begin, end = (row[name].astimezone(berlin) for name in ("period_start", "period_end"))
        assert (begin.hour, end.hour, end.date() - begin.date()) == (0, 0, timedelta(days=1))
    weeks = [row for row in periods if row["query"] == "of_weeks"]
    for row in weeks:
        begin = row["period_start"].astimezone(ZoneInfo("Australia/Lord_Howe"))
        assert (begin.weekday(), begin.hour, row["period_end"] - row["period_start"]) == (0, 0, timedelta(days=7))
    assert weeks


def test_the_checks_of_quality_find_every_window(warehouse: Warehouse) -> None:
    """Of the days round the changes; a missing or contradictory answer would be critical."""
    start = datetime(2024, 10, 26, tzinfo=UTC)
    run_stages(warehouse.pipeline, Path(str(warehouse.root)), start, start + timedelta(days=3), ["check_quality"])
    results = Warehouse(str(warehouse.root), warehouse.pipeline).read_arrow("quality_results").to_pylist()
    assert len(results) > 100
    assert {row["severity"] for row in results if not row["success"]} <= {"warning", "info"}


def test_many_runs_give_the_rows_of_one(tmp_path: Path, warehouse: Warehouse) -> None:
    pipeline, start = warehouse.pipeline, START
    for hours in (96, 6, 6, 12, 216):
        run_stages(pipeline, tmp_path, start, start + timedelta(hours=hours), STAGES)
        start += timedelta(hours=hours)
    assert start == END
    without = ("run_metrics", "quality_results")
    assert contents(pipeline, tmp_path, without) == contents(pipeline, Path(str(warehouse.root)), without)


def test_live_answers_are_those_of_the_run(tmp_path: Path) -> None:
    """A live run compares them itself, interval by interval."""
    pipeline = load_pipeline(write(tmp_path, "8 KiB"))
    start = datetime(2024, 10, 26, tzinfo=UTC)
    with RunContext(pipeline, tmp_path / "warehouse", output=io.StringIO()) as context:
        until_us = to_us(start + timedelta(days=2))
        with Live(context, interval_at(pipeline, start), until_us, STAGES, every_s=0.2, patience_s=0.0) as live:
            live.run()
    answered = (
        Warehouse(tmp_path / "warehouse", pipeline).read_arrow("answers_of_days").column("window_end").to_pylist()
    )
    assert [end.isoformat() for end in answered] == ["2024-10-26T22:00:00+00:00", "2024-10-27T23:00:00+00:00"]


def test_groups_of_a_day_are_counted_over_that_day(tmp_path: Path) -> None:
    """Over 25 hours where the clock is put back."""
    by_seat = "SELECT `table` AS seat, COUNT(*) AS n FROM orders GROUP BY `table` ERROR 20% FOR 60% OF GROUPS "
    queries = {"by_seat": f"{by_seat} EVERY 1 DAY AT TIME ZONE 'Europe/Berlin'"}
    pipeline = load_pipeline(write(tmp_path, "1 MiB", queries))
    run_stages(pipeline, tmp_path / "warehouse", START, START + timedelta(days=6), STAGES)
    warehouse = Warehouse(tmp_path / "warehouse", pipeline)
    truth, groups = (warehouse.read_arrow(name).to_pylist() for name in ("truth_by_seat", "accuracy_groups"))
    assert {row["window_end"].hour for row in truth} == {22, 23}
    counts = {(row["window_end"], json.dumps({"seat": row["seat"]})): row["n"] for row in truth}
    assert {(row["window_end"], row["group_key"]): row["tuples"] for row in groups} == counts
