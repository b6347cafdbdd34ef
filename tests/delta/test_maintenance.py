"""Somebody else's maintenance: it works, or it is refused with a sentence. Rows are never wrong, and runs go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.delta.client import Client
from tests.delta.conftest import hour

from tidegate.declarations.errors import UserError
from tidegate.store import parquet
from tidegate.store.upkeep import tidy
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.spark
Tables = Callable[[], Warehouse]
MART = "marts/answers"
EVENTS, ANSWERS, METRICS, COMMITS = "events_orders", "answers_revenue", "run_metrics", "_commits"
KINDS = [EVENTS, ANSWERS, MART, METRICS, COMMITS]


@pytest.fixture
def several(tables: Tables) -> Tables:
    """Every partition has several files, as many slices leave them; run_metrics, of several stages."""
    warehouse = tables()
    for number in (0, 1):
        label = hour(warehouse, number).label
        for stage, names in (("slices", (EVENTS, ANSWERS)), ("publish", (MART,))):
            with warehouse.commit(stage, [hour(warehouse, number)]) as commit:
                for name in names:
                    rows = warehouse.read_arrow(ANSWERS if name == MART else name, [label]).drop_columns(["interval"])
                    if name == MART:
                        warehouse.log(MART).schema = rows.schema
                    folder, half = commit.stage_folder(name, label), rows.num_rows // 2
                    for part, some in enumerate((rows.slice(0, half), rows.slice(half))):
                        parquet.write(some, folder / f"part-{part:05d}-{commit.id}.parquet")
                metrics = warehouse.read_arrow(METRICS, [label]).drop_columns(["interval"]).slice(0, 1)
                commit.put_file(METRICS, hour(warehouse, number), stage, metrics)
    return tables


def contents(warehouse: Warehouse) -> dict[str, list[str]]:
    """Every row of the tables, and which runs are committed."""
    found = {name: sorted(map(str, warehouse.read_arrow(name).to_pylist())) for name in (EVENTS, ANSWERS, METRICS)}
    files = warehouse.files(MART, warehouse.labels(MART))
    mart = pa.concat_tables([pa.parquet.read_table(file) for file in files])
    return found | {MART: sorted(map(str, mart.to_pylist())), COMMITS: sorted(warehouse.cut.runs)}


def goes_on(warehouse: Warehouse, before: dict[str, list[str]]) -> None:
    """A run replaces what it is for, and nothing else changes."""
    label = hour(warehouse, 1).label
    answers = warehouse.read_arrow(ANSWERS, [label]).drop_columns(["interval"])
    metrics = warehouse.read_arrow(METRICS, [label]).drop_columns(["interval"]).slice(0, 1)
    with warehouse.commit("slices", [hour(warehouse, 1)]) as commit:
        commit.put_arrow(ANSWERS, hour(warehouse, 1), answers)
        commit.put_file(METRICS, hour(warehouse, 1), "slices", metrics)
    after = contents(Warehouse(warehouse.root, warehouse.pipeline))
    assert {name: rows for name, rows in after.items() if name != COMMITS} == {
        name: rows for name, rows in before.items() if name != COMMITS
    }
    assert len(after[COMMITS]) == len(before[COMMITS]) + 1


def names(warehouse: Warehouse, table: str) -> list[str]:
    return [name.rpartition("/")[2] for name in DeltaTable(str(warehouse.folder / table)).file_uris()]


@pytest.mark.parametrize("table", KINDS)
def test_optimize_by_spark_changes_no_row_and_upkeep_takes_it_back(delta: Client, several: Tables, table: str):
    before, path = contents(several()), several().folder / table
    (done,) = delta.sql(f"OPTIMIZE delta.`{path}`")
    assert done["metrics"]["numFilesRemoved"] > 1
    assert contents(several()) == before
    goes_on(several(), before)
    tidy(several())
    assert not any(".c000." in name for name in names(several(), table))
    goes_on(several(), contents(several()))


@pytest.mark.parametrize("table", KINDS)
def test_optimize_by_delta_rs_changes_no_row(several: Tables, table: str):
    before = contents(several())
    assert DeltaTable(str(several().folder / table)).optimize.compact()["numFilesRemoved"] > 1
    assert contents(several()) == before
    goes_on(several(), before)
    tidy(several())
    goes_on(several(), contents(several()))


def test_vacuum_by_spark_removes_nothing_that_is_read(delta: Client, several: Tables):
    before = contents(several())
    for table in KINDS:
        delta.sql(f"VACUUM delta.`{several().folder / table}`")
    assert contents(several()) == before
    goes_on(several(), before)


def test_what_was_merged_and_vacuumed_at_once_is_named(delta: Client, several: Tables):
    """Only with Delta's own check switched off: superseded files stay for a week."""
    path = several().folder / ANSWERS
    delta.sql(f"OPTIMIZE delta.`{path}`")
    with pytest.raises(RuntimeError, match="retention"):
        delta.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    delta.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    delta.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    delta.sql("RESET spark.databricks.delta.retentionDurationCheck.enabled")
    with pytest.raises(UserError, match="is gone: what has been superseded stays for 7 days; run this again"):
        several().read_arrow(ANSWERS)
    tidy(several())
    assert len(delta.load(path)) > 0


@pytest.mark.parametrize("table", [EVENTS, ANSWERS, METRICS])
def test_rows_deleted_by_spark_are_refused_until_that_is_taken_back(delta: Client, several: Tables, table: str):
    before, path = contents(several()), several().folder / table
    version, column = several().log(table).refresh(), several().schema(table).names[0]
    label = hour(several(), 0).label
    # Of the revenue a whole file goes, and no other takes its place: upkeep finds it.
    column, look = ("window_end", tidy) if table == ANSWERS else (column, contents)
    least = min(map(str, several().read_arrow(table, [label])[column].to_pylist()))
    delta.sql(f"DELETE FROM delta.`{path}` WHERE interval = '{label}' AND {column} = '{least}'")
    with pytest.raises(UserError, match=rf"table {table}: .*\(version {version + 1} \(DELETE\) by Apache-Spark"):
        look(several())
    delta.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {version}")
    assert contents(several()) == before
    tidy(several())
    goes_on(several(), contents(several()))


@pytest.mark.parametrize("table", [EVENTS, COMMITS])
def test_deletion_vectors_are_refused_with_how_to_go_on(delta: Client, several: Tables, table: str):
    before, path = contents(several()), several().folder / table
    opened = several()
    opened.refresh()
    opened.labels(EVENTS)
    delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    for warehouse in (opened, several()):
        with pytest.raises(UserError, match=f"table {table} .* deletionVectors, which another program .*DROP FEATURE"):
            warehouse.refresh()
            Warehouse.log(warehouse, table).refresh()
    delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableDeletionVectors = false)")
    delta.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE deletionVectors")
    assert contents(several()) == before
    goes_on(several(), before)


def test_liquid_clustering_is_refused_by_delta_where_there_are_partitions(delta: Client, several: Tables):
    for table in (EVENTS, ANSWERS, MART, METRICS):
        with pytest.raises(RuntimeError, match="(?i)cluster"):
            delta.sql(f"ALTER TABLE delta.`{several().folder / table}` CLUSTER BY (interval)")


def test_liquid_clustering_of_the_commits_is_borne(delta: Client, several: Tables):
    before, path = contents(several()), several().folder / COMMITS
    delta.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY (stage)")
    delta.sql(f"OPTIMIZE delta.`{path}` FULL")
    assert contents(several()) == before
    goes_on(several(), before)
    tidy(several())
    goes_on(several(), contents(several()))


def test_a_checkpoint_and_a_new_property_of_spark_s_are_borne(delta: Client, several: Tables):
    before, path = contents(several()), several().folder / ANSWERS
    delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.checkpointInterval = 1, 'team' = 'sales')")
    delta.sql(f"COMMENT ON TABLE delta.`{path}` IS 'revenue by country'")
    assert list(Path(path, "_delta_log").glob("*.checkpoint*.parquet"))
    assert contents(several()) == before
    goes_on(several(), before)


def test_iceberg_readers_are_refused_by_delta_itself(delta: Client, several: Tables):
    """UniForm needs column mapping, and a jar of its own."""
    path = several().folder / ANSWERS
    with pytest.raises(RuntimeError):
        delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.universalFormat.enabledFormats' = 'iceberg')")
