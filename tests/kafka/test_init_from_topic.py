"""What `tidegate init --from kafka://…` proposes for a stranger's topic, and what it refuses."""

from __future__ import annotations

import json
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kafka.topics import Record, Topics

from tidegate.cli import _parser, main
from tidegate.cli.init_from import init_from
from tidegate.declarations import load_pipeline
from tidegate.declarations.models import KafkaSource
from tidegate.examples.broker import Broker

START_MS = 1_767_600_000_000  # 2026-01-05 08:00 UTC


def order(number: int, **fields: object) -> dict[str, object]:
    """One order, five seconds after the one before it."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START_MS / 1000 + 5 * number))
    return {"order_id": f"o-{number:06d}", "placed_at": at, "price": number % 50 + 0.5, **fields}


def record(number: int, **fields: object) -> Record:
    """An order as a record with key, header and a timestamp two seconds after it was placed."""
    value = json.dumps(order(number, **fields)).encode()
    place = f"c{number % 7}".encode()
    return Record(value, place, (("region", b"north" if number % 3 else b"south"),), timestamp_ms=stamp(number))


def stamp(number: int) -> int:
    """When an order reached Kafka."""
    return START_MS + 5000 * number + 2000


def url(broker: Broker, topic: str) -> str:
    """A topic as ``--from`` names it."""
    return f"kafka://{broker.servers}/{topic}"


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_topic_is_proposed_as_a_file_is(
    partitions: int,
    broker: Broker,
    topics: Topics,
    topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = topic(partitions)
    topics.send(name, [record(n) for n in range(2000)])
    assert main(["init", str(tmp_path / "mine"), "--from", url(broker, name)]) == 0
    said = capsys.readouterr().out
    pipeline = load_pipeline(tmp_path / "mine")
    (stream,) = pipeline.streams
    assert isinstance(stream.source, KafkaSource)
    assert (stream.source.servers, stream.source.topic, stream.format) == (broker.servers, name, "jsonl")
    types = {column.name: column.type for column in stream.columns}
    assert types == {"order_id": "string", "placed_at": "timestamp", "price": "decimal(10,2)"}
    assert (stream.event_time, stream.arrival_time, stream.arrival_stamp) == ("placed_at", None, "broker")
    assert stream.id == ("order_id",) and 0.19 < stream.rate < 0.22
    text = (tmp_path / "mine" / "pipeline.yml").read_text()
    assert "# key: {type: string, from: '$key'}" in text and "# region: {type: string, from: '$headers.region'}" in text
    arguments = _parser().parse_args(shlex.split(said.splitlines()[-1])[1:])
    assert arguments.start <= pipeline.start and arguments.stage == ["answers"]
    assert len(pipeline.queries) == 1


def test_keys_and_headers_offered_as_comments_are_columns_when_they_are_uncommented(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    topics.send(name, [record(n) for n in range(50)])
    init_from(tmp_path / "mine", [url(broker, name)])
    file = tmp_path / "mine" / "pipeline.yml"
    file.write_text(file.read_text().replace("# key:", "key:").replace("# region:", "region:"))
    parts = {column.name: column.part for column in load_pipeline(tmp_path / "mine").streams[0].columns}
    assert parts["key"] == "key" and parts["region"] == "headers" and parts["price"] == "value"


def test_the_first_and_the_newest_records_of_a_large_topic_are_read(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(2)
    topics.send(
        name, [record(n, **({"old": n} if n < 500 else {"new": n} if n > 19_500 else {})) for n in range(20_000)]
    )
    began = time.monotonic()
    init_from(tmp_path / "mine", [url(broker, name)])
    assert time.monotonic() - began < 30
    pipeline = load_pipeline(tmp_path / "mine")
    (stream,) = pipeline.streams
    assert {"old", "new"} <= {column.name for column in stream.columns}
    assert pipeline.start.timestamp() * 1000 <= START_MS + 2000 and 0.19 < stream.rate < 0.22
    assert "of about 20,000 in 2 partitions" in (tmp_path / "mine" / "pipeline.yml").read_text()


def test_what_comes_now_is_run_up_to_the_last_interval_that_ended(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    topics.send(name, [record(n) for n in range(2000)])
    now_s = stamp(2000) / 1000
    said = init_from(tmp_path / "mine", [url(broker, name)], now_s)
    pipeline = load_pipeline(tmp_path / "mine")
    arguments = _parser().parse_args(shlex.split(said.splitlines()[-1])[1:])
    assert now_s - pipeline.interval_s < arguments.end.timestamp() <= now_s


def test_aborted_records_tombstones_and_broken_values_are_no_columns(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    topics.transaction(name, [record(n) for n in range(40)], commit=True, by="init")
    topics.transaction(name, [record(n, ghost=1) for n in range(40)], commit=False, by="init")
    topics.send(name, [Record(None, b"k"), b'{"order_id": "cut', *(record(n) for n in range(40, 80))])
    said = init_from(tmp_path / "mine", [url(broker, name)])
    text = (tmp_path / "mine" / "pipeline.yml").read_text()
    assert "ghost" not in text and "1 of 81 values are no JSON objects" in text and "tombstones" in text
    assert "look at" in said
    assert load_pipeline(tmp_path / "mine").streams[0].id == ("order_id",)


def test_records_without_a_time_happen_when_kafka_has_them(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    topics.send(name, [Record(json.dumps({"level": n % 5}).encode(), timestamp_ms=stamp(n)) for n in range(100)])
    init_from(tmp_path / "mine", [url(broker, name)])
    (stream,) = load_pipeline(tmp_path / "mine").streams
    (sent,) = (column for column in stream.columns if column.name == stream.event_time)
    assert (sent.part, sent.type, stream.arrival_stamp, stream.id) == ("timestamp", "timestamp", "broker", ())


def test_a_column_that_says_when_a_record_arrived_is_kept_and_fields_are_no_parts(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    fields = [{**order(n), "received_at": order(n + 1)["placed_at"], "$key": n} for n in range(100)]
    topics.send(name, fields)
    init_from(tmp_path / "mine", [url(broker, name)])
    (stream,) = load_pipeline(tmp_path / "mine").streams
    assert stream.arrival_time == "received_at"
    assert "or broker: Kafka's timestamp" in (tmp_path / "mine" / "pipeline.yml").read_text()
    assert [column.part for column in stream.columns if column.path == ("$key",)] == ["value"]


def test_topics_and_files_make_one_pipeline(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    topics.send(name, [record(n) for n in range(100)])
    (tmp_path / "visits.jsonl").write_text("".join(json.dumps(order(n, page="/")) + "\n" for n in range(100)))
    init_from(tmp_path / "mine", [tmp_path / "visits.jsonl", url(broker, name)])
    pipeline = load_pipeline(tmp_path / "mine")
    assert [stream.source is None for stream in pipeline.streams] == [True, False]
    assert "Proposed from 1 file and 1 topic" in pipeline.description


def refused(folder: Path, named: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence by which a topic is refused; nothing is written, and nobody waits long."""
    began = time.monotonic()
    assert main(["init", str(folder / "mine"), "--from", named]) == 2
    assert time.monotonic() - began < 20
    assert not (folder / "mine").exists()
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


def test_a_missing_topic_is_told_with_those_that_are_there(
    broker: Broker, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.create("shop.orders")
    assert "did you mean 'shop.orders'?" in refused(tmp_path, url(broker, "shop.order"), capsys)
    said = refused(tmp_path, url(broker, "zzz"), capsys)
    assert f"there is no topic zzz at {broker.servers}; there are " in said and "__" not in said
    # Nor has looking for it made it.
    assert "zzz" not in topics.names()


def test_topics_without_json_are_refused(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = topic()
    assert "has no records" in refused(tmp_path, url(broker, name), capsys)
    topics.send(name, [Record(None, b"k")])
    assert "have no values" in refused(tmp_path, url(broker, name), capsys)
    topics.send(name, [b"\0\0\0\0\x07avro"] * 5)
    assert "registry" in refused(tmp_path, url(broker, name), capsys)
    topics.send(name, [b"hello"] * 20)
    assert "no JSON objects; the newest begins with 'hello'" in refused(tmp_path, url(broker, name), capsys)


def test_a_broker_that_is_away_refuses_or_is_none_is_told(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Connection refused" in refused(tmp_path, "kafka://127.0.0.1:1/orders", capsys)
    assert "no broker can be reached" in refused(tmp_path, "kafka://no-such-host.invalid:9092/orders", capsys)
    wants_password = refused(tmp_path, f"kafka://{broker.sasl_servers}/orders", capsys)
    assert "takes connections, and answered no request" in wants_password and "password" in wants_password
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=silent.accept, daemon=True).start()
        said = refused(tmp_path, f"kafka://127.0.0.1:{silent.getsockname()[1]}/orders", capsys)
    assert "takes connections, and answered no request" in said


@pytest.mark.parametrize(
    "named", ["kafka://localhost:9092", "kafka:///orders", "kafka://a:b/orders", "kafka://a:1/o o"]
)
def test_what_names_no_topic_is_told(named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "kafka://HOST:PORT/TOPIC" in refused(tmp_path, named, capsys)


def test_a_password_in_the_address_is_refused_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(tmp_path, "kafka://me:s3cret@localhost:9092/orders", capsys)
    assert "s3cret" not in said and "without a password" in said


def test_the_extra_is_named_if_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)  # as if it were not installed
    assert "pip install 'tidegate[kafka]'" in refused(tmp_path, "kafka://localhost:9092/orders", capsys)
