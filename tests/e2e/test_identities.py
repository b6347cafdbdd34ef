"""Ids of two columns, of none and of one through every stage, the SQL server, history and the report; run twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from infra.oracle.answers import check_answers, check_truth
from infra.oracle.history import check_history, check_samples
from tests.command import run_pipeline
from tests.live_files import live_files

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.history.questions import query_history
from tidegate.report import report
from tidegate.store.warehouse import Warehouse

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1200)]

START, HOURS = datetime(2026, 1, 5, 8, tzinfo=UTC), 4
END = START + timedelta(hours=HOURS)
EVERY_S = {"lines": 10, "clicks": 12, "stock": 30}
PIPELINE = """\
name: market
owner: tests
start: 2026-01-05T00:00:00Z
interval: 1 hour
tick: 10 minutes
horizon: 1 hour
memory_budget: 8 MiB
process_budget: 3 GiB
streams:
  lines:
    description: Lines of orders; a line has no id of its own
    path: feed/lines/%Y-%m-%dT%H.jsonl
    format: jsonl
    columns:
      order_no: {type: integer, from: order.no}
      line: {type: string, from: order.line}
      product: string
      amount: double
      at: {type: timestamp, format: epoch_ms}
    id: [order_no, line]
    event_time: at
    arrival_time: at
    rate: 6 per minute
    history: {leaf: 1 hour, capacity: 2000, group_by: [product]}
  clicks:
    description: Lines of a log; nothing tells two equal ones apart
    path: feed/clicks/%Y-%m-%dT%H.jsonl
    format: jsonl
    columns:
      page: string
      seconds: double
      at: {type: timestamp, format: epoch_s}
    id: none
    event_time: at
    arrival_time: at
    rate: 5 per minute
    history: {leaf: 1 hour, capacity: 2000}
  stock:
    path: feed/stock/%Y-%m-%dT%H.csv
    format: csv
    csv: {delimiter: ";", decimal: ","}
    columns: {key: string, product: string, stored: double, at: timestamp}
    id: key
    event_time: at
    arrival_time: at
    rate: 2 per minute
    history: {leaf: 1 hour, capacity: 2000}
"""
QUERIES = {
    "revenue": "SELECT product, COUNT(*) AS n, SUM(amount) AS amount FROM lines [1 HOUR]\n"
    "GROUP BY product EVERY 10 MINUTES",
    "longest": "SELECT page, seconds FROM clicks [30 MINUTES]\n"
    "ORDER BY seconds DESC LIMIT 3 ACCURACY 90% EVERY 10 MINUTES",
    "stored": "SELECT l.product, COUNT(*) AS n, MAX(s.stored) AS stored\n"
    "FROM lines [10 MINUTES] AS l, stock [10 MINUTES] AS s WHERE l.product = s.product\n"
    "GROUP BY l.product EVERY 10 MINUTES",
}


def write_feed(feed: Path) -> None:
    """Four hours of records.

    Every fifth click is the same line as the one before. Hour 9 has a line of an order twice, and one without its
    number. From hour 9 on clicks say which agent made them.
    """
    for stream in EVERY_S:
        (feed / stream).mkdir(parents=True)
    for hour in range(HOURS):
        start = START + timedelta(hours=hour)
        name, epoch_s = f"{start:%Y-%m-%dT%H}", int(start.timestamp())
        lines = [
            {"order": {"no": hour * 1000 + n // 3, "line": "abc"[n % 3]}, "product": f"p{n % 4}", "amount": n / 4,
             "at": (epoch_s + 10 * n) * 1000}
            for n in range(3600 // EVERY_S["lines"])
        ]  # fmt: skip
        if hour == 1:
            lines += [lines[7], {**lines[8], "order": {"line": "a"}}]
        clicks = [
            {"page": f"/{m % 7}", "seconds": m % 50 / 2, "at": epoch_s + 12 * m, **({"agent": "x"} if hour else {})}
            for m in (n - (n % 5 == 4) for n in range(3600 // EVERY_S["clicks"]))
        ]
        for stream, records in (("lines", lines), ("clicks", clicks)):
            (feed / stream / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        times = [start + timedelta(seconds=30 * n) for n in range(3600 // EVERY_S["stock"])]
        rows = [f"k{hour}-{n};p{n % 4};{n},5;{at:%Y-%m-%dT%H:%M:%SZ}" for n, at in enumerate(times)]
        (feed / "stock" / f"{name}.csv").write_text("\n".join(["key;product;stored;at", *rows]) + "\n")


@dataclass(frozen=True)
class Market:
    """The pipeline after all of its stages were run twice; ``first``: its tables after the first time."""

    pipeline: Pipeline
    root: Path
    first: dict[str, list[dict[str, Any]]]

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        return tables_of(self.pipeline, self.root)

    def mart(self, name: str) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        files = live_files(self.root / "market" / "marts" / name).values()
        return [row for paths in files for file in paths for row in pq.ParquetFile(file).read().to_pylist()]


def tables_of(pipeline: Pipeline, root: Path) -> dict[str, list[dict[str, Any]]]:
    """Every table but what the runs themselves took."""
    warehouse = Warehouse(root, pipeline)
    return {t: warehouse.read_arrow(t).to_pylist() for t in warehouse.tables() if t != "run_metrics"}


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Market:
    folder, root = tmp_path_factory.mktemp("pipelines") / "market", tmp_path_factory.mktemp("warehouse")
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE, encoding="utf-8")
    for name, text in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(text, encoding="utf-8")
    write_feed(folder / "feed")
    span = f"{START:%Y-%m-%dT%H}", f"{END:%Y-%m-%dT%H}"
    run_pipeline(folder, root, *span)
    first = tables_of(load_pipeline(folder), root)
    run_pipeline(folder, root, *span)
    return Market(load_pipeline(folder), root, first)


def test_each_record_is_a_tuple_or_refused_with_its_place(market: Market) -> None:
    tables = market.tables()
    counts = {stream: len(tables[f"events_{stream}"]) for stream in EVERY_S}
    assert counts == {stream: HOURS * 3600 // every_s for stream, every_s in EVERY_S.items()}
    refused = [
        (r["stream"], r["reason"], r["column"], Path(r["source"]).name, r["position"]) for r in tables["quarantine"]
    ]
    assert refused == [
        ("lines", "duplicate_id", "order_no, line", "2026-01-05T09.jsonl", 361),
        ("lines", "missing_value", "order_no", "2026-01-05T09.jsonl", 362),
    ]


def test_an_id_of_two_columns_is_their_values_and_of_none_the_place(market: Market) -> None:
    tables = market.tables()
    for stream in EVERY_S:
        ids = [row["event_id"] for row in tables[f"events_{stream}"]]
        assert len(set(ids)) == len(ids)
    lines = tables["events_lines"]
    assert all(json.loads(row["event_id"]) == [row["order_no"], row["line"]] for row in lines)
    assert '[1002,"b"]' in {row["event_id"] for row in lines}
    places = [row["event_id"].rpartition(":") for row in tables["events_clicks"]]
    assert {name for name, _, _ in places} == {f"2026-01-05T{8 + hour:02}.jsonl" for hour in range(HOURS)}
    assert ("2026-01-05T08.jsonl", ":", "0") in places
    assert {row["event_id"] for row in tables["events_stock"]} >= {"k0-0", "k3-119"}


def test_a_second_run_leaves_the_same_tables(market: Market) -> None:
    second = market.tables()
    assert second.keys() == market.first.keys()
    for table, rows in market.first.items():
        assert second[table] == rows, table


@pytest.mark.parametrize("query", sorted(QUERIES))
def test_answers_and_truth_equal_brute_force(market: Market, query: str) -> None:
    for check in (check_answers, check_truth):
        comparison = check(market.pipeline, market.pipeline.query(query), market.root / "market", START, END)
        assert comparison.equal, str(comparison)
        assert comparison.windows > 10


@pytest.mark.parametrize("stream", sorted(EVERY_S))
def test_history_is_exact_and_is_asked(market: Market, stream: str) -> None:
    for check in (check_history, check_samples):
        comparison = check(market.pipeline, market.pipeline.stream(stream), market.root / "market", START, END)
        assert comparison.equal, str(comparison)
        assert comparison.rows > 0
    query = f"SELECT COUNT(*) AS n FROM {stream}"
    answer = query_history(market.pipeline, market.root, query, START, START + timedelta(hours=1))
    assert answer["rows"][0]["n"]["estimate"] == 3600 / EVERY_S[stream]
    assert answer["rows"][0]["n"]["exact"]


def test_only_the_field_that_is_new_is_warned_of_and_only_once(market: Market) -> None:
    failed = [row for row in market.tables()["quality_results"] if not row["success"] and row["severity"] != "info"]
    assert [(row["interval"][-2:], row["expectation"], row["table"]) for row in failed] == [
        ("09", "column_declared", "unknown_columns")
    ]
    assert "clicks agent" in failed[0]["detail"] and failed[0]["measured"] == 300
    unknown = market.tables()["unknown_columns"]
    assert [(r["interval"][-2:], r["stream"], r["column"], r["records"]) for r in unknown] == [
        (f"{8 + hour:02}", "clicks", "agent", 300) for hour in range(1, HOURS)
    ]


def test_marts_and_report_count_every_record(market: Market) -> None:
    totals: Counter[str] = Counter()
    for row in market.mart("ingestion_by_hour"):
        totals[row["stream"]] += row["records"]
    assert totals == {"lines": 4 * 360 + 2, "clicks": 4 * 300, "stock": 4 * 120}
    (twice,) = (row for row in market.mart("quarantine_by_hour") if row["reason"] == "duplicate_id")
    assert (twice["column_name"], twice["records"], twice["example_position"]) == ("order_no, line", 1, 361)
    assert Path(twice["example_source"]).name == "2026-01-05T09.jsonl"
    assert {
        (r["column_name"], r["records"], r["share_of_accepted"]) for r in market.mart("unknown_columns_by_hour")
    } == {("agent", 300, 1.0)}
    page = report.run(market.pipeline, market.root).read_text(encoding="utf-8")
    assert "Fields ignored: no column is read from them" in page and ">agent<" in page


@pytest.fixture
def client(market: Market, tmp_path: Path) -> Iterator[psycopg.Connection]:
    """A client of ``tidegate sql``."""
    password = tmp_path / "password"
    command = [
        sys.executable,
        "-m",
        "tidegate.cli",
        "sql",
        str(market.pipeline.folder),
        "--warehouse",
        str(market.root),
    ]
    server = subprocess.Popen(
        [*command, "--port", "0", "--password-file", str(password)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ),
    )
    assert server.stdout is not None
    ready = next(line for line in server.stdout if "ready at" in line)
    port = ready.split("127.0.0.1:")[1].split("/")[0]
    address = f"postgresql://analyst:{password.read_text().strip()}@127.0.0.1:{port}/market"
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=60)


def test_the_sql_server_has_the_tables_and_their_columns(client: psycopg.Connection) -> None:
    columns = "SELECT table_schema, column_name FROM information_schema.columns WHERE table_name = %s ORDER BY 1, 2"
    listed = client.execute(columns, ("unknown_columns",)).fetchall()
    names = {name for schema, name in listed if schema == "warehouse"}
    assert names == {"stream", "column", "records", "first_seen", "interval"}
    mart = client.execute(columns, ("unknown_columns_by_hour",)).fetchall()
    assert {schema for schema, _ in mart} == {"tidegate"}
    assert {("warehouse", "source"), ("warehouse", "position")} <= set(
        client.execute(columns, ("quarantine",)).fetchall()
    )
    assert {("warehouse", "since")} <= set(client.execute(columns, ("source_files",)).fetchall())
    tuples = "SELECT count(*), count(DISTINCT event_id) FROM warehouse.events_clicks"
    assert client.execute(tuples).fetchone() == (1200, 1200)
    refused = 'SELECT "column", "position" FROM warehouse.quarantine WHERE reason = \'duplicate_id\''
    assert client.execute(refused).fetchall() == [("order_no, line", 361)]
    assert client.execute("SELECT sum(records) FROM tidegate.unknown_columns_by_hour").fetchone() == (900,)
