"""The stage publish over a synthetic warehouse: the real dbt on a real Spark session."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.dbt.sensors import Published
from tests.live_files import live_files
from tests.dbt.warehouse_rows import replace_rows, rows_of

from tidegate.engine.context import RunContext
from tidegate.stages import dbt_project, publish
from tidegate.stages.dbt_process import Dbt
from tidegate.stages.dbt_project import template_folder
from tidegate.stages.dbt_session import Session
from tidegate.stages.publish_account import Changes, checked_beside
from tidegate.history.questions import query_history
from tidegate.sql.relations import duckdb_script
from tidegate.declarations.errors import UserError
from tidegate.store.intervals import Interval
from tidegate.store.warehouse import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

MARTS = {
    "answers",
    "answer_versions",
    "promises",
    "accuracy_by_hour",
    "slack_against_oracle",
    "widths_by_hour",
    "window_plans",
    "memory_against_budget",
    "history_estimates",
    "ingestion_by_hour",
    "quarantine_by_hour",
    "unknown_columns_by_hour",
    "failed_expectations",
}


def mart(published: Published, name: str, label: str | None = None) -> list[dict[str, object]]:
    partitions = live_files(published.marts / name)
    files = [file for one, own in partitions.items() if label in (None, one) for file in own]
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files]).to_pylist() if files else []


def test_every_mart_has_a_partition_for_every_interval(published: Published) -> None:
    expected = {f"{name}/interval={i.label}" for name in MARTS for i in published.intervals}
    assert set(published.contents()) == expected
    assert all(mart(published, name) for name in MARTS)


def test_answers_hold_every_answer_row_as_json_or_those_that_kept_the_promise(published: Published) -> None:
    warehouse = published.context.warehouse
    for query in warehouse.pipeline.queries:
        names = [output.name for output in query.outputs]
        table = f"{'kept' if query.on_miss == 'omit' else 'answers'}_{query.id}"
        expected = warehouse.read_arrow(table, columns=names).to_pylist()
        found = [json.loads(str(row["values_json"])) for row in mart(published, "answers") if row["query"] == query.id]
        assert all(list(row) == names for row in found)
        plain = [name for name in names if name != "read_at"]

        def key(row: dict[str, object], plain: list[str] = plain) -> list[str]:
            return [str(row[name]) for name in plain]

        assert sorted(map(key, found)) == sorted(map(key, expected))


def test_answer_numbers_are_ranks_where_there_are_ranks(published: Published) -> None:
    rows = mart(published, "answers")
    assert {row["answer_number"] for row in rows if row["query"] == "highest"} == {1, 2, 3}
    assert all(row["answer_number"] == row["rank"] for row in rows if row["query"] == "highest")
    per_group = [row for row in rows if row["query"] == "highest_of_each_sensor"]
    assert {(row["answer_number"], row["rank"]) for row in per_group} == {(1, 1), (2, 1), (3, 1)}
    assert all(row["rank"] is None for row in rows if not row["query"].startswith("highest"))


def test_widths_name_the_stream_and_the_range_of_each_alias(published: Published) -> None:
    rows = [row for row in mart(published, "widths_by_hour") if row["query"] == "levels_by_sensor"]
    found = {(row["alias"], row["stream"], row["range_s"], row["mean_width_s"], row["windows"]) for row in rows}
    assert found == {("r", "readings", 3600.0, 1800.0, 2), ("p", "pumps", 1800.0, 900.0, 2)}


def test_history_estimates_equal_a_plain_recalculation(published: Published) -> None:
    warehouse = published.context.warehouse
    samples = warehouse.read_arrow("history_samples_readings").to_pylist()
    rows = {(row["leaf_start"], row["column_name"]): row for row in mart(published, "history_estimates")}
    leaves = {row["leaf_start"] for row in samples}
    assert set(rows) == {(leaf, column) for leaf in leaves for column in ("level", "count")}
    for (leaf, column), row in rows.items():
        drawn = [s for s in samples if s["leaf_start"] == leaf]
        total = sum(s[column] / s["fraction"] for s in drawn)
        variance = sum(s[column] ** 2 * (1 - s["fraction"]) / s["fraction"] ** 2 for s in drawn)
        assert row["estimated_total"] == pytest.approx(total)
        assert row["estimated_total_variance"] == pytest.approx(variance)
        assert row["estimated_count"] == sum(1 / s["fraction"] for s in drawn)
        assert row["estimated_average"] == pytest.approx(total / sum(1 / s["fraction"] for s in drawn))


def test_records_are_accepted_or_refused_in_their_hour(published: Published) -> None:
    first = mart(published, "ingestion_by_hour", published.intervals[0].label)
    assert [(row["stream"], row["accepted"], row["refused"]) for row in first] == [("pumps", 6, 0), ("readings", 6, 3)]


def test_documentation_is_one_page_without_outside_references(published: Published) -> None:
    page = published.page.read_text()
    assert "How high the water stands." in page
    assert not re.findall(r"<(?:script|link)[^>]+(?:src|href)=[\"']https?://", page)


def test_first_queries_of_the_readme_run(published: Published) -> None:
    readme = (template_folder() / "README.md").read_text()
    statements = [s for block in re.findall(r"```sql\n(.*?)```", readme, flags=re.DOTALL) for s in block.split(";")]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(duckdb_script(Warehouse(published.context.warehouse_root, published.context.pipeline)))
        results = [connection.execute(s).fetchall() for s in statements if s.strip()]
    assert len(results) == 4
    assert all(results[1:])


def test_an_interval_loses_its_rows_in_the_marts_too_and_a_rerun_leaves_identical_ones(published: Published) -> None:
    """Of the intervals that were published twice the middle one had lost rows, the last one was as before."""
    _, middle, _ = published.intervals
    before, after = published.first, published.contents()
    assert mart(published, "accuracy_by_hour", middle.label) == []
    assert len(mart(published, "window_plans", middle.label)) == 1
    assert "total" not in {row["query"] for row in mart(published, "answers", middle.label)}
    changed = ("accuracy_by_hour", "answer_versions", "answers", "widths_by_hour", "window_plans")
    assert {p for p in before if before[p] != after[p]} == {f"{m}/interval={middle.label}" for m in changed}
    assert set(after) == set(before)
    # The models are the same, and so is their documentation.
    assert published.page.stat().st_mtime_ns == published.page_written_ns


def runs(published: Published, interval: Interval) -> dict[str, str]:
    """Mart → the run that wrote the interval's partition."""
    live = published.context.warehouse.live
    return {name: live(f"marts/{name}", interval.label)[0].run for name in MARTS}


def test_only_what_comes_from_changed_tables_is_built(published: Published) -> None:
    """Of the intervals that were published twice the middle one had lost rows in three tables, the last one none."""
    first, middle, last = (runs(published, interval) for interval in published.intervals)
    assert first == last
    assert len(set(first.values())) == 1
    others = {"promises", "memory_against_budget", "ingestion_by_hour", "quarantine_by_hour", "failed_expectations"}
    others |= {"history_estimates", "slack_against_oracle", "unknown_columns_by_hour"}
    assert {name for name in MARTS if middle[name] == first[name]} == others


class Asked(Exception):
    """dbt was to be run: what it was given."""


@pytest.fixture
def asked_for(published: Published, monkeypatch: pytest.MonkeyPatch) -> Callable[[Interval], Session | None]:
    """How dbt is run when an interval is published; None if it is not. Nothing is built."""

    class Instead:
        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> Instead:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def build(self, session: Session, *_: object) -> None:
            raise Asked(session)

    def ask(interval: Interval) -> Session | None:
        try:
            published.publish(interval)
        except Asked as asked:
            session: Session = asked.args[0]
            return session
        return None

    monkeypatch.setattr(publish, "Dbt", Instead)
    return ask


Ask = Callable[[Interval], Session | None]


def test_what_has_not_changed_is_not_built(published: Published, asked_for: Ask) -> None:
    before = published.context.warehouse.commits.refresh().keys()
    assert asked_for(published.intervals[0]) is None
    assert published.context.warehouse.commits.refresh().keys() == before


def test_a_table_that_is_written_again_says_what_is_built(published: Published, asked_for: Ask) -> None:
    warehouse, last = published.context.warehouse, published.intervals[-1]
    rows = rows_of(warehouse.pipeline, "stream_rates", last, warehouse.schema("stream_rates"))
    replace_rows(warehouse, "stream_rates", last, rows)
    session = asked_for(last)
    assert session is not None
    assert session.changed is not None
    assert "stream_rates" in session.changed
    assert "slack_plan" not in session.changed
    # Tests and models may look at tables that have not changed.
    assert all(table.files for table in session.tables if table.name in ("stream_rates", "slack_plan"))


def test_what_is_written_after_the_start_is_read_all_the_same(
    published: Published, asked_for: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that a table gets are gathered beside those that it had; if one is replaced, all of them are again."""
    warehouse, last = published.context.warehouse, published.intervals[-1]
    monkeypatch.setattr(publish, "_FILES_APART", 0)

    def rows(table: str) -> list[dict[str, object]]:
        return rows_of(warehouse.pipeline, table, last, warehouse.schema(table))

    try:
        with publish.turn(published.context) as turn:
            turn.start(published.intervals[:1])
            assert turn.dbt is None, "nothing has changed"
            replace_rows(warehouse, "stream_rates", last, rows("stream_rates"))
            turn.start([last])
            assert turn.dbt is not None
            gathered = {table.name: Path(table.gathered) for table in turn.gathered if table.gathered}
            before = {name: [file.stat().st_mtime_ns for file in folder.iterdir()] for name, folder in gathered.items()}
            more = pa.Table.from_pylist(rows("run_metrics")[:1], schema=warehouse.schema("run_metrics"))
            with warehouse.commit("another", [last]) as commit:
                commit.put_file("run_metrics", last, "another", more)
            replace_rows(warehouse, "accuracy", last, rows("accuracy")[:1])
            with pytest.raises(Asked) as asked:
                turn.run([last])
        after = {name: [file.stat().st_mtime_ns for file in folder.iterdir()] for name, folder in gathered.items()}
        assert len(after["run_metrics"]) == len(before["run_metrics"]) + 1
        assert set(after["run_metrics"]) > set(before["run_metrics"])
        assert [name for name in before if not set(before[name]) <= set(after[name])] == ["accuracy"]
        session: Session = asked.value.args[0]
        for table in session.tables:
            expected = warehouse.read_arrow(table.name, [last.label]).num_rows
            found = 0 if table.gathered is None else ds.dataset(table.gathered).count_rows()
            assert found == expected, table.name
    finally:
        for table in ("stream_rates", "accuracy", "run_metrics"):
            replace_rows(warehouse, table, last, rows(table))


def test_dbt_that_is_told_nothing_ends(tmp_path: Path) -> None:
    def at_work() -> list[psutil.Process]:
        children = psutil.Process().children()
        return [child for child in children if str(tmp_path / "session.json") in child.cmdline()]

    with open(tmp_path / "lock", "w") as lock, Dbt(tmp_path, lock.fileno()):
        assert len(at_work()) == 1
    assert at_work() == []


def test_what_dbts_threads_say_at_once_comes_line_by_line() -> None:
    """Line by line they name the marts that are there: two in one line would be a mart that nobody knows."""
    code = (
        "from threading import Thread\n"
        "from tidegate.stages.dbt_session import _say\n"
        "speak = lambda k: [_say(f'built: mart_{k}_{i}') for i in range(1000)]\n"
        "threads = [Thread(target=speak, args=[k]) for k in range(8)]\n"
        "[thread.start() for thread in threads]\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(said.splitlines()) == {f"built: mart_{k}_{i}" for k in range(8) for i in range(1000)}


def judge(warehouse: Warehouse, interval: Interval, **verdict: object) -> None:
    """Check the interval again, as it is now."""
    rows = rows_of(warehouse.pipeline, "quality_results", interval, warehouse.schema("quality_results"))
    replace_rows(warehouse, "quality_results", interval, [{**row, **verdict} for row in rows])


def test_intervals_that_were_checked_and_wait_are_taken_along(published: Published) -> None:
    """Not those that have failed, were published since, or were written after their check; nor any beyond such a one."""
    warehouse, (first, middle, last) = published.context.warehouse, published.intervals

    def beside(*intervals: Interval, most: int = 9) -> list[Interval]:
        return checked_beside(warehouse, intervals, most)

    try:
        assert beside(middle) == []
        judge(warehouse, last, success=True)
        assert beside(middle) == [last]
        assert beside(first) == []
        judge(warehouse, middle, success=False, severity="warning")
        judge(warehouse, first, success=True)
        assert beside(first) == beside(first, most=2) == [middle, last]
        assert beside(middle) == [first, last]
        assert beside(first, most=1) == [middle]
        judge(warehouse, middle, success=False, severity="critical")
        assert beside(first) == []
        judge(warehouse, middle, success=True)
        rows = rows_of(warehouse.pipeline, "slack_plan", middle, warehouse.schema("slack_plan"))
        replace_rows(warehouse, "slack_plan", middle, rows)
        assert beside(last) == []
    finally:
        for interval in published.intervals:
            judge(warehouse, interval)


def test_what_waits_is_published_together_or_if_that_fails_not_at_all(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Interval]] = []

    def instead(_: publish.Turn, todo: Changes, *__: object) -> None:
        asked.append(list(todo.intervals))
        if len(todo.intervals) > 1:
            raise UserError("a test failed")

    warehouse, (_, middle, last) = published.context.warehouse, published.intervals
    monkeypatch.setattr(publish.Turn, "_publish", instead)
    try:
        for interval in (middle, last):
            judge(warehouse, interval, success=True)
        publish.run(published.context, [middle], with_checked=True)
        publish.run(published.context, [middle])
    finally:
        for interval in published.intervals:
            judge(warehouse, interval)
    assert asked == [[middle, last], [middle], [middle]]


@pytest.mark.parametrize("damage", ["gone", "cut short"])
def test_a_mart_that_is_gone_or_damaged_is_built_again(published: Published, asked_for: Ask, damage: str) -> None:
    (file,) = live_files(published.marts / "promises")[published.intervals[0].label]
    content = file.read_bytes()
    try:
        file.unlink() if damage == "gone" else file.write_bytes(content[:-10])
        session = asked_for(published.intervals[0])
    finally:
        file.write_bytes(content)
    assert session is not None
    assert session.changed is None


def test_another_version_or_a_missing_page_builds_everything(
    published: Published, asked_for: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = published.page.rename(published.page.with_suffix(".away"))
    try:
        session = asked_for(published.intervals[0])
    finally:
        page.rename(published.page)
    assert session is not None
    assert (session.changed, session.docs_page) == (None, str(published.page))
    monkeypatch.setattr(dbt_project, "version", lambda _: "another")
    session = asked_for(published.intervals[0])
    assert session is not None
    assert session.changed is None


def test_seeded_defects_fail_the_right_tests_and_nothing_is_published(published: Published) -> None:
    """That no stage has written a history yet is none of them."""
    warehouse, last = published.context.warehouse, published.intervals[-1]
    before, session = published.contents(), published.home / "session.json"
    described = session.read_text()

    def rows(table: str) -> list[dict[str, object]]:
        return rows_of(warehouse.pipeline, table, last, warehouse.schema(table))

    hit = next(row for row in rows("accuracy") if row["metric"] == "hit_rate")
    defects = {
        "slack_plan": [*rows("slack_plan"), rows("slack_plan")[0]],
        "accuracy": [{**hit, "value": 1.5}],
        "stream_rates": [{**rows("stream_rates")[0], "stream": None}],
        "promise_periods": [{**rows("promise_periods")[0], "measured": 0.94, "kept": True}],
        "quality_results": [{**rows("quality_results")[0], "severity": "dreadful"}],
    }
    history = ["history_leaves", "history_groups", "history_samples_readings"]
    try:
        for table, defective in defects.items():
            replace_rows(warehouse, table, last, defective)
        with warehouse.commit("synthetic", [last]) as commit:
            for table in history:
                commit.stage_folder(table, last.label)
        with pytest.raises(UserError) as failure:
            published.publish(last)
    finally:
        for table in [*defects, *history]:
            replace_rows(warehouse, table, last, rows(table))
        session.write_text(described)
    named = set(re.findall(r"^  (\w+) \((?:fail|error)\)", str(failure.value), flags=re.MULTILINE))
    assert {name.split("__")[0] for name in named} == {
        "grain_stg_slack_plan_query",
        "accuracy_value_within_bounds",
        "a_period_is_kept_if_measured_reaches_promised",
        "grain_stg_stream_rates_interval",
        "accepted_values_stg_quality_results_severity",
    }
    assert "nothing was published" in str(failure.value)
    assert published.contents() == before


def by_hand(published: Published, *command: str) -> str:
    """Run a command of dbt's by the door through which analysts do; what it said."""
    door = [sys.executable, "-m", "tidegate.stages.dbt_session", str(published.home / "session.json")]
    # Its Spark is this machine's, as the files are, wherever slices run; nobody answers there.
    elsewhere = {**os.environ, "TIDEGATE_SPARK_MASTER": "spark://127.0.0.1:9"}
    done = subprocess.run([*door, *command], capture_output=True, text=True, check=False, env=elsewhere)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


def test_units_of_models_and_macros_hold(published: Published) -> None:
    code_only = ["resource_type:model", "resource_type:unit_test", "tag:macro"]
    said = by_hand(published, "build", "--indirect-selection", "empty", "--select", *code_only)
    passed = re.findall(r"PASS \w+::(\w+)", said)
    assert len(passed) == len(set(passed)) >= 11
    macros = {path.stem for path in (template_folder() / "tests" / "macros").glob("*.sql")}
    assert set(re.findall(r"PASS (macro_\w+)", said)) == macros


INSTANT = timedelta(minutes=15)  # into the second interval
WHERE = "`count` > 20"
PAST = {"avg": "level", "sum": "level", "count": "1"}


@pytest.fixture(scope="module")
def asked(published: Published) -> dict[str, Any]:
    """What dbt says of the published marts and of the past, asked in one statement."""
    instant = f"timestamp '{published.intervals[1].start + INSTANT:%Y-%m-%d %H:%M:%S}'"
    questions = {
        "answers": "select count(*) from {{ ref('answers') }}",
        "known": f"select count(*) from ({{{{ answers_as_of('highest', {instant!r}) }}}})",
    }
    for name, column in PAST.items():
        estimate = f"history_estimate('readings', '{name}', {column!r}, where={WHERE!r})"
        questions[name] = f"select struct(*) from {{{{ {estimate} }}}}"
    one = ", ".join(f"({question}) as {name}" for name, question in questions.items())
    said = by_hand(published, "show", "--output", "json", "--inline", f"select to_json(struct({one})) as found")
    found: dict[str, Any] = json.loads(json.loads(said[said.index("{") :])["show"][0]["found"])
    return found


def test_published_marts_can_be_asked_by_dbt(published: Published, asked: dict[str, Any]) -> None:
    rows, instant = mart(published, "answers"), published.intervals[1].start + INSTANT
    then = [row for row in rows if row["query"] == "highest" and row["emitted_at"] <= instant]  # type: ignore[operator]
    assert 0 < len(then) < len(rows)
    assert (asked["answers"], asked["known"]) == (len(rows), len(then))


def test_the_past_can_be_asked_in_sql(published: Published, asked: dict[str, Any]) -> None:
    """The macro over all intervals gives the estimate of ``tidegate history``, and an interval around it."""
    warehouse, spans = published.context.warehouse, published.intervals
    sql = f"SELECT AVG(level) AS avg, SUM(level) AS sum, COUNT(*) AS count FROM readings WHERE {WHERE}"
    (row,) = query_history(warehouse.pipeline, warehouse.root, sql, spans[0].start, spans[-1].end)["rows"]
    assert row.keys() == PAST.keys()
    for name, value in row.items():
        assert asked[name]["estimate"] == pytest.approx(value["estimate"])
        if "low" in asked[name]:
            assert asked[name]["low"] < value["estimate"] < asked[name]["high"]
