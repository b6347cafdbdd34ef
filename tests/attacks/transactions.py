"""A producer of orders in transactions, a third of which it aborts; it survives its broker's death."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer
from tests.kafka.landing import order
from tests.kafka.topics import Record

TRANSACTIONS, HOURS = 300, 6
POISON_EVERY = 1999
# An hour has so many places for records.
_PLACES = 300_000
# Of so many records of an hour one is of the hour before.
_LATE_EVERY = 10
# Longer than a broker is away.
_TIMEOUT_MS = 600_000


@dataclass(frozen=True)
class Transaction:
    """Records ``first`` to ``end`` of an hour, to be committed or aborted."""

    first: int
    end: int
    hour: int
    commit: bool


def transactions(records: int, chance: random.Random) -> list[Transaction]:
    """So many records in transactions that are committed, and half as many in others, which are aborted."""
    fates = [True] * (TRANSACTIONS * 2 // 3) + [False] * (TRANSACTIONS // 3)
    chance.shuffle(fates)
    sizes = {fate: _sizes(total, fates.count(fate), chance) for fate, total in ((True, records), (False, records // 2))}
    made: list[Transaction] = []
    first = 0
    for number, fate in enumerate(fates):
        end = first + next(sizes[fate])
        made.append(Transaction(first, end, number * HOURS // TRANSACTIONS, fate))
        first = end
    return made


def _sizes(total: int, count: int, chance: random.Random) -> Iterator[int]:
    edges = [0, *sorted(chance.randint(0, total) for _ in range(count - 1)), total]
    return (b - a for a, b in zip(edges, edges[1:], strict=False))


class Feed(threading.Thread):
    """Sends so many records that are committed, and half as many that are aborted, one hour of them after the other.

    How far it may go, ``release`` says. ``hour``: the one that it sends now; ``committed``: names of what it has
    committed, without the poison.
    """

    def __init__(self, servers: str, topic: str, records: int, seed: int):
        super().__init__(daemon=True)
        self._servers, self._topic, self._chance = servers, topic, random.Random(seed + 1)
        self._plan = transactions(records, self._chance)
        self._released = threading.Condition()
        self._share = 0.0
        self._fast = False
        self._failed: Exception | None = None
        self.hour = 0
        self.tries = 0
        self.committed: list[str] = []

    def run(self) -> None:
        """Send all."""
        try:
            self._send_all()
        except Exception as error:  # the thread that waits for it raises it
            self._failed = error

    def release(self, share: float) -> None:
        """Let it send the transactions up to a share of all."""
        with self._released:
            self._share = max(share, self._share)
            self._released.notify()

    def finish(self) -> None:
        """Let it send the rest without pauses, and wait until the broker has all."""
        self._fast = True
        self.release(1.0)
        self.join()
        if self._failed is not None:
            raise self._failed

    def _send_all(self) -> None:
        settings = {"bootstrap.servers": self._servers, "transactional.id": "attack", "log_level": 0, "linger.ms": 20}
        settings |= {"transaction.timeout.ms": _TIMEOUT_MS, "message.timeout.ms": _TIMEOUT_MS}
        producer = Producer(settings)
        _until_done(producer.init_transactions)
        for number, one in enumerate(self._plan):
            with self._released:
                self._released.wait_for(lambda number=number: self._share * TRANSACTIONS >= number)  # type: ignore[misc]
            self.hour = one.hour
            while not self._send(producer, one):
                pass
            if one.commit:
                numbers = (n for n in range(one.first, one.end) if n % POISON_EVERY)
                self.committed += [name(n) for n in numbers]

    def _send(self, producer: Producer, one: Transaction) -> bool:
        """Send a transaction, and end it; False if the broker has aborted it, so that it is to be sent once more."""
        self.tries += 1
        try:
            producer.begin_transaction()
            for number in range(one.first, one.end):
                self._produce(producer, record(number, one.hour))
            # What has not been sent, an abort would throw away.
            while producer.flush(10):
                pass
            if not self._fast and self._chance.random() < 0.25:
                time.sleep(self._chance.uniform(0, 3))
            _until_done(producer.commit_transaction if one.commit else producer.abort_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _until_done(producer.abort_transaction)
            return False
        return True

    def _produce(self, producer: Producer, one: Record) -> None:
        while True:
            try:
                producer.produce(self._topic, one.value, one.key, timestamp=one.timestamp_ms)
                return
            except BufferError:
                producer.poll(0.5)


def name(number: int) -> str:
    """The id of a record."""
    return f"o{number:07d}"


def record(number: int, hour: int) -> Record:
    """An order of the hour, or of the one before; one in two thousand is poison."""
    minute = 60 * (hour - (number % _LATE_EVERY == 0 and hour > 0))
    one = order(number % _PLACES, minute=minute)
    text = json.dumps(dict(json.loads(one.value or b"{}"), id=name(number))).encode()
    return Record(text[:-10] if number % POISON_EVERY == 0 else text, one.key, timestamp_ms=one.timestamp_ms)


def _until_done(act: Callable[[float], None]) -> None:
    """Do what a broker that is away makes impossible, until it is done."""
    while True:
        try:
            act(10)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
