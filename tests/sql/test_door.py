"""What clients get: rows as DuckDB reads them, in both protocols and both forms, of what is committed now."""

from __future__ import annotations

import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import pandas as pd
import psycopg
import psycopg2
import pyarrow as pa
import pytest
import sqlalchemy
from tests.command import ROOT, tidegate
from tests.dbt.sensors import sensors
from tests.sql.door import Door

from tidegate.declarations.errors import UserError
from tidegate.sql.door import serve
from tidegate.sql.engine import Limits
from tidegate.sql.relations import duckdb_script
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

ONE_OF_EACH = """
SELECT true, 7::smallint, -8, 9000000000, 1.5::double, 2.25::real, 12345.678::decimal(9,3), -0.05::decimal(5,2),
       'it''s "x" \\ ü', DATE '2013-02-08', TIMESTAMPTZ '2013-02-08 10:00:00.000001+00',
       TIMESTAMP '1969-12-31 23:59:59.5', TIME '12:30:00.25', '6f1c0e9a-8a8e-4f0b-9a0e-0123456789ab'::uuid,
       [1, NULL, 3], ['a', 'b "c"'], NULL::integer,
       {'a': 1, 'b': [1.5, 1]}, MAP {'r': 0.5::double}, '\\x01ff'::blob
"""
ONE_OF_EACH_IN_PYTHON = (
    *(True, 7, -8, 9_000_000_000, 1.5, 2.25, Decimal("12345.678"), Decimal("-0.05"), 'it\'s "x" \\ ü'),
    *(date(2013, 2, 8), datetime(2013, 2, 8, 10, 0, 0, 1, tzinfo=UTC), datetime.fromisoformat("1969-12-31T23:59:59.5")),
    *(pd.Timestamp("12:30:00.25").time(), UUID("6f1c0e9a-8a8e-4f0b-9a0e-0123456789ab"), [1, None, 3], ["a", 'b "c"']),
    *(None, {"a": 1, "b": [1.5, 1]}, {"r": 0.5}),
)


@pytest.mark.parametrize("binary", [False, True])
def test_values_of_every_type_arrive_as_they_are(client: psycopg.Connection, binary: bool) -> None:
    found = client.cursor(binary=binary).execute(ONE_OF_EACH).fetchone()
    assert found is not None
    assert found[:-1] == ONE_OF_EACH_IN_PYTHON
    assert bytes(found[-1]) == b"\x01ff"


@pytest.mark.parametrize("binary", [False, True])
def test_every_relation_has_the_rows_that_duckdb_reads_from_its_files(door: Door, binary: bool) -> None:
    with duckdb.connect() as direct, door.connect() as client:
        direct.execute("SET TimeZone = 'UTC'")
        direct.execute(duckdb_script(door.warehouse))
        for table in door.warehouse.tables():
            asked = f'SELECT * FROM warehouse."{table}" ORDER BY ALL'
            expected = direct.execute(asked).fetchall()
            assert [tuple(map(_plain, row)) for row in client.cursor(binary=binary).execute(asked)] == [
                tuple(map(_plain, row)) for row in expected
            ], table
            assert expected, table


def _plain(value: object) -> object:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.mark.parametrize(
    "given",
    [5, -70_000, 9_000_000_000, 2.5, True, "it's; -- $1", date(2013, 2, 8), datetime(2013, 2, 8, 10, tzinfo=UTC)]
    + [Decimal("1.25"), UUID("6f1c0e9a-8a8e-4f0b-9a0e-0123456789ab"), [1, 2]],
)
def test_parameters_come_back_as_they_went(client: psycopg.Connection, given: object) -> None:
    for form in ("%s", "%b", "%t"):
        found = client.execute(f"SELECT {form} AS given", [given]).fetchone()
        assert found is not None
        kept = found[0]
        assert str(kept) == str(given) or kept == given


def test_a_list_of_texts_is_a_list(client: psycopg.Connection) -> None:
    given = ["a", 'b,"c" \\ NULL', "NULL", ""]
    assert client.execute("SELECT %s::text[]", [given]).fetchall() == [(given,)]


def test_a_parameter_is_compared_as_what_it_is_compared_with(client: psycopg.Connection) -> None:
    asked = "SELECT DISTINCT query FROM warehouse.accuracy WHERE query = ANY(%s) AND window_end > %s AND value >= %s"
    assert client.execute(asked, [["total", "nothing"], "2013-02-08", 0]).fetchall() == [("total",)]


def test_a_prepared_statement_is_asked_again_and_in_parts(door: Door) -> None:
    with psycopg.connect(door.address(), autocommit=True, prepare_threshold=0) as client:
        for query in ("total", "highest", "total"):
            rows = client.execute("SELECT count(*) FROM warehouse.accuracy WHERE query = %s", [query]).fetchall()
            assert rows == [(6,)]
        with client.cursor() as cursor:
            assert len(list(cursor.stream("SELECT * FROM warehouse.accuracy"))) == 24


def test_psycopg2_sqlalchemy_and_pandas_read(door: Door) -> None:
    with closing(psycopg2.connect(door.address())) as client, client.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM warehouse.accuracy WHERE query = %s", ["total"])
        assert cursor.fetchall() == [(6,)]
        assert client.encoding == "UTF8"
    for driver in ("postgresql+psycopg2", "postgresql+psycopg"):
        engine = sqlalchemy.create_engine(door.address(driver))
        frame = pd.read_sql("SELECT query, value, window_end FROM warehouse.accuracy", engine)
        assert len(frame) == 24 and frame.value.dtype == float
        engine.dispose()


def test_rows_that_are_committed_are_seen_by_the_next_statement(door: Door, client: psycopg.Connection) -> None:
    warehouse = door.warehouse
    start = datetime(2013, 2, 8, 13, tzinfo=UTC)
    new = intervals_between(sensors(), start, start.replace(hour=14))
    count = "SELECT count(*) FROM warehouse.stream_rates"
    rates = warehouse.read_arrow("stream_rates", ["2013-02-08T10"]).drop(["interval"])
    before = client.execute(count).fetchall()[0][0]
    try:
        for rows in (rates, pa.concat_tables([rates, rates])):
            with warehouse.commit("synthetic", new) as commit:
                commit.put_arrow("stream_rates", new[0], rows)
            assert client.execute(count).fetchall() == [(before + rows.num_rows,)]
    finally:
        with warehouse.commit("synthetic", new) as commit:
            commit.put_arrow("stream_rates", new[0], rates.slice(0, 0))
    assert client.execute(count).fetchall() == [(before,)]


def test_what_clients_set_and_show_is_their_own(door: Door) -> None:
    with door.connect() as one, door.connect() as other:
        one.execute("SET search_path TO warehouse")
        one.execute("SET application_name = 'notebook'")
        assert one.execute("SELECT count(*), current_schema() FROM accuracy").fetchall() == [(24, "warehouse")]
        assert one.execute("SHOW application_name").fetchall() == [("notebook",)]
        assert other.execute("SHOW application_name").fetchall() == [("",)]
        assert other.execute("SHOW TimeZone").fetchall() == [("UTC",)]
        one.execute("SET TimeZone = 'Europe/Berlin'")
        assert one.execute("SHOW TimeZone").fetchall() == [("UTC",)]
        one.execute("RESET ALL")
        assert one.execute("SHOW search_path").fetchall() == [("tidegate, warehouse",)]


def test_a_transaction_that_failed_is_over_only_when_it_is_rolled_back(door: Door) -> None:
    with psycopg.connect(door.address()) as client:
        with pytest.raises(psycopg.errors.UndefinedTable, match='relation "nonsense" does not exist'):
            client.execute("SELECT * FROM nonsense")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            client.execute("SELECT 1")
        client.rollback()
        assert client.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("statement", "code", "says"),
    [
        ("SELECT nonsense FROM warehouse.accuracy", "42P10", 'Referenced column "nonsense" not found'),
        ("SELEC 1", "42601", "syntax error"),
        ("SELECT 'x'::int", "22P02", "Could not convert string 'x' to INT32"),
        ("SELECT (", "42601", "syntax error"),
        ("SELECT 'open", "42601", "unterminated string literal"),
        ("SHOW nonsense", "42704", "unrecognized configuration parameter"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(
    door: Door, client: psycopg.Connection, statement: str, code: str, says: str
) -> None:
    with pytest.raises(psycopg.Error) as error:
        client.execute(statement)
    assert error.value.sqlstate == code
    assert says in str(error.value)
    assert str(door.root) not in str(error.value)


def test_describe_show_and_explain_answer(client: psycopg.Connection) -> None:
    columns = [row[0] for row in client.execute("DESCRIBE warehouse.slack_plan").fetchall()]
    assert columns[0] == "query" and columns[-1] == "interval"
    assert ("warehouse", "accuracy") in client.execute("SHOW TABLES").fetchall()
    assert "PARQUET" in str(client.execute("EXPLAIN SELECT * FROM warehouse.accuracy").fetchall())
    assert "Time" in str(client.execute("EXPLAIN ANALYZE SELECT * FROM warehouse.accuracy").fetchall())


# ---------------------------------------------------------------- who gets in


@pytest.mark.parametrize(
    ("user", "password"),
    [("analyst", "wrong"), ("analyst", ""), ("postgres", None), ("", None), ("root", ""), ("analyst\N{SNOWMAN}", None)],
)
def test_only_the_user_with_the_password_gets_in(door: Door, user: str, password: str | None) -> None:
    chosen = door.password if password is None else password
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(host="127.0.0.1", port=door.port, dbname="sensors", user=user or "x", password=chosen or "-")


def test_the_password_is_generated_once_and_is_its_owners_alone(door: Door, tmp_path: Path) -> None:
    assert stat.S_IMODE(door.password_file.stat().st_mode) == 0o600
    assert len(door.password) >= 24
    assert door.password not in "".join(door.said)
    (tmp_path / "sensors").mkdir()
    loose = tmp_path / "loose"
    loose.write_text("secret")
    loose.chmod(0o644)
    with pytest.raises(UserError, match="may be read by others: chmod 600"):
        serve(Warehouse(tmp_path, sensors()), port=0, password_file=loose)
    loose.chmod(0o600)
    loose.write_text("\n")
    with pytest.raises(UserError, match="is empty"):
        serve(Warehouse(tmp_path, sensors()), port=0, password_file=loose)


def test_a_missing_warehouse_and_a_taken_port_are_the_users_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no tables of pipeline sensors"):
        serve(Warehouse(tmp_path, sensors()))
    (tmp_path / "sensors").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="choose another with --port"):
        serve(Warehouse(tmp_path, sensors()), port=taken.getsockname()[1])
    with pytest.raises(UserError, match="70000 is not a port"):
        serve(Warehouse(tmp_path, sensors()), port=70000)


def test_the_command_opens_the_door(tmp_path: Path) -> None:
    assert tidegate("init", tmp_path / "shop").status == 0
    (tmp_path / "warehouse" / "shop").mkdir(parents=True)
    command = [sys.executable, "-m", "tidegate.cli", "sql", str(tmp_path / "shop")]
    command += ["--warehouse", str(tmp_path / "warehouse"), "--port", "0"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = next(line for line in process.stdout if "ready at" in line)
            file = tmp_path / "state" / "tidegate" / "shop.sql-password"
            assert str(file) in said
            address = said.split("ready at ")[1].split(",")[0]
            with psycopg.connect(address, password=file.read_text().strip()) as client:
                assert client.execute("SELECT * FROM warehouse.accuracy").fetchall() == []
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == 0


# ---------------------------------------------------------------- limits


@pytest.fixture(scope="module")
def narrow(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    limits = Limits(seconds=2.0, rows=1000, memory_bytes=64 << 20, clients=3)
    opened = Door(door.root, tmp_path_factory.mktemp("narrow"), limits)
    yield opened
    opened.close()


ENDLESS = "SELECT max(hash(range)) FROM range(100000000000000)"


def test_a_statement_that_takes_too_long_is_ended(narrow: Door) -> None:
    with narrow.connect() as client:
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            client.execute(ENDLESS)
        assert client.execute("SELECT 1").fetchall() == [(1,)]
        client.execute("SET statement_timeout = '100ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute(ENDLESS)


def test_a_result_that_is_too_long_is_refused_and_one_that_is_not_arrives_whole(narrow: Door) -> None:
    with narrow.connect() as client:
        assert len(client.execute("SELECT * FROM range(1000)").fetchall()) == 1000
        for most in ("1001", "1000000000000"):
            with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="more than 1,000 rows"):
                client.execute(f"SELECT * FROM range({most})").fetchall()


@pytest.mark.parametrize(
    "greedy",
    [
        "SELECT repeat('x', 3000000000)",
        "SELECT list(range) FROM range(1000000000)",
        "SELECT string_agg(repeat('x', 1000), '') FROM range(100000000)",
        "SELECT * FROM range(100000000) ORDER BY hash(range)",
        "SELECT range(2000000000)",
        "SELECT lpad('x', 2000000000, 'y') || lpad('x', 2000000000, 'y')",
        "WITH RECURSIVE r(x) AS (SELECT 'x' UNION ALL SELECT x || x FROM r) SELECT max(length(x)) FROM r",
    ],
)
def test_a_statement_that_wants_too_much_memory_ends_itself_alone(narrow: Door, greedy: str) -> None:
    with narrow.connect() as other, narrow.connect() as client:
        with pytest.raises(psycopg.Error):
            client.execute(greedy).fetchall()
        assert other.execute("SELECT 1").fetchall() == [(1,)]


def test_a_client_too_many_is_told_so_and_a_place_is_free_again(narrow: Door) -> None:
    held = []
    try:
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            for _ in range(10):
                held.append(narrow.connect())
        assert len(held) == 3
    finally:
        for client in held:
            client.close()
    for _ in range(100):
        try:
            narrow.connect().close()
            return
        except psycopg.OperationalError:
            threading.Event().wait(0.1)
    raise AssertionError("no place became free")


def test_a_client_cancels_its_own_statement_and_nobody_elses(door: Door) -> None:
    with door.connect() as client, door.connect() as other:
        threading.Timer(0.5, client.cancel).start()
        with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
            client.execute(ENDLESS)
        assert client.execute("SELECT 1").fetchall() == [(1,)]
        # A request with the right process and another key does nothing.
        with socket.create_connection(("127.0.0.1", door.port)) as stranger:
            stranger.sendall(struct.pack("!iiii", 16, 80877102, other.info.backend_pid, 12345))
            assert stranger.recv(100) == b""
        assert other.execute("SELECT count(*) FROM range(1000000)").fetchall() == [(1_000_000,)]


def test_several_clients_ask_at_once(door: Door) -> None:
    answers: list[list[tuple[int]]] = []

    def ask() -> None:
        with door.connect() as client:
            answers.append(client.execute("SELECT sum(range) FROM range(3000000)").fetchall())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[(4_499_998_500_000,)]] * 8
