"""A topic as its brokers describe it, by confluent-kafka: its id, and the offsets that it still has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import KafkaSource
from tidegate.declarations.variables import expanded

_PATIENCE_S = 10.0
_JAAS = re.compile(r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""")
# Options of the Java client that librdkafka calls otherwise, or does not have.
_OTHERWISE = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "client.id": "client.id",
}


@dataclass(frozen=True)
class Topic:
    """A topic now. ``least``, ``ends``: partition → its first offset, and the one behind its last."""

    id: str
    least: Mapping[int, int]
    ends: Mapping[int, int]


def described(source: KafkaSource) -> Topic | None:
    """The topic as its brokers describe it; None where confluent-kafka is not installed, or cannot be told how.

    Cost: two requests.

    Raises:
        UserError: nobody answers, or there is no such topic.
    """
    try:
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
        from confluent_kafka.admin import AdminClient
    except ImportError:
        return None
    settings = client_settings(source)
    if settings is None:
        return None
    servers = settings["bootstrap.servers"]
    heard: list[KafkaError] = []
    # A refused password is told there alone: for whoever waits, the connection breaks and nothing comes.
    settings["error_cb"] = heard.append
    admin = AdminClient(settings)
    try:
        listed = admin.list_topics(timeout=_PATIENCE_S).topics
        if source.topic not in listed or listed[source.topic].error is not None:
            raise UserError(no_topic(source.topic, list(listed), servers))
        [about] = admin.describe_topics(TopicCollection([source.topic])).values()
        topic = about.result(timeout=_PATIENCE_S)
        consumer = Consumer({**settings, "group.id": "tidegate", "enable.auto.commit": False})
        try:
            marks = {
                p: consumer.get_watermark_offsets(TopicPartition(source.topic, p), timeout=_PATIENCE_S)
                for p in listed[source.topic].partitions
            }
        finally:
            consumer.close()
    except KafkaException as error:
        admin.poll(0)
        if any(one.code() == KafkaError._AUTHENTICATION for one in heard):
            raise UserError(wrong_password(servers)) from None
        raise UserError(refused(servers, str(error.args[0].str() if error.args else error))) from None
    return Topic(str(topic.topic_id), {p: a for p, (a, _) in marks.items()}, {p: b for p, (_, b) in marks.items()})


def no_topic(topic: str, others: list[str], servers: str) -> str:
    """What is said of a topic that is not there."""
    from difflib import get_close_matches

    near = get_close_matches(topic, [name for name in others if not name.startswith("__")], n=1)
    hint = f"did you mean '{near[0]}'?" if near else "create it, or mend 'topic' in pipeline.yml"
    return f"there is no topic '{topic}' at {servers}: {hint}"


def wrong_password(servers: str) -> str:
    """What is said of brokers that do not know the user."""
    return f"Kafka at {servers} refused the user or the password; look at the variables of the options"


def refused(servers: str, why: str) -> str:
    """What is said of brokers that do not answer, or refuse."""
    return f"Kafka at {servers} cannot be read: {why}; look at 'servers' and the options in pipeline.yml, and try again"


def client_settings(source: KafkaSource) -> dict[str, Any] | None:
    """The source's options as librdkafka takes them; None where they name what it does not have."""
    options = expanded({**source.options, "servers": source.servers})
    settings: dict[str, Any] = {
        "bootstrap.servers": options.pop("servers"),
        # Problems are said once, by whoever asks.
        "log_level": 0,
    }
    for name, value in options.items():
        if not name.startswith("kafka."):
            continue
        key = name.removeprefix("kafka.")
        if key == "sasl.jaas.config":
            # Java reads a backslash before any character as that character.
            quoted = {m[1]: next(g for g in m.groups()[1:] if g is not None) for m in _JAAS.finditer(value)}
            pairs = {name: re.sub(r"\\(.)", r"\1", text) for name, text in quoted.items()}
            settings |= {f"sasl.{name}": text for name, text in pairs.items()}
        elif key in _OTHERWISE:
            settings[_OTHERWISE[key]] = value
        elif key.startswith(("ssl.", "sasl.")):
            return None  # keystores, callbacks: the Java client's alone
    return settings
