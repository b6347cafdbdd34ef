"""Conditions over two streams that fail on a pair: counted once, when the later of the two tuples has arrived."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import from_us, to_us
from tidegate.engine.context import RunContext
from tidegate.operators import bounded_join
from tidegate.queries.failures import count_failures
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

PIPELINE = """
name: shop
owner: tests
start: 2026-01-01T00:00:00Z
interval: 10 minutes
tick: 1 minute
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 1 GiB
streams:
"""
STREAM = """  {}:
    format: jsonl
    path: /nowhere/%Y-%m-%dT%H-%M.jsonl
    columns: {{no: string, at: timestamp, seen: timestamp, number: integer, cents: integer}}
    id: no
    event_time: at
    arrival_time: seen
    rate: 1 per minute
    max_early: 5 minutes
    max_late: 30 minutes
"""
FAILS = "12 DIV (o.cents - p.cents) > 1"
SOON = f"p.number = o.number AND p.at BETWEEN o.at - INTERVAL 1 MINUTE AND o.at + INTERVAL 3 MINUTES AND {FAILS}"
COUNT = "SELECT COUNT(*) AS n FROM orders [5 MINUTES] AS o"
QUERIES = {
    "pairs": f"{COUNT}, payments [3 MINUTES] AS p WHERE o.number = p.number AND {FAILS} EVERY 2 MINUTES",
    "few": f"{COUNT}, payments [3 MINUTES] AS p WHERE o.number = p.number AND p.cents <> 2 AND o.cents > p.cents - 2 "
    f"AND {FAILS} EVERY 2 MINUTES",
    "third": f"{COUNT}, payments [3 MINUTES] AS p, orders [1 MINUTE] AS q WHERE o.number = p.number AND "
    f"q.number = o.number AND {FAILS} EVERY 2 MINUTES",
    "some": f"{COUNT}, payments [3 MINUTES] AS p WHERE o.number = p.number AND {FAILS} EVERY 2 MINUTES "
    "DURATION ['2026-01-01T00:12:00Z', '2026-01-01T00:20:00Z')",
    "sure": f"{COUNT}, payments [3 MINUTES] AS p WHERE o.number = p.number AND o.cents > p.cents EVERY 2 MINUTES",
    "soon": f"{COUNT} JOIN payments AS p ON {SOON} EVERY 2 MINUTES",
    "united": f"{COUNT}, halves [3 MINUTES] AS p WHERE o.number = p.number AND {FAILS} EVERY 2 MINUTES",
    "never": f"{COUNT} WHERE NOT EXISTS (SELECT 1 FROM payments AS p WHERE {SOON}) EVERY 2 MINUTES",
}
HALVES = """SELECT no, number, cents FROM payments WHERE cents < 2
UNION ALL SELECT no, number, cents FROM payments WHERE cents > 0
"""
MINUTE, LAST = 60, 40 * 60
Tuple = dict[str, Any]


def in_one_window(order: Tuple, payment: Tuple, first: int = 0, end: int = 2 * LAST) -> bool:
    """Whether a window that ends every other minute holds both, by definition."""
    ends = range(first, end, 2 * MINUTE)
    return any(t - 300 <= order["at"] < t and t - 180 <= payment["at"] < t for t in ends)


LOOKED_AT: dict[str, Callable[[Tuple, Tuple], bool]] = {
    "pairs": in_one_window,
    "few": lambda o, p: in_one_window(o, p) and p["cents"] != 2 and o["cents"] > p["cents"] - 2,
    "third": in_one_window,
    "some": lambda o, p: in_one_window(o, p, 12 * MINUTE, 20 * MINUTE),
    "sure": lambda o, p: False,
    "united": in_one_window,
    "soon": lambda o, p: -60 <= p["at"] - o["at"] <= 180,
    "never": lambda o, p: -60 <= p["at"] - o["at"] <= 180,
}


def drawn(draw: Random, count: int) -> list[Tuple]:
    """Tuples as they happen and arrive, seconds: some before their event time, some long after it."""
    found = []
    for number in range(count):
        at = draw.randrange(LAST)
        seen = max(at + draw.choice((-200, 0, 0, 30, 700, 1500)), 0)
        own = {"no": str(number), "number": draw.choice((1, 2, 3, None)), "cents": draw.choice((0, 1, 2, 5, None))}
        found.append(own | {"at": at, "seen": min(seen, LAST - 1)})
    return found


@pytest.mark.parametrize("at_once", [3, bounded_join.PAIRS_AT_ONCE])
def test_a_pair_that_fails_counts_once_in_the_interval_of_its_later_tuple(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(bounded_join, "PAIRS_AT_ONCE", at_once)
    folder = tmp_path / "shop"
    (folder / "queries").mkdir(parents=True)
    (folder / "streams").mkdir()
    (folder / "streams" / "halves.sql").write_text(HALVES)
    (folder / "pipeline.yml").write_text(PIPELINE + STREAM.format("orders") + STREAM.format("payments"))
    for name, text in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(text)
    pipeline, draw = load_pipeline(folder), Random(8)
    start_us = to_us(pipeline.start)

    def instant(seconds: int) -> datetime:
        return from_us(start_us + seconds * 1_000_000)

    tuples = {stream: drawn(draw, 90) for stream in ("orders", "payments")}
    warehouse = Warehouse(tmp_path / "wh", pipeline)
    intervals = intervals_between(pipeline, instant(0), instant(LAST))
    with warehouse.commit("ingest", intervals) as commit:
        for stream, own in tuples.items():
            for number, interval in enumerate(intervals):
                rows = [
                    {"event_id": t["no"], "event_time": instant(t["at"]), "arrival_time": instant(t["seen"])}
                    | {**t, "at": instant(t["at"]), "seen": instant(t["seen"])}
                    for t in sorted(own, key=lambda t: (t["seen"], t["no"]))
                    if t["seen"] // 600 == number
                ]
                table = pa.Table.from_pylist(rows, schema=warehouse.schema(f"events_{stream}"))
                commit.put_arrow(f"events_{stream}", interval, table)
    expected: Counter[tuple[str, str]] = Counter()
    for order in tuples["orders"]:
        for payment in tuples["payments"]:
            if order["number"] is None or order["number"] != payment["number"] or order["cents"] is None:
                continue
            known = max(order["at"], order["seen"], payment["at"], payment["seen"]) // 600
            for name, looked_at in LOOKED_AT.items():
                if order["cents"] == payment["cents"] and looked_at(order, payment):
                    # A payment of one cent is in both branches.
                    times = 2 if name == "united" and payment["cents"] == 1 else 1
                    expected[name, intervals[known].label] += times
    with RunContext(pipeline, tmp_path / "wh", output=io.StringIO()) as context:
        at_a_time = count_failures(context, pipeline.queries, intervals)
        one_by_one = Counter[tuple[str, str]]()
        for interval in intervals:
            counts = count_failures(context, pipeline.queries, [interval])
            one_by_one.update({(query, i.label): count for (query, i), count in counts.items()})
    found = {(query, interval.label): count for (query, interval), count in at_a_time.items() if count}
    assert found == dict(expected) == {key: count for key, count in one_by_one.items() if count}
    assert {query for query, _ in expected} == QUERIES.keys() - {"sure"}
    assert len({label for _, label in expected}) == len(intervals)
