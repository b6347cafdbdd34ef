"""What drivers ask of PostgreSQL's catalogue, and what they find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.engine.reflection import ObjectKind
from tests.sql.door import Door

from tidegate.sql.relations import relations


def _queries() -> list[pytest.ParameterSet]:
    text = Path(__file__).with_name("driver_queries.sql").read_text()
    found = re.findall(r"^-- name: ([^\n]+), (\S+)\n(.*?)(?=^-- name: |\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(found) == text.count("\n-- name: ")
    return [pytest.param(sql.strip(), rows, id=f"{name} {n}") for n, (name, rows, sql) in enumerate(found)]


@pytest.fixture(scope="module")
def driver(door: Door) -> Iterator[psycopg.Connection]:
    """One connection asks everything, as a driver's does: each costs the door an engine."""
    with door.connect() as connection:
        yield connection


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize(("asked", "rows"), _queries())
def test_what_drivers_ask_is_answered(driver: psycopg.Connection, asked: str, rows: str, binary: bool) -> None:
    cursor = driver.cursor(binary=binary).execute(asked, prepare=True)
    if rows == "none":
        assert cursor.description is None
    else:
        found = cursor.fetchall()
        assert found if rows == "+" else len(found) == int(rows)


@pytest.mark.parametrize("dialect", ["postgresql+psycopg2", "postgresql+psycopg"])
def test_sqlalchemy_and_superset_see_every_relation_with_its_columns(door: Door, dialect: str) -> None:
    engine = sqlalchemy.create_engine(door.address(dialect))
    inspector = sqlalchemy.inspect(engine)
    assert inspector.default_schema_name == "tidegate"
    assert set(inspector.get_schema_names()) == {"information_schema", "tidegate", "warehouse"}
    known = {relation.name: relation for relation in relations(door.warehouse)}
    assert set(inspector.get_view_names(schema="warehouse")) == set(known)
    assert inspector.get_table_names(schema="warehouse") == []
    columns = inspector.get_multi_columns(schema="warehouse", kind=ObjectKind.ANY)
    assert {name: [column["name"] for column in held] for (_, name), held in columns.items()} == {
        name: [column.name for column in relation.all_columns()] for name, relation in known.items()
    }
    kinds = {column["name"]: str(column["type"]) for column in columns["warehouse", "accuracy"]}
    assert kinds["window_end"] == "TIMESTAMP" and kinds["value"] == "DOUBLE PRECISION" and kinds["width_s"] == "JSON"
    for ask in ("pk_constraint", "foreign_keys", "indexes", "unique_constraints", "check_constraints", "table_comment"):
        getattr(inspector, f"get_{ask}")("accuracy", schema="warehouse")
    assert inspector.has_table("accuracy", schema="warehouse") and not inspector.has_table("x", schema="warehouse")
    table = sqlalchemy.Table("accuracy", sqlalchemy.MetaData(), schema="warehouse", autoload_with=engine)
    with engine.connect() as connection:
        assert len(connection.execute(sqlalchemy.select(table).where(table.c.query == "total")).fetchall()) == 6
    engine.dispose()


def test_the_catalogue_and_the_results_agree_on_types(door: Door, client: psycopg.Connection) -> None:
    for table in door.warehouse.tables():
        asked = "SELECT attname, atttypid FROM pg_attribute WHERE attrelid = %s::regclass ORDER BY attnum"
        declared = client.execute(asked, [f"warehouse.{table}"]).fetchall()
        described = client.execute(f'SELECT * FROM warehouse."{table}" LIMIT 0').description
        assert described is not None
        assert [(column.name, column.type_code) for column in described] == declared
