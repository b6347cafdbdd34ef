"""The oracle itself, on tables small enough to be worked out by hand. Whoever watches must be watched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.oracle.answers import (
    accuracy_of,
    check_accuracy,
    check_answers,
    check_truth,
    compare,
    expected_answers,
    expected_truth,
    relative_error,
)
from infra.oracle.schedule import expected_windows, multiples

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.declarations.tables import schema

PIPELINE = """
name: toy
owner: nobody
start: 2020-01-01T00:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 1 GiB
initial_slack: 2 minutes
streams:
  sales:
    format: csv
    path: landing/sales-%Y-%m-%dT%H.csv
    columns: {id: string, at: timestamp, seen: timestamp, shop: string, price: double}
    id: id
    event_time: at
    arrival_time: seen
    rate: 1 per minute
    max_early: 5 minutes
  visits:
    format: csv
    path: landing/visits-%Y-%m-%dT%H.csv
    columns: {id: string, at: timestamp, seen: timestamp, shop: string}
    id: id
    event_time: at
    arrival_time: seen
    rate: 1 per minute
"""

QUERIES = {
    "takings": "SELECT COUNT(*) AS n, SUM(price) AS total, AVG(price) AS mean FROM sales [10 MINUTES]"
    " ERROR 10% EVERY 5 MINUTES",
    "by_shop": "SELECT shop, COUNT(*) AS n FROM sales [10 MINUTES] WHERE price > 1 GROUP BY shop"
    " HAVING COUNT(*) >= 2 EVERY 5 MINUTES",
    "pairs": "SELECT s.shop, COUNT(*) AS n, SUM(s.price) AS total FROM sales [10 MINUTES] AS s, visits [5 MINUTES] AS v"
    " WHERE s.shop = v.shop GROUP BY s.shop EVERY 5 MINUTES",
    "dearest": "SELECT shop, price FROM sales [10 MINUTES] ORDER BY price DESC LIMIT 3 ACCURACY 90% EVERY 5 MINUTES",
}


def at(text: str) -> datetime:
    """An instant on 1 January 2020, UTC."""
    return datetime.fromisoformat(f"2020-01-01T{text}").replace(tzinfo=UTC)


#        id   event    arrival   shop  price
SALES = [
    ("a", "10:01", "10:01", "x", 4.0),
    ("b", "10:02", "10:06", "x", 2.0),  # late, within 2 minutes of slack for the window that ends at 10:05
    ("c", "10:03", "10:09", "y", 8.0),  # too late for that window, in time for its truth
    ("d", "10:08", "10:04", "y", 1.0),  # arrived before it happened: counts from 10:08 on
    ("e", "10:05", "10:05", None, 2.0),  # a NULL shop joins nothing; on the boundary: not in the window ending 10:05
]
VISITS = [("v", "10:01", "10:01", "x"), ("w", "10:04", "10:04", "x"), ("u", "10:04", "10:04", None)]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Two streams and one query of each kind."""
    folder = tmp_path / "toy"
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    for name, text in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(text + "\n")
    return load_pipeline(folder)


@pytest.fixture
def warehouse(pipeline: Pipeline, tmp_path: Path) -> Path:
    """The pipeline's folder in a warehouse, with the tuples and no plans."""
    folder = tmp_path / "warehouse" / "toy"
    sales = [(i, at(e), at(a), i, at(e), at(a), shop, price) for i, e, a, shop, price in SALES]
    visits = [(i, at(e), at(a), i, at(e), at(a), shop) for i, e, a, shop in VISITS]
    write(pipeline, folder, "events_sales", sales)
    write(pipeline, folder, "events_visits", visits)
    return folder


def write(pipeline: Pipeline, folder: Path, table: str, rows: list[tuple], interval: str = "2020-01-01T10") -> None:
    """One partition of a table from rows in the order of its columns; the last ones may be left out, and are NULL."""
    wanted = schema(pipeline, table)
    partition = folder / table / f"interval={interval}"
    partition.mkdir(parents=True, exist_ok=True)
    data = pa.Table.from_pylist([dict(zip(wanted.names, row, strict=False)) for row in rows], schema=wanted)
    pq.write_table(data, partition / "part-00000.parquet")


def answers(pipeline: Pipeline, warehouse: Path, query: str) -> list[tuple]:
    """(window end as HH:MM, the query's columns …) of what must be answered in the hour from 10:00."""
    found = expected_answers(pipeline, pipeline.query(query), warehouse, at("10:00"), at("11:00"))
    names = [o.name for o in pipeline.query(query).outputs]
    return [(f"{row['window_end']:%H:%M}", *(row[n] for n in names)) for row in found]


def test_an_aggregate_sees_what_has_arrived_by_its_slack(pipeline: Pipeline, warehouse: Path) -> None:
    found = answers(pipeline, warehouse, "takings")
    assert found[:3] == [
        ("10:05", 2.0, 6.0, 3.0),  # a, b; not c (too late), not d (not yet happened), not e (on the boundary)
        ("10:10", 5.0, 17.0, 3.4),
        ("10:15", 2.0, 3.0, 1.5),  # d, e
    ]


def test_an_ungrouped_aggregate_answers_for_an_empty_window_too(pipeline: Pipeline, warehouse: Path) -> None:
    found = answers(pipeline, warehouse, "takings")
    assert found[3:5] == [("10:20", 0.0, None, None), ("10:25", 0.0, None, None)]
    # The last tick whose instant of emission, two minutes later, is still before 11:00.
    assert found[-1][0] == "10:55"


def test_groups_are_filtered_before_the_window_and_after_it(pipeline: Pipeline, warehouse: Path) -> None:
    # Without a promise there is no slack: at 10:10 b, c and e are in; only x has two sales above 1.
    assert answers(pipeline, warehouse, "by_shop") == [("10:10", "x", 2.0)]


def test_a_join_pairs_every_sale_with_every_visit(pipeline: Pipeline, warehouse: Path) -> None:
    # 10:05, no slack: a with v and w. 10:10: the visits' window begins at 10:05 and holds none.
    assert answers(pipeline, warehouse, "pairs") == [("10:05", "x", 2.0, 8.0)]


def test_top_k_ranks_by_score_then_event_time(pipeline: Pipeline, warehouse: Path) -> None:
    rows = expected_answers(pipeline, pipeline.query("dearest"), warehouse, at("10:00"), at("11:00"))
    found = [(f"{row['window_end']:%H:%M}", row["rank"], row["event_id"], row["price"]) for row in rows]
    assert found[:5] == [
        ("10:05", 1, "a", 4.0),
        ("10:05", 2, "b", 2.0),
        ("10:10", 1, "c", 8.0),
        ("10:10", 2, "a", 4.0),
        ("10:10", 3, "b", 2.0),  # as dear as e, but earlier
    ]


def test_truth_holds_the_whole_range_and_the_late(pipeline: Pipeline, warehouse: Path) -> None:
    rows = expected_truth(pipeline, pipeline.query("takings"), warehouse, at("11:00"), at("11:15"))
    assert [(f"{r['window_end']:%H:%M}", r["n"], r["total"]) for r in rows] == [
        ("10:05", 3.0, 14.0),
        ("10:10", 5.0, 17.0),
    ]


def test_a_narrowed_window_answers_less_and_scales_it_up(pipeline: Pipeline, warehouse: Path) -> None:
    # Range and slack together need 12 minutes. From 10:04 on the sales' window may be 6 wide, from 10:12 on 12 again.
    plans = [("10:00", 720.0, "A"), ("10:04", 360.0, "B"), ("10:12", 720.0, "A")]
    rest: tuple[Any, ...] = (0.0, 0.0, 0.0, 0.0, None, None, None, None, "rate")
    write(pipeline, warehouse, "window_plan", [("sales", at(t), level, w, *rest) for t, w, level in plans])
    windows = expected_windows(pipeline, pipeline.query("takings"), warehouse, at("10:00"), at("11:00"))
    held = [(f"{w.window_end:%H:%M}", f"{w.lower['sales']:%H:%M}", w.coverage, w.support_level) for w in windows[:4]]
    assert held == [
        # Answered at 10:07: the tick before, 10:06, left what happened from 10:00 on.
        ("10:05", "10:00", 0.5, "B"),
        ("10:10", "10:05", 0.5, "B"),
        # At 10:12 what happened before 10:06 had gone; it does not come back.
        ("10:15", "10:06", 0.9, "B"),
        ("10:20", "10:10", 1.0, "A"),
    ]
    # 10:10: d and e, counted as if the half of the range were the whole.
    assert answers(pipeline, warehouse, "takings")[1] == ("10:10", 4.0, 6.0, 1.5)


def test_a_new_slack_holds_for_windows_that_end_from_then_on(pipeline: Pipeline, warehouse: Path) -> None:
    row = ("takings", at("10:10"), 300.0, 0.9, None, None, 1, "winners")
    write(pipeline, warehouse, "slack_plan", [row])
    windows = expected_windows(pipeline, pipeline.query("takings"), warehouse, at("10:00"), at("10:21"))
    assert [(f"{w.window_end:%H:%M}", w.slack_s) for w in windows] == [("10:05", 120), ("10:10", 300), ("10:15", 300)]


def test_windows_begin_with_the_first_tick_after_the_first_arrival(pipeline: Pipeline, warehouse: Path) -> None:
    write(
        pipeline, warehouse, "events_sales", [("a", at("10:05"), at("10:05"), "a", at("10:05"), at("10:05"), "x", 1.0)]
    )
    windows = expected_windows(pipeline, pipeline.query("dearest"), warehouse, at("10:00"), at("11:00"))
    assert windows[0].window_end == at("10:10")


def test_the_right_answers_pass_and_every_wrong_one_is_named(pipeline: Pipeline, warehouse: Path) -> None:
    query, span = pipeline.query("takings"), (at("10:00"), at("11:00"))
    *names, _ = schema(pipeline, "answers_takings").names  # of all but what is expected of an answer
    good = [tuple(row[n] for n in names) for row in expected_answers(pipeline, query, warehouse, *span)]
    write(pipeline, warehouse, "answers_takings", good)
    passed = check_answers(pipeline, query, warehouse, *span)
    assert passed.equal and passed.windows == passed.rows == 11
    assert str(passed) == "answers_takings: 11 windows, 11 rows, all equal"

    write(pipeline, warehouse, "answers_takings", [(*good[0][:2], 3.0, *good[0][3:]), *good[2:], good[2]])
    failed = check_answers(pipeline, query, warehouse, *span)
    assert failed.differences == [
        "window_end=2020-01-01T10:05: n is 3, expected 2",
        "window_end=2020-01-01T10:10: 0 rows, expected 1; missing: n=5, total=17.0, mean=3.4, "
        "emitted_at=2020-01-01T10:12, width_s={'sales': 600.0}, range_s={'sales': 600.0}, coverage=1.0, "
        "support_level='A', slack_s=120.0",
        next(d for d in failed.differences if "10:15: 2 rows, expected 1; not expected" in d),
    ]


def test_nothing_expected_is_not_a_pass(pipeline: Pipeline, tmp_path: Path) -> None:
    assert not compare("empty", [], [], ["window_end"]).equal
    nothing = tmp_path / "no-warehouse"
    nothing.mkdir()
    query = pipeline.query("takings")
    assert not check_answers(pipeline, query, nothing, at("10:00"), at("11:00")).equal
    assert not check_truth(pipeline, query, nothing, at("10:00"), at("11:00")).equal
    assert not check_accuracy(pipeline, query, nothing, at("10:00"), at("11:00")).equal


def test_accuracy_is_the_worst_column_of_the_worst_group(pipeline: Pipeline) -> None:
    takings, by_shop, dearest = (pipeline.query(q) for q in ("takings", "by_shop", "dearest"))
    truth = [{"n": 10.0, "total": 100.0, "mean": 10.0}]
    assert accuracy_of(takings, [{"n": 9.0, "total": 80.0, "mean": 10.0}], truth) == pytest.approx(0.2)
    shops = [{"shop": "x", "n": 2.0}, {"shop": "y", "n": 4.0}]
    assert accuracy_of(by_shop, shops, shops) == 0.0
    assert accuracy_of(by_shop, shops[:1], shops) == 1.0
    assert accuracy_of(by_shop, shops, shops[:1]) == 1.0
    assert accuracy_of(by_shop, [], []) == 0.0
    winners = [{"event_id": i} for i in "abcd"]
    assert accuracy_of(dearest, winners[:3] + [{"event_id": "z"}], winners) == 0.75
    assert accuracy_of(dearest, [], []) == 1.0


@pytest.mark.parametrize(
    ("answer", "truth", "error"),
    [
        (9.0, 10.0, 0.1),
        (-1.0, 1.0, 2.0),
        (0, 0, 0.0),
        (1, 0, 1.0),
        (None, None, 0.0),
        (None, 1.0, 1.0),
        ("x", "y", 1.0),
    ],
)
def test_relative_error(answer: Any, truth: Any, error: float) -> None:
    assert relative_error(answer, truth) == pytest.approx(error)


def test_multiples_are_counted_from_1970() -> None:
    found = list(multiples(600, at("10:01"), at("10:30")))
    assert found == [at("10:10"), at("10:20")]
    assert list(multiples(600, at("10:10"), at("10:10") + timedelta(seconds=1))) == [at("10:10")]
