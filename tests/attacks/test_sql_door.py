"""The SQL door under attack: nothing is read, written or ended but what a client may."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest
from tests.attacks.sql_statements import all_statements, generated_statements, nested_statements
from tests.dbt.sensors import sensors
from tests.dbt.warehouse_rows import fill_warehouse
from tests.sql.door import START, Door

from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

TOKEN = "t0ken-of-a-stranger"
GENERATED = 1500
Ask = Callable[[psycopg.Connection, str], object]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    root = tmp_path_factory.mktemp("warehouse")
    fill_warehouse(Warehouse(root, sensors()), intervals_between(sensors(), START, START.replace(hour=13)))
    opened = Door(root, tmp_path_factory.mktemp("attacked"))
    (opened.outside / "secret.csv").write_text(f"a\n{TOKEN}\n")
    before = files(root, opened.outside)
    yield opened
    assert files(root, opened.outside) == before
    assert opened.close() == ""


def files(*folders: Path) -> dict[Path, tuple[int, bytes]]:
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for folder in folders
        for path in folder.rglob("*")
    }


def simple(client: psycopg.Connection, statement: str) -> object:
    """By the simple protocol, which takes several statements."""
    result = client.pgconn.exec_(statement.encode())
    return _answer(result)


def extended(client: psycopg.Connection, statement: str) -> object:
    """By Parse, Bind, Describe, Execute."""
    return _answer(client.pgconn.exec_params(statement.encode(), None))


def prepared(client: psycopg.Connection, statement: str) -> object:
    """By Parse and Describe alone, then by its name."""
    result = client.pgconn.prepare(b"", statement.encode())
    if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
        return _answer(result)
    return _answer(client.pgconn.exec_prepared(b"", None))


def _answer(result: psycopg.pq.abc.PGresult) -> object:
    """None if it was refused, else what was answered."""
    if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
        assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) not in (None, b"XX000"), result.error_message
        return None
    return [[result.get_value(row, n) for n in range(result.nfields)] for row in range(result.ntuples)] or "done"


def attack(door: Door, statements: Iterable[str], ask: Ask) -> list[str]:
    """The statements that were answered."""
    through = []
    at = {"outside": door.outside, "secret": door.outside / "secret.csv", "warehouse": door.warehouse.folder}
    client = door.connect()
    for written in statements:
        statement = written.format(**at)
        try:
            answer = ask(client, statement)
        except UnicodeEncodeError:
            continue
        if client.pgconn.status != psycopg.pq.ConnStatus.OK:
            through.append(f"lost the connection: {statement}")
            client = door.connect()
        elif answer is not None:
            through.append(f"{statement}: {answer!r:.200}")
        if client.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            client.execute("ROLLBACK")
    client.close()
    return through


@pytest.mark.parametrize("ask", [simple, extended, prepared])
def test_no_statement_of_the_list_succeeds(door: Door, ask: Ask) -> None:
    statements = all_statements()
    assert len(statements) > 200
    assert attack(door, statements, ask) == []


@pytest.mark.parametrize("ask", [simple, extended])
def test_none_succeeds_inside_another_statement(door: Door, ask: Ask) -> None:
    assert attack(door, nested_statements(), ask) == []


def test_none_of_a_generated_corpus_succeeds(door: Door) -> None:
    assert attack(door, generated_statements(18, GENERATED), simple) == []


def test_what_looks_like_an_attack_and_is_none_is_answered(door: Door) -> None:
    with door.connect() as client:
        for text in ("COPY x TO 'y'", "/etc/passwd", "'; DROP TABLE x; --", "\\'; SELECT 1", "$$x$$", "read_csv('x')"):
            assert client.execute("SELECT %s AS text", [text]).fetchall() == [(text,)]
            quoted = text.replace("'", "''")
            assert client.execute(f"SELECT '{quoted}' AS text").fetchall() == [(text,)]
        for harmless in (
            "SELECT $$ COPY x TO 'y'; $$ AS text",
            'WITH "read_csv" AS (SELECT 1 AS getenv) SELECT getenv FROM "read_csv"',
            "SELECT 1 AS copy /* COPY */ -- ATTACH",
            "SELECT count(*) FROM warehouse.accuracy WHERE query LIKE '%;%'",
        ):
            assert client.execute(harmless).fetchall()


def test_a_cte_does_not_open_a_way_to_a_file(door: Door) -> None:
    secret = door.outside / "secret.csv"
    name = f'"{secret}"'
    with door.connect() as client:
        for statement in (
            f"WITH {name} AS (SELECT 1 AS a) SELECT * FROM {name}",
            f"SELECT (WITH x AS (SELECT 1) SELECT 1), * FROM '{secret}'",
            f"SELECT * FROM (WITH x AS (SELECT 1 AS a) FROM x) CROSS JOIN {name}",
            "SELECT * FROM (WITH csv AS (SELECT 1 AS a) FROM csv), csv",
            f"WITH x AS (SELECT * FROM {name}), {name} AS (SELECT 1) SELECT * FROM x",
        ):
            with pytest.raises(psycopg.Error) as error:
                client.execute(statement)
            assert TOKEN not in str(error.value)


@pytest.mark.parametrize(
    "deep",
    [
        "SELECT " + "(" * 3000 + "1" + ")" * 3000,
        "SELECT " + "-" * 1 + "+".join(["1"] * 5000),
        "SELECT * FROM " + "(SELECT * FROM " * 800 + "x" + ")" * 800,
        " UNION ALL ".join(["SELECT 1"] * 3000),
        "SELECT " + "[" * 3000 + "]" * 3000,
        "WITH " + ", ".join(f"a{n} AS (SELECT * FROM a{n - 1})" for n in range(1, 2000)) + " SELECT 1",
        "SELECT '" + "x" * 10_000_000 + "'",
        "SELECT " + "CASE WHEN true THEN " * 2000 + "1" + " END" * 2000,
        ";" * 100_000,
        "SELECT" + " " * 1_000_000 + "1",
        "/*" * 5000,
        "\0\0\0",
    ],
    ids=map(str, range(12)),
)
def test_a_deep_or_long_statement_ends_at_most_its_own_client(door: Door, deep: str) -> None:
    with door.connect() as other:
        client = door.connect()
        client.pgconn.exec_(deep.partition("\0")[0].encode())
        client.close()
        assert other.execute("SELECT 1").fetchall() == [(1,)]


def test_garbage_on_the_socket_ends_nobody_but_its_sender(door: Door) -> None:
    random = Random(18)
    startup = struct.pack("!i", 196608) + b"user\0analyst\0database\0sensors\0\0"
    openings = [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack("!ii", 2**31 - 1, 196608),
        struct.pack("!ii", -1, 196608),
        struct.pack("!ii", 8, 80877103) * 3,
        struct.pack("!ii", 8, 80877102),
        struct.pack("!i", len(startup) + 4) + startup + b"p\0\0\0\x04",
        struct.pack("!i", len(startup) + 4) + startup + b"Q\0\0\0\x0dSELECT 1\0",
        struct.pack("!i", len(startup) + 4) + startup + b"p\0\0\0\x2aSCRAM-SHA-256\0\0\0\0\x10n,,n=x,r=,p=a,r=b",
        struct.pack("!i", len(startup) + 4) + startup + b"p\x7f\xff\xff\xff",
        *(random.randbytes(random.randrange(1, 400)) for _ in range(60)),
    ]
    for opening in openings:
        with socket.create_connection(("127.0.0.1", door.port), timeout=20) as stranger:
            stranger.sendall(opening)
            stranger.shutdown(socket.SHUT_WR)
            received = b""
            while piece := stranger.recv(4096):
                received += piece
            assert TOKEN.encode() not in received and b"SELECT" not in received
    with door.connect() as client:
        assert client.execute("SELECT 1").fetchall() == [(1,)]


def test_garbage_after_the_password_ends_nobody_but_its_sender(door: Door) -> None:
    random = Random(18)
    for kind in [b"Q", b"P", b"B", b"D", b"E", b"C", b"S", b"F", b"d", *(random.randbytes(1) for _ in range(6))]:
        client = door.connect()
        with socket.socket(fileno=os.dup(client.pgconn.socket)) as raw:
            raw.setblocking(True)
            raw.settimeout(20)
            content = random.randbytes(random.randrange(60))
            length = random.choice([len(content) + 4, random.randrange(-5, 1 << 31), 4])
            raw.sendall(kind + struct.pack("!i", max(-(2**31), length)) + content)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
        client.close()
    with door.connect() as client:
        assert client.execute("SELECT 1").fetchall() == [(1,)]
