"""Reads a bounded part of a topic of Kafka. The only module here that talks to a broker.

The first records that there are and the newest ones, of every partition; nothing is committed, no group is joined, and
no topic is made.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.declarations.errors import UserError
from tidegate.declarations.positions import nearest_name
from tidegate.guess.columns import Seen, column_of
from tidegate.guess.kinds import Kind
from tidegate.guess.records import FileSample, Sample, Topic
from tidegate.sources.formats.json_records import parse_object

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

SCHEME = "kafka://"
FIRST_RECORDS = 1000
NEWEST_RECORDS = 5000
"""Of a topic, divided among its partitions."""
_CONNECT_S = 5
_ANSWER_S = 10
_READ_S = 30
_SHOWN = 8
_OBJECTS = 0.5
"""So large a share of the values are JSON objects at least: the others may be broken."""
_URL = re.compile(r"kafka://(?P<servers>[^/\s@]+)/(?P<topic>[A-Za-z0-9._-]{1,249})/?", re.ASCII)
_SERVER = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:]+)\]|(?P<host>[^:\s,\[\]]+)):(?P<port>[0-9]{1,5})", re.ASCII)


@dataclass(frozen=True)
class _Span:
    """The offsets of a partition that are looked at: ``first`` up to ``head_end``, and ``tail_start`` up to ``end``."""

    partition: int
    first: int
    head_end: int
    tail_start: int
    end: int


@dataclass(frozen=True)
class _Record:
    """A record as it was read. ``stamp_us``: Kafka's timestamp, microseconds."""

    partition: int
    offset: int
    stamp_us: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def kind_of_topic(url: str) -> Kind:
    """What is read of the topic that ``kafka://HOST:PORT[,HOST:PORT…]/TOPIC`` names.

    Cost: 6000 records at most, and half a minute where a broker is slow.

    Raises:
        UserError: the URL is none, the package is not installed, no broker answers, there is no such topic, it has no
            records, or its values are no JSON objects.
    """
    match = _URL.fullmatch(url)
    if match is None:
        if "@" in url:
            raise UserError("a topic is looked at without a password: write kafka://HOST:PORT/TOPIC, without a user")
        raise UserError(f"{url} names no topic: write kafka://HOST:PORT/TOPIC, such as kafka://localhost:9092/orders")
    servers, topic = match["servers"], match["topic"]
    try:
        from confluent_kafka import Consumer
    except ImportError:
        raise UserError(
            "a topic is looked at by the package confluent-kafka, which is not installed: pip install 'tidegate[kafka]'"
        ) from None
    _reach(servers, url)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tidegate-init",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            # Otherwise it says on stderr, in words of its own, what is said below.
            "log_level": 0,
        }
    )
    try:
        spans = _spans(consumer, servers, topic)
        records = _read(consumer, topic, spans)
    finally:
        consumer.close()
    return _kind(servers, topic, spans, records)


def _reach(servers: str, url: str) -> None:
    """Whether any of the servers takes a connection: the client library would try for as long as it is let."""
    reasons = []
    for server in servers.split(","):
        match = _SERVER.fullmatch(server)
        if match is None or int(match["port"]) > 65_535:
            raise UserError(f"{server} in {url} is no HOST:PORT: write kafka://HOST:PORT/TOPIC")
        try:
            with socket.create_connection((match["six"] or match["host"], int(match["port"])), timeout=_CONNECT_S):
                return
        except OSError as error:
            reason = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            reasons.append(f"{server}: {reason}")
    raise UserError(f"no broker can be reached ({'; '.join(reasons)}): is it running, and is this its address?")


def _spans(consumer: Consumer, servers: str, topic: str) -> list[_Span]:
    from confluent_kafka import KafkaException, TopicPartition

    try:
        # Of all topics: a question for one may make it.
        topics = consumer.list_topics(timeout=_ANSWER_S).topics
    except KafkaException as error:
        raise UserError(_unanswered(servers, error)) from None
    if topic not in topics or topics[topic].error is not None:
        raise UserError(_missing(servers, topic, topics))
    partitions = sorted(topics[topic].partitions)
    first, newest = (max(count // len(partitions), 10) for count in (FIRST_RECORDS, NEWEST_RECORDS))
    spans = []
    for partition in partitions:
        try:
            low, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S)
        except KafkaException as error:
            raise UserError(_unanswered(servers, error)) from None
        tail_start = max(end - newest, low)
        spans.append(_Span(partition, low, min(low + first, tail_start), tail_start, end))
    if all(span.first == span.end for span in spans):
        raise UserError(f"the topic {topic} has no records: send some, so that there is something to see")
    return spans


def _unanswered(servers: str, error: Exception) -> str:
    return (
        f"{servers} takes connections, and answered no request of a Kafka client within {_ANSWER_S} s "
        f"({error.args[0].str()}): is this a broker's port, and one that asks for no password or encryption? A topic "
        "that needs them is declared by hand: source: {kafka: {servers: …, topic: …, options: …}}"
    )


def _missing(servers: str, topic: str, topics: Iterable[str]) -> str:
    others = sorted(name for name in topics if not name.startswith("__"))
    near = nearest_name(topic, others)
    said = f"there is no topic {topic} at {servers}"
    if near and near != topic:
        return f"{said}; did you mean '{near}'?"
    if not others:
        return f"{said}, nor any other"
    more = f", and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return f"{said}; there are {', '.join(others[:_SHOWN])}{more}"


def _read(consumer: Consumer, topic: str, spans: Sequence[_Span]) -> list[_Record]:
    """The records of the spans, by their timestamps; fewer where a broker is too slow."""
    until = time.monotonic() + _READ_S
    first = {span.partition: (span.first, span.head_end) for span in spans}
    newest = {span.partition: (span.tail_start, span.end) for span in spans}
    records = [*_between(consumer, topic, first, until), *_between(consumer, topic, newest, until)]
    # Of records with the same timestamp the order of their partition stays.
    return sorted(records, key=lambda record: record.stamp_us)


def _between(consumer: Consumer, topic: str, bounds: dict[int, tuple[int, int]], until: float) -> list[_Record]:
    """The records from one offset up to another, of each partition."""
    from confluent_kafka import KafkaError, TopicPartition

    unread = {partition: end for partition, (first, end) in bounds.items() if first < end}
    if unread:
        consumer.assign([TopicPartition(topic, partition, bounds[partition][0]) for partition in unread])
    records = []
    while unread and time.monotonic() < until:
        for message in consumer.consume(1000, timeout=0.5):
            error = message.error()
            if error is None:
                record = _record(message)
                if record.offset < unread.get(record.partition, 0):
                    records.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.pop(message.partition() or 0, None)
        # Markers of transactions have offsets too, and compaction leaves gaps.
        for place in consumer.position([TopicPartition(topic, partition) for partition in unread]):
            if place.offset >= unread[place.partition]:
                del unread[place.partition]
    return records


def _record(message: Message) -> _Record:
    headers: list[Any] = list(message.headers() or ())
    partition, offset, stamp_ms = message.partition(), message.offset(), message.timestamp()[1]
    assert partition is not None and offset is not None
    value: Any = message.value()
    key: Any = message.key()
    return _Record(partition, offset, stamp_ms * 1000, key, value, tuple((name, octets) for name, octets in headers))


def _kind(servers: str, topic: str, spans: Sequence[_Span], records: Sequence[_Record]) -> Kind:
    values = [record.value for record in records if record.value is not None]
    if not values:
        raise UserError(f"the records of the topic {topic} that were read have no values to guess from")
    parsed = [(record, parse_object(record.value)) for record in records if record.value is not None]
    objects = [(record, fields) for record, fields in parsed if fields]
    if len(objects) < _OBJECTS * len(values):
        raise UserError(_no_objects(topic, values))
    remarks = []
    if len(objects) < len(values):
        remarks.append(f"{len(values) - len(objects)} of {len(values):,} values are no JSON objects: refused")
    if len(values) < len(records):
        tombstones = f"{len(records) - len(values)} of {len(records):,} records have no value (tombstones)"
        remarks.append(f"{tombstones}: all their fields are missing")
    about = sum(span.end - span.first for span in spans)
    stamps = tuple(record.stamp_us for record, _ in objects)
    sample = FileSample(
        Path(topic),
        "jsonl",
        [fields for _, fields in objects],
        whole=False,
        about=about,
        modified_s=max(stamps) / 1e6,
        remarks=tuple(remarks),
    )
    parts = _parts([record for record, _ in objects])
    return Kind((), (sample,), None, topic=Topic(servers, topic, len(spans), about, stamps, parts))


def _no_objects(topic: str, values: Sequence[bytes]) -> str:
    if sum(value[:1] == b"\0" and len(value) > 5 for value in values) > len(values) / 2:
        return (
            f"the values of the topic {topic} begin as those that a schema registry describes, which are not guessed "
            "from: declare it by hand, with format: avro and source: {kafka: {servers: …, topic: …, registry: …}}"
        )
    shown = values[-1][:60].decode("utf-8", "backslashreplace")
    return f"the values of the topic {topic} are no JSON objects; the newest begins with {shown!r}"


def _parts(records: Iterable[_Record]) -> tuple[Seen, ...]:
    """The records' keys and headers, as columns that may be declared: those that are text."""
    sample = Sample()
    for record in records:
        named = [("$key", record.key), *((f"$headers.{name}", octets) for name, octets in record.headers)]
        texts = {name: _text(octets) for name, octets in named if octets is not None}
        sample.add({name: text for name, text in texts.items() if text is not None}, 0)
    return tuple(column_of(path, values) for path, values in sample.closed().columns.items())


def _text(octets: bytes) -> str | None:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return None
