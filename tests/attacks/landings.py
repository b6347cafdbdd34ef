"""A topic is landed and ingested while broker, landing, stages, Connect server, JVMs and workers are killed at random:
each record is in events or in quarantine, once, none of an aborted transaction, and what has landed is what the topic
has.

Everything is real: Apache Kafka's broker, the commands as users type them, `tidegate spark-server`, kill -9. While
processes die, a producer sends records in transactions, a third of which it aborts, and whose hours move on, so that
many land after their hour was closed.

There are two warehouses. In the first one hours are closed all the time; in the second nothing is closed before all
has landed, so that nothing lands late. At the end all hours are run without any kill, and the tables are compared with
what a plain reader sees in the topic, with each other (one landing, hourly runs and one run over the day, and both from
a copy of the landed table and the announcements), and with those of a re-run after the topic was deleted.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from tests.attacks.killed_commands import TIDEGATE, ConnectServer, Running, left
from tests.attacks.transactions import HOURS, Feed
from tests.kafka.landing import START, Landing
from tests.kafka.topics import Record, Topics

from tidegate.declarations import load_pipeline
from tidegate.examples.broker import Broker, missing
from tidegate.store.warehouse import Warehouse

RECORDS, KILLS, MINUTES = 100_000, 20, 240.0
PARTITIONS = 4
# Late records are in the hours that are open when they land.
_RUN_HOURS = HOURS + 2
_ENDS_S = 3600.0
_LONG_S = 240.0
# What a command has come to, and the files of its warehouse of which there is one more then.
_PHASES = {
    "with the lease": "landed_orders/_delta_log/*.json",
    "in a batch": "landed_orders/day=*/*.parquet",
    "after an announcement": "watermarks/_delta_log/*.json",
    "after a commit": "_commits/_delta_log/*.json",
}
_LANDED = ("landed_orders", "landings", "watermarks")
_TABLES = {"events_orders": ("interval", "event_id"), "quarantine": ("interval", "source", "position")}
Rows = dict[str, pa.Table]


def attack(
    seed: int, folder: Path, records: int = RECORDS, kills: int = KILLS, minutes: float = MINUTES
) -> tuple[int, list[str]]:
    """So many kills while so many records come, or those of so many minutes; how many kills there were, and what was
    wrong.
    """
    if missing():
        raise RuntimeError(missing())
    clock = time.monotonic()
    with Broker(folder / "broker") as broker:
        topics = Topics(broker.servers)
        topics.create("orders", PARTITIONS)
        options = {
            "maxOffsetsPerTrigger": str(max(records // 100, 500)),
            "kafka.isolation.level": "read_committed",
        }
        closing = Warehoused(folder, broker.servers, "orders", options, name="closing")
        closing.declare()
        campaign = Campaign(
            random.Random(seed),
            closing,
            replace(closing, name="open"),
            broker,
            ConnectServer(folder / "server"),
            Feed(broker.servers, "orders", records, seed),
        )
        try:
            campaign.kill_all(kills, clock + 60 * minutes)
            campaign.say(f"{time.monotonic() - clock:.0f} s: killed", *campaign.figures())
            for one in (campaign.closing, campaign.open):
                if any(one.tables.glob("landed_orders/_delta_log/*.json")):
                    campaign.say(f"{one.name}: {len(one.landed())} records landed under kills")
            campaign.finish(topics)
        finally:
            campaign.add(campaign.server.stop())
        campaign.add(f"left behind at the end: {line}" for line in left())
        campaign.say(f"{time.monotonic() - clock:.0f} s: compared")
    return campaign.killed.total(), campaign.faults


@dataclass
class Warehoused(Landing):
    """The pipeline in a warehouse of its own; ``name``: what that is called."""

    name: str = "warehouse"

    @property
    def warehouse(self) -> Path:
        """The warehouse."""
        return self.folder / self.name

    @property
    def tables(self) -> Path:
        """The pipeline's folder in it."""
        return self.warehouse / self.pipeline.name

    def land(self, *more: str) -> list[str]:  # type: ignore[override]
        """The command that lands."""
        return [*TIDEGATE, "land", str(self.pipeline), "--warehouse", str(self.warehouse), *more]

    def run(self, first: int, end: int) -> list[str]:
        """The command that lands and ingests hours."""
        since, until = (f"{START + timedelta(hours=hour):%Y-%m-%dT%H}" for hour in (first, end))
        span = ["--from", since, "--to", until, "--stage", "land", "--stage", "ingest"]
        return [*TIDEGATE, "run", str(self.pipeline), "--warehouse", str(self.warehouse), *span]

    def copied(self, name: str) -> Warehoused:
        """Another warehouse, with what has landed in this one and its announcements, and nothing else."""
        other = replace(self, name=name)
        for table in _LANDED:
            shutil.copytree(self.tables / table, other.tables / table)
        return other

    def ingested(self) -> Rows:
        """The rows of events and quarantine with their hours, sorted."""
        warehouse = Warehouse(self.warehouse, load_pipeline(self.pipeline))
        return {
            table: warehouse.read_arrow(table).combine_chunks().sort_by([(key, "ascending") for key in keys])
            for table, keys in _TABLES.items()
        }


class Moment:
    """When a command is to be killed: some seconds after it began, or after it has come to a phase of its work."""

    def __init__(self, folder: Path, chance: random.Random, ingests: bool):
        phases = ["at any time", *_PHASES]
        [self.phase] = chance.choices(phases, [2, 1, 6, ingests, ingests])
        self._folder, self._files = folder, _PHASES.get(self.phase)
        self._pause_s = chance.uniform(0, 20) if self._files is None else chance.choice([0, chance.uniform(0, 3)])
        # Now and then some batches are to land before.
        self._files_wanted = self._count() + (chance.choice([1, 1, 5, 25]) if self.phase == "in a batch" else 1)
        self._began = time.monotonic()
        self._reached = self._began if self._files is None else None

    def has_come(self) -> bool:
        """Whether it is now, or has been."""
        now = time.monotonic()
        if self._reached is None and self._count() >= self._files_wanted:
            self._reached = now
        if self._reached is not None:
            return now >= self._reached + self._pause_s
        if now < self._began + _LONG_S:
            return False
        self.phase = "after minutes"
        return True

    def _count(self) -> int:
        return sum(1 for _ in self._folder.glob(self._files)) if self._files is not None else 0


@dataclass
class Campaign:
    """The kills, and the comparison at the end. ``open``: the warehouse in which no hour is closed before the end."""

    chance: random.Random
    closing: Warehoused
    open: Warehoused
    broker: Broker
    server: ConnectServer
    feed: Feed
    faults: list[str] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)

    def say(self, *words: object) -> None:
        """How far it is."""
        print(*words, flush=True, file=sys.stderr)

    def add(self, faults: Iterable[str]) -> None:
        """Faults, which are said at once."""
        for fault in faults:
            self.say(fault)
            self.faults.append(fault)

    def figures(self) -> Iterator[str]:
        """What was killed and what ended by itself, how often."""
        yield ", ".join(f"{number} {what}" for what, number in sorted(self.killed.items()))
        yield "; ended: " + ", ".join(f"{number} {what}" for what, number in sorted(self.ended.items()))
        yield f"; {self.feed.tries} transactions, {len(self.feed.committed)} good records committed; "

    # ---------------------------------------------------------------- kills

    def kill_all(self, kills: int, until: float) -> None:
        """Kill so often, or until then, while commands run one after the other."""
        self.feed.start()
        said, began = 0, time.monotonic()
        while self.killed.total() < kills and time.monotonic() < until:
            self._one_command(kills)
            passed = (time.monotonic() - began) / (until - began)
            self.feed.release(max((self.killed.total() + 1) / kills, passed))
            if self.killed.total() >= said + 10:
                said = self.killed.total()
                self.say(*self.figures(), f"hour {self.feed.hour}, {len(self.faults)} faults")

    def _one_command(self, kills: int) -> None:
        remote = self.chance.random() < 0.5
        warehouse, what, command = self._command()
        ingests, environment = what == "run", {}
        self.add(self.server.start())
        if remote:
            what += " by the server"
            environment["SPARK_REMOTE"] = self.server.address
            if self.chance.random() < 0.8:
                self.server.wait_until_up()
        with Running(command, self.closing.folder / "command.log", environment) as running:
            killed = False
            # What loses a worker goes on.
            while running.alive() and self.killed.total() < kills:
                killed = self._kill_at_a_moment(running, what, Moment(warehouse.tables, self.chance, ingests), remote)
            if not killed and not running.alive():
                self.ended[what] += 1
                if running.crashed():
                    self.add([f"{what} ended with a traceback:\n{running.said()}"])
        self.add(f"left behind by {what}: {line}" for line in running.left())

    def _kill_at_a_moment(self, running: Running, what: str, moment: Moment, remote: bool) -> bool:
        """Kill a command, or what it needs, when its moment has come; whether the command itself was killed."""
        while not moment.has_come():
            if not running.alive():
                return False
            time.sleep(0.25)
        if not running.alive():
            return False
        victim = self.chance.choice(["command", "command", "broker", "server" if remote else "command"])
        if victim == "broker":
            self.broker.kill()
            time.sleep(self.chance.choice([0, 0, self.chance.uniform(0, 5), 20]))
            self.broker.start()
        elif victim == "server":
            victim = self.server.kill(self.chance)
            self.add(self.server.start())
        else:
            victim = running.kill(self.chance)
        self.killed[f"{victim}, {what} {moment.phase}"] += bool(victim)
        return victim in ("command", "tree")

    def _command(self) -> tuple[Warehoused, str, list[str]]:
        """What is run next: landing alone, landing without end, or landing and ingest of the hours so far."""
        warehouse = self.open if self.chance.random() < 0.35 else self.closing
        what = self.chance.choice(["land", "live landing"] + ["run"] * 4 * (warehouse is self.closing))
        if what == "run":
            end = self.chance.randint(1, max(self.feed.hour, 1))
            return warehouse, what, warehouse.run(self.chance.choice([0, end - 1]), end)
        return warehouse, what, warehouse.land(*(["--live", "--every", "0.5s"] if what == "live landing" else []))

    # ---------------------------------------------------------------- the end

    def finish(self, topics: Topics) -> None:
        """Run all hours without a kill, in all ways, and compare."""
        self.broker.start()
        self.feed.finish()
        day, single = replace(self.open, name="day"), self.closing
        self._complete(single.run(0, _RUN_HOURS))
        self._complete(self.open.land())
        self._hourly(self.open)
        self._complete(day.run(0, _RUN_HOURS))
        before = single.ingested()
        self._judge(topics.read("orders", patience_s=_ENDS_S), [single, self.open, day])
        self._same("landed in pieces or at once", self.open.ingested(), day.ingested())

        topics.delete("orders")
        again = [single, single.copied("copied-by-hour"), single.copied("copied-by-day")]
        self._complete(single.run(0, _RUN_HOURS))
        self._hourly(again[1])
        self._complete(again[2].run(0, _RUN_HOURS))
        for one in again:
            self._same(f"{one.name} without the topic", one.ingested(), before)
        self._complete(self.open.run(0, _RUN_HOURS))
        self._same("open without the topic", self.open.ingested(), day.ingested())

    def _hourly(self, one: Warehoused) -> None:
        for hour in range(_RUN_HOURS):
            self._complete(one.run(hour, hour + 1))

    def _complete(self, command: list[str]) -> None:
        """Run a command to its end."""
        with Running(command, self.closing.folder / "command.log") as running:
            until = time.monotonic() + _ENDS_S
            while running.alive() and time.monotonic() < until:
                time.sleep(0.1)
            if running.alive() or running.crashed() or "tidegate: error" in running.said():
                self.add([f"{' '.join(command[3:])} did not end well:\n{running.said()}"])

    def _judge(self, sent: list[Record], warehouses: list[Warehoused]) -> None:
        """What is wrong with tables, given what a plain reader sees in the topic."""
        values = {(f"orders/{one.partition}", one.offset): one.value or b"" for one in sent}
        good = [json.loads(value)["id"] for value in values.values() if value.endswith(b"}")]
        self.add(differences("the topic, by what was committed", good, self.feed.committed))
        poison = [place for place, value in values.items() if not value.endswith(b"}")]
        expected = [(0, one.partition, one.offset, one.value) for one in sent]
        for one in warehouses:
            places = [(row["generation"], row["partition"], row["position"], row["value"]) for row in one.landed()]
            rows = one.ingested()
            refused = rows["quarantine"]
            pairs = zip(refused.column("source").to_pylist(), refused.column("position").to_pylist(), strict=True)
            self.add(differences(f"{one.name}: landed", places, expected))
            self.add(differences(f"{one.name}: events", rows["events_orders"]["event_id"].to_pylist(), good))
            self.add(differences(f"{one.name}: quarantine", pairs, poison))
            counts = ", ".join(f"{table.num_rows} {name}" for name, table in rows.items())
            hours = Counter(rows["events_orders"]["interval"].to_pylist())
            self.say(f"{one.name}: {len(places)} landed, {counts}; {dict(sorted(hours.items()))}")

    def _same(self, what: str, seen: Rows, expected: Rows) -> None:
        for table, rows in seen.items():
            if not rows.equals(expected[table]):
                unlike = differences(f"{what}: {table}", rows.to_pylist(), expected[table].to_pylist())
                self.add(unlike or [f"{what}: {table} is in another order"])


def differences(what: str, seen: Iterable[object], expected: Iterable[object]) -> list[str]:
    """What is too much, and what is missing."""
    there, should = Counter(map(repr, seen)), Counter(map(repr, expected))
    faults = []
    if there - should:
        faults.append(f"{what}: {(there - should).total()} too many, such as {next(iter(there - should))}")
    if should - there:
        faults.append(f"{what}: {(should - there).total()} missing, such as {next(iter(should - there))}")
    return faults
