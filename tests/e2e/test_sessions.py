"""Sessions over late visits: a run's answers, truths, accuracies and needed slacks against the definition."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.command import run_stages
from tests.live_files import contents

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import from_us, to_us
from tidegate.engine.context import RunContext
from tidegate.history.filled import fill_answers
from tidegate.live.run import Live
from tidegate.operators.sessions import Spec
from tidegate.operators.sessions.oracle import answers
from tidegate.store.intervals import interval_at
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e

START, END = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 10, tzinfo=UTC)
STAGES = ("ingest", "join_aggregate", "calibrate")
HORIZON_US = 3_600_000_000
PIPELINE = """
name: visits
owner: tests
start: 2024-01-01T00:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
promise_period: 1 hour
memory_budget: {memory}
process_budget: 4 GiB
streams:
  clicks:
    format: jsonl
    path: {folder}/clicks-%Y-%m-%dT%H.jsonl
    columns: {{id: string, at: timestamp, came: timestamp, visitor: string, price: integer}}
    id: id
    event_time: at
    arrival_time: came
    rate: 60 per hour
    max_late: 1 hour
"""
QUERIES = {
    # Longer than 30 minutes are cut.
    "of_visitors": "SELECT visitor, COUNT(*) AS n, SUM(price) AS spent, COUNT(DISTINCT price) AS prices, "
    "MAX(price) FILTER (WHERE price < 5) AS dear FROM clicks [RANGE 30 MINUTES] WHERE price <> 3 "
    "GROUP BY visitor, session_window(at, '4 minutes') ERROR 5%",
    "of_all": "SELECT window_start, COUNT(*) AS n FROM SESSION(TABLE clicks, DESCRIPTOR(at), INTERVAL '90' SECONDS) "
    "[RANGE 1 HOUR] HAVING COUNT(*) > 1",
}
SPECS = {"of_visitors": Spec(240_000_000, 1_800_000_000), "of_all": Spec(90_000_000, 3_600_000_000)}
Row = dict[str, Any]


def write(folder: Path, memory: str) -> Path:
    """A pipeline, and ten hours of clicks, a third of them late by up to an hour."""
    chance = random.Random(5)
    at, files = START, dict[str, list[str]]()
    for number in range(600):
        at += timedelta(seconds=round(chance.expovariate(1 / 55)))
        late_s = chance.choice((0, 0, chance.expovariate(1 / 200)))
        came = at + timedelta(seconds=round(min(late_s, 3000)))
        record = {"id": f"c{number}", "at": at.isoformat(), "came": came.isoformat()}
        record |= {"visitor": chance.choice(("ann", "bob", None)), "price": chance.randrange(1, 9)}
        files.setdefault(f"{came:%Y-%m-%dT%H}", []).append(json.dumps(record))
    (folder / "visits" / "queries").mkdir(parents=True)
    for name, lines in files.items():
        (folder / f"clicks-{name}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "visits" / "pipeline.yml").write_text(PIPELINE.format(folder=folder, memory=memory))
    for query_id, text in QUERIES.items():
        (folder / "visits" / "queries" / f"{query_id}.sql").write_text(text)
    return folder / "visits"


@pytest.fixture(scope="module", params=["1 MiB", "2 KiB"])
def warehouse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """All intervals at once, the memory ample or so small that not all sessions are held."""
    folder = tmp_path_factory.mktemp("sessions")
    pipeline = load_pipeline(write(folder, request.param))
    run_stages(pipeline, folder / "warehouse", START, END, STAGES)
    return Warehouse(folder / "warehouse", pipeline)


def rows_of(warehouse: Warehouse, table: str, query_id: str | None = None) -> list[Row]:
    rows = warehouse.read_arrow(table).to_pylist()
    return [row for row in rows if query_id is None or row["query"] == query_id]


def expected(warehouse: Warehouse, query_id: str, wait_us: Callable[[int], int]) -> dict[tuple[Any, ...], Row]:
    """(start, end, visitor) of the sessions that are answered in the ten hours → their values."""
    clicks = rows_of(warehouse, "events_clicks")
    if query_id == "of_all":
        clicks = [click | {"visitor": None} for click in clicks]
    else:
        clicks = [click for click in clicks if click["price"] != 3]
    tuples = [(click["visitor"], to_us(click["event_time"]), to_us(click["arrival_time"])) for click in clicks]
    found = {}
    for key, start_us, end_us, _, own in answers(SPECS[query_id], tuples, wait_us, to_us(START), to_us(END)):
        prices = [clicks[i]["price"] for i in own]
        values = {"n": len(own)}
        if query_id == "of_visitors":
            dear = max((price for price in prices if price < 5), default=None)
            values |= {"spent": sum(prices), "prices": len(set(prices)), "dear": dear}
        elif len(own) < 2:
            continue
        found[from_us(start_us), from_us(end_us), key] = values
    return found


def told(rows: list[Row], values: Any) -> dict[tuple[Any, ...], Row]:
    """The same of rows of a table."""
    found = {(r["window_start"], r["window_end"], r.get("visitor")): {v: r[v] for v in values} for r in rows}
    assert len(found) == len(rows)
    return found


def waits(warehouse: Warehouse, query_id: str) -> Callable[[int], int]:
    """K by the end of a session, as the plan has it."""
    plans = sorted((to_us(r["effective_from"]), round(r["slack_s"] * 1e6)) for r in
                   rows_of(warehouse, "slack_plan", query_id))  # fmt: skip
    return lambda end_us: next((wait_us for at_us, wait_us in reversed(plans) if at_us <= end_us), 0)


@pytest.mark.parametrize("query_id", list(QUERIES))
def test_answers_and_truths_are_those_of_the_definition(warehouse: Warehouse, query_id: str) -> None:
    wait_us = waits(warehouse, query_id)
    every = expected(warehouse, query_id, wait_us)
    true = expected(warehouse, query_id, lambda _: HORIZON_US)
    assert len(true) > 60
    values = next(iter(true.values()))
    assert told(rows_of(warehouse, f"truth_{query_id}"), values) == true
    given = rows_of(warehouse, f"answers_{query_id}")
    found = told(given, values)
    if warehouse.pipeline.memory_budget_bytes > 10_000:
        assert found == every
    else:  # only what is held is answered, and whole
        assert 0 < len(found) <= len(every) - (query_id == "of_visitors")
        assert found == {key: every[key] for key in found}
    for row in given:
        assert row["emitted_at"] - row["window_end"] == timedelta(seconds=row["slack_s"])
        assert round(row["slack_s"] * 1e6) == wait_us(to_us(row["window_end"]))
        assert row["coverage"] == 1
        assert row["width_s"] == [("clicks", (row["window_end"] - row["window_start"]).total_seconds())]


@pytest.mark.parametrize("query_id", list(QUERIES))
def test_each_session_is_judged_by_itself(warehouse: Warehouse, query_id: str) -> None:
    values = ("n", "spent", "prices", "dear") if query_id == "of_visitors" else ("n",)
    answered, true = (told(rows_of(warehouse, f"{table}_{query_id}"), values) for table in ("answers", "truth"))
    final = {key for key in answered if key[1] + timedelta(hours=1) < END} | set(true)
    judged = rows_of(warehouse, "accuracy", query_id)
    assert len(judged) == len(final) == len({(row["window_end"], row["group_key"]) for row in judged})
    right = sum(answered.get(key) == true.get(key) for key in final)
    assert sum(row["value"] == 0 for row in judged) == right
    assert all(row["value"] == 1 for row in judged if row["value"] > 0.6)
    if query_id == "of_all":  # it promises nothing
        return
    assert [row["kept"] for row in judged] == [row["value"] <= 0.05 for row in judged]
    periods = {row["period_start"]: row for row in rows_of(warehouse, "promise_periods", query_id)}
    ends = Counter(row["window_end"].replace(minute=0, second=0) for row in judged)
    assert {start: row["windows"] for start, row in periods.items() if row["windows"]} == dict(ends)


def test_needed_slacks_are_right_answers_less_wrong_ones(warehouse: Warehouse) -> None:
    """As many as are true; what K covers of them is what the promise is about."""
    needed = rows_of(warehouse, "needed_slack", "of_visitors")
    true = expected(warehouse, "of_visitors", lambda _: HORIZON_US)
    assert Counter(row["window_end"].hour for row in needed) == Counter(key[1].hour for key in true)
    slacks_s = sorted({0.0, *(row["slack_s"] for row in needed)})
    assert len(slacks_s) > 4
    for slack_s in slacks_s:
        wait_us = round(slack_s * 1e6)
        answered = expected(warehouse, "of_visitors", lambda _, us=wait_us: us)
        for hour in range(9):
            own = {key: row for key, row in answered.items() if key[1].hour == hour}
            right = sum(true.get(key) == row for key, row in own.items())
            covered = sum(row["slack_s"] <= slack_s for row in needed if row["window_end"].hour == hour)
            # Those that it covers are right after any longer wait, too.
            assert covered <= max(right - len(own.keys() - true.keys()), 0)


def test_many_runs_and_slices_give_the_rows_of_one(
    tmp_path: Path, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, start = warehouse.pipeline, START
    monkeypatch.setattr("tidegate.queries.slices.ROWS_OF_A_SLICE", 20)
    monkeypatch.setattr(RunContext, "most_slices", lambda *_: 8)
    for hours in (6, 1, 1, 2):
        run_stages(pipeline, tmp_path, start, start + timedelta(hours=hours), STAGES)
        start += timedelta(hours=hours)
    assert start == END
    assert contents(pipeline, tmp_path, ("run_metrics",)) == contents(
        pipeline, Path(str(warehouse.root)), ("run_metrics",)
    )


def test_the_checks_of_quality_find_nothing_critical(warehouse: Warehouse) -> None:
    run_stages(warehouse.pipeline, Path(str(warehouse.root)), END - timedelta(hours=2), END, ["check_quality"])
    results = Warehouse(str(warehouse.root), warehouse.pipeline).read_arrow("quality_results").to_pylist()
    assert len(results) > 50
    failed = [row for row in results if not row["success"] and row["severity"] == "critical"]
    assert [row for row in failed if row["expectation"] != "promise_kept"] == []


def test_live_answers_are_those_of_the_run(tmp_path: Path) -> None:
    """A live run compares them itself, interval by interval."""
    pipeline = load_pipeline(write(tmp_path, "1 MiB"))
    with RunContext(pipeline, tmp_path / "warehouse", output=io.StringIO()) as context:
        until_us = to_us(START + timedelta(hours=3))
        with Live(context, interval_at(pipeline, START), until_us, STAGES, every_s=0.2, patience_s=0.0) as live:
            live.run()
    assert len(rows_of(Warehouse(tmp_path / "warehouse", pipeline), "answers_of_visitors")) > 20


def test_sessions_are_not_filled_from_history(warehouse: Warehouse) -> None:
    with pytest.raises(UserError, match="of_visitors is over sessions"):
        fill_answers(warehouse.pipeline, Path(str(warehouse.root)), "of_visitors", START, END)
