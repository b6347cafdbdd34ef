"""Tables and marts as views for DuckDB, and behind the SQL door."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from tests.dbt.sensors import Published, sensors
from tests.dbt.warehouse_rows import fill_warehouse
from tests.sql.door import Door

from tidegate.declarations.errors import UserError
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse
from tidegate.sql.relations import duckdb_script, manifest_path, relations


@pytest.mark.spark
def test_the_door_shows_marts_with_their_meanings_once_they_are_published(
    published: Published, tmp_path: Path
) -> None:
    warehouse = published.context.warehouse
    marts = {relation.name: relation for relation in relations(warehouse) if relation.schema == "tidegate"}
    manifest = manifest_path(warehouse)
    aside = manifest.rename(manifest.with_suffix(".aside"))
    try:
        door = Door(warehouse.root, tmp_path)
    finally:
        aside.rename(manifest)
    with door.connect() as client:
        shown = client.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'tidegate'")
        assert {name for (name,) in shown.fetchall()} == set(marts)
        shown_in = {q.id: "kept" if q.on_miss == "omit" else "answers" for q in warehouse.pipeline.queries}
        counts = {name: warehouse.read_arrow(f"{table}_{name}").num_rows for name, table in shown_in.items()}
        answers = "SELECT query, count(*) FROM answers GROUP BY query"
        assert dict(client.execute(answers).fetchall()) == counts
        wide = "SELECT count(*), count(DISTINCT interval) FROM answers_levels_by_sensor"
        assert client.execute(wide).fetchall() == [(counts["levels_by_sensor"], 3)]
        kept = "SELECT (SELECT count(*) FROM answers_highest), (SELECT count(*) FROM warehouse.answers_highest)"
        assert client.execute(kept).fetchall() == [(counts["highest"], warehouse.read_arrow("answers_highest").num_rows)]
        meaning = "SELECT col_description('answers'::regclass, attnum) FROM pg_attribute WHERE attname = 'emitted_at'"
        assert "The instant at which the answer was given" in str(client.execute(meaning).fetchall())
        comment = "SELECT obj_description('tidegate.answers_levels_by_sensor'::regclass, 'pg_class')"
        assert "How high the water stands." in str(client.execute(comment).fetchall())
        versions = "SELECT query, window_end, max(known_at) FROM answer_versions GROUP BY ALL ORDER BY ALL"
        newest = client.execute(versions).fetchall()
        corrected = "SELECT DISTINCT query, window_end, known_at FROM answers_corrected ORDER BY ALL"
        assert client.execute(corrected).fetchall() == newest
        states = "SELECT DISTINCT state FROM answer_versions ORDER BY ALL"
        assert client.execute(states).fetchall() == [("answered",), ("final",)]
        assert client.execute(states.replace("answer_versions", "answers_corrected")).fetchall() == [("final",)]
    assert door.close() == ""


def test_duckdb_gets_every_table_and_mart_as_a_view(published: Published) -> None:
    warehouse = published.context.warehouse
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(duckdb_script(warehouse))
        for relation in relations(warehouse):
            name = f'{relation.schema}."{relation.name}"'
            columns = [row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall()]
            assert columns == [*(c.name for c in relation.columns), "interval"], name
            found = connection.execute(f'SELECT count(*), count(DISTINCT "interval") FROM {name}').fetchone()
            assert found is not None
            if relation.schema == "warehouse":
                assert found[0] == warehouse.read_arrow(relation.name).num_rows
        views = connection.execute("SELECT schema_name, view_name, comment FROM duckdb_views()").fetchall()
    comments = {(schema, view): comment for schema, view, comment in views}
    assert "How high the water stands." in comments["tidegate", "answers_levels_by_sensor"]


def test_before_the_first_publication_there_are_tables_and_no_marts(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path / "a [b]* 'c'", sensors())
    with pytest.raises(UserError, match="no tables of pipeline sensors"):
        duckdb_script(warehouse)
    warehouse.folder.mkdir(parents=True)
    empty = relations(warehouse)
    assert [relation.name for relation in empty] == warehouse.tables()
    start = sensors().start
    (interval,) = intervals_between(sensors(), start, start.replace(hour=1))
    with duckdb.connect() as connection:
        connection.execute(duckdb_script(warehouse))
        assert connection.execute("SELECT count(*) FROM warehouse.accuracy").fetchone() == (0,)
        fill_warehouse(warehouse, (interval,))
        connection.execute(duckdb_script(warehouse))
        assert connection.execute("SELECT count(*) > 0 FROM warehouse.accuracy").fetchone() == (True,)
