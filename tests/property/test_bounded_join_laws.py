"""Joins with a bound in time against their definition: every window over every tuple, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline, from_us, to_us
from tidegate.declarations.tables import schema
from tidegate.operators import bounded_join
from tidegate.operators.schedule import Schedule
from tidegate.queries import scan
from tidegate.queries.questions import Answering, Question, pooled
from tidegate.queries.scan import EventFiles

PIPELINE = """
name: shop
owner: tests
start: 2026-01-01T00:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 1 GiB
streams:
  orders:
    format: jsonl
    path: /nowhere/o-%Y-%m-%dT%H.jsonl
    columns: {no: string, at: timestamp, seen: timestamp, number: integer, country: string, price: double}
    id: no
    event_time: at
    arrival_time: seen
    rate: 1 per minute
  payments:
    format: jsonl
    path: /nowhere/p-%Y-%m-%dT%H.jsonl
    columns: {no: string, at: timestamp, seen: timestamp, number: integer, method: string, amount: double}
    id: no
    event_time: at
    arrival_time: seen
    rate: 1 per minute
"""
BOUND = "p.number = o.number AND p.at BETWEEN o.at AND o.at + INTERVAL 3 MINUTES"
SELECT = (
    "SELECT o.country, COUNT(*) AS n, SUM(o.price) AS price, COUNT(DISTINCT o.number) AS different, "
    "MEDIAN(o.price) AS middle"
)
QUERIES = {
    "anti_": f"{SELECT} FROM orders [5 MINUTES] AS o WHERE NOT EXISTS (SELECT 1 FROM payments AS p WHERE {BOUND}) "
    "GROUP BY o.country EVERY 1 MINUTE",
    "semi_": f"{SELECT}, MAX(o.price) AS dearest FROM orders [5 MINUTES] AS o LEFT SEMI JOIN payments AS p ON {BOUND} "
    "GROUP BY o.country EVERY 1 MINUTE",
    "inner_": "SELECT o.country, p.method, COUNT(*) AS n, SUM(p.amount) AS amount, MIN(p.amount) AS least "
    f"FROM orders [5 MINUTES] AS o JOIN payments AS p ON {BOUND} GROUP BY o.country, p.method EVERY 1 MINUTE",
    "left_": "SELECT o.country, p.method, COUNT(*) AS n, COUNT(p.amount) AS paid, SUM(p.amount) AS amount, "
    f"SUM(COALESCE(p.amount, 1)) AS filled FROM orders [5 MINUTES] AS o LEFT JOIN payments AS p ON {BOUND} "
    "GROUP BY o.country, p.method EVERY 1 MINUTE",
    "dearer": f"{SELECT} FROM orders [5 MINUTES] AS o LEFT ANTI JOIN payments AS p ON p.number = o.number "
    "AND p.at > o.at - INTERVAL 2 MINUTES AND p.at < o.at + INTERVAL 2 MINUTES AND p.amount >= o.price "
    "AND o.price > 1 AND p.method = 'card' WHERE o.country <> 'x' GROUP BY o.country EVERY 1 MINUTE",
}
MINUTE = 60_000_000
START = 1_767_225_600_000_000


@cache
def pipeline(folder: Path) -> Pipeline:
    (folder / "queries").mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    for name, sql in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(sql)
    return load_pipeline(folder)


@st.composite
def tuples(draw: st.DrawFn) -> list[dict[str, Any]]:
    rows = []
    for number in range(draw(st.integers(0, 14))):
        at = draw(st.integers(0, 24))
        own = {
            "no": str(number),
            "at": at,
            "seen": at + draw(st.integers(0, 12)),
            "number": draw(st.sampled_from([1, 2, None])),
        }
        own |= {
            "word": draw(st.sampled_from(["card", "x", None])),
            "value": draw(st.sampled_from([None, 0.5, 1.5, 2.5])),
        }
        rows.append(own)
    return sorted(rows, key=lambda row: row["seen"])


def us(half_minutes: int) -> int:
    return START + half_minutes * MINUTE // 2


def events(of: Pipeline, stream: str, rows: list[dict[str, Any]], folder: Path, parts: int) -> EventFiles:
    word, value = ("country", "price") if stream == "orders" else ("method", "amount")
    fields = [
        {"event_id": r["no"], "event_time": from_us(us(r["at"])), "arrival_time": from_us(us(r["seen"])), "no": r["no"]}
        | {"at": from_us(us(r["at"])), "seen": from_us(us(r["seen"])), "number": r["number"]}
        | {word: r["word"], value: r["value"]}
        for r in rows
    ]
    kind = schema(of, f"events_{stream}")
    paths = []
    for part, places in enumerate(np.array_split(np.arange(len(rows)), parts)):
        path = folder / f"{stream}-{part}.parquet"
        pq.write_table(pa.Table.from_pylist([fields[i] for i in places], schema=kind), path)
        paths.append(str(path))
    return EventFiles(tuple(paths), kind)


def matches(name: str, order: dict[str, Any], payment: dict[str, Any]) -> bool:
    later = payment["at"] - order["at"]
    if order["number"] is None or order["number"] != payment["number"]:
        return False
    if name != "dearer":
        return 0 <= later <= 6
    dearer = None not in (payment["value"], order["value"]) and payment["value"] >= order["value"] > 1
    return -4 < later < 4 and dearer and payment["word"] == "card"


def answer(name: str, orders: list[Any], payments: list[Any], end: int, emit: int) -> list[tuple[Any, ...]]:
    """A window's rows by the definition: of what had arrived, in half minutes."""
    known = [p for p in payments if p["seen"] <= emit]
    rows: list[tuple[Any, ...]] = []
    groups: dict[Any, list[Any]] = defaultdict(list)
    for order in (o for o in orders if o["seen"] <= emit and end - 10 <= o["at"] < end):
        own = [p for p in known if matches(name, order, p)]
        if name in ("inner_", "left_"):
            for payment in own or ([None] if name == "left_" else []):
                groups[order["word"], payment and payment["word"]].append((order, payment))
        elif bool(own) == (name == "semi_") and (name != "dearer" or order["word"] not in ("x", None)):
            groups[order["word"]].append(order)
    for group, held in groups.items():
        if name in ("inner_", "left_"):
            amounts = [p["value"] for _, p in held if p and p["value"] is not None]
            filled = sum(1 if p is None or p["value"] is None else p["value"] for _, p in held)
            amount = sum(amounts) if amounts else None
            last = (min(amounts, default=None),) if name == "inner_" else (filled,)
            first = (*group, len(held), *(() if name == "inner_" else (len(amounts),)))
            rows.append((end, *first, amount, *last))
        else:
            prices = [o["value"] for o in held if o["value"] is not None]
            own = (len(held), sum(prices) if prices else None, len({o["number"] for o in held} - {None}))
            middle = median(prices) if prices else None
            rows.append((end, group, *own, middle, *((max(prices, default=None),) if name == "semi_" else ())))
    return sorted(rows, key=repr)


def told(table: pa.Table, schedule: Schedule) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in table.to_pylist():
        window = row.pop("_window_index")
        end = (int(schedule.window_end_us[window]) - START) * 2 // MINUTE
        found[window].append((end, *row.values()))
    return {window: sorted(rows, key=repr) for window, rows in found.items()}


@pytest.mark.parametrize("name", list(QUERIES))
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_answers_equal_the_definition(name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    of = pipeline(tmp_path_factory.getbasetemp() / "bounded_laws" / "shop")
    query = of.query(name)
    orders, payments = data.draw(tuples()), data.draw(tuples())
    folder = tmp_path_factory.mktemp("tuples")
    parts = data.draw(st.integers(1, 3))
    files = {s: events(of, s, rows, folder, parts) for s, rows in (("orders", orders), ("payments", payments))}
    slack = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=2))
    least = data.draw(st.integers(0, 4))
    ends = np.array([us(end) for end in range(2, 36, 2)])
    lag = query.lag_us
    schedules = [Schedule.from_ticks(ends, (least + k) * MINUTE // 2 + lag, {"o": 5 * MINUTE}) for k in slack]
    questions = [
        Question(query, own, np.ones(len(own)), files, MINUTE, int((own.emit_us - own.window_end_us).min()) - lag)
        for own in schedules
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "BATCH_ROWS", data.draw(st.sampled_from([1, 3, 1 << 17])))
        patch.setattr(bounded_join, "PAIRS_AT_ONCE", data.draw(st.sampled_from([1, 5])))
        given_ = [Answering(question).table() for question in questions]
        cells = pooled([*questions, *questions])
        if cells is not None:
            assert [Answering(q, cells).table() for q in questions] == given_
    for schedule, table in zip(schedules, given_, strict=True):
        rows = told(table, schedule)
        for window, (end_us, emit_us) in enumerate(zip(schedule.window_end_us, schedule.emit_us, strict=True)):
            end, emit = ((int(x) - START) * 2 // MINUTE for x in (end_us, emit_us))
            assert rows.get(window, []) == answer(name, orders, payments, end, emit), (end, emit)


def test_what_the_windows_need_is_what_follows_from_the_bound(tmp_path: Path) -> None:
    of = pipeline(tmp_path / "shop")
    assert to_us(of.start) == START
    assert of.query("anti_").ranges_s() == {"orders": 480.0, "payments": 480.0}
    assert of.query("dearer").ranges_s() == {"orders": 420.0, "payments": 540.0}
    assert of.query("anti_").lag_s == 180 and of.query("dearer").bounded.range_s == 540
    assert not of.query("anti_").is_narrowed and of.query("anti_").longest_gap_s == 0
