"""`run_metrics.rows_failed`: the same however the work is cut, and as a brute-force count has it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.queries import sieves
from tidegate.queries import slices as query_slices
from tidegate.stages.run import run
from tidegate.store.intervals import Interval, intervals_between
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e
START, END = datetime(2026, 1, 5, 8, tzinfo=UTC), datetime(2026, 1, 5, 11, tzinfo=UTC)
STAGES = ("join_aggregate", "top_k")
Counts = dict[tuple[str, str], int]


@dataclass(frozen=True)
class Shop:
    """A pipeline with queries that fail, and its tables as far as they are read."""

    pipeline: Pipeline
    root: Path
    divisor: int

    @property
    def intervals(self) -> Sequence[Interval]:
        return intervals_between(self.pipeline, START, END)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    home, divisor = tmp_path_factory.mktemp("failed"), Random(5).randrange(2, 9)
    with contextlib.redirect_stdout(io.StringIO()):
        init(home / "shop", "shop")
    for query in (home / "shop" / "queries").iterdir():
        query.unlink()
    cents = f"(CAST(amount * 100 AS BIGINT) % {divisor})"
    queries = {
        "shares": f"SELECT country, SUM(7 DIV {cents}) AS s, 1 / (COUNT(*) % 3) AS odd FROM orders [30 MINUTES] "
        f"WHERE country <> 'FR' AND 1 DIV {cents} >= 0 GROUP BY country EVERY 5 MINUTES",
        "largest": f"SELECT order_id, 5 DIV {cents} AS share FROM orders [20 MINUTES] ORDER BY amount DESC LIMIT 3 "
        "EVERY 10 MINUTES",
        "once": f"SELECT COUNT(7 DIV {cents}) AS n FROM orders [30 MINUTES] EVERY 30 MINUTES "
        "DURATION ['2026-01-05T09:00:00Z', '2026-01-05T10:00:00Z')",
        "sure": "SELECT COUNT(*) AS n FROM orders [30 MINUTES] WHERE country = 'FR' EVERY 30 MINUTES",
    }
    for name, text in queries.items():
        (home / "shop" / "queries" / f"{name}.sql").write_text(text)
    made = Shop(load_pipeline(home / "shop"), home / "wh", divisor)
    with RunContext(made.pipeline, made.root, output=io.StringIO()) as context:
        run(context, made.intervals, ("ingest",))
    return made


def counts(shop: Shop, groups: Sequence[Sequence[Interval]], pipeline: Pipeline | None = None) -> Counts:
    with RunContext(pipeline or shop.pipeline, shop.root, output=io.StringIO()) as context:
        for group in groups:
            run(context, group, STAGES)
    rows = Warehouse(shop.root, shop.pipeline).read_arrow("run_metrics").to_pylist()
    return {
        (row["interval"], row["query"]): row["rows_failed"] for row in rows if row["app"] in STAGES and row["query"]
    }


def expected(shop: Shop) -> Counts:
    """By hand, tuple by tuple and answer by answer."""
    warehouse, found = Warehouse(shop.root, shop.pipeline), {}
    for interval in shop.intervals:
        orders = warehouse.read_arrow("events_orders", [interval.label]).to_pylist()
        zero = [row for row in orders if int(row["amount"] * 100) % shop.divisor == 0]
        lasts = [r for r in zero if START.replace(hour=8, minute=30) <= r["event_time"] < START.replace(hour=10)]
        answers = warehouse.read_arrow("answers_shares", [interval.label]).to_pylist()
        found |= {
            (interval.label, "shares"): sum(row["country"] != "FR" for row in zero)
            + sum(row["odd"] is None for row in answers),
            (interval.label, "largest"): len(zero),
            (interval.label, "once"): len(lasts),
            (interval.label, "sure"): 0,
        }
    return found


def test_failed_rows_are_counted_once_however_the_work_is_cut(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = counts(shop, [shop.intervals])
    assert at_once == expected(shop)
    assert min(at_once[i.label, "shares"] for i in shop.intervals) > 0
    assert len({at_once[i.label, "once"] for i in shop.intervals}) > 1, "the third hour is not asked about"
    assert counts(shop, [[interval] for interval in shop.intervals]) == at_once, "an interval at a time, and again"
    monkeypatch.setattr(query_slices, "ROWS_OF_A_SLICE", 1)
    for most in (2, 5):
        cut = shop.pipeline.model_copy(update={"partitions": most})
        assert counts(shop, [shop.intervals], cut) == at_once
    monkeypatch.setattr(sieves, "WORTH_ROWS", 1)
    for _ in range(2):
        assert counts(shop, [shop.intervals]) == at_once, "with what a sieve keeps, and once it is kept"
