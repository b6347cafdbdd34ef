"""Tables and marts behind the Thrift end point, asked by the JDBC client that Spark ships; and as views for DuckDB."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import launch_gateway
from tests.dbt.sensors import Published, sensors
from tests.dbt.warehouse_rows import fill_warehouse

from tidegate.apps.sql_door import HOST, serve
from tidegate.apps.sql_relations import duckdb_script, relations
from tidegate.declarations.errors import UserError
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

_SERVE = """
import sys
from pathlib import Path
from tests.dbt.sensors import sensors
from tidegate.apps.sql_door import serve
serve(sensors(), Path(sys.argv[1]), int(sys.argv[2]), lambda text: print(text, flush=True), look_every_s=0.5)
"""
_SEEN_WITHIN_S = 60.0


class Door:
    """An end point in a process of its own, and what a JDBC client gets from it."""

    def __init__(self, root: Path, scratch: Path, client: JavaGateway):
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = probe.getsockname()[1]
        environment = {**os.environ, "TMPDIR": str(scratch)}
        command = [sys.executable, "-c", _SERVE, str(root), str(self.port)]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "ready" in line:
                driver = client.jvm.java.sql.DriverManager
                self.connection = driver.getConnection(f"jdbc:hive2://{HOST}:{self.port}/tidegate", "analyst", "")
                return
        raise AssertionError("the end point did not start")

    def ask(self, statement: str) -> list[dict[str, str]]:
        """The rows of a statement; Py4JJavaError if it fails."""
        asked = self.connection.createStatement()
        try:
            if not asked.execute(statement):
                return []
            found = asked.getResultSet()
            names = [found.getMetaData().getColumnLabel(n + 1) for n in range(found.getMetaData().getColumnCount())]
            rows = []
            while found.next():
                rows.append({name: found.getString(n + 1) for n, name in enumerate(names)})
            return rows
        finally:
            asked.close()

    def told(self, statement: str, expected: list[dict[str, str]] | None = None) -> list[dict[str, str]]:
        """The rows of a statement once they are those expected, or once it has any; the end point looks twice a second."""
        deadline = time.monotonic() + _SEEN_WITHIN_S
        while True:
            try:
                rows = self.ask(statement)
            except Py4JJavaError:
                rows = []
            if (rows == expected if expected is not None else rows) or time.monotonic() > deadline:
                return rows
            time.sleep(0.2)


@pytest.fixture(scope="module")
def door(published: Published, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    scratch = tmp_path_factory.mktemp("scratch")
    client = launch_gateway()  # a JVM with Spark's jars, the Hive JDBC driver among them, and no Spark
    opened = Door(published.context.warehouse.root, scratch, client)
    yield opened
    opened.connection.close()
    client.shutdown()
    client.proc.stdin.close()
    opened.process.send_signal(signal.SIGTERM)
    said, _ = opened.process.communicate(timeout=60)
    assert "sql: stopped" in said
    assert opened.process.returncode == 0
    assert not list(scratch.iterdir())


def files(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*") if "_locks" not in path.parts}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_jdbc_client_gets_tables_marts_and_their_meanings(door: Door, published: Published) -> None:
    warehouse = published.context.warehouse
    assert {row["tableName"] for row in door.ask("show tables in warehouse")} == set(warehouse.tables())
    marts = {relation.name for relation in relations(warehouse) if relation.schema == "tidegate"}
    assert {row["tableName"] for row in door.ask("show tables in tidegate")} == marts
    counts = {q.id: warehouse.read_arrow(f"answers_{q.id}").num_rows for q in warehouse.pipeline.queries}
    answers = door.ask("select query, count(*) as answers from answers group by query order by query")
    assert answers == [{"query": query, "answers": str(counts[query])} for query in sorted(counts)]
    wide = "select count(*) as n, count(distinct `interval`) as intervals from answers_levels_by_sensor"
    assert door.ask(wide) == [{"n": str(counts["levels_by_sensor"]), "intervals": "3"}]
    meanings = {row["col_name"]: row["comment"] for row in door.ask("describe answers")}
    assert meanings["emitted_at"].startswith("The instant at which the answer was given")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("select nonsense from warehouse.accuracy", "Did you mean one of the following"),
        ("selec 1", "Syntax error at or near"),
        ("select cast(stream as int) from warehouse.stream_rates", "cannot be cast to"),
    ],
)
def test_a_mistake_is_answered_by_a_message_and_not_by_a_trace(door: Door, statement: str, says: str) -> None:
    with pytest.raises(Py4JJavaError) as error:
        door.ask(statement)
    message = error.value.java_exception.getMessage()
    assert says in message
    assert sum(line.startswith("\tat ") for line in message.splitlines()) <= 8, message


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_partitions_that_come_change_and_go_are_seen(door: Door, published: Published) -> None:
    warehouse = published.context.warehouse
    new = intervals_between(
        warehouse.pipeline, published.intervals[-1].end, published.intervals[-1].end.replace(hour=14)
    )
    count = "select count(*) as n from warehouse.stream_rates"
    before = warehouse.read_arrow("stream_rates").num_rows
    rates = warehouse.read_arrow("stream_rates", [published.intervals[0].label]).drop(["interval"])
    try:
        assert door.ask(count) == [{"n": str(before)}]
        with warehouse.commit("synthetic", new) as commit:
            commit.put_arrow("stream_rates", new[0], rates)
        more = [{"n": str(before + rates.num_rows)}]
        assert door.told(count, more) == more
        with warehouse.commit("synthetic", new) as commit:
            commit.put_arrow("stream_rates", new[0], pa.concat_tables([rates, rates]))
        assert door.ask(count) == [{"n": str(before + 2 * rates.num_rows)}]
    finally:
        shutil.rmtree(warehouse.partition("stream_rates", new[0].label))
    assert door.told(count, [{"n": str(before)}]) == [{"n": str(before)}]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_nothing_that_an_analyst_says_changes_a_file(door: Door, published: Published) -> None:
    root = published.context.warehouse.root
    folder = str(root / "sensors" / "accuracy").replace("'", "\\'")
    row = "select 'readings', timestamp '2013-02-08 10:00:00', 'a', 'b', 'c'"
    before = files(root)
    for attempt in (
        "insert into warehouse.accuracy select * from warehouse.accuracy",
        f"insert overwrite warehouse.quarantine {row}, '2013-02-08T10'",
        f"insert overwrite warehouse.quarantine partition (`interval` = '2013-02-08T10') {row}",
        "truncate table warehouse.accuracy",
        f"insert overwrite directory '{folder}' using parquet select 1 as x",
        "create table mine as select 1 as x",
    ):
        with pytest.raises(Py4JJavaError, match="FileCommitProtocol|CANNOT_TRUNCATE_EXTERNAL_TABLE"):
            door.ask(attempt)
    # What is dropped from the catalog is there again soon, for everybody.
    door.ask("drop table warehouse.accuracy")
    door.ask("drop schema tidegate cascade")
    assert door.told("select * from warehouse.accuracy") and door.told("select * from tidegate.answers")
    assert files(root) == before


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


def test_a_missing_warehouse_and_a_taken_port_are_the_users_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tables of pipeline sensors"):
        serve(sensors(), tmp_path, 10000)
    (tmp_path / "sensors").mkdir()
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(UserError, match="choose another with --port"):
            serve(sensors(), tmp_path, taken.getsockname()[1])
    with pytest.raises(UserError, match="70000 is not a port"):
        serve(sensors(), tmp_path, 70000)
