"""Joins with a bound through the stages: answers, truths, accuracies, what is learnt, repeated and live runs."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from expectations.tables import Cached, Case
from expectations.windows import due_windows

from tidegate.cli import main
from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.live.run import Live
from tidegate.stages import run as stages
from tidegate.store.intervals import interval_at, intervals_between
from tidegate.store.warehouse import Warehouse

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
HOURS = 7
STAGES = ("ingest", "join_aggregate", "top_k", "calibrate")
BOUND = timedelta(minutes=30)
PIPELINE = """\
name: shop
owner: nobody
start: 2026-01-05T08:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
promise_period: 1 hour
memory_budget: {memory}
process_budget: 3 GiB
streams:
  orders:
    format: jsonl
    path: landing/orders-%Y-%m-%dT%H.jsonl
    columns: {{id: integer, at: timestamp, seen: timestamp, country: string, price: double}}
    id: id
    event_time: at
    arrival_time: seen
    rate: 2 per minute
  payments:
    format: jsonl
    path: landing/payments-%Y-%m-%dT%H.jsonl
    columns: {{id: integer, at: timestamp, seen: timestamp, "order": integer, amount: double}}
    id: id
    event_time: at
    arrival_time: seen
    rate: 2 per minute
"""
_MATCH = "p.`order` = o.id AND p.at BETWEEN o.at AND o.at + INTERVAL 30 MINUTES"
QUERIES = {
    "unpaid": "SELECT o.country, COUNT(*) AS n, SUM(o.price) AS price FROM orders [1 HOUR] AS o WHERE NOT EXISTS "
    f"(SELECT 1 FROM payments AS p WHERE {_MATCH}) GROUP BY o.country ERROR 20% EVERY 1 HOUR",
    "paid": f"SELECT COUNT(*) AS n FROM orders [30 MINUTES] AS o LEFT SEMI JOIN payments AS p ON {_MATCH} "
    "ERROR 5% EVERY 15 MINUTES",
    "amounts": "SELECT o.country, COUNT(*) AS n, COUNT(p.amount) AS paid, SUM(p.amount) AS amount "
    f"FROM orders [1 HOUR] AS o LEFT JOIN payments AS p ON {_MATCH} GROUP BY o.country EVERY 30 MINUTES",
    "pairs": "SELECT o.country, COUNT(*) AS n, MAX(p.amount) AS most FROM orders [1 HOUR] AS o JOIN payments AS p "
    f"ON {_MATCH} GROUP BY o.country ERROR 10% EVERY 30 MINUTES",
    "plain": "SELECT COUNT(*) AS n FROM orders [1 HOUR] AS o JOIN payments [1 HOUR] AS p ON p.`order` = o.id "
    "ERROR 10% EVERY 30 MINUTES",
}
RANGES = {"unpaid": 60, "paid": 30, "amounts": 60, "pairs": 60}


def records() -> dict[str, list[dict[str, Any]]]:
    chance = random.Random(7)
    found: dict[str, list[dict[str, Any]]] = {"orders": [], "payments": []}

    def add(stream: str, at: datetime, **more: Any) -> None:
        seen = at + timedelta(seconds=round(min(chance.expovariate(1 / 700), 3500)))
        found[stream].append({"id": len(found[stream]), "at": at, "seen": seen, **more})

    for number in range(HOURS * 60):
        at = START + timedelta(seconds=60 * number + chance.randrange(60))
        add("orders", at, country=chance.choice("ab"), price=float(chance.randrange(1, 9)))
        for _ in range(chance.choice([0, 1, 1, 1, 2])):
            later = at + timedelta(seconds=chance.randrange(-120, 2400))
            add("payments", later, order=number, amount=chance.randrange(1, 99) / 4)
    return found


RECORDS = records()


def declare(folder: Path, memory: str = "1 MiB") -> Pipeline:
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE.format(memory=memory))
    for name, sql in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(sql)
    (folder / "landing").mkdir()
    files: dict[str, list[str]] = {
        f"{s}-{START + timedelta(hours=h):%Y-%m-%dT%H}": [] for s in RECORDS for h in range(HOURS)
    }
    for stream, rows in RECORDS.items():
        for row in sorted(rows, key=lambda r: r["seen"]):
            line = json.dumps({k: v.isoformat() if isinstance(v, datetime) else v for k, v in row.items()})
            files.setdefault(f"{stream}-{row['seen']:%Y-%m-%dT%H}", []).append(line)
    for name, lines in files.items():
        (folder / "landing" / f"{name}.jsonl").write_text("\n".join(lines) + "\n" if lines else "")
    return load_pipeline(folder)


def tables(root: Path, pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    warehouse = Warehouse(root, pipeline)
    names = [f"{kind}_{query}" for kind in ("answers", "truth") for query in QUERIES]
    names += ["accuracy", "needed_slack", "slack_plan", "window_plan", "query_plan", "promise_periods", "width_errors"]
    return {name: sorted(warehouse.read_arrow(name).to_pylist(), key=repr) for name in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """All intervals in one run."""
    folder = tmp_path_factory.mktemp("whole")
    pipeline = declare(folder / "shop")
    with RunContext(pipeline, folder / "warehouse", here=True) as context:
        stages.run(context, intervals_between(pipeline, START, START + timedelta(hours=HOURS)), STAGES)
    return tables(folder / "warehouse", pipeline)


def defined(query: str, end: datetime, known: datetime) -> list[dict[str, Any]]:
    """A window's rows by the definition, of what had arrived by an instant."""
    orders = [o for o in RECORDS["orders"] if end - timedelta(minutes=RANGES[query]) <= o["at"] < end]
    groups: dict[str, list[Any]] = defaultdict(list)
    for order in (o for o in orders if max(o["seen"], o["at"]) <= known):
        matches = [
            p
            for p in RECORDS["payments"]
            if p["order"] == order["id"] and order["at"] <= p["at"] <= order["at"] + BOUND and p["seen"] <= known
        ]
        if query in ("unpaid", "paid"):
            groups[order["country"]] += [order] if bool(matches) == (query == "paid") else []
        else:
            groups[order["country"]] += matches or ([None] if query == "amounts" else [])
    if query == "paid":
        return [{"n": sum(map(len, groups.values()))}]
    rows: list[dict[str, Any]] = []
    for country, own in sorted((c, g) for c, g in groups.items() if g):
        amounts = [p["amount"] for p in own if p] if query != "unpaid" else []
        if query == "unpaid":
            rows.append({"n": len(own), "price": sum(o["price"] for o in own)})
        elif query == "amounts":
            rows.append({"n": len(own), "paid": len(amounts), "amount": sum(amounts) if amounts else None})
        else:
            rows.append({"n": len(own), "most": max(amounts)})
        rows[-1] = {"country": country, **rows[-1]}
    return rows


def by_window(rows: list[dict[str, Any]], names: list[str]) -> dict[datetime, list[dict[str, Any]]]:
    found: dict[datetime, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["window_end"]].append({name: row[name] for name in names})
    return {end: sorted(own, key=repr) for end, own in found.items()}


def ends_in(warehouse: Warehouse, table: str, label: str) -> set[int]:
    """The ends of a partition's windows, microseconds."""
    return set(warehouse.read_arrow(table, [label]).column("window_end").cast(pa.int64()).to_pylist())


@pytest.mark.parametrize("query", list(RANGES))
def test_answers_and_truths_are_those_of_the_definition(whole: dict[str, Any], query: str) -> None:
    answers, truth = whole[f"answers_{query}"], whole[f"truth_{query}"]
    names = list(defined(query, START + timedelta(hours=2), START + timedelta(hours=9))[0])
    emitted = {row["window_end"]: row["emitted_at"] for row in answers}
    assert len(emitted) >= 6
    given = by_window(answers, names)
    for end, at in emitted.items():
        assert given[end] == defined(query, end, at), end
    known = by_window(truth, names)
    assert len(known) >= 5
    for end, rows in known.items():
        assert rows == defined(query, end, end + BOUND + timedelta(hours=1)), end
    assert any(given[end] != rows for end, rows in known.items() if end in given)


@pytest.mark.parametrize("query", list(RANGES))
def test_an_answer_says_when_it_is_due_and_what_it_is_of(whole: dict[str, Any], query: str) -> None:
    for row in whole[f"answers_{query}"]:
        assert row["emitted_at"] == row["window_end"] + BOUND + timedelta(seconds=row["slack_s"])
        assert dict(row["range_s"]) == {"o": RANGES[query] * 60, "p": RANGES[query] * 60 + 1800} == dict(row["width_s"])
        assert (row["coverage"], row["support_level"]) == (1, "A")


def test_slacks_are_learnt_and_promises_judged(whole: dict[str, Any]) -> None:
    for query in ("unpaid", "paid", "pairs"):
        plans = sorted((r for r in whole["slack_plan"] if r["query"] == query), key=lambda row: row["effective_from"])
        assert 0 < plans[-1]["slack_s"] <= 3600 and plans[-1]["method"] in ("warm_up", "periods")
        judged = [row for row in whole["accuracy"] if row["query"] == query]
        assert len(judged) >= 5 and all(row["slack_s"] <= 3600 for row in judged)
        assert any(row["query"] == query for row in whole["promise_periods"])
        assert all(row["share"] is None for row in whole["needed_slack"] if row["query"] == query)
    assert {row["query"] for row in whole["width_errors"]} == {"plain"}


def test_interval_by_interval_and_again_the_rows_are_the_same(whole: dict[str, Any], tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "shop")
    intervals = intervals_between(pipeline, START, START + timedelta(hours=HOURS))
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        for interval in intervals:
            stages.run(context, [interval], STAGES)
    assert tables(tmp_path / "warehouse", pipeline) == whole
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        stages.run(context, intervals[2:4], STAGES)
    assert tables(tmp_path / "warehouse", pipeline) == whole
    warehouse = Warehouse(tmp_path / "warehouse", pipeline)
    for interval in intervals:
        case = Case(pipeline, interval, Cached(warehouse))
        for query in RANGES:
            answers, truth, _ = due_windows(case, pipeline.query(query))
            assert answers == ends_in(warehouse, f"answers_{query}", interval.label), (interval.label, query)
            assert truth == ends_in(warehouse, f"truth_{query}", interval.label), (interval.label, query)


def test_a_live_run_gives_them_too(whole: dict[str, Any], tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "shop")
    first, end_us = interval_at(pipeline, START), interval_at(pipeline, START + timedelta(hours=HOURS)).start_us
    with (
        RunContext(pipeline, tmp_path / "warehouse", here=True) as context,
        Live(context, first, end_us, STAGES, 0.05) as live,
    ):
        live.run()
    assert tables(tmp_path / "warehouse", pipeline) == whole


def test_what_is_not_held_whole_has_no_answer_and_is_missed(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "shop", memory="3 KiB")
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        stages.run(context, intervals_between(pipeline, START, START + timedelta(hours=HOURS)), STAGES)
    rows = tables(tmp_path / "warehouse", pipeline)
    for query in RANGES:
        assert all(row["support_level"] == "A" for row in rows[f"answers_{query}"])
        answered = {row["window_end"] for row in rows[f"answers_{query}"]}
        missed = [r for r in rows["accuracy"] if r["query"] == query and r["window_end"] not in answered]
        assert missed and all(row["value"] == 1 and row["kept"] is not True for row in missed)
        assert all(set(dict(row["width_s"]).values()) == {0} for row in missed)


def test_the_queries_of_the_reference_are_answered(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "shop")
    page = (Path(__file__).parents[2] / "docs" / "reference" / "query-language.md").read_text()
    section = page.split("## Joins with a bound in time", 1)[1].split("```sql\n", 1)[1].split("```", 1)[0]
    statements = section.strip().split("\n\n")
    assert len(statements) == 4
    for path in (tmp_path / "shop" / "queries").iterdir():
        path.unlink()
    for number, sql in enumerate(statements):
        (tmp_path / "shop" / "queries" / f"q{number}.sql").write_text(sql)
    pipeline = load_pipeline(tmp_path / "shop")
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        stages.run(context, intervals_between(pipeline, START, START + timedelta(hours=4)), STAGES)
    warehouse = Warehouse(tmp_path / "warehouse", pipeline)
    answers = [warehouse.read_arrow(f"answers_q{number}").to_pylist() for number in range(4)]
    assert all(len({row["window_end"] for row in rows}) >= 2 for rows in answers)
    emitted = {row["window_end"]: row["emitted_at"] for row in answers[0]}
    for end, rows in by_window(answers[0], ["country", "unpaid", "price"]).items():
        assert rows == [
            {"country": r["country"], "unpaid": r["n"], "price": r["price"]}
            for r in defined("unpaid", end, emitted[end])
        ]


def test_explain_says_how_they_are_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declare(tmp_path / "shop")
    assert main(["explain", str(tmp_path / "shop")]) == 0
    text = capsys.readouterr().out
    assert "payments from the time of to 30 minutes after each o" in text
    assert "each o that has no match; answered 30 minutes and K after a window's end" in text
    assert "Held whole or not at all" in text


def test_constants_of_an_optional_derived_stream_are_null_where_nothing_matches(tmp_path: Path) -> None:
    declare(tmp_path / "shop")
    queries = tmp_path / "shop" / "queries"
    for name in QUERIES.keys() - {"amounts"}:
        (queries / f"{name}.sql").unlink()
    (tmp_path / "shop" / "streams").mkdir()
    kinds = "SELECT id, at, `order`, 'card' AS kind, COALESCE(amount, 0) AS amount FROM payments\n"
    (tmp_path / "shop" / "streams" / "kinds.sql").write_text(kinds)
    (queries / "kinds.sql").write_text(
        "SELECT o.country, COUNT(*) AS n, COUNT(p.kind) AS paid, SUM(p.amount) AS amount "
        f"FROM orders [1 HOUR] AS o LEFT JOIN kinds AS p ON {_MATCH} GROUP BY o.country EVERY 30 MINUTES"
    )
    pipeline = load_pipeline(tmp_path / "shop")
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        stages.run(context, intervals_between(pipeline, START, START + timedelta(hours=3)), STAGES)
    rows = {
        name: by_window(context.warehouse.read_arrow(f"answers_{name}").to_pylist(), ["country", "n", "paid", "amount"])
        for name in ("amounts", "kinds")
    }
    assert rows["amounts"] == rows["kinds"]
    assert any(row["paid"] < row["n"] for own in rows["kinds"].values() for row in own)
