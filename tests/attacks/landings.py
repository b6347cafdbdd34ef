"""A topic is landed and ingested while broker, landing, stages and their JVMs and workers are killed at random: each
record is in events or in quarantine, once, and what has landed is what the topic has.

Everything is real: Apache Kafka's broker, the commands as users type them, kill -9. While processes die, a producer
sends records whose hours move on, so that many land after their hour was closed. At the end all hours are run without
any kill, and what is in the tables is compared with what a plain reader sees in the topic.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
from confluent_kafka import Producer
from tests.kafka.landing import START, Landing, order
from tests.kafka.topics import Record, Topics

from tidegate.examples.broker import Broker, missing

ROOT = Path(__file__).resolve().parents[2]
RECORDS, KILLS = 100_000, 20
PARTITIONS, HOURS, CHUNKS = 4, 6, 60
_POISON_EVERY = 97
# A lease of a process that was killed has to end before another one lands.
_LEASE_S = 60.0
_ENDS_S = 600


def attack(seed: int, folder: Path, records: int = RECORDS, kills: int = KILLS) -> tuple[int, list[str]]:
    """So many kills while so many records come; how many kills there were, and what was wrong."""
    if missing():
        raise RuntimeError(missing())
    chance = random.Random(seed)
    topics: Topics | None = None
    with Broker(folder / "broker") as broker:
        topics = Topics(broker.servers)
        topics.create("orders", PARTITIONS)
        mine = Landing(folder, broker.servers, "orders", {"maxOffsetsPerTrigger": str(max(records // 20, 1000))})
        mine.declare()
        feed = Feed(broker.servers, records, seed)
        feed.start()
        faults = _kill_all(mine, broker, feed, kills, chance)
        broker.start()
        feed.hurry()
        faults += _finish(mine)
        faults += _compare(mine, topics)
    return kills, faults


class Feed(threading.Thread):
    """Sends the records in chunks, one hour of them after the other. It survives the broker's death."""

    def __init__(self, servers: str, records: int, seed: int):
        super().__init__(daemon=True)
        self._servers, self._records, self._chance = servers, records, random.Random(seed + 1)
        self._fast = threading.Event()
        self.hour = 0

    def run(self) -> None:
        """Send all, with pauses unless in a hurry."""
        settings = {"bootstrap.servers": self._servers, "enable.idempotence": True, "message.timeout.ms": 0}
        producer = Producer({**settings, "log_level": 0, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
        for chunk in range(CHUNKS):
            self.hour = chunk * HOURS // CHUNKS
            for number in range(chunk * self._records // CHUNKS, (chunk + 1) * self._records // CHUNKS):
                one = self.record(number, self.hour)
                while True:
                    try:
                        producer.produce("orders", one.value, one.key, timestamp=one.timestamp_ms)
                        break
                    except BufferError:
                        producer.poll(0.5)
            producer.poll(0)
            self._fast.wait(self._chance.uniform(0, 10))
        while producer.flush(10):
            pass

    def record(self, number: int, hour: int) -> Record:
        """An order of the hour; one in a hundred is poison."""
        one = order(number % 300_000, minute=60 * hour)
        value = dict(json.loads(one.value or b"{}"), id=f"o{number:07d}")
        text = json.dumps(value).encode()
        return Record(text[:-10] if number % _POISON_EVERY == 0 else text, one.key, timestamp_ms=one.timestamp_ms)

    def hurry(self) -> None:
        """Send the rest without pauses, and wait until the broker has all."""
        self._fast.set()
        self.join()


def _kill_all(mine: Landing, broker: Broker, feed: Feed, kills: int, chance: random.Random) -> list[str]:
    faults: list[str] = []
    done = 0
    while done < kills:
        command = _command(mine, feed.hour, chance)
        with Running(command, mine.folder / "said.log") as running:
            # Mostly while it works; now and then it may end, so that there is something to go on from.
            until = time.monotonic() + chance.choice([chance.uniform(0, 20), chance.uniform(0, 20), 2 * _LEASE_S])
            while time.monotonic() < until and running.alive() and done < kills:
                if chance.random() < 0.02:
                    broker.kill()
                    done += 1
                    time.sleep(chance.choice([0, 0, chance.uniform(0, 5), 20]))
                    broker.start()
                time.sleep(0.25)
            if running.alive():
                running.kill(chance)
                done += 1
            elif running.crashed():
                faults.append(f"{' '.join(command[3:6])} ended with a traceback:\n{running.said()}")
        faults += [f"left behind: {line}" for line in running.left()]
    return faults


def _command(mine: Landing, hour: int, chance: random.Random) -> list[str]:
    """What is run next: landing alone, landing without end, or landing and ingest of the hours so far."""
    start = [sys.executable, "-m", "tidegate.cli"]
    which = chance.choice(["land", "live", "run", "run"])
    if which != "run":
        more = ["--live", "--every", "500ms"] if which == "live" else []
        return [*start, "land", str(mine.pipeline), "--warehouse", str(mine.warehouse), *more]
    return [*start, *_run(mine, chance.randint(1, max(hour, 1)))]


def _run(mine: Landing, hours: int) -> list[str]:
    end = START + timedelta(hours=hours)
    span = ["--from", f"{START:%Y-%m-%dT%H}", "--to", f"{end:%Y-%m-%dT%H}", "--stage", "land", "--stage", "ingest"]
    return ["run", str(mine.pipeline), "--warehouse", str(mine.warehouse), *span]


class Running:
    """A command that runs, with all that it has started."""

    def __init__(self, command: list[str], log: Path):
        self._log = log
        self._mark = f"tidegate-attack-{os.getpid()}-{time.monotonic_ns()}"
        with log.open("wb") as said:
            env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "TIDEGATE_ATTACK": self._mark}
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env, cwd=ROOT
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive():
            self._process.kill()
        self._process.wait()

    def alive(self) -> bool:
        """Whether the command itself still runs."""
        return self._process.poll() is None

    def crashed(self) -> bool:
        """Whether it ended by itself, and not in a sentence."""
        return self._process.returncode not in (0, 2) or "Traceback" in self.said()

    def said(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-3000:]

    def kill(self, chance: random.Random) -> None:
        """Kill -9: the command, its JVM, one of its workers, or all at once."""
        parent = psutil.Process(self._process.pid)
        tree = [parent, *parent.children(recursive=True)]
        victims = chance.choice([[parent], tree, [chance.choice(tree)]])
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        if parent not in victims:
            # It may go on, or end in a sentence; either is right.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(chance.uniform(0, 10))

    def left(self) -> Iterator[str]:
        """Processes that it has started and that are there half a minute later."""
        until = time.monotonic() + 30
        while (alive := list(self._descendants())) and time.monotonic() < until:
            time.sleep(0.5)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                yield " ".join(process.cmdline())[:200]
                process.kill()

    def _descendants(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("TIDEGATE_ATTACK") == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def _finish(mine: Landing) -> list[str]:
    """Run all hours without a kill, and those into which late records were raised."""
    command = [sys.executable, "-m", "tidegate.cli", *_run(mine, HOURS + 2)]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=_ENDS_S)
    return [] if done.returncode == 0 else [f"the last run ended with {done.returncode}:\n{done.stderr[-3000:]}"]


def _compare(mine: Landing, topics: Topics) -> list[str]:
    """What is wrong with the tables, given what a plain reader sees in the topic."""
    sent = topics.read("orders")
    places = [(row["generation"], row["partition"], row["position"], row["value"]) for row in mine.landed()]
    expected = [(0, record.partition, record.offset, record.value) for record in sent]
    faults = differences("landed", places, expected)
    values = {(record.partition, record.offset): record.value or b"" for record in sent}
    good = {place: json.loads(value)["id"] for place, value in values.items() if value.endswith(b"}")}
    poison = sorted(str(offset) for place, _ in values.items() if place not in good for offset in place[1:])
    faults += differences("events", mine.events(), sorted(good.values()))
    return faults + differences("quarantine", [str(row["position"]) for row in mine.quarantine()], poison)


def differences(what: str, seen: Iterable[object], expected: Iterable[object]) -> list[str]:
    """What is too much, and what is missing."""
    there, should = Counter(map(repr, seen)), Counter(map(repr, expected))
    faults = []
    if there - should:
        faults.append(f"{what}: {(there - should).total()} too many, such as {next(iter(there - should))}")
    if should - there:
        faults.append(f"{what}: {(should - there).total()} missing, such as {next(iter(should - there))}")
    return faults
