"""Which statements reach Spark, and when: a stand-in for the session keeps what it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.stages.dbt_statements import Counted, SourceTable, Statements

_VIEW = """/* {"node_id": "model.tidegate.stg_levels"} */
create or replace view tidegate.stg_levels
  as
    select `level`, `interval`
from warehouse.levels
"""


class Session:
    """Answers with the statement."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def sql(self, statement: str) -> Any:
        self.sent.append(statement)
        return statement


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def statements(session: Session, tmp_path: Path) -> Statements:
    """Two tables, one with a file, and a view that was created over it."""
    file = tmp_path / "levels" / "interval=2013-02-08T10" / "part.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"level": [1.0, 2.0, None]}), file)
    found = Statements(session, tmp_path / "it's linked", built=tmp_path / "built")  # type: ignore[arg-type]
    own = SourceTable(
        "levels", {"level": "double"}, str(tmp_path / "levels"), [str(file.relative_to(tmp_path / "levels"))]
    )
    found.attach("warehouse", [own, SourceTable("empty", {"level": "double"}, str(tmp_path / "empty"), [])])
    found.sql(_VIEW)
    session.sent.clear()
    return found


def asked(condition: str, relation: str = "tidegate.stg_levels") -> str:
    return f'/* {{"node_id": "test.tidegate.x"}} */\nselect count(*) as failures from {relation} where {condition}'


def test_a_view_and_its_table_are_made_once_when_they_are_named(session: Session, statements: Statements) -> None:
    statements.sql("select * from tidegate.stg_levels")
    statements.sql("select `level` from `tidegate`.`stg_levels`")
    made = [statement.split("*/")[-1].split()[:4] for statement in session.sent]
    assert [words[0] for words in made] == ["create", "create", "select", "select"]
    assert made[0] == ["create", "table", "warehouse.levels", "(`level`"]


def test_who_lists_the_catalog_finds_everything(session: Session, statements: Statements) -> None:
    statements.make_all()
    assert [s for s in session.sent if "create table warehouse.empty" in s]
    assert _VIEW in session.sent


def test_a_test_is_counted_without_spark(session: Session, statements: Statements) -> None:
    found = statements.sql(asked("`level` > 1"))
    assert isinstance(found, Counted)
    assert (found.names, found.rows) == (("failures",), ((1,),))
    assert statements.sql(asked("true", "warehouse.empty")).rows == ((0,),)
    assert session.sent == []


def test_a_test_sees_the_tables_that_were_built(session: Session, statements: Statements, tmp_path: Path) -> None:
    folder = tmp_path / "built" / "mart"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"interval": ["2013-02-08T10"]}), folder / "part-0.parquet")
    assert statements.sql(asked("`interval` is not null", "tidegate.mart")).rows == ((1,),)
    assert session.sent == []


def test_of_many_small_files_one_is_made(session: Session, statements: Statements, tmp_path: Path) -> None:
    folder, levels = tmp_path / "many", [None, *map(float, range(99))]
    for hour, level in enumerate(levels):
        file = folder / f"interval=2013-02-{hour // 24 + 1:02d}T{hour % 24:02d}" / "part.parquet"
        file.parent.mkdir(parents=True)
        # The first was written before the column was declared.
        pq.write_table(pa.table({"level": [level]} if hour else {"other": [1]}), file)
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*.parquet"))
    table = SourceTable("many", {"level": "double"}, str(folder), files, str(tmp_path / "gathered"))
    table.gather()
    statements.attach("warehouse", [table])
    assert statements.sql(asked("true", "warehouse.many")).rows == ((100,),)
    assert statements.sql(asked("`level` is null and `interval` = '2013-02-01T00'", "warehouse.many")).rows == ((1,),)
    assert statements.sql(asked("`level` = 23 and `interval` = '2013-02-02T00'", "warehouse.many")).rows == ((1,),)
    statements.sql("select * from warehouse.many")
    (made,) = [statement for statement in session.sent if "create table warehouse.many" in statement]
    assert "(`level` double, `interval` string) using parquet location" in made


def test_files_that_a_table_gets_are_gathered_beside_those_that_it_had(statements: Statements, tmp_path: Path) -> None:
    folder = tmp_path / "many" / "interval=2013-02-01T00"
    folder.mkdir(parents=True)
    for number in range(6):
        pq.write_table(pa.table({"level": [float(number)]}), folder / f"part-{number}.parquet")
    files = [f"{folder.name}/part-{number}.parquet" for number in range(6)]

    def rows(chosen: list[str], there: Sequence[str]) -> list[float]:
        table = SourceTable("many", {"level": "double"}, str(folder.parent), chosen, str(tmp_path / "gathered"))
        table.gather(there)
        return sorted(pq.read_table(tmp_path / "gathered").column("level").to_pylist())

    assert rows(files[:3], ()) == [0, 1, 2]
    assert rows(files[:5], files[:3]) == [0, 1, 2, 3, 4]
    assert rows([*files[:3], files[5]], files[:3]) == [0, 1, 2, 5], "what another time has added is gone"
    assert rows(files[:3], files[:3]) == [0, 1, 2]
    assert rows(files[1:4], files[:3]) == [1, 2, 3], "the first has been replaced"


@pytest.mark.parametrize("condition", ["no_such_column > 1", "no_such_function(`level`)", "inline(1"])
def test_what_duckdb_does_not_understand_is_sparks(session: Session, statements: Statements, condition: str) -> None:
    assert statements.sql(asked(condition)) == asked(condition)  # type: ignore[comparison-overlap]
    assert session.sent[-1] == asked(condition)
    assert statements.tests_on_spark == 1


def test_a_view_that_is_created_again_is_the_new_one(session: Session, statements: Statements) -> None:
    assert statements.sql(asked("true")).rows == ((3,),)
    statements.sql(_VIEW.replace("from warehouse.levels", "from warehouse.levels where `level` > 1"))
    assert statements.sql(asked("true")).rows == ((1,),)


def test_without_a_folder_of_built_tables_tests_run_on_spark(session: Session, tmp_path: Path) -> None:
    statements = Statements(session, tmp_path / "linked")  # type: ignore[arg-type]
    assert statements.sql(asked("true")) == asked("true")  # type: ignore[comparison-overlap]
