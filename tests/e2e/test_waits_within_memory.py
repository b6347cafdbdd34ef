"""A stranger's pipeline: reports that come days late, ticks of a day, and less memory than the promise's wait takes.

Most reports come within two days; those of every fourth sickbed, the gravest among them, eight days after the event. To
name 90 % of the gravest cases takes a wait of eight days, and windows of nine. M holds some four.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from expectations.checkpoint import Checkpoint
from tests.live_files import contents

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.stages.run import run, stages_named
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e
START, DAYS, DAY = datetime(2026, 3, 1, tzinfo=UTC), 45, timedelta(days=1)
A_DAY = 40
SMALL, AMPLE = 12_000, 10_000_000

PIPELINE = """\
name: reports
owner: health
start: 2026-03-01T00:00:00Z
interval: 1 day
tick: 1 day
horizon: 10 days
memory_budget: {budget} bytes
process_budget: 3 GiB
initial_slack: 1 day
streams:
  cases:
    format: jsonl
    path: {folder}/%Y-%m-%d.jsonl
    columns: {{report: string, grave: double, fell_ill: timestamp, told: timestamp}}
    id: report
    event_time: fell_ill
    arrival_time: told
    rate: 40 per day
    max_late: 20 days
"""
GRAVEST = "SELECT report, grave FROM cases [1 DAY] ORDER BY grave DESC LIMIT 10 ACCURACY 90% EVERY 1 DAY\n"
COUNTED = "SELECT COUNT(*) AS n FROM cases [1 DAY] ERROR 5% EVERY 1 DAY\n"
Row = dict[str, Any]


def landed(folder: Path) -> None:
    chance, by_day = random.Random(7), dict[int, list[Row]]()
    for day in range(DAYS):
        for number in range(A_DAY * (4 if day == 20 else 1)):
            late = number % 4 == 0
            fell_ill = START + timedelta(days=day, seconds=chance.randrange(86400))
            told = fell_ill + timedelta(days=chance.uniform(6.5, 7.9) if late else chance.uniform(0, 1.9))
            grave = chance.uniform(50, 100) if late else chance.uniform(0, 80)
            row = {"report": f"{day}-{number}", "grave": grave, "fell_ill": fell_ill.isoformat(), "told": told}
            by_day.setdefault((told - START).days, []).append(row)
    folder.mkdir()
    for day in range(DAYS):
        rows = sorted(by_day.get(day, []), key=lambda row: row["told"])
        lines = [json.dumps({**row, "told": row["told"].isoformat()}) + "\n" for row in rows]
        (folder / f"{START + day * DAY:%Y-%m-%d}.jsonl").write_text("".join(lines))


def declared(home: Path, budget: int, queries: dict[str, str]) -> Pipeline:
    folder = home / f"{budget}" / "reports"
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE.format(budget=budget, folder=home / "landing"))
    for name, text in queries.items():
        (folder / "queries" / f"{name}.sql").write_text(text)
    return load_pipeline(folder)


def answered(pipeline: Pipeline, root: Path, steps: Sequence[int] = (DAYS,)) -> Warehouse:
    first = 0
    for days in steps:
        with RunContext(pipeline, root, output=io.StringIO()) as context:
            intervals = intervals_between(pipeline, START + first * DAY, START + (first + days) * DAY)
            run(context, intervals, stages_named(["answers"]))
        first += days
    return Warehouse(root, pipeline)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("waits")
    landed(home / "landing")
    return home


@pytest.fixture(scope="module")
def small(home: Path) -> Warehouse:
    pipeline = declared(home, SMALL, {"gravest": GRAVEST, "counted": COUNTED})
    return answered(pipeline, home / "small")


def plans(warehouse: Warehouse, query: str) -> list[Row]:
    return [row for row in warehouse.read_arrow("slack_plan").to_pylist() if row["query"] == query]


def test_answers_go_on_where_memory_cannot_hold_what_the_promise_waits_for(small: Warehouse) -> None:
    newest = plans(small, "gravest")[-1]
    assert newest["method"] == "memory"
    assert 0 < newest["slack_s"] <= 3 * 86400 < 7 * 86400 < newest["slack_needed_s"]
    assert newest["bytes_needed"] > SMALL
    for query in ("gravest", "counted"):
        rows = small.read_arrow(f"answers_{query}").to_pylist()
        late = [row for row in rows if row["emitted_at"] >= START + 25 * DAY]
        # A day's burst may cost some answers a part of their window.
        assert {row["window_end"] for row in late} >= {START + day * DAY for day in range(26, DAYS - 4)}
        assert {row["coverage"] for row in late} == {1.0} and {row["support_level"] for row in late} == {"A"}


def test_never_more_than_the_budget_is_held(small: Warehouse) -> None:
    rates = small.read_arrow("stream_rates")
    assert 0.6 * SMALL < max(rates.column("held_bytes").to_pylist()) <= SMALL


def test_a_finding_names_the_query_the_memory_and_the_wait_it_would_need(small: Warehouse) -> None:
    pipeline = small.pipeline
    last = intervals_between(pipeline, START + (DAYS - 1) * DAY, START + DAYS * DAY)[0]
    (result,) = Checkpoint(pipeline, small).run([last])
    found = [row for row in result.rows if row["expectation"] == "plan_wait_fits" and not row["success"]]
    assert {row["query"] for row in found} == {"gravest", "counted"}
    for row in found:
        assert row["severity"] == "warning" and row["promised"] == SMALL < row["measured"]
        needed = plans(small, row["query"])[-1]["slack_needed_s"] / 3600
        assert f"a wait of {needed:.4g} h and " in row["detail"] and " KiB of memory" in row["detail"], row["detail"]


def test_ample_memory_leaves_every_wait_as_the_promise_asks(home: Path, small: Warehouse) -> None:
    ample = answered(declared(home, AMPLE, {"gravest": GRAVEST, "counted": COUNTED}), home / "ample")
    for query in ("gravest", "counted"):
        rows, narrow = plans(ample, query), plans(small, query)
        assert "memory" not in {row["method"] for row in rows}
        assert all(row["slack_s"] == row["slack_needed_s"] for row in rows)
        assert [row["slack_s"] for row in rows] == [row["slack_needed_s"] for row in narrow]
        assert all(row["bytes_needed"] <= AMPLE for row in rows if row["bytes_needed"] is not None)


def test_what_is_expected_of_answers_is_what_comes_of_them(small: Warehouse) -> None:
    for query in ("gravest", "counted"):
        answers = small.read_arrow(f"answers_{query}").to_pylist()
        expected = {row["window_end"]: row["accuracy_expected"] for row in answers}
        assert expected[START + DAY] is None, "nothing is known yet"
        judged = [row for row in small.read_arrow("accuracy").to_pylist() if row["query"] == query]
        pairs = [
            (expected[row["window_end"]], row["value"] if query == "gravest" else float(row["kept"]))
            for row in judged
            if row["window_end"] in expected and row["window_end"] > START + 25 * DAY
        ]
        assert len(pairs) >= 5
        assert sum(e for e, _ in pairs) / len(pairs) == pytest.approx(sum(m for _, m in pairs) / len(pairs), abs=0.12)


def test_the_rows_do_not_depend_on_how_many_intervals_run_at_once(home: Path, small: Warehouse) -> None:
    answered(small.pipeline, home / "steps", (1, 1, 13, 30))
    assert contents(small.pipeline, home / "steps", ("run_metrics",)) == contents(
        small.pipeline, small.root, ("run_metrics",)
    )
