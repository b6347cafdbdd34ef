"""promise_periods: which interval writes what, and what pages say of it."""

from __future__ import annotations

import io
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.quality.good_warehouse import good_pipeline

from tidegate.declarations.models import Pipeline
from tidegate.declarations.promises import LEAST_PERIODS, SENTENCE, lines, newest_of_each, period_name, terms_of
from tidegate.engine.context import RunContext
from tidegate.operators.schedule import instants_us
from tidegate.stages.calibrate_promises import judge_promises
from tidegate.store.intervals import Interval, intervals_between, labels_holding

ROOT = Path(__file__).parents[2]
START = datetime(2013, 2, 8, tzinfo=UTC)
DAY = timedelta(days=1)


def pipeline_of(days: int = 1, **changes: object) -> Pipeline:
    """Intervals of six hours, a horizon of nine, a window an hour."""
    declared = {"interval_s": 6 * 3600, "horizon_s": 9 * 3600, "promise_period_s": days * 86_400}
    return good_pipeline().model_copy(update=declared | changes)


def write_accuracy(root: Path, pipeline: Pipeline, intervals: tuple[Interval, ...]) -> pa.Table:
    """Hourly windows of every query: the first day's hit rates are 0.9 on average, the second's less."""
    rows = []
    for hour in range(len(intervals) * 6 - 9):
        end = START + timedelta(hours=hour)
        hit = (1.0 if hour % 2 else 0.8) if hour < 24 else 0.89
        for query, metric, value in (("worst", "hit_rate", hit), ("total", "relative_error", 0.1 * (hour != 30))):
            rows.append({"query": query, "window_end": end, "metric": metric, "value": value})
    context = RunContext(pipeline, root)
    schema = context.warehouse.schema("accuracy")
    table = pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)
    final_us = instants_us(table.column("window_end")) + pipeline.horizon_s * 1_000_000
    table = table.append_column("interval", pa.array(labels_holding(pipeline, final_us)))
    with context.warehouse.commit("test", intervals) as commit:
        for interval in intervals:
            commit.put_arrow("accuracy", interval, table.filter(pc.equal(table.column("interval"), interval.label)))
    return table


def judge_again(root: Path, pipeline: Pipeline, accuracy: pa.Table, intervals: tuple[Interval, ...]) -> pa.Table:
    """Judge some intervals in one run; return what the whole table then holds."""
    labels = pa.array([interval.label for interval in intervals])
    fresh = accuracy.filter(pc.is_in(accuracy.column("interval"), labels))
    with RunContext(pipeline, root, output=io.StringIO()) as context, context.stage("calibrate", intervals) as stage:
        judge_promises(context, stage, intervals, fresh)
    return context.warehouse.read_arrow("promise_periods")


@pytest.fixture
def intervals() -> tuple[Interval, ...]:
    return intervals_between(pipeline_of(), START, START + 4 * DAY)


def test_however_intervals_are_run_and_run_again_their_rows_are_the_same(
    tmp_path: Path, intervals: tuple[Interval, ...]
) -> None:
    pipeline = pipeline_of()
    accuracy = write_accuracy(tmp_path / "one", pipeline, intervals)
    write_accuracy(tmp_path / "many", pipeline, intervals)
    together = judge_again(tmp_path / "one", pipeline, accuracy, intervals)
    for interval in intervals:
        found = judge_again(tmp_path / "many", pipeline, accuracy, (interval,))
    assert found.equals(together)
    for interval in random.Random(17).sample(intervals, 8):
        assert judge_again(tmp_path / "many", pipeline, accuracy, (interval,)).equals(together)


def test_a_period_is_judged_by_the_interval_in_which_its_last_window_becomes_final(
    tmp_path: Path, intervals: tuple[Interval, ...]
) -> None:
    pipeline = pipeline_of()
    table = judge_again(tmp_path, pipeline, write_accuracy(tmp_path, pipeline, intervals), intervals)
    worst = [row for row in table.to_pylist() if row["query"] == "worst" and row["kept"] is not None]
    # The day's windows are final nine hours after it: known at the end of the interval from 6 to 12.
    assert [row["judged_at"] for row in worst] == [START + DAY * n + timedelta(hours=12) for n in (1, 2, 3)]
    assert [row["interval"][-2:] for row in worst] == ["06"] * 3
    assert [(row["windows"], row["measured"], row["kept"]) for row in worst] == [
        (24, 0.9, True), (24, 0.89, False), (24, 0.89, False),
    ]  # fmt: skip
    assert [row["met_so_far"] for row in worst] == [1.0, 0.5, 0.333333333333]
    total = [row for row in table.to_pylist() if row["query"] == "total" and row["kept"] is not None]
    assert [(row["promised"], row["measured"], row["kept"]) for row in total] == [(0.95, 1.0, True)] * 3
    assert not {row["query"] for row in table.to_pylist()} - {"worst", "total"}, "by_origin promises nothing"


def test_every_interval_tells_how_the_open_period_stands(tmp_path: Path, intervals: tuple[Interval, ...]) -> None:
    pipeline = pipeline_of()
    table = judge_again(tmp_path, pipeline, write_accuracy(tmp_path, pipeline, intervals), intervals)
    for interval in intervals:
        own = [row for row in table.to_pylist() if row["interval"] == interval.label and row["query"] == "worst"]
        open_ = [row for row in own if row["kept"] is None]
        assert len(open_) == 1
        known = interval.end - timedelta(hours=9)
        assert open_[0]["period_start"] <= known < open_[0]["period_end"]
        hours = max((known - max(open_[0]["period_start"], START)) // timedelta(hours=1), 0)
        assert open_[0]["windows"] == hours
    newest = newest_of_each(table.to_pylist())
    assert [(row["query"], row["period_start"].day, row["kept"]) for row in newest if row["windows"]] == [
        ("total", 8, True), ("total", 9, True), ("total", 10, True), ("total", 11, None),
        ("worst", 8, True), ("worst", 9, False), ("worst", 10, False), ("worst", 11, None),
    ]  # fmt: skip


def test_another_promise_is_counted_anew(tmp_path: Path, intervals: tuple[Interval, ...]) -> None:
    pipeline = pipeline_of()
    accuracy = write_accuracy(tmp_path, pipeline, intervals)
    judge_again(tmp_path, pipeline, accuracy, intervals[:-1])
    other = tuple(q.model_copy(update={"accuracy": 0.8}) if q.accuracy else q for q in pipeline.queries)
    table = judge_again(tmp_path, pipeline_of(queries=other), accuracy, intervals[-1:]).to_pylist()
    newest = {row["query"]: row for row in table if row["interval"] == intervals[-1].label}
    assert (newest["worst"]["periods_judged"], newest["total"]["periods_judged"]) == (0, 3)


@pytest.mark.parametrize(
    ("every", "days", "period"),
    [(600, 1, 1), (86_400, 1, 1), (90_000, 1, 2), (7 * 86_400, 1, 7), (7 * 86_400, 2, 8), (600, 3, 3)],
)
def test_a_period_is_as_long_as_declared_or_holds_a_tick(every: int, days: int, period: int) -> None:
    pipeline = pipeline_of(days)
    terms = terms_of(pipeline, pipeline.query("worst").model_copy(update={"every_s": float(every)}))
    assert terms is not None
    assert terms.period_us == period * 86_400_000_000
    assert terms_of(pipeline, pipeline.query("by_origin")) is None


def test_until_enough_periods_are_judged_it_is_not_known_whether_a_promise_is_kept() -> None:
    pipeline = pipeline_of()
    common = {"query": "worst", "judged_at": START, "promised": 0.9, "period_end": START + DAY, "measured": 0.95}
    for judged, kept, tone in ((0, 0, "open"), (19, 19, "open"), (20, 19, "good"), (20, 18, "bad"), (100, 95, "good")):
        tally = {
            "periods_judged": judged,
            "periods_kept": kept,
            "met_so_far": round(kept / judged, 12) if judged else None,
        }
        closed = common | tally | {"period_start": START - DAY, "windows": 24, "kept": True}
        now = common | tally | {"period_start": START, "windows": 1, "kept": None}
        total, worst = lines(pipeline, [now, closed] if judged else [now])
        assert (worst.query, worst.tone) == ("worst", tone)
        assert worst.cells[3] == f"{kept} of {judged} days"
        assert worst.last == ("2013-02-07: 95.0 % over 24 windows, kept" if judged else "none")
        assert worst.so_far == "2013-02-08: 95.0 % over 1 window"
        assert (total.tone, total.so_far) == ("open", "no window is final yet")
    assert LEAST_PERIODS == 20
    assert period_name(3600 * 1_000_000, 2) == "hours"


def test_the_sentence_is_the_same_in_code_documentation_and_dbt() -> None:
    for file in ("docs/explanation/promises.md", "docs/reference/query-language.md", "dbt/models/docs.md"):
        assert SENTENCE in " ".join((ROOT / file).read_text().split()), file
