"""Clicks on a news site, sent to a topic of Kafka as a tracker would: late, out of order, some twice, some broken.

    python produce.py                 to the broker that KAFKA_SERVERS names, or the one on 127.0.0.1:9092
    python produce.py --broker        starts a broker for trying there, and keeps it until Ctrl-C

A record has the visitor as its key, the device as a header, a JSON object as its value, and the time at which it
reached the site as its timestamp. Needs the package confluent-kafka (`pip install 'tidegate[kafka]'`).

What makes a click late:

* most browsers are online: the click arrives within two seconds;
* phones send it when they have a connection again, minutes later, a few of them after half an hour;
* a page that took long was often seen over a bad connection, which reports it late.

What is wrong with one record in a hundred, and the reason by which Tidegate refuses it, is in `FAULTS`.

The same seed sends the same records, whichever hours are asked for: an hour's clicks depend on the seed and the hour
alone. Which offset a record has is the broker's affair.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

OPENED = datetime(2026, 1, 12, 18, tzinfo=UTC)  # nobody clicks before
HOURS = 3
HOUR = timedelta(hours=1)
LONGEST_DELAY = timedelta(hours=2)
CLICKS_PER_MINUTE = 70
PARTITIONS = 3
SERVERS = "127.0.0.1:9092"
TOPIC = "clicks"

DEVICES = {"phone": 6, "desktop": 3, "tablet": 1}  # relative frequencies
PAGES = {"/": 10, "/weather": 6, "/football": 8, "/politics": 5, "/science": 2, "/recipes/soup": 3, "/chess": 1}
NEWS = "/live/storm"  # in the second hour everybody reads it

# What goes wrong, by the reason that Tidegate gives: shares of all records.
FAULTS = {
    "broken_record": 0.002,  # the value ends in the middle
    "missing_value": 0.002,  # a key and no value: a tombstone
    "wrong_type": 0.002,  # a duration that is no number
    "too_early": 0.002,  # the visitor's clock is an hour fast
    "too_late": 0.002,  # the visitor's clock is a month slow
    "duplicate_id": 0.005,  # the phone heard no answer and sent the click again
}


@dataclass(frozen=True, order=True)
class Click:
    """A record of the topic: when it arrives, its parts, and the reason why it will be refused (empty: it will not)."""

    arrives: datetime
    visitor: str
    device: str
    value: bytes | None
    refused: str = ""


def click(chance: random.Random, number: str, at: datetime) -> tuple[dict[str, Any], str, timedelta]:
    """One click's value, its device, and how long it takes to the site."""
    pages = {**PAGES, NEWS: 25} if at - OPENED >= HOUR else PAGES
    device = chance.choices(list(DEVICES), weights=list(DEVICES.values()))[0]
    load_ms = int(chance.lognormvariate(5.7, 0.6))
    delay_s = chance.uniform(0.05, 2)
    if device == "phone" and chance.random() < 0.1:
        delay_s += chance.lognormvariate(4.5, 1.1)  # no connection: half of these take longer than 1.5 minutes
    if load_ms > 1000 and chance.random() < 0.5:
        load_ms *= 2
        delay_s += chance.uniform(10, 120)
    page = chance.choices(list(pages), weights=list(pages.values()))[0]
    value = {"click_id": number, "clicked_at": stamp(at), "page": page, "load_ms": load_ms}
    return value, device, min(timedelta(seconds=round(delay_s, 3)), LONGEST_DELAY)


def spoilt(fault: str, value: dict[str, Any], clicked: datetime) -> bytes | None:
    """The value of a record that has the fault."""
    if fault == "missing_value":
        return None
    if fault == "broken_record":
        return json.dumps(value).encode()[:-15]
    changes: dict[str, dict[str, Any]] = {
        "wrong_type": {"load_ms": "slow"},
        "too_early": {"clicked_at": stamp(clicked + LONGEST_DELAY + HOUR)},
        "too_late": {"clicked_at": stamp(clicked - timedelta(days=30))},
    }
    return json.dumps({**value, **changes[fault]}).encode()


def clicks(seed: int, hour: datetime) -> Iterator[Click]:
    """Everything that is sent because of one hour's clicks."""
    chance = random.Random(f"{seed} {hour:%Y-%m-%dT%H}")
    clicked, number = hour, 0
    while True:
        clicked += timedelta(seconds=round(chance.expovariate(CLICKS_PER_MINUTE / 60), 3))
        if clicked >= hour + HOUR:
            return
        number += 1
        value, device, delay = click(chance, f"{hour:%y%m%d%H}-{number:05d}", clicked)
        visitor = f"v{chance.randrange(2000):04d}"
        fault = chance.choices([*FAULTS, ""], weights=[*FAULTS.values(), 1 - sum(FAULTS.values())])[0]
        sent = Click(clicked + delay, visitor, device, json.dumps(value).encode())
        if fault in ("", "duplicate_id"):
            yield sent
        else:
            yield replace(sent, value=spoilt(fault, value, clicked), refused=fault)
        if fault == "duplicate_id":
            later = timedelta(seconds=round(chance.uniform(5, 300), 3))
            yield replace(sent, arrives=sent.arrives + later, refused=fault)


def stamp(instant: datetime) -> str:
    """A time to the millisecond, in UTC."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@lru_cache(16)
def sent_because_of(seed: int, hour: datetime) -> list[Click]:
    """The records of one hour's clicks; kept, as the hours after it are asked for them, too."""
    return list(clicks(seed, hour))


def arrivals(seed: int, hour: datetime) -> list[Click]:
    """The records that reach the site in one hour, in order of arrival."""
    sent: list[Click] = []
    clicked = max(OPENED, hour - LONGEST_DELAY - HOUR)
    while clicked <= hour:
        sent += [one for one in sent_because_of(seed, clicked) if hour <= one.arrives < hour + HOUR]
        clicked += HOUR
    return sorted(sent, key=lambda one: (one.arrives, one.visitor))


def produce(servers: str, topic: str, start: datetime, hours: int, seed: int) -> Counter[str]:
    """Send so many hours of arrival; returns how many records each reason will refuse, "" for none.

    The topic is made if it is not there, and keeps its records for ever: their timestamps are of the past, and a broker
    would soon remove them.
    """
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    # librdkafka itself would say so every second while no broker answers.
    settings: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
    admin = AdminClient(settings)
    try:
        topics = admin.list_topics(timeout=10).topics
    except KafkaException:
        sys.exit(f"no broker answers at {servers}: start one, or let --broker start one")
    if topic not in topics:
        made = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})])
        made[topic].result(30)
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 20})
    counts: Counter[str] = Counter()
    for hour in (start + n * HOUR for n in range(hours)):
        for one in arrivals(seed, hour):
            counts[one.refused] += 1
            producer.produce(
                topic,
                one.value,
                one.visitor,
                headers={"device": one.device},
                timestamp=round(one.arrives.timestamp() * 1000),
            )
            producer.poll(0)
        if producer.flush(60):
            sys.exit(f"the broker at {servers} took no more records for a minute")
    return counts


def whole_hour(text: str) -> datetime:
    """An hour in UTC, from 2026-01-12T18."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not an hour; write it like 2026-01-12T18") from None


def started(servers: str) -> Any:
    """A broker for trying at this address, its data beside this file, to be used as a context manager."""
    from tidegate.declarations.errors import UserError
    from tidegate.examples.broker import HOST, Broker

    host, _, port = servers.partition(":")
    if host not in (HOST, "localhost") or not port.isdigit():
        sys.exit(f"a broker can be started on this machine only, and --servers is {servers}: write {SERVERS}")
    try:
        return Broker(Path(__file__).resolve().parent / "broker", int(port)).start()
    except UserError as error:
        sys.exit(str(error))


def main() -> None:
    """Send, and say what was sent."""
    parser = argparse.ArgumentParser(description="Clicks on a news site, sent to a topic of Kafka.")
    default = os.environ.get("KAFKA_SERVERS") or SERVERS
    parser.add_argument("--servers", default=default, metavar="HOST:PORT", help=f"KAFKA_SERVERS, else {SERVERS}")
    parser.add_argument("--topic", default=TOPIC, help=f"default {TOPIC}; made if it is not there")
    parser.add_argument("--broker", action="store_true", help="start a broker for trying there, until Ctrl-C")
    parser.add_argument(
        "--from", dest="start", type=whole_hour, default=OPENED, metavar="HOUR", help=f"default {OPENED:%Y-%m-%dT%H}"
    )
    parser.add_argument("--hours", type=int, default=HOURS, metavar="N", help=f"default {HOURS}")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another seed, other clicks (default 1)")
    options = parser.parse_args()
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        sys.exit("the package confluent-kafka is not installed: pip install 'tidegate[kafka]'")
    with started(options.servers) if options.broker else nullcontext():
        counts = produce(options.servers, options.topic, options.start, options.hours, options.seed)
        good = counts.pop("", 0)
        faults = ", ".join(f"{reason} {counts[reason]}" for reason in sorted(counts))
        print(f"{good + counts.total()} records of {options.hours} hours of arrival in the topic {options.topic}")
        print(f"{counts.total()} of them will be refused: {faults}" if counts else "none of them will be refused")
        if options.broker:
            print(f"Kafka  {options.servers}   until Ctrl-C", flush=True)
            try:
                signal.pause()
            except KeyboardInterrupt:
                print("The broker is stopped.")


if __name__ == "__main__":
    main()
