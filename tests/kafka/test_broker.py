"""The broker of examples and tests is a real one, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from tests.kafka.conftest import USERS
from tests.kafka.topics import WAIT_S, Record, Topics

from tidegate.declarations.errors import UserError
from tidegate.examples.broker import Broker, main


def test_records_survive_a_kill(mortal: Broker) -> None:
    topics = Topics(mortal.servers)
    topics.create("orders", 2)
    sent = [Record(b"%d" % n, b"k", (("h", b"\x00"),), partition=n % 2) for n in range(1000)]
    topics.send("orders", sent)
    servers = mortal.servers
    mortal.kill()
    assert not mortal.pid
    mortal.start()
    assert mortal.servers == servers
    topics.send("orders", [b"after"])
    read = topics.read("orders")
    assert len(read) == 1001 and {record.value for record in read} == {b"%d" % n for n in range(1000)} | {b"after"}
    assert read[0].key == b"k" and read[0].headers == (("h", b"\x00"),)


def test_aborted_records_are_seen_by_readers_of_uncommitted_alone(topics: Topics, topic: Callable[..., str]) -> None:
    name = topic()
    for n in range(6):
        topics.transaction(name, [b"%d" % n] * 10, commit=n % 3 != 0)
    assert {record.value for record in topics.read(name)} == {b"1", b"2", b"4", b"5"}
    assert len(topics.read(name)) == 40
    assert len(topics.read(name, isolation="read_uncommitted")) == 60


def test_a_compacted_topic_keeps_the_last_value_of_a_key(topics: Topics, topic: Callable[..., str]) -> None:
    name = topic(cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01, max_compaction_lag_ms=100)
    topics.send(name, [Record(b"%d" % n, b"k%d" % (n % 3)) for n in range(30)])
    until = time.monotonic() + WAIT_S
    # A segment is closed when the next record comes, and an active one is never compacted.
    while len(topics.read(name)) > 10 and time.monotonic() < until:
        time.sleep(0.5)
        topics.send(name, [Record(b"tick", b"clock")])
    read = topics.read(name)
    assert {record.value for record in read} >= {b"27", b"28", b"29"}
    assert len([record for record in read if record.key != b"clock"]) == 3


def test_records_before_an_offset_go(topics: Topics, topic: Callable[..., str]) -> None:
    name = topic()
    topics.send(name, [b"%d" % n for n in range(10)])
    topics.forget_before(name, 4)
    assert topics.first_and_next(name) == (4, 10)
    assert [record.offset for record in topics.read(name)] == [4, 5, 6, 7, 8, 9]


def test_a_password_is_needed_where_it_is_said(broker: Broker) -> None:
    name, password = next(iter(USERS.items()))
    words = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": name}
    Topics(broker.sasl_servers, **words, **{"sasl.password": password}).create("secret")
    with pytest.raises(KafkaException):
        Topics(broker.sasl_servers, **words, **{"sasl.password": "wrong"})._admin.list_topics(timeout=3)
    # No password is on any command line.
    assert password not in " ".join(psutil.Process(broker.pid).cmdline())


def test_a_broker_dies_with_the_process_that_started_it(broker_jars: None, tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from tidegate.examples.broker import Broker\n"
        "print(Broker(Path(sys.argv[1])).start().pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    broker = psutil.Process(int(parent.stdout.readline()))
    assert "kafka.Kafka" in broker.cmdline()
    parent.kill()
    parent.wait()
    broker.wait(10)
    parent.stdout.close()


def test_the_command_runs_a_broker_until_it_is_interrupted(broker_jars: None, tmp_path: Path) -> None:
    port = Broker(tmp_path).port
    command = [sys.executable, "-m", "tidegate.examples.broker", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert f"Kafka  127.0.0.1:{port}" in said
        folder = Path(said.split("data is in ")[1].strip())
        children = psutil.Process(process.pid).children()
        Topics(f"127.0.0.1:{port}").create("clicks")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not folder.exists() and not any(child.is_running() for child in children)


def test_a_port_in_use_is_said(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", str(broker.port), "--folder", str(tmp_path)]) == 2
    assert f"something listens on 127.0.0.1:{broker.port} already" in capsys.readouterr().err


def test_missing_jars_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_JARS", str(tmp_path))
    with pytest.raises(UserError, match="jars of a broker are not here"):
        Broker(tmp_path).start()
