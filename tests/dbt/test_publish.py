"""The stage publish over a synthetic warehouse: the real dbt on a real Spark session."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.dbt.sensors import Published
from tests.live_files import live_files
from tests.dbt.warehouse_rows import replace_rows, rows_of

from tidegate.stages.dbt_project import template_folder
from tidegate.history.questions import query_history
from tidegate.sql.relations import duckdb_script
from tidegate.declarations.errors import UserError
from tidegate.store.warehouse import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

MARTS = {
    "answers",
    "promises",
    "accuracy_by_hour",
    "slack_against_oracle",
    "widths_by_hour",
    "window_plans",
    "memory_against_budget",
    "history_estimates",
    "ingestion_by_hour",
    "quarantine_by_hour",
    "failed_expectations",
}


def contents(marts: Path) -> dict[str, bytes]:
    """Partition → bytes of its one file (whose name differs from run to run)."""
    files = [file for log in sorted(marts.glob("*/_delta_log")) for own in live_files(log.parent).values() for file in own]
    return {str(file.parent.relative_to(marts)): file.read_bytes() for file in files}


def mart(published: Published, name: str, label: str | None = None) -> list[dict[str, object]]:
    partitions = live_files(published.marts / name)
    files = [file for one, own in partitions.items() if label in (None, one) for file in own]
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files]).to_pylist() if files else []


def test_every_mart_has_a_partition_for_every_interval(published: Published) -> None:
    expected = {f"{name}/interval={i.label}" for name in MARTS for i in published.intervals}
    assert set(contents(published.marts)) == expected
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
    page = (published.context.warehouse.folder / "_docs" / "dbt" / "index.html").read_text()
    assert "How high the water stands." in page
    assert not re.findall(r"<(?:script|link)[^>]+(?:src|href)=[\"']https?://", page)


def test_first_queries_of_the_readme_run(published: Published) -> None:
    readme = (template_folder() / "README.md").read_text()
    statements = [s for block in re.findall(r"```sql\n(.*?)```", readme, flags=re.DOTALL) for s in block.split(";")]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(duckdb_script(Warehouse(published.context.warehouse_root, published.context.pipeline)))
        results = [connection.execute(s).fetchall() for s in statements if s.strip()]
    assert len(results) == 3
    assert all(results[1:])


def test_an_interval_loses_its_rows_in_the_marts_too_and_a_rerun_leaves_identical_ones(published: Published) -> None:
    warehouse, (_, middle, _) = published.context.warehouse, published.intervals
    before = contents(published.marts)
    page = warehouse.folder / "_docs" / "dbt" / "index.html"
    written = page.stat().st_mtime_ns
    fewer = rows_of(warehouse.pipeline, "window_plan", middle, warehouse.schema("window_plan"))[:1]
    replaced = {"accuracy": [], "answers_total": [], "window_plan": fewer}
    try:
        for table, rows in replaced.items():
            replace_rows(warehouse, table, middle, rows)
        published.publish(middle)
        after = contents(published.marts)
        assert mart(published, "accuracy_by_hour", middle.label) == []
        assert len(mart(published, "window_plans", middle.label)) == 1
        assert "total" not in {row["query"] for row in mart(published, "answers", middle.label)}
        changed = ("accuracy_by_hour", "answers", "widths_by_hour", "window_plans")
        assert {p for p in before if before[p] != after[p]} == {f"{m}/interval={middle.label}" for m in changed}
        assert set(after) == set(before)
    finally:
        for table in replaced:
            own = rows_of(warehouse.pipeline, table, middle, warehouse.schema(table))
            replace_rows(warehouse, table, middle, own)
    published.publish()
    assert contents(published.marts) == before
    assert page.stat().st_mtime_ns == written  # the models are the same, and so is their documentation


def test_seeded_defects_fail_the_right_tests_and_nothing_is_published(published: Published) -> None:
    warehouse, last = published.context.warehouse, published.intervals[-1]
    before = contents(published.marts)

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
    try:
        for table, defective in defects.items():
            replace_rows(warehouse, table, last, defective)
        with pytest.raises(UserError) as failure:
            published.publish(last)
    finally:
        for table in defects:
            replace_rows(warehouse, table, last, rows(table))
    named = set(re.findall(r"^  (\w+) \((?:fail|error)\)", str(failure.value), flags=re.MULTILINE))
    assert {name.split("__")[0] for name in named} == {
        "grain_stg_slack_plan_query",
        "accuracy_value_within_bounds",
        "a_period_is_kept_if_measured_reaches_promised",
        "grain_stg_stream_rates_interval",
        "accepted_values_stg_quality_results_severity",
    }
    assert "nothing was published" in str(failure.value)
    assert contents(published.marts) == before


def by_hand(published: Published, *command: str) -> str:
    """Run a command of dbt's by the door through which analysts do; what it said."""
    door = [sys.executable, "-m", "tidegate.stages.dbt_session", str(published.home / "session.json")]
    done = subprocess.run([*door, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


def test_units_of_models_and_macros_hold(published: Published) -> None:
    code_only = ["resource_type:model", "resource_type:unit_test", "tag:macro"]
    said = by_hand(published, "build", "--indirect-selection", "empty", "--select", *code_only)
    passed = re.findall(r"PASS \w+::(\w+)", said)
    assert len(passed) == len(set(passed)) >= 11
    macros = {path.stem for path in (template_folder() / "tests" / "macros").glob("*.sql")}
    assert set(re.findall(r"PASS (macro_\w+)", said)) == macros


def test_published_marts_can_be_asked_by_dbt(published: Published) -> None:
    instant = published.intervals[1].start + timedelta(minutes=15)
    known = "answers_as_of('highest', \"timestamp '" + f"{instant:%Y-%m-%d %H:%M:%S}" + "'\")"
    question = (
        "select (select count(*) from {{ ref('answers') }}) as answers, count(*) as known from ({{ " + known + " }})"
    )
    said = by_hand(published, "show", "--output", "json", "--inline", question)
    rows = mart(published, "answers")
    then = [row for row in rows if row["query"] == "highest" and row["emitted_at"] <= instant]  # type: ignore[operator]
    assert 0 < len(then) < len(rows)
    assert f'"answers": {len(rows)}' in said
    assert f'"known": {len(then)}' in said


def test_the_past_can_be_asked_in_sql(published: Published) -> None:
    """The macro over all intervals gives the estimate of ``tidegate history``, and an interval around it."""
    warehouse, spans = published.context.warehouse, published.intervals
    where = "`count` > 20"
    asked = ", ".join(
        f"(select struct(*) from {{{{ history_estimate('readings', '{name}', {column!r}, where={where!r}) }}}}) as {name}"
        for name, column in (("avg", "level"), ("sum", "level"), ("count", "1"))
    )
    said = by_hand(published, "show", "--output", "json", "--inline", f"select to_json(struct({asked})) as found")
    found = json.loads(json.loads(said[said.index("{") :])["show"][0]["found"])
    sql = f"SELECT AVG(level) AS avg, SUM(level) AS sum, COUNT(*) AS count FROM readings WHERE {where}"
    (row,) = query_history(warehouse.pipeline, warehouse.root, sql, spans[0].start, spans[-1].end)["rows"]
    for name, value in row.items():
        assert found[name]["estimate"] == pytest.approx(value["estimate"])
        if "low" in found[name]:
            assert found[name]["low"] < value["estimate"] < found[name]["high"]
