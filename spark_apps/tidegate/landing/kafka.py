"""A topic as its brokers describe it, by confluent-kafka: its id, and the offsets that it still has."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import KafkaSource
from tidegate.declarations.variables import expanded

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# A broker that has answered is there. One that just woke leaves a request without an answer, or knows no leader yet:
# it is asked once more, by a new client, for a while.
_FIRST_ANSWER_S, _ATTEMPT_S, _PAUSE_S, _NEXT_ANSWERS_S, _WATCH_S = 10.0, 5.0, 0.2, 30.0, 2.0
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
        from confluent_kafka import KafkaError, KafkaException
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
    absent = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)
    deadline = time.monotonic() + _NEXT_ANSWERS_S
    while True:
        admin = AdminClient(settings)
        try:
            listed = admin.list_topics(timeout=_FIRST_ANSWER_S).topics
            about = listed.get(source.topic)
            if about is None or (about.error and about.error.code() in absent):
                raise UserError(no_topic(source.topic, list(listed), servers))
            try:
                if about.error:
                    raise KafkaException(about.error)
                return _description(admin, settings, source.topic, list(about.partitions))
            except (TimeoutError, KafkaException):
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
        except TimeoutError:
            # Of the client's futures: whoever answered the first request stopped before the second.
            raise UserError(refused(servers, f"no answer within {_NEXT_ANSWERS_S:.0f} s")) from None
        except KafkaException as error:
            admin.poll(0)
            if any(one.code() == KafkaError._AUTHENTICATION for one in heard):
                raise UserError(wrong_password(servers)) from None
            raise UserError(refused(servers, str(error.args[0].str() if error.args else error))) from None


def _description(admin: AdminClient, settings: Mapping[str, Any], name: str, partitions: list[int]) -> Topic:
    from confluent_kafka import Consumer, TopicCollection, TopicPartition

    [about] = admin.describe_topics(TopicCollection([name]), request_timeout=_ATTEMPT_S).values()
    topic = about.result(timeout=2 * _ATTEMPT_S)
    consumer = Consumer({**settings, "group.id": "tidegate", "enable.auto.commit": False})
    try:
        marks = {p: consumer.get_watermark_offsets(TopicPartition(name, p), timeout=_ATTEMPT_S) for p in partitions}
    finally:
        consumer.close()
    return Topic(str(topic.topic_id), {p: a for p, (a, _) in marks.items()}, {p: b for p, (_, b) in marks.items()})


@dataclass
class TopicWatch:
    """Looks from time to time whether a topic is still the one that it was."""

    admin: AdminClient
    name: str
    id: str
    _looked: float = field(default_factory=time.monotonic)
    _is_other: bool = False

    def is_other(self, at_once: bool = False) -> bool:
        """Whether it was deleted and made again; what cannot be known now is looked at later. Cost: a request."""
        from confluent_kafka import KafkaException, TopicCollection

        if self._is_other or not (at_once or time.monotonic() > self._looked + _WATCH_S):
            return self._is_other
        self._looked = time.monotonic()
        with suppress(KafkaException, TimeoutError):
            [about] = self.admin.describe_topics(TopicCollection([self.name])).values()
            self._is_other = str(about.result(timeout=_FIRST_ANSWER_S).topic_id) != self.id
        return self._is_other


def watch_of(source: KafkaSource, topic: Topic) -> TopicWatch:
    """A watch over a topic that :func:`described` has described."""
    from confluent_kafka.admin import AdminClient

    settings = client_settings(source)
    assert settings is not None, "the topic has been described"
    return TopicWatch(AdminClient(settings), source.topic, topic.id)


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
