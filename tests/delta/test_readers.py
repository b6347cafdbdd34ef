"""The tables are ordinary Delta tables: somebody else's Spark reads them, streams from them, gives them names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.delta.client import Client
from tests.delta.conftest import hour

from tidegate.declarations.errors import UserError
from tidegate.sql.registration import Registered, script
from tidegate.sql.registration import tables as registrable
from tidegate.store.commit import Commit
from tidegate.store.commits import Commits
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.spark
ANSWERS = "answers_revenue"
Tables = Callable[[], Warehouse]


def by_interval(rows: list[dict[str, object]]) -> Counter[str]:
    return Counter(str(row["interval"]) for row in rows)


def once_more(warehouse: Warehouse, *numbers: int, rows: int | None = None) -> None:
    """Write the answers of intervals, those of the first one or as many of them."""
    answers = warehouse.read_arrow(ANSWERS, [hour(warehouse, 0).label]).drop_columns(["interval"])
    with warehouse.commit("answer", [hour(warehouse, n) for n in numbers]) as commit:
        for number in numbers:
            commit.put_arrow(ANSWERS, hour(warehouse, number), answers.slice(0, rows))


def test_every_table_has_for_spark_the_rows_that_it_has_for_us(delta: Client, filled: Path, shop: Path, tables: Tables):
    warehouse = tables()
    union = " UNION ALL ".join(
        f"SELECT '{name}' AS name, count(*) AS rows FROM delta.`{warehouse.folder}/{name}`"
        for name in warehouse.tables()
    )
    assert {row["name"]: row["rows"] for row in delta.sql(union)} == {
        name: warehouse.read_arrow(name).num_rows for name in warehouse.tables()
    }
    ours = warehouse.read_arrow(ANSWERS).to_pylist()
    theirs = delta.load(warehouse.folder / ANSWERS)
    assert Counter((row["window_end"].replace(tzinfo=None), row["country"], row["revenue"]) for row in ours) == (
        Counter((row["window_end"], row["country"], row["revenue"]) for row in theirs)
    )
    assert theirs[0]["width_s"] == dict(ours[0]["width_s"])


def test_a_catalog_has_all_tables_and_those_that_come_later(delta: Client, tables: Tables, shop: Path):
    warehouse = tables()
    root = warehouse.root
    new = delta.register(root, shop, "named")
    assert set(new) == {*warehouse.tables(), "_commits"}
    label = hour(warehouse, 1).label
    (row,) = delta.sql(f"SELECT count(*) AS n FROM named.{ANSWERS} WHERE interval = '{label}'")
    assert row["n"] == warehouse.rows(ANSWERS, label)
    assert delta.register(root, shop, "named") == []
    with warehouse.commit("publish", [hour(warehouse, 0)]) as commit:
        mart = warehouse.read_arrow(ANSWERS, [hour(warehouse, 0).label], ["country"]).drop_columns(["interval"])
        warehouse.log("marts/answers").schema = mart.schema
        commit.put_rows("marts/answers", hour(warehouse, 0), mart)
    assert delta.register(root, shop, "named") == ["answers"]
    assert delta.sql("SELECT count(*) AS n FROM named.answers") == [{"n": mart.num_rows}]
    once_more(warehouse, 2)
    assert by_interval(delta.sql(f"SELECT interval FROM named.{ANSWERS}"))[hour(warehouse, 2).label] > 0


def test_a_name_that_stands_for_another_table_is_said(delta: Client, tables: Tables, shop: Path, tmp_path: Path):
    warehouse = tables()
    delta.sql("CREATE SCHEMA taken")
    delta.sql(f"CREATE TABLE taken.{ANSWERS} (a INT) USING delta LOCATION '{tmp_path / 'other'}'")
    with pytest.raises(UserError, match=rf"other tables have these names .*\n.*`taken`.`{ANSWERS}` is file:.*/other"):
        delta.register(warehouse.root, shop, "taken")
    assert "truth_revenue" in {row["tableName"] for row in delta.sql("SHOW TABLES IN taken")}


def test_the_statements_can_be_had_without_a_session(tables: Tables):
    warehouse = tables()
    text = script(registrable(warehouse, "main.shop"))
    assert text.startswith("CREATE SCHEMA IF NOT EXISTS `main`.`shop`;\nCREATE TABLE IF NOT EXISTS ")
    assert text.count(" USING delta LOCATION ") == len(warehouse.tables()) + 1
    assert Registered("s", "t", "/it's").statement.endswith("LOCATION '/it\\'s'")
    with pytest.raises(UserError, match="no tables of pipeline shop"):
        registrable(Warehouse(warehouse.root / "nothing", warehouse.pipeline))
    with pytest.raises(UserError, match="is no schema"):
        registrable(warehouse, "a`; DROP SCHEMA b; --")


def test_whoever_streams_gets_each_new_interval_once_and_misses_those_that_are_replaced(
    delta: Client, tables: Tables, tmp_path: Path
):
    warehouse = tables()
    table, checkpoint = warehouse.folder / ANSWERS, tmp_path / "checkpoint"
    first = by_interval(delta.stream(table, checkpoint, skipChangeCommits="true"))
    assert first == {hour(warehouse, n).label: warehouse.rows(ANSWERS, hour(warehouse, n).label) for n in (0, 1)}
    once_more(warehouse, 1, 2)
    assert delta.stream(table, checkpoint, skipChangeCommits="true")
    assert by_interval(delta.stream(table, tmp_path / "anew", skipChangeCommits="true")).keys() == {
        hour(warehouse, n).label for n in (0, 1, 2)
    }
    once_more(warehouse, 3)
    streamed = by_interval(delta.stream(table, checkpoint, skipChangeCommits="true"))
    assert streamed == {hour(warehouse, 3).label: warehouse.rows(ANSWERS, hour(warehouse, 3).label)}
    with pytest.raises(RuntimeError, match="skipChangeCommits"):
        once_more(warehouse, 3, rows=1)
        delta.stream(table, checkpoint)


def test_of_a_run_over_old_and_new_intervals_a_stream_misses_the_old_ones_alone(
    delta: Client, tables: Tables, tmp_path: Path
):
    warehouse = tables()
    table, checkpoint = warehouse.folder / ANSWERS, tmp_path / "checkpoint"
    delta.stream(table, checkpoint, skipChangeCommits="true")
    once_more(warehouse, 0, 1, 2, 3)
    streamed = by_interval(delta.stream(table, checkpoint, skipChangeCommits="true"))
    assert streamed.keys() == {hour(warehouse, n).label for n in (2, 3)}


def test_a_stream_of_commits_has_each_run_once_whatever_upkeep_merges(delta: Client, tables: Tables, tmp_path: Path):
    warehouse = tables()
    table, checkpoint = warehouse.folder / "_commits", tmp_path / "checkpoint"
    before = delta.stream(table, checkpoint)
    once_more(warehouse, 2)
    warehouse.commits.merge()
    once_more(warehouse, 3)
    after = delta.stream(table, checkpoint)
    assert [row["interval"] for row in after] == [hour(warehouse, n).label for n in (2, 3)]
    assert len(before) == 2


def test_earlier_versions_and_the_history_of_a_table_can_be_read(delta: Client, tables: Tables):
    warehouse = tables()
    table = warehouse.folder / ANSWERS
    version = warehouse.log(ANSWERS).refresh()
    before = len(delta.load(table))
    once_more(warehouse, 0, rows=1)
    assert len(delta.load(table)) < before
    assert len(delta.load(table, versionAsOf=str(version))) == before
    newest = delta.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1")[0]
    (run,) = (row["run"] for row in warehouse.commits.rows().to_pylist() if row["stage"] == "answer")
    assert (newest["operation"], newest["engineInfo"], newest["userMetadata"]) == ("WRITE", "Tidegate", f"run {run}")
    versions = dict(warehouse.commits.rows().to_pylist()[-1]["versions"])
    assert len(delta.load(table, versionAsOf=str(versions[ANSWERS]))) == len(delta.load(table))


def test_a_reader_of_the_newest_version_sees_a_dead_run_until_the_next_one_begins(
    delta: Client, tables: Tables, monkeypatch: pytest.MonkeyPatch
):
    """The one thing that cuts hide and newest versions show."""
    warehouse = tables()
    table, label = warehouse.folder / ANSWERS, hour(warehouse, 0).label
    before = by_interval(delta.load(table))
    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(Commits, "append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        once_more(warehouse, 0, rows=1)
    assert by_interval(delta.load(table))[label] == 1
    assert tables().rows(ANSWERS, label) == before[label]
    monkeypatch.setattr("tidegate.store.withdraw._alive", lambda *_: False)
    with tables().commit("next", [hour(warehouse, 5)]) as commit:
        assert isinstance(commit, Commit)
        assert by_interval(delta.load(table)) == before
