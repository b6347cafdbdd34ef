"""Topics as tests need them: made, filled, aborted, compacted, cut and deleted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewPartitions, NewTopic

WAIT_S = 30


@dataclass(frozen=True)
class Record:
    """A record to be sent, or one that was read with the place it has."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = 0


def json_record(value: Mapping[str, object], key: str | None = None, **rest: Any) -> Record:
    """A record whose value is a JSON object."""
    return Record(json.dumps(value).encode(), key.encode() if key is not None else None, **rest)


class Topics:
    """The topics of one broker. Each method returns when the broker has done it."""

    def __init__(self, servers: str, **settings: Any):
        self.settings = {"bootstrap.servers": servers, "log_level": 0, **settings}
        self._admin = AdminClient(dict(self.settings))

    def create(self, name: str, partitions: int = 1, **settings: object) -> None:
        """A topic; its settings by Kafka's names with underscores (``retention_ms=1000``; default: for ever)."""
        # Records of tests are often of the past: a broker would remove them within a second.
        config = {key.replace("_", "."): str(value) for key, value in {"retention_ms": -1, **settings}.items()}
        self._done(self._admin.create_topics([NewTopic(name, partitions, 1, config=config)]))
        self._until(lambda: name in self.names())

    def names(self) -> set[str]:
        """The topics that there are."""
        return set(self._admin.list_topics(timeout=WAIT_S).topics)

    def delete(self, name: str) -> None:
        """Delete a topic with all that is in it."""
        self._done(self._admin.delete_topics([name]))
        self._until(lambda: name not in self.names())

    def add_partitions(self, name: str, total: int) -> None:
        """Let it have this many partitions."""
        self._done(self._admin.create_partitions([NewPartitions(name, total)]))
        self._until(lambda: len(self._admin.list_topics(name, timeout=WAIT_S).topics[name].partitions) == total)

    def forget_before(self, name: str, offset: int, partition: int = 0) -> None:
        """Remove the records before an offset, as retention does."""
        self._done(self._admin.delete_records([TopicPartition(name, partition, offset)]))

    def configure(self, name: str, **settings: object) -> None:
        """Change a topic's settings."""
        entries = [ConfigEntry(key.replace("_", "."), str(value)) for key, value in settings.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        self._done(self._admin.incremental_alter_configs([resource]))

    def send(self, name: str, records: Iterable[Record | bytes | Mapping[str, object]]) -> int:
        """Send records, values, or JSON objects; returns how many."""
        producer = Producer({**self.settings, "linger.ms": 5, "enable.idempotence": True})
        count = self._produce(producer, name, records)
        assert producer.flush(WAIT_S) == 0, "the broker did not take all records"
        return count

    def transaction(
        self, name: str, records: Iterable[Record | bytes | Mapping[str, object]], *, commit: bool, by: str = "tests"
    ) -> None:
        """Send records in a transaction, and commit or abort it."""
        producer = Producer({**self.settings, "transactional.id": by})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        self._produce(producer, name, records)
        # Otherwise an abort may throw away what was never sent.
        producer.flush(WAIT_S)
        producer.commit_transaction(WAIT_S) if commit else producer.abort_transaction(WAIT_S)

    def opened(self, name: str, records: Iterable[Record | bytes | Mapping[str, object]], *, by: str) -> Producer:
        """Send records in a transaction, and leave it open: the producer ends it."""
        producer = Producer({**self.settings, "transactional.id": by})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        self._produce(producer, name, records)
        producer.flush(WAIT_S)
        return producer

    def read(self, name: str, *, isolation: str = "read_committed", patience_s: float = WAIT_S) -> list[Record]:
        """All records of a topic that a reader of this isolation sees, by partition and offset."""
        consumer = Consumer(
            {
                **self.settings,
                "group.id": "tests",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
            }
        )
        try:
            partitions = sorted(consumer.list_topics(name, timeout=WAIT_S).topics[name].partitions)
            consumer.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for partition in partitions])
            unread, records = set(partitions), []
            until = time.monotonic() + patience_s
            while unread:
                assert time.monotonic() < until, f"partitions {sorted(unread)} of {name} do not end"
                message = consumer.poll(1)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    records.append(
                        Record(
                            message.value(),
                            message.key(),
                            tuple(message.headers() or ()),
                            message.partition(),
                            message.offset(),
                            message.timestamp()[1],
                        )
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def first_and_next(self, name: str, partition: int = 0) -> tuple[int, int]:
        """The offset of the first record there still is, and the next one's."""
        consumer = Consumer({**self.settings, "group.id": "tests"})
        try:
            first, following = consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=WAIT_S)
        finally:
            consumer.close()
        return first, following

    @staticmethod
    def _produce(producer: Producer, name: str, records: Iterable[Record | bytes | Mapping[str, object]]) -> int:
        count = 0
        for record in records:
            if isinstance(record, Mapping):
                record = json_record(record)
            elif isinstance(record, bytes):
                record = Record(record)
            place = {"partition": record.partition} if record.partition >= 0 else {}
            at = {"timestamp": record.timestamp_ms} if record.timestamp_ms else {}
            while True:
                try:
                    producer.produce(name, record.value, record.key, headers=list(record.headers), **place, **at)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
        return count

    @staticmethod
    def _done(futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(timeout=WAIT_S)

    @staticmethod
    def _until(is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < until, "the broker does not show what it has done"
            time.sleep(0.05)
