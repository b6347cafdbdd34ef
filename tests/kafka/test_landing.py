"""What Kafka's topics do, landed by Spark's own connector: each record once, and what cannot be read is said."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.command import tidegate
from tests.kafka.conftest import USERS
from tests.kafka.landing import Landing, ids, order, orders, until
from tests.kafka.topics import Record, Topics

from tidegate.declarations.errors import UserError
from tidegate.engine.jars import jars
from tidegate.engine.session import SPARK_CONF
from tidegate.examples.broker import Broker

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="${TESTS_KAFKA_USER}" password="${TESTS_KAFKA_PASSWORD}";'
)
READ_COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(scope="module", autouse=True)
def connector() -> None:
    """Spark's connector is here, or the tests say in one line why they do not run."""
    if not jars("kafka"):
        pytest.skip("the jars of Spark's Kafka connector are not here: `make setup` fetches them")


@pytest.fixture
def landing(broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Callable[..., Landing]:
    """Makes a pipeline on a new topic."""

    def make(partitions: int = 1, **settings: Any) -> Landing:
        mine = {key: settings.pop(key) for key in ("options", "more", "format") if key in settings}
        return Landing(tmp_path, broker.servers, topic(partitions, **settings), **mine)

    return make


def test_idle_and_new_partitions_hold_nothing_back(spark: Any, topics: Topics, landing: Callable[..., Landing]) -> None:
    mine = landing(3)
    topics.send(mine.topic, orders(range(10), partition=1))
    before_us = time.time_ns() // 1000
    assert mine.land(spark) == 10
    newest = max(mine.landings(), key=lambda row: row["batch"])
    assert newest["read_to"].timestamp() * 1e6 >= before_us
    topics.add_partitions(mine.topic, 5)
    topics.send(mine.topic, orders(range(10, 20), partition=4))
    mine.land(spark)
    assert [(row["partition"], row["position"]) for row in mine.landed()] == [(p, n) for p in (1, 4) for n in range(10)]
    assert mine.land(spark) == 0 and len(mine.landed()) == 20
    mine.ingest(spark)
    assert mine.events() == ids(range(20)) and mine.quarantine() == []


def test_an_empty_topic_lands_nothing_and_its_interval_can_be_closed(
    spark: Any, landing: Callable[..., Landing]
) -> None:
    mine = landing(2)
    assert mine.land(spark) == 0
    mine.ingest(spark)
    assert mine.events() == []


def test_a_compacted_topic_lands_what_is_left_of_it_once(
    spark: Any, topics: Topics, landing: Callable[..., Landing]
) -> None:
    compact = {"cleanup_policy": "compact", "segment_ms": 100, "min_cleanable_dirty_ratio": 0.01}
    mine = landing(**compact, max_compaction_lag_ms=100)
    topics.send(mine.topic, [replace(order(n), key=b"k%d" % (n % 3)) for n in range(30)])

    def compacted() -> bool:
        # A segment is closed when the next record comes, and an active one is never compacted.
        topics.send(mine.topic, [replace(order(100), key=b"clock")])
        time.sleep(0.5)
        return len(topics.read(mine.topic)) < 10

    until(compacted)
    mine.land(spark)
    landed = {(row["position"], row["value"]) for row in mine.landed()}
    assert {(27, order(27).value), (28, order(28).value), (29, order(29).value)} <= landed
    left = {(record.offset, record.value) for record in topics.read(mine.topic)}
    assert left <= landed and len(landed) == len(mine.landed()) < 40


def test_aborted_transactions_never_land(spark: Any, topics: Topics, landing: Callable[..., Landing]) -> None:
    mine = landing(2, options=READ_COMMITTED)
    for n in range(30):
        some = orders(range(10 * n, 10 * n + 10))
        topics.transaction(mine.topic, some, commit=n % 3 != 0, by="aborting")
    mine.ingest(spark)
    committed = [m for n in range(30) if n % 3 for m in range(10 * n, 10 * n + 10)]
    assert mine.events() == ids(committed) and mine.quarantine() == []
    assert len(mine.landed()) == len(committed)
    # The topic ends with markers, which are no records: it is read to its end nevertheless.
    assert mine.land(spark) == 0


def test_an_open_transaction_is_waited_for_by_nobody_and_lands_when_it_is_committed(
    spark: Any, topics: Topics, landing: Callable[..., Landing]
) -> None:
    mine = landing(options=READ_COMMITTED)
    topics.send(mine.topic, orders(range(5)))
    opened = topics.opened(mine.topic, orders(range(5, 10)), by="slow")
    topics.send(mine.topic, orders(range(10, 15)))
    mine.land(spark)
    # What lies behind an open transaction cannot be read by anybody who wants committed records only.
    assert len(mine.landed()) == 5
    opened.commit_transaction(30)
    mine.land(spark)
    assert len({row["value"] for row in mine.landed()}) == len(mine.landed()) == 15


def test_tombstones_and_poison_are_in_quarantine_with_their_places(
    spark: Any, topics: Topics, landing: Callable[..., Landing]
) -> None:
    mine = landing(2)
    stamp_ms = order(0).timestamp_ms
    poison = [
        Record(None, b"c1", partition=1, timestamp_ms=stamp_ms),
        Record(b"", b"c1", partition=1, timestamp_ms=stamp_ms),
        Record(b'{"id": "cut', b"c1", partition=1, timestamp_ms=stamp_ms),
        Record(b"\xff\xfe\x00", b"c1", partition=1, timestamp_ms=stamp_ms),
        Record(b"[1, 2]", b"c1", partition=1, timestamp_ms=stamp_ms),
        Record(b'{"id": "a"}\n{"id": "b"}', b"c1", partition=1, timestamp_ms=stamp_ms),
        order(7, amount="much", partition=1),
    ]
    topics.send(mine.topic, [*orders(range(3), partition=0), *poison, *orders(range(3, 5), partition=1)])
    mine.ingest(spark)
    assert mine.events() == ids(range(5))
    refused = sorted(mine.quarantine(), key=lambda row: row["position"])
    assert [row["position"] for row in refused] == list(range(7))
    assert all(mine.topic in row["source"] and re.search(r"\b1$", row["source"]) for row in refused)
    assert [row["reason"] for row in refused] == ["missing_value", *["broken_record"] * 5, "wrong_type"]


def test_a_topic_made_again_is_another_generation(spark: Any, topics: Topics, landing: Callable[..., Landing]) -> None:
    mine = landing()
    topics.send(mine.topic, orders(range(10)))
    mine.ingest(spark)
    before = mine.landed()
    topics.delete(mine.topic)
    topics.create(mine.topic)
    topics.send(mine.topic, orders(range(10, 14), minute=61))
    mine.land(spark)
    assert "made again" in mine.said
    after = mine.landed()
    assert after[:10] == before
    assert [(row["generation"], row["position"]) for row in after[10:]] == [(1, n) for n in range(4)]
    # A run of the hour that is closed asks no topic, and gives the same rows.
    mine.ingest(spark)
    assert mine.events() == ids(range(10))
    mine.ingest(spark, hours=2)
    assert mine.events() == ids(range(14))


def test_a_live_landing_says_up_to_when_it_has_read_and_finds_a_topic_made_again(
    spark: Any, topics: Topics, landing: Callable[..., Landing]
) -> None:
    mine = landing(2)
    topics.send(mine.topic, orders(range(10)))
    with mine.live(spark) as until:
        sent_us = time.time_ns() // 1000
        until(lambda: mine.read_to_us() > sent_us)
        assert len(mine.landed()) == 10
        topics.delete(mine.topic)
        topics.create(mine.topic)
        # More than there was: its offsets do not tell the topics apart.
        topics.send(mine.topic, orders(range(10, 40), minute=61))
        until(lambda: len(mine.landed()) == 40)
    assert [row["generation"] for row in mine.landed()] == [0] * 10 + [1] * 30
    mine.ingest(spark, hours=2)
    assert mine.events() == ids(range(40))


def test_what_retention_took_before_it_landed_is_told_and_can_be_passed_over(
    spark: Any, topics: Topics, landing: Callable[..., Landing]
) -> None:
    mine = landing()
    topics.send(mine.topic, orders(range(10)))
    mine.land(spark)
    topics.send(mine.topic, orders(range(10, 30)))
    topics.forget_before(mine.topic, 25)
    with pytest.raises(UserError) as told:
        mine.land(spark)
    assert all(word in str(told.value) for word in ("partition 0: offsets 10 to 24", "failOnDataLoss"))
    assert len(mine.landed()) == 10
    mine.options = {"failOnDataLoss": "false"}
    mine.land(spark)
    mine.options = {}
    assert [row["position"] for row in mine.landed()] == [*range(10), *range(25, 30)]
    topics.send(mine.topic, orders(range(30, 32)))
    mine.land(spark)
    assert [row["position"] for row in mine.landed()] == [*range(10), *range(25, 32)]


def test_a_topic_that_is_not_there_is_told(spark: Any, broker: Broker, topics: Topics, tmp_path: Path) -> None:
    topics.create("shop.invoices")
    with pytest.raises(UserError, match=r"no topic 'shop\.invoice' .*shop\.invoices"):
        Landing(tmp_path, broker.servers, "shop.invoice").land(spark)
    assert "shop.invoice" not in topics.names()


def test_a_broker_that_is_away_is_told_soon(spark: Any, tmp_path: Path, mortal: Broker) -> None:
    topics = Topics(mortal.servers)
    topics.create("orders")
    topics.send("orders", orders(range(3)))
    mine = Landing(tmp_path, mortal.servers, "orders")
    assert mine.land(spark) == 3
    mortal.kill()
    began = time.monotonic()
    with pytest.raises(UserError, match=re.escape(mortal.servers)):
        mine.land(spark)
    assert time.monotonic() - began < 60
    mortal.start()
    topics.send("orders", orders(range(3, 5)))
    assert mine.land(spark) == 2 and len(mine.landed()) == 5


def test_a_broker_that_does_not_answer_for_a_while_costs_no_record(spark: Any, tmp_path: Path, mortal: Broker) -> None:
    """Its port takes connections, and nothing comes: before a landing, then while one waits for records."""
    topics = Topics(mortal.servers)
    topics.create("orders")
    topics.send("orders", orders(range(3)))
    mine, broker = Landing(tmp_path, mortal.servers, "orders"), psutil.Process(mortal.pid)
    broker.suspend()
    began = time.monotonic()
    try:
        with pytest.raises(UserError, match=re.escape(mortal.servers)):
            mine.land(spark)
        assert time.monotonic() - began < 60
        waking = threading.Timer(3.0, broker.resume)
        waking.start()
        assert mine.land(spark) == 3
    finally:
        broker.resume()
    assert len(mine.landed()) == 3


def test_a_password_is_taken_from_the_environment_and_stays_there(
    spark: Any,
    broker: Broker,
    topics: Topics,
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((user, password),) = USERS.items()
    name = topic()
    topics.send(name, orders(range(3)))
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": JAAS,
    }
    mine = Landing(tmp_path, broker.sasl_servers, name, options)
    monkeypatch.setenv("TESTS_KAFKA_USER", user)
    monkeypatch.delenv("TESTS_KAFKA_PASSWORD", raising=False)
    with pytest.raises(UserError, match="TESTS_KAFKA_PASSWORD"):
        mine.land(spark)
    monkeypatch.setenv("TESTS_KAFKA_PASSWORD", "a-wr0ng-one")
    began = time.monotonic()
    with pytest.raises(UserError) as told:
        mine.land(spark)
    assert time.monotonic() - began < 60
    assert "a-wr0ng-one" not in str(told.value) + mine.said and "password" in str(told.value)
    # As it stands between quotes of a JAAS entry.
    monkeypatch.setenv("TESTS_KAFKA_PASSWORD", password.replace("\\", "\\\\"))
    assert mine.land(spark) == 3
    for secret in ("s3cret-5f1c", "a-wr0ng-one"):
        assert secret not in mine.said
        for file in tmp_path.rglob("*"):
            if file.is_file() and "broker" not in file.parts:
                assert secret.encode() not in file.read_bytes(), file
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        assert not [line for line in lines if secret in line]
    assert os.environ["TESTS_KAFKA_PASSWORD"]


def test_fields_that_come_and_go_are_columns_without_values_and_unknown_ones(
    spark: Any, topics: Topics, landing: Callable[..., Landing]
) -> None:
    mine = landing()
    topics.send(mine.topic, [*orders(range(3)), *orders(range(3, 6), coupon="x"), *orders(range(6, 8))])
    mine.ingest(spark)
    assert mine.events() == ids(range(8))
    unknown = {row["column"]: row["records"] for row in mine.rows("unknown_columns")}
    assert unknown == {"coupon": 3}


def test_a_re_run_after_the_topic_went_gives_the_same_rows(
    spark: Any, topics: Topics, landing: Callable[..., Landing]
) -> None:
    mine = landing(3)
    topics.send(mine.topic, [*orders(range(50)), *orders(range(50, 90), minute=61), b"poison"])
    mine.ingest(spark, hours=2)
    events, refused = mine.rows("events_orders"), mine.quarantine()
    topics.delete(mine.topic)
    mine.ingest(spark, hours=2)

    def by_id(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(map(repr, rows))

    assert by_id(mine.rows("events_orders")) == by_id(events) and len(events) == 90
    assert by_id(mine.quarantine()) == by_id(refused)


@pytest.mark.slow
def test_no_password_is_in_the_event_log_of_spark(
    broker: Broker, topics: Topics, topic: Callable[..., str], tmp_path: Path
) -> None:
    ((user, password),) = USERS.items()
    name = topic()
    topics.send(name, orders(range(5)))
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": JAAS,
    }
    mine = Landing(tmp_path, broker.sasl_servers, name, options)
    mine.declare()
    conf, log = tmp_path / "conf", tmp_path / "log"
    log.mkdir()
    shutil.copytree(SPARK_CONF, conf)
    with (conf / "spark-defaults.conf").open("a") as defaults:
        defaults.write(
            f"\nspark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir {log.as_uri()}\n"
        )
    secrets = {"TESTS_KAFKA_USER": user, "TESTS_KAFKA_PASSWORD": password.replace("\\", "\\\\")}
    ran = tidegate("land", mine.pipeline, "--warehouse", mine.warehouse, SPARK_CONF_DIR=conf, **secrets)
    assert ran.status == 0 and "5 records landed" in ran.output
    events = "".join(file.read_text() for file in log.rglob("events_*"))
    assert "kafka" in events.lower()  # plans are in it
    assert "s3cret-5f1c" not in events + ran.output + ran.errors
