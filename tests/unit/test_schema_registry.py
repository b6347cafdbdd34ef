"""Schemas by their numbers, from a registry that is there, away, or not what it should be: a server of HTTP's own."""

from __future__ import annotations

import base64
import io
import json
import pickle
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.property.landed import KAFKA, arrivals_judged, from_kafka, judged, kafka_rows, us
from tests.property.test_judge_laws import HOUR_US
from tests.property.test_message_laws import stream_of

from tidegate.declarations.errors import UserError
from tidegate.sources.files import SourceFile
from tidegate.sources.formats.messages import arrivals
from tidegate.sources.registry import Schemas

TEXTS = [{"name": "id", "type": "string"}, {"name": "at", "type": "string"}]
OLD = {"type": "record", "name": "Order", "fields": TEXTS}
MONEY = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
NEW = {**OLD, "fields": [*TEXTS, {"name": "price", "type": "shop.Money"}, {"name": "note", "type": "string"}]}
FILE = SourceFile(Path("landed"), 1, HOUR_US, None, None, identity="landed")
AT = "2024-03-01T10:00:00Z"


@dataclass
class Registry:
    """Answers by path; each status and each delay is for one request. ``asked``: the paths; ``logins``: what they came
    with.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    login: str | None = None
    url: str = ""

    def answer(self, path: str, login: str | None) -> tuple[int, Any]:
        self.asked.append(path)
        self.logins.append(login)
        if self.delays_s:
            time.sleep(self.delays_s.pop(0))
        if self.statuses:
            return self.statuses.pop(0), {"error_code": 1}
        if self.login is not None and login != "Basic " + base64.b64encode(self.login.encode()).decode():
            return 401, {"error_code": 401}
        return (200, self.answers[path]) if path in self.answers else (404, {"error_code": 40403})


@pytest.fixture
def registry() -> Iterator[Registry]:
    known = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Whoever asked may have gone meanwhile.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.give()

        def give(self) -> None:
            status, answer = known.answer(self.path, self.headers.get("Authorization"))
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{known.url}/elsewhere")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.url = f"http://127.0.0.1:{server.server_port}"
    known.answers["/schemas/ids/1"] = {"schema": json.dumps(OLD)}
    known.answers["/schemas/ids/2"] = {
        "schema": json.dumps(NEW),
        "references": [{"name": "shop.Money", "subject": "money/eur", "version": 3}],
    }
    known.answers["/subjects/money%2Feur/versions/3"] = {"schema": json.dumps(MONEY), "id": 9}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield known
    server.shutdown()
    server.server_close()
    thread.join()


def schemas(registry: Registry, folder: Path, url: str = "") -> Schemas:
    return Schemas(url or registry.url, folder / "_schemas", timeout_s=2, pause_s=0.01)


def framed(number: int, record: dict[str, Any]) -> bytes:
    """A value as Confluent's serializers write it."""
    known: dict[str, Any] = {}
    fastavro.parse_schema(MONEY, named_schemas=known)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(OLD if number == 1 else NEW, named_schemas=known), record)
    return struct.pack(">bI", 0, number) + out.getvalue()


def old(name: str) -> bytes:
    return framed(1, {"id": name, "at": AT})


def new(name: str, cents: int = 5) -> bytes:
    return framed(2, {"id": name, "at": AT, "price": {"cents": cents}, "note": "n"})


STREAM = from_kafka(
    stream_of("avro", id="string", at="timestamp", cents="integer"),
    KAFKA.model_copy(update={"registry": "http://registry"}),
)
STREAM = STREAM.model_copy(
    update={"columns": (*STREAM.columns[:2], STREAM.columns[2].model_copy(update={"path": ("price", "cents")}))}
)


def test_each_value_is_read_by_the_schema_that_it_was_written_by(registry: Registry, tmp_path: Path) -> None:
    values = [old("a"), new("b"), None, old("c"), new("d", 7)]
    outcome = judged(STREAM, FILE, kafka_rows(values), True, schemas(registry, tmp_path))
    tuples, refused = outcome
    assert [(row[0], row[-4], row[-3]) for row in tuples] == [
        ("'a'", "None", ()),
        ("'b'", "5", ("note",)),
        ("'c'", "None", ()),
        ("'d'", "7", ("note",)),
    ]
    assert [row[2:] for row in refused] == [("missing_value", "id", HOUR_US, "null")]
    assert judged(STREAM, FILE, kafka_rows(values), False, schemas(registry, tmp_path)) == outcome
    timed = STREAM.model_copy(update={"arrival_time": "at"})
    rows, own = kafka_rows(values), schemas(registry, tmp_path)
    assert us(arrivals(timed, rows, own)) == arrivals_judged(timed, FILE, rows, own)


def test_a_schema_is_asked_for_once_and_then_read_from_the_warehouse(registry: Registry, tmp_path: Path) -> None:
    rows = kafka_rows([old("a"), new("b")])
    first = judged(STREAM, FILE, rows, True, schemas(registry, tmp_path))
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2", "/subjects/money%2Feur/versions/3"]
    assert sorted(path.name for path in (tmp_path / "_schemas").iterdir()) == ["1.avsc", "2.avsc"]
    registry.answers.clear()
    assert judged(STREAM, FILE, rows, True, schemas(registry, tmp_path)) == first and len(registry.asked) == 3


@pytest.mark.parametrize(
    "value", [b"", b"\0\0\0", b"\1" + old("a")[1:], old("a")[:-1], old("a") + b"x", b'{"id": "a"}']
)
def test_a_value_that_is_no_framed_record_is_refused_alone(registry: Registry, tmp_path: Path, value: bytes) -> None:
    tuples, refused = judged(STREAM, FILE, kafka_rows([old("a"), value, old("b")]), True, schemas(registry, tmp_path))
    assert len(tuples) == 2 and [row[2] for row in refused] == ["broken_record"]
    assert refused[0][5].isprintable()


def refusal(registry: Registry, folder: Path, url: str = "", number: int = 1) -> str:
    with pytest.raises(UserError) as caught:
        schemas(registry, folder, url).schema(number)
    return str(caught.value)


def test_a_registry_that_is_away_for_a_moment_is_asked_again(registry: Registry, tmp_path: Path) -> None:
    registry.statuses = [503, 500, 429]
    assert schemas(registry, tmp_path).schema(1)["name"] == "Order" and len(registry.asked) == 4


@pytest.mark.parametrize(
    ("statuses", "number", "told"),
    [
        ([500] * 9, 1, "answers with status 500; nothing was judged: run the interval again when it is there"),
        ([403], 1, "refuses: it answers with status 403; a login is written https://${USER}:${PASSWORD}@…"),
        ([302], 1, "answers with status 302"),
        ([], 7, "has no schema 7, which a record names"),
        ([], 3, "schema 3 of the schema registry {url} is of PROTOBUF: format: avro does not read it"),
        ([], 4, "is no schema registry: it answers something else"),
        ([], 5, "is no schema registry: it answers something else"),
        ([], 6, "has as schema 6 is no schema of Avro: "),
    ],
)
def test_what_the_registry_does_not_give_is_the_machines_fault(
    registry: Registry, tmp_path: Path, statuses: list[int], number: int, told: str
) -> None:
    registry.statuses = list(statuses)
    registry.answers["/schemas/ids/3"] = {"schema": "syntax = ...", "schemaType": "PROTOBUF"}
    registry.answers["/schemas/ids/4"] = b"<html>"
    registry.answers["/schemas/ids/5"] = ["schema"]
    registry.answers["/schemas/ids/6"] = {"schema": '{"type": "record"}'}
    assert told.replace("{url}", registry.url) in refusal(registry, tmp_path, number=number)
    value = struct.pack(">bI", 0, number) + b"\2a"
    registry.statuses = list(statuses)
    with pytest.raises(UserError):
        judged(STREAM, FILE, kafka_rows([value]), True, schemas(registry, tmp_path))


def test_a_registry_that_nobody_answers_for_is_a_sentence(registry: Registry, tmp_path: Path) -> None:
    away = refusal(registry, tmp_path, "http://127.0.0.1:1")
    assert away.startswith("the schema registry http://127.0.0.1:1 cannot be reached: Connection refused; ")


def test_a_registry_that_is_slow_is_asked_again_and_not_for_ever(registry: Registry, tmp_path: Path) -> None:
    registry.delays_s = [0.6, 0.6]
    slow = replace(schemas(registry, tmp_path), timeout_s=0.3)
    assert slow.schema(1)["name"] == "Order" and len(registry.asked) == 3
    registry.delays_s = [0.6] * 4
    with pytest.raises(UserError, match="cannot be reached: timed out; nothing was judged: run the interval again"):
        slow.schema(2)
    assert len(registry.asked) == 7 and registry.delays_s == []


def test_a_login_goes_into_the_request_and_nowhere_else(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = registry.url.removeprefix("http://")
    registry.login = "shop:p@ss/w:rd"
    monkeypatch.setenv("REGISTRY_USER", "shop")
    monkeypatch.setenv("REGISTRY_PASSWORD", "p@ss/w:rd")
    url = f"http://${{REGISTRY_USER}}:${{REGISTRY_PASSWORD}}@{host}"
    own = schemas(registry, tmp_path, url)
    assert own.schema(1)["name"] == "Order"
    assert b"p@ss" not in pickle.dumps(own) and "p@ss" not in repr(own)
    monkeypatch.setenv("REGISTRY_PASSWORD", "wr0ng")
    said = refusal(registry, tmp_path, url, number=2)
    assert said == f"the schema registry {registry.url} refuses: it answers with status 401"
    monkeypatch.delenv("REGISTRY_PASSWORD")
    assert "the environment variable REGISTRY_PASSWORD is not set" in refusal(registry, tmp_path, url, number=2)


def test_the_whole_url_may_be_a_variable_with_a_login_in_it(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.login = "shop:secret"
    monkeypatch.setenv("REGISTRY", registry.url.replace("http://", "http://shop:secret@"))
    assert schemas(registry, tmp_path, "${REGISTRY}").schema(1)["name"] == "Order"
    assert "secret" not in refusal(registry, tmp_path, "${REGISTRY}", number=7)
