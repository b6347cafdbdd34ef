"""Best sellers of a shop: answers, truths and accuracies as SQL over the accepted tuples has them."""

from __future__ import annotations

import io
from collections import defaultdict
from datetime import timedelta
from typing import Any

import duckdb
import numpy as np
import pytest

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.engine.context import RunContext
from tidegate.operators.accuracy.support import SHARES
from tidegate.stages.calibrate_waits import support_of
from tidegate.stages.calibrate_widths import coarse_shares
from tidegate.stages.run import run, stages_named
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e

_QUERIES = {
    "best_sellers": """SELECT product, SUM(amount) AS revenue FROM orders [30 MINUTES]
        GROUP BY product ORDER BY revenue DESC LIMIT 3 ACCURACY 90% EVERY 10 MINUTES""",
    "best_of_countries": """SELECT country, product, COUNT(*) AS n FROM orders [30 MINUTES] GROUP BY country, product
        QUALIFY ROW_NUMBER() OVER (PARTITION BY country ORDER BY COUNT(*) DESC) <= 2 EVERY 10 MINUTES""",
}
_BEST = {
    "best_sellers": ("product", "SUM(amount)", "", 3),
    "best_of_countries": ("country, product", "COUNT(*)", "country", 2),
}
Rows = dict[Any, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder = tmp_path_factory.mktemp("best")
    init(folder / "shop", "shop")
    for query_id, text in _QUERIES.items():
        (folder / "shop" / "queries" / f"{query_id}.sql").write_text(text)
    pipeline = load_pipeline(folder / "shop")
    intervals = intervals_between(pipeline, pipeline.start, pipeline.start + timedelta(hours=5))
    with RunContext(pipeline, folder / "warehouse", output=io.StringIO(), here=True) as context:
        run(context, intervals, stages_named(["answers"]))
    return Warehouse(folder / "warehouse", pipeline)


def best(warehouse: Warehouse, query_id: str, end: Any, known_at: Any) -> list[tuple[Any, ...]]:
    """The groups of a window by what had arrived at an instant: all, each with its value, the best first."""
    events = warehouse.read_arrow("events_orders")  # noqa: F841  # DuckDB reads it by its name
    groups, value, _, _ = _BEST[query_id]
    sql = f"""SELECT {groups}, {value} AS v FROM events WHERE event_time >= ? AND event_time < ? AND arrival_time <= ?
        GROUP BY {groups} ORDER BY v DESC, {groups}"""
    return duckdb.execute(sql, [end - timedelta(minutes=30), end, known_at]).fetchall()


def cut(rows: list[tuple[Any, ...]], query_id: str, with_ties: bool) -> list[tuple[Any, ...]]:
    """So many of them as the query asks for, in each of its parts."""
    _, _, within, limit = _BEST[query_id]
    parts: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        parts[row[0] if within else None].append(row)
    kept = []
    for part in parts.values():
        least = part[:limit][-1][-1]
        kept += [row for n, row in enumerate(part) if n < limit or (with_ties and row[-1] == least)]
    return kept


def table(warehouse: Warehouse, name: str, query_id: str) -> Rows:
    columns = _BEST[query_id][0].split(", ")
    value = {"best_sellers": "revenue", "best_of_countries": "n"}[query_id]
    rows: Rows = defaultdict(list)
    for row in warehouse.read_arrow(f"{name}_{query_id}").to_pylist():
        key = (row["window_end"], row.get("emitted_at"))
        rows[key].append((*(row[c] for c in columns), row[value]))
    return rows


def same(mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    return len(mine) == len(theirs) and all(
        a[:-1] == b[:-1] and a[-1] == pytest.approx(b[-1]) for a, b in zip(sorted(mine), sorted(theirs), strict=True)
    )


@pytest.mark.parametrize("query_id", list(_QUERIES))
def test_answers_and_truths_are_the_best_groups(warehouse: Warehouse, query_id: str) -> None:
    answers = table(warehouse, "answers", query_id)
    assert len(answers) > 10
    for (end, emitted_at), rows in answers.items():
        assert same(rows, cut(best(warehouse, query_id, end, emitted_at), query_id, with_ties=False))
    truth = table(warehouse, "truth", query_id)
    assert len(truth) > 10
    for (end, _), rows in truth.items():
        final = end + timedelta(seconds=warehouse.pipeline.horizon_s)
        assert same(rows, cut(best(warehouse, query_id, end, final), query_id, with_ties=True))


@pytest.mark.parametrize("query_id", list(_QUERIES))
def test_accuracy_is_the_share_of_the_true_best_that_were_named(warehouse: Warehouse, query_id: str) -> None:
    answers, truth = table(warehouse, "answers", query_id), table(warehouse, "truth", query_id)
    named = {end: {row[:-1] for row in rows} for (end, _), rows in answers.items()}
    _, _, within, limit = _BEST[query_id]
    judged = [r for r in warehouse.read_arrow("accuracy").to_pylist() if r["query"] == query_id]
    assert len(judged) > 10
    for row in judged:
        assert row["metric"] == "hit_rate"
        true = [r[:-1] for r in truth.get((row["window_end"], None), [])]
        sizes: dict[Any, int] = defaultdict(int)
        for group in true:
            sizes[group[0] if within else None] += 1
        possible = sum(min(limit, size) for size in sizes.values())
        expected = len(named.get(row["window_end"], set()) & set(true)) / possible if possible else 1.0
        assert row["value"] == pytest.approx(expected)


def test_a_window_needs_the_shares_from_which_on_so_many_are_named(warehouse: Warehouse) -> None:
    """Of every sampled window, with all tuples known, by SQL over its newest part, an eighth wider at each step."""
    pipeline, query = warehouse.pipeline, warehouse.pipeline.query("best_sellers")
    shares = [*coarse_shares(pipeline, query).tolist(), 1.0]
    needed: dict[Any, list[float]] = defaultdict(list)
    for row in warehouse.read_arrow("needed_slack").sort_by("slack_s").to_pylist():
        if row["query"] == "best_sellers" and row["share"] is not None:
            needed[row["window_end"]].append(row["share"])
    events = warehouse.read_arrow("events_orders")  # noqa: F841  # DuckDB reads it by its name
    for end, least in needed.items():
        assert least == sorted(least), "who waits longest reaches back furthest"
        known_at = end + timedelta(seconds=pipeline.horizon_s)
        true = {row[0] for row in cut(best(warehouse, "best_sellers", end, known_at), "best_sellers", with_ties=True)}
        hits = []
        for share in shares:
            sql = """SELECT product, SUM(amount) AS v FROM events WHERE event_time >= ? AND event_time < ?
                AND arrival_time <= ? GROUP BY product ORDER BY v DESC, product LIMIT 3"""
            found = duckdb.execute(sql, [end - timedelta(minutes=30) * share, end, known_at]).fetchall()
            hits.append(len({product for product, _ in found} & true))
        for at, share in enumerate(shares):
            assert sum(one <= share + 1e-9 for one in least) == min(hits[at:]), (end, share)
    told = [share for shares in needed.values() for share in shares]
    assert len(needed) > 5 and len(set(told)) > 2, "some groups are the best of less than the whole range"


def test_a_narrow_answer_is_worth_the_groups_that_it_names(warehouse: Warehouse) -> None:
    """The map of K and width: of no part nothing, of wider ones no less, and of half of the range some."""
    query, rows = warehouse.pipeline.query("best_sellers"), warehouse.read_arrow("needed_slack").to_pandas()
    own = rows[rows["query"] == "best_sellers"]
    support = support_of(query, own["slack_s"].to_numpy(), own["share"].to_numpy(), np.ones(len(own)))
    for slack_s in (0.0, float(warehouse.pipeline.horizon_s)):
        worth = [support.accuracy(slack_s, share) for share in SHARES]
        assert worth[0] == 0 < worth[4] <= worth[-1] and worth == sorted(worth)
    assert support.accuracy(float(warehouse.pipeline.horizon_s), 1.0) == 1
