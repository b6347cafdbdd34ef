"""A pipeline of amounts of money: every stage behind ingest gives exact decimals."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.oracle.answers import check_accuracy, check_answers, check_truth
from tests.command import run_stages, tidegate

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e
START, END = datetime(2026, 1, 5, 0, tzinfo=UTC), datetime(2026, 1, 5, 4, tzinfo=UTC)
STAGES = ("join_aggregate", "top_k", "sample_history", "calibrate")
PIPELINE = """\
name: money
owner: nobody
start: 2026-01-05T00:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: {memory}
process_budget: 2 GiB
streams:
  sales:
    path: feed/sales-%Y-%m-%dT%H.parquet
    format: parquet
    columns:
      id: string
      at: timestamp
      seen: timestamp
      order: integer
      amount: {amount}
      rate: {rate}
    id: id
    event_time: at
    arrival_time: seen
    rate: 300 per hour
    max_late: 1 hour
    history: {{leaf: 10 minutes, capacity: 400}}
  refunds:
    path: feed/refunds-%Y-%m-%dT%H.parquet
    format: parquet
    columns: {{id: string, at: timestamp, seen: timestamp, order: "{order}", paid: "{amount}"}}
    id: id
    event_time: at
    arrival_time: seen
    rate: 100 per hour
    max_late: 1 hour
"""
QUERIES = {
    "revenue": "SELECT SUM(amount) AS total, AVG(amount) AS mean, MIN(amount) AS low, MAX(amount) AS high, "
    "SUM(amount * 1.19) AS gross, SUM(amount) / COUNT(*) AS share, COUNT(amount) AS n FROM sales [20 MINUTES] "
    "ERROR 5% ON MISS CORRECT EVERY 10 MINUTES",
    "by_rate": "SELECT rate, SUM(amount) AS total, ROUND(SUM(amount * rate), 2) AS tax FROM sales [30 MINUTES] "
    "WHERE amount > -0.5 GROUP BY rate HAVING SUM(amount) > 100.5 ERROR 10% EVERY 10 MINUTES",
    "kept": "SELECT SUM(s.amount) AS sold, SUM(r.paid) AS paid, MAX(s.`order`) AS last FROM sales [30 MINUTES] AS s, "
    "refunds [30 MINUTES] AS r WHERE s.`order` = r.`order` ERROR 10% EVERY 10 MINUTES",
    "largest": "SELECT `order` AS number, amount, amount * rate AS tax FROM sales [20 MINUTES] "
    "WHERE `order` IN (1, 2, 3, 4, 5, 6) ORDER BY amount * rate DESC LIMIT 3 ACCURACY 90% EVERY 10 MINUTES",
    "too_large": "SELECT SUM(amount * CAST('1e28' AS DECIMAL(29, 0))) AS huge, SUM(amount) AS plain "
    "FROM sales [20 MINUTES] EVERY 10 MINUTES",
}


def money(folder: Path, memory: str) -> tuple[Pipeline, Warehouse]:
    """Tuples taken in as whole numbers, and put into the tables as decimals."""
    home = folder / "money"
    (home / "queries").mkdir(parents=True)
    (home / "feed").mkdir()
    random = Random(7)
    for stream, many in (("sales", 300), ("refunds", 100)):
        for hour in range(4):
            at = sorted(START.timestamp() + hour * 3600 + random.uniform(0, 3599) for _ in range(many))
            seen = [min(t + random.choice([0, 1, 60, 400]), START.timestamp() + (hour + 1) * 3600 - 1) for t in at]
            columns = {
                "id": [f"{stream}-{hour}-{n}" for n in range(many)],
                "at": pa.array([int(t * 1e6) for t in at]).cast(pa.timestamp("us", "UTC")),
                "seen": pa.array([int(t * 1e6) for t in seen]).cast(pa.timestamp("us", "UTC")),
                "order": [random.randrange(60) for _ in at],
                "amount" if stream == "sales" else "paid": [
                    None if random.random() < 0.05 else random.randrange(-(10**5), 10**9) for _ in at
                ],
            }
            if stream == "sales":
                columns["rate"] = [random.choice([0, 700, 1900]) for _ in at]
            pq.write_table(pa.table(columns), home / "feed" / f"{stream}-2026-01-05T0{hour}.parquet")
    (home / "pipeline.yml").write_text(
        PIPELINE.format(memory=memory, amount="integer", rate="integer", order="integer")
    )
    for name, text in QUERIES.items():
        (home / "queries" / f"{name}.sql").write_text(text)
    run_stages(home, folder / "wh", START, END, ["ingest"])
    whole = Warehouse(folder / "wh", load_pipeline(home))
    rows = {
        (stream, interval): whole.read_arrow(f"events_{stream}", [interval.label])
        for stream in ("sales", "refunds")
        for interval in intervals_between(whole.pipeline, START, END)
    }
    text = PIPELINE.format(memory=memory, amount="decimal(12, 2)", rate="decimal(5, 4)", order="decimal(9, 1)")
    (home / "pipeline.yml").write_text(text)
    pipeline = load_pipeline(home)
    for stream in ("sales", "refunds"):  # a column keeps its type: the tables begin anew
        shutil.rmtree(folder / "wh" / "money" / f"events_{stream}")
    warehouse = Warehouse(folder / "wh", pipeline)
    with warehouse.commit("synthetic", list({interval for _, interval in rows})) as commit:
        for (stream, interval), table in rows.items():
            schema = warehouse.schema(f"events_{stream}")
            columns = {field.name: decimals(table.column(field.name), field.type) for field in schema}
            commit.put_arrow(f"events_{stream}", interval, pa.table(columns, schema=schema))
    return pipeline, Warehouse(folder / "wh", pipeline)


def decimals(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Whole numbers as decimals with these last digits."""
    if not pa.types.is_decimal(kind):
        return column.cast(kind)
    places = 0 if kind.scale == 1 else kind.scale
    return pa.array([None if v is None else Decimal(v).scaleb(-places) for v in column.to_pylist()], kind)


@pytest.mark.parametrize("memory", ["8 MiB", "20 KiB"])
def test_every_stage_gives_exact_decimals(memory: str, tmp_path: Path) -> None:
    pipeline, warehouse = money(tmp_path, memory)
    run_stages(pipeline, tmp_path / "wh", START, END, STAGES)
    for query in pipeline.queries:
        if query.id == "too_large":
            continue
        for check in (check_answers, check_truth, check_accuracy):
            found = check(pipeline, query, warehouse.folder, START, END)
            assert found.differences == [] and found.windows > 10, (query.id, found.differences[:3])
    revenue = warehouse.read_arrow("answers_revenue")
    assert revenue.schema.field("total").type == pa.decimal128(22, 2)
    assert revenue.schema.field("mean").type == pa.decimal128(16, 6)
    if memory == "8 MiB":
        assert revenue.column("coverage").to_pylist() == [1.0] * revenue.num_rows
    huge = warehouse.read_arrow("answers_too_large").to_pylist()
    assert huge and all(row["huge"] is None and row["plain"] is not None for row in huge if row["plain"])
    metrics = [row for row in warehouse.read_arrow("run_metrics").to_pylist() if row["query"] == "too_large"]
    assert sum(row["rows_failed"] for row in metrics if row["app"] == "join_aggregate") > 0


def test_history_answers_with_numbers(tmp_path: Path) -> None:
    pipeline, _ = money(tmp_path, "8 MiB")
    run_stages(pipeline, tmp_path / "wh", START, END, STAGES)
    sql = "SELECT SUM(amount) AS s, AVG(amount * 1.19) AS m FROM sales WHERE rate > 0.05"
    asked = ["--from", "2026-01-05T00:00", "--to", "2026-01-05T03:00"]
    done = tidegate("history", tmp_path / "money", sql, "--warehouse", tmp_path / "wh", *asked)
    assert done.status == 0, done.errors
