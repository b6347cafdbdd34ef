"""Queries over derived streams beside the same queries written over the declared stream: equal rows in every table."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.history.questions import query_history
from tidegate.live.run import Live
from tidegate.stages import run as stages
from tidegate.store.intervals import interval_at, intervals_between
from tidegate.store.warehouse import Warehouse

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
HOURS = 4
STAGES = ("ingest", "join_aggregate", "top_k", "calibrate")
PIPELINE = """\
name: market
owner: nobody
start: 2026-01-05T08:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: 4 KiB
process_budget: 3 GiB
streams:
  orders:
    format: jsonl
    path: landing/%Y-%m-%dT%H.jsonl
    columns: {id: integer, at: timestamp, seen: timestamp, product: string, price: double, pieces: integer}
    id: id
    event_time: at
    arrival_time: seen
    rate: 3 per minute
    history: {leaf: 1 hour, capacity: 100}
"""
STREAMS = {
    "paid": "SELECT *, price * pieces AS amount FROM orders WHERE pieces > 0",
    "large": "SELECT UPPER(product) AS article, product, amount, id AS number FROM paid\n"
    "WHERE amount >= 20 OR price > 9",
}
_LARGE = "pieces > 0 AND (price * pieces >= 20 OR price > 9)"
QUERIES = {
    "sums": (
        "SELECT article, COUNT(*) AS n, SUM(amount) AS s FROM large [30 MINUTES] AS l"
        " GROUP BY article ERROR 5% EVERY 5 MINUTES",
        "SELECT UPPER(product) AS article, COUNT(*) AS n, SUM(price * pieces) AS s FROM orders [30 MINUTES] AS l"
        f" WHERE {_LARGE} GROUP BY UPPER(product) ERROR 5% EVERY 5 MINUTES",
    ),
    "best": (
        "SELECT number, amount FROM large [30 MINUTES] AS l ORDER BY amount DESC LIMIT 3 ACCURACY 90% EVERY 10 MINUTES",
        f"SELECT id AS number, price * pieces AS amount FROM orders [30 MINUTES] AS l WHERE {_LARGE}"
        " ORDER BY price * pieces DESC LIMIT 3 ACCURACY 90% EVERY 10 MINUTES",
    ),
    "pairs": (
        "SELECT l.product, COUNT(*) AS n, MAX(l.amount) AS m FROM large [10 MINUTES] l JOIN paid [15 MINUTES] p"
        " ON l.product = p.product GROUP BY l.product EVERY 15 MINUTES",
        "SELECT l.product, COUNT(*) AS n, MAX(l.price * l.pieces) AS m FROM orders [10 MINUTES] l"
        f" JOIN orders [15 MINUTES] p ON l.product = p.product WHERE {_LARGE.replace('p', 'l.p')} AND p.pieces > 0"
        " GROUP BY l.product EVERY 15 MINUTES",
    ),
}


def land(folder: Path) -> None:
    chance = random.Random(5)
    lines: dict[datetime, list[str]] = {}
    for number in range(HOURS * 180):
        at = START + timedelta(seconds=20 * number)
        seen = at + timedelta(seconds=chance.expovariate(1 / 60))
        row = {"id": number, "at": at.isoformat(), "seen": seen.isoformat(), "product": chance.choice("abc")}
        row |= {"price": chance.randrange(1, 12), "pieces": chance.randrange(0, 4)}
        lines.setdefault(seen.replace(minute=0, second=0, microsecond=0), []).append(json.dumps(row))
    folder.mkdir()
    for hour, rows in lines.items():
        (folder / f"{hour:%Y-%m-%dT%H}.jsonl").write_text("\n".join(rows) + "\n")


def declare(folder: Path, derived: bool) -> Pipeline:
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    for name, texts in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(texts[not derived])
    if derived:
        (folder / "streams").mkdir()
        for name, text in STREAMS.items():
            (folder / "streams" / f"{name}.sql").write_text(text)
    land(folder / "landing")
    return load_pipeline(folder)


def rows(root: Path, pipeline: Pipeline) -> dict[str, list[dict]]:
    warehouse = Warehouse(root, pipeline)
    names = [f"{kind}_{query}" for kind in ("answers", "truth") for query in QUERIES]
    names += ["accuracy", "needed_slack", "slack_plan", "window_plan", "query_plan", "stream_rates"]
    return {name: sorted(warehouse.read_arrow(name).to_pylist(), key=repr) for name in names}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[dict]]]:
    """What the queries over the declared stream give."""
    folder = tmp_path_factory.mktemp("plain")
    pipeline = declare(folder / "market", derived=False)
    with RunContext(pipeline, folder / "warehouse", here=True) as context:
        stages.run(context, intervals_between(pipeline, START, START + timedelta(hours=HOURS)), STAGES)
    return rows(folder / "warehouse", pipeline)


def test_runs_and_repeated_runs_give_the_rows_of_the_declared_stream(plain, tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", derived=True)
    intervals = intervals_between(pipeline, START, START + timedelta(hours=HOURS))
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        for interval in intervals:
            stages.run(context, [interval], STAGES)
    assert rows(tmp_path / "warehouse", pipeline) == plain
    assert all(plain[f"{kind}_{query}"] for kind in ("answers", "truth") for query in QUERIES)
    assert any(row["coverage"] < 1 for row in plain["answers_sums"]), "some windows are narrow"
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        stages.run(context, intervals[1:3], STAGES)
    assert rows(tmp_path / "warehouse", pipeline) == plain


def test_a_live_run_gives_them_too(plain, tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", derived=True)
    end = START + timedelta(hours=HOURS)
    first, end_us = interval_at(pipeline, START), interval_at(pipeline, end).start_us
    with (
        RunContext(pipeline, tmp_path / "warehouse", here=True) as context,
        Live(context, first, end_us, STAGES, 0.05) as live,
    ):
        live.run()
    assert rows(tmp_path / "warehouse", pipeline) == plain


def test_history_is_that_of_the_declared_stream(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", derived=True)
    with pytest.raises(UserError, match="'large' is a derived stream, and its past is that of orders"):
        query_history(pipeline, tmp_path / "warehouse", "SELECT COUNT(*) FROM large", START, START + timedelta(hours=1))


def test_explain_says_what_they_stand_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declare(tmp_path / "market", derived=True)
    assert main(["explain", str(tmp_path / "market")]) == 0
    text = capsys.readouterr().out
    assert "tuples of  orders, through paid" in text
    assert "where      pieces > 0 AND ((price * pieces) >= 20 OR price > 9)" in text
    assert "last 30 minutes of large, from orders" in text
