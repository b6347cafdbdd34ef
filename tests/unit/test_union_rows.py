"""Queries over a union beside the same queries over a stream that holds the same tuples; narrow windows by hand."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import pytest
from infra.oracle.answers import check_accuracy, check_answers, check_truth

from tidegate.cli import main
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.history.filled import fill_answers
from tidegate.history.questions import query_history
from tidegate.live.run import Live
from tidegate.operators.schedule import Schedule, window_ranges_us
from tidegate.queries import sieves
from tidegate.queries.questions import Answering
from tidegate.queries.slices import question
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
memory_budget: {budget}
process_budget: 3 GiB
tables:
  goods: {{path: goods.csv, format: csv, columns: {{article: string, product: string}}, key: article}}
  labels: {{path: labels.csv, format: csv, columns: {{product: string, label: string}}, key: product}}
streams:
"""
STREAM = """\
  {name}:
    format: jsonl
    path: {name}/%Y-%m-%dT%H.jsonl
    columns: {{id: {id}, at: timestamp, seen: timestamp, {columns}}}
    id: id
    event_time: at
    arrival_time: seen
    rate: {rate} per minute
    max_width: 3 hours
    history: {{leaf: 1 hour, capacity: 100}}
"""
SALES = {"name": "sales", "id": "integer", "columns": "product: string, price: double, pieces: integer", "rate": 2}
RETURNS = {"name": "returns", "id": "integer", "columns": "article: string, amount: integer", "rate": 1}
MOVES = {"name": "moves", "id": "string", "columns": "product: string, amount: double, kind: string", "rate": 3}
UNION = """\
-- What goes out and what comes back.
SELECT at, product, price * pieces AS amount, 'out' AS kind FROM sales WHERE pieces > 0
UNION ALL
SELECT r.at, g.product, -r.amount, 'back' FROM returns AS r JOIN goods AS g ON r.article = g.article
"""
OTHERS = {
    "large": "SELECT at, UPPER(product) AS product, amount FROM moves WHERE ABS(amount) > 6",
    "twice": "SELECT at, product FROM sales UNION ALL SELECT at, product FROM sales WHERE pieces > 1",
    "plain": "SELECT product AS name, price AS size, at FROM sales WHERE pieces > 0\n"
    "UNION ALL SELECT UPPER(article) || '!', amount, at FROM returns",
}
QUERIES = {
    "sums": "SELECT product, kind, COUNT(*) AS n, SUM(amount) AS s, MIN(amount) AS least FROM moves [30 MINUTES]"
    " GROUP BY product, kind",
    "all_of_them": "SELECT COUNT(*) AS n, AVG(amount) AS a FROM moves [15 MINUTES]"
    " EMIT EARLY, EVERY 10 MINUTES UNTIL FINAL",
    "best": "SELECT product, amount FROM moves [30 MINUTES] ORDER BY amount DESC LIMIT 4",
    "first": "SELECT product FROM twice [20 MINUTES] ORDER BY product LIMIT 5 EVERY 10 MINUTES",
    "labelled": "SELECT l.label, COUNT(*) AS n FROM large [30 MINUTES] AS m LEFT JOIN labels AS l"
    " ON LOWER(m.product) = l.product GROUP BY l.label",
    "pairs": "SELECT s.product, COUNT(*) AS n, SUM(m.amount) AS s FROM sales [10 MINUTES] AS s"
    " JOIN moves [15 MINUTES] AS m ON s.product = m.product GROUP BY s.product EVERY 15 MINUTES",
    "next": "SELECT s.product, COUNT(*) AS n, COUNT(m.kind) AS met, SUM(m.amount) AS s FROM sales [15 MINUTES] AS s"
    " LEFT JOIN moves AS m ON s.product = m.product AND m.at BETWEEN s.at AND s.at + INTERVAL 10 MINUTES"
    " GROUP BY s.product EVERY 15 MINUTES",
    "runs": "SELECT product, COUNT(*) AS n, SUM(amount) AS s FROM moves"
    " GROUP BY session_window(at, '2 minutes'), product",
    "promised": "SELECT product, COUNT(*) AS n FROM moves [30 MINUTES] GROUP BY product ERROR 20%",
    "hits": "SELECT product, amount FROM moves [30 MINUTES] ORDER BY amount LIMIT 4 ACCURACY 90%",
}
NARROW = {
    "numbers": "SELECT COUNT(*) AS n FROM moves [30 MINUTES] ERROR 50%",
    "names": "SELECT name, COUNT(*) AS n, SUM(size) AS s FROM plain [25 MINUTES] GROUP BY name ERROR 50%",
    "sizes": "SELECT name, size FROM plain [25 MINUTES] ORDER BY size LIMIT 6 ACCURACY 80%",
    "doubles": "SELECT COUNT(*) AS n FROM twice [20 MINUTES] ERROR 50%",
}


def tuples() -> dict[str, list[dict]]:
    """Stream → its records; of ``moves`` those of the union, as they would be declared by hand."""
    chance = random.Random(7)
    found: dict[str, list[dict]] = {"sales": [], "returns": [], "moves": []}
    goods = {"A1": "a", "B1": "b", "C1": "c"}
    for number in range(HOURS * 120):
        # Several of an instant, and ids that both streams have.
        at = START + timedelta(seconds=60 * (number // 2))
        seen = at + timedelta(seconds=round(chance.expovariate(1 / 120)))
        times = {"at": at.isoformat(), "seen": seen.isoformat()}
        if number % 3:
            row = {
                "product": chance.choice("abc"),
                "price": float(chance.randrange(1, 5)),
                "pieces": chance.randrange(4),
            }
            found["sales"].append({"id": len(found["sales"]), **times, **row})
            if row["pieces"]:
                amount = row["price"] * row["pieces"]
                found["moves"].append(
                    {
                        "id": f"1:{found['sales'][-1]['id']}",
                        **times,
                        "product": row["product"],
                        "amount": amount,
                        "kind": "out",
                    }
                )
        else:
            article, pieces = chance.choice(["A1", "B1", "C1", "none"]), chance.randrange(1, 12)
            found["returns"].append({"id": len(found["returns"]), **times, "article": article, "amount": pieces})
            if article in goods:
                product, amount = goods[article], -float(pieces)
                found["moves"].append(
                    {
                        "id": f"2:{found['returns'][-1]['id']}",
                        **times,
                        "product": product,
                        "amount": amount,
                        "kind": "back",
                    }
                )
    return found


def declare(folder: Path, union: bool, queries: dict[str, str] = QUERIES, budget: str = "1 GiB") -> Pipeline:
    streams = [SALES, RETURNS] if union else [SALES, RETURNS, MOVES]
    text = PIPELINE.format(budget=budget) + "".join(STREAM.format(**stream) for stream in streams)
    files = {
        "pipeline.yml": text,
        "goods.csv": "article,product\nA1,a\nB1,b\nC1,c\n",
        "labels.csv": "product,label\na,one\nb,two\n",
    }
    files |= {f"queries/{name}.sql": f"{sql}\n" for name, sql in queries.items()}
    files |= {f"streams/{name}.sql": sql for name, sql in OTHERS.items()}
    files |= {"streams/moves.sql": UNION} if union else {}
    for stream in streams:
        for row in tuples()[str(stream["name"])]:
            path = f"{stream['name']}/{row['seen'][:13]}.jsonl"
            files[path] = files.get(path, "") + json.dumps(row) + "\n"
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    return load_pipeline(folder)


def answered(folder: Path, pipeline: Pipeline, one_by_one: bool = False) -> Warehouse:
    intervals = intervals_between(pipeline, START, START + timedelta(hours=HOURS))
    with RunContext(pipeline, folder, here=True) as context:
        for some in [[interval] for interval in intervals] if one_by_one else [intervals]:
            stages.run(context, some, STAGES)
    return Warehouse(folder, pipeline)


def rows(warehouse: Warehouse, names: list[str]) -> dict[str, list[dict]]:
    return {name: sorted(warehouse.read_arrow(name).to_pylist(), key=repr) for name in names}


COMMON = [f"truth_{name}" for name in QUERIES]
COMMON += [f"answers_{name}" for name in QUERIES if name not in ("promised", "hits")]
EVERY = [*COMMON, "updates_all_of_them", "answers_promised", "answers_hits", "accuracy", "needed_slack", "slack_plan"]
EVERY += ["width_errors", "error_width_plan", "window_plan", "query_plan", "stream_rates"]


@pytest.fixture(scope="module")
def union(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder = tmp_path_factory.mktemp("union")
    return answered(folder / "warehouse", declare(folder / "market", union=True))


def test_a_union_answers_as_one_stream_of_its_tuples(union: Warehouse, tmp_path: Path) -> None:
    whole = answered(tmp_path / "warehouse", declare(tmp_path / "market", union=False))
    found, expected = rows(union, [*COMMON, "needed_slack"]), rows(whole, [*COMMON, "needed_slack"])
    for name, own in expected.items():
        assert found[name] == own, name
    assert rows(union, ["updates_all_of_them"]) == rows(whole, ["updates_all_of_them"])
    assert all(expected[name] for name in COMMON)
    ids = {row["event_id"][:2] for row in expected["truth_hits"] + expected["answers_best"]}
    assert ids == {"1:", "2:"}, "ids of both branches are among the best"


def test_runs_one_by_one_and_repeated_give_the_same_rows(union: Warehouse, tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", union=True)
    warehouse = answered(tmp_path / "warehouse", pipeline, one_by_one=True)
    expected = rows(union, EVERY)
    assert rows(warehouse, EVERY) == expected
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        stages.run(context, intervals_between(pipeline, START, START + timedelta(hours=HOURS))[1:], STAGES)
    assert rows(warehouse, EVERY) == expected


def test_a_live_run_gives_them_too(union: Warehouse, tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", union=True)
    end_us = interval_at(pipeline, START + timedelta(hours=HOURS)).start_us
    with (
        RunContext(pipeline, tmp_path / "warehouse", here=True) as context,
        Live(context, interval_at(pipeline, START), end_us, STAGES, 0.05) as live,
    ):
        live.run()
    assert rows(Warehouse(tmp_path / "warehouse", pipeline), EVERY) == rows(union, EVERY)


def test_narrow_windows_hold_what_all_of_their_streams_hold(tmp_path: Path) -> None:
    """COUNT is of the tuples within the width that had arrived, divided by the share of the range that it is."""
    pipeline = declare(tmp_path / "market", union=True, queries=NARROW, budget="6 KiB")
    warehouse = answered(tmp_path / "warehouse", pipeline, one_by_one=True)
    records = tuples()
    times = {
        name: [tuple(map(datetime.fromisoformat, (r["at"], r["seen"]))) for r in own] for name, own in records.items()
    }
    again = [tuple(map(datetime.fromisoformat, (r["at"], r["seen"]))) for r in records["sales"] if r["pieces"] > 1]
    held = {"numbers": times["moves"], "doubles": [*times["sales"], *again]}
    plans = warehouse.read_arrow("window_plan").to_pylist()
    assert {row["stream"] for row in plans} == {"sales", "returns"}
    shares = set()
    for name, own in held.items():
        for row in warehouse.read_arrow(f"answers_{name}").to_pylist():
            ((_, width_s),), ((_, range_s),) = row["width_s"], row["range_s"]
            begin = row["window_end"] - timedelta(seconds=width_s)
            count = sum(begin <= at < row["window_end"] and max(at, seen) <= row["emitted_at"] for at, seen in own)
            shares.add(round(width_s / range_s, 3))
            assert row["coverage"] == pytest.approx(width_s / range_s)
            if width_s:
                expected = Decimal(count / row["coverage"]).quantize(Decimal(1), ROUND_HALF_UP)
                assert abs(row["n"] - expected) <= (0 if row["coverage"] == 1 else 1), (name, row)
    assert min(shares) < max(shares) == 1, "some windows are whole, and some are narrow"
    end = START + timedelta(hours=HOURS)
    for query in (pipeline.query(name) for name in NARROW if name != "numbers"):
        for check in (check_answers, check_truth, check_accuracy):
            found = check(pipeline, query, warehouse.local, START, end)
            assert found.equal, str(found)


def test_what_is_kept_of_large_files_is_kept_for_each_select(union: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are sifted from one row on, and all of it is kept; those asked for the second time are read from there."""
    end_us = int(START.timestamp() * 1e6) + np.arange(1, HOURS * 6, dtype=np.int64) * 600_000_000
    with RunContext(union.pipeline, union.local.parent, here=True) as context:
        for name in ("best", "first"):
            query = union.pipeline.query(name)
            asked = question(context, query, Schedule.from_ticks(end_us, 60_000_000, window_ranges_us(query, end_us)))
            plain = Answering(asked).table()
            assert plain.num_rows > 0
            with monkeypatch.context() as patched:
                patched.setattr(sieves, "WORTH_ROWS", 1)
                patched.setattr(sieves, "LARGEST_SHARE", 1)
                assert Answering(asked).table().equals(plain)
                kept = {path.name for path in (union.local / "_sifted").glob(f"{name}.*")}
                assert kept == {f"{name}.1", f"{name}.2"}
                assert Answering(asked).table().equals(plain)


def test_history_is_that_of_the_declared_streams(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", union=True)
    end = START + timedelta(hours=1)
    with pytest.raises(UserError, match="'moves' is a union, and its past is that of sales and returns"):
        query_history(pipeline, tmp_path / "warehouse", "SELECT COUNT(*) FROM moves", START, end)
    with pytest.raises(UserError, match="sums reads the union moves: history samples each stream by itself"):
        fill_answers(pipeline, tmp_path / "warehouse", "sums", START, end)


def test_explain_says_what_a_union_stands_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declare(tmp_path / "market", union=True)
    assert main(["explain", str(tmp_path / "market")]) == 0
    text = capsys.readouterr().out
    assert "Derived stream moves: What goes out and what comes back." in text
    assert "tuples of  sales and returns: no copy" in text
    assert "where `goods[article].article` IS NOT NULL" in text
    assert "event_id  = '2:' || event_id" in text
    assert "last 30 minutes of moves, from sales and returns" in text
    assert "tuples of  moves: no copy" in text
