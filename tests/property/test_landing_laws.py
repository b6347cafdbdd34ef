"""Landing, ingest of intervals, live steps, re-runs, kills, lost checkpoints and compaction in any order.

Each record is in exactly one interval, for ever the same.

The rule is written down a second time here, record by record, as design has it. Spark is not needed: what its tasks
write, and what its driver commits, is called as Spark calls it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.examples import examples

from tidegate.declarations.models import Column, KafkaSource, Stream, from_us, to_us
from tidegate.landing.writer import LandingPlan, TaskFiles
from tidegate.sources.formats import Reading
from tidegate.sources.landed import LandedReader, LandedSource
from tidegate.sources.records import Judged, judge
from tidegate.store.landed import LandedFile, LandedTable, Landings, landed_name, landed_schema
from tidegate.store.landed_upkeep import compact
from tidegate.store.watermarks import Announcements, Watermarks

LENGTH_US, EARLY_S = 10_000_000, 3
START_US = to_us(datetime(2026, 1, 5, tzinfo=UTC))
STREAM = Stream(
    name="orders",
    format="jsonl",
    source=KafkaSource(servers="nowhere:1", topic="orders"),
    columns=(
        Column(name="id", type="string"),
        Column(name="at", type="timestamp"),
        Column(name="received", type="timestamp"),
    ),
    event_time="at",
    arrival_time="received",
    id=("id",),
    rate=1.0,
    max_early_s=EARLY_S,
    max_late_s=10**8,
)


@dataclass
class Record:
    """A record as the model knows it; ``batch`` None: it has not landed."""

    name: str
    arrival_us: int | None
    landed_us: int = 0
    batch: int | None = None


@dataclass
class World:
    """A topic, a landed table, and those who use it."""

    folder: Path
    rng: random.Random
    now_us: int = START_US
    records: list[Record] = field(default_factory=list)
    spark_batch: int = 0
    closed: dict[int, frozenset[str]] = field(default_factory=dict)
    steps: dict[int, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = LandedTable(self.folder / landed_name(STREAM))
        self.table.create(landed_schema(STREAM))
        epoch = self.table.take_lease(10**6)
        assert epoch is not None
        self.epoch = epoch
        self.begin_checkpoint()

    # ---- what Spark does

    def begin_checkpoint(self) -> None:
        self.table.refresh()
        state = self.table.state()
        base = state.last_batch + 1 if state.checkpoint >= 0 else 0
        number = self.table.begin_checkpoint(self.epoch, base, 0)
        self.plan = LandingPlan(STREAM, str(self.folder), "", LENGTH_US, self.epoch, number, base, 0)
        self.spark_batch = 0

    def land(self) -> None:
        """A micro-batch of one or two tasks, each of which may run twice; the driver may die at any point."""
        batch = [self._record() for _ in range(self.rng.randrange(5))]
        files: list[LandedFile] = []
        half = len(batch) // 2
        for partition, some in enumerate((batch[:half], batch[half:])):
            if self.rng.random() < 0.3:
                self._task(partition, some)  # dies: what it wrote is named by nobody
            files += self._task(partition, some)
        if self.rng.random() < 0.2:
            return  # killed before it landed: these records come again, as others here
        number = self.plan.base + self.spark_batch
        assert self.table.land(files, self.epoch, self.plan.number, self.spark_batch)
        landings = Landings(self.folder)
        for record in batch:
            record.batch, record.landed_us = number, self.now_us
        self.records += batch
        if self.rng.random() < 0.3:
            # Killed between the two commits: Spark gives the batch again, which is seen to be there.
            assert not self.table.land(files, self.epoch, self.plan.number, self.spark_batch)
        landings.add(STREAM.name, number, 0, read_to_us=self.now_us)
        self.spark_batch += 1
        if self.rng.random() < 0.15:
            self.begin_checkpoint()

    def _task(self, partition: int, some: Sequence[Record]) -> list[LandedFile]:
        if not some:
            return []
        files = TaskFiles(self.plan, self.spark_batch, partition, self.now_us)
        first = len(self.records)
        values = [
            json.dumps(
                {
                    "id": r.name,
                    "at": from_us(START_US).isoformat(),
                    "received": "?" if r.arrival_us is None else from_us(r.arrival_us).isoformat(),
                }
            ).encode()
            for r in some
        ]
        rows = {
            "partition": pa.array([partition] * len(some), pa.int32()),
            "position": [first + i for i in range(len(some))],
            "key": pa.nulls(len(some), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.nulls(len(some), landed_schema(STREAM).field("headers").type),
            "timestamp": pa.array([self.now_us] * len(some), pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
        files.add(pa.table(rows))
        return files.close()

    def _record(self) -> Record:
        self.made = getattr(self, "made", 0) + 1
        second, rng = 1_000_000, self.rng
        arrival_us = rng.choice(
            [
                None,
                self.now_us + 50 * second,
                self.now_us - rng.randrange(30 * second),
                self.now_us - rng.randrange(3 * second),
                self.now_us + rng.randrange(2 * second),
            ]
        )
        return Record(f"r{self.made}", arrival_us)

    # ---- those who read

    def announce(self, watermark_us: int, by: str) -> None:
        newest = Landings(self.folder).newest().get(STREAM.name)
        batch = -1 if newest is None else newest.batch
        # Whoever looked long ago announces what it saw; nobody may be hurt by it.
        Watermarks(self.folder).announce({STREAM.name: max(batch - self.rng.randrange(3), -1)}, watermark_us, by)

    def known(self) -> Announcements:
        return Watermarks(self.folder).read().get(STREAM.name, Announcements())

    def read(self, start_us: int, end_us: int) -> frozenset[str]:
        """Names of the records that ingest finds, accepted or refused; none comes twice."""
        source = LandedSource(STREAM, self.folder, self.known())
        names: list[str] = []
        for one in source.expected(from_us(start_us), from_us(end_us)):
            for file in one.files:
                for piece in source.pieces(file, from_us(start_us), from_us(end_us), 1):
                    reading = Reading(piece)
                    for batch in LandedReader().read(reading):
                        judged = Judged()
                        assert batch.file is not None
                        judge(STREAM, batch.file, batch, judged)
                        names += [i for t in judged.tuples for i in t.rows.column("event_id").to_pylist()]
                        names += [json.loads(r.text)["id"] for r in judged.refused]
                        assert all(start_us <= us < end_us for us in batch.arrival_us.tolist())
                    assert reading.count.counted == reading.count.read
        assert len(names) == len(set(names))
        return frozenset(names)

    def close(self) -> None:
        number = len(self.closed)
        start_us, end_us = START_US + number * LENGTH_US, START_US + (number + 1) * LENGTH_US
        self.announce(end_us, f"interval {number}")
        # The first interval takes what arrived before it, so that none is left out here.
        self.closed[number] = self.read(start_us if number else START_US - 10**12, end_us)

    # ---- the rule a second time

    def arrival_us(self, record: Record) -> int | None:
        assert record.batch is not None
        marks = self.known()
        pairs = list(zip(marks.batches, marks.watermarks_us, strict=True))
        before = max((w for b, w in pairs if b < record.batch), default=None)
        if record.arrival_us is None or record.arrival_us > record.landed_us + EARLY_S * 1_000_000:
            return before if before is not None else marks.watermarks_us[0] - 1
        return record.arrival_us if before is None else max(record.arrival_us, before)


@pytest.mark.parametrize("seed", range(examples(12)))
def test_each_record_is_in_one_interval_for_ever(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    world = World(tmp_path, rng)
    for _ in range(40):
        world.now_us += rng.randrange(2_000_000)
        match rng.randrange(7):
            case 0 | 1 | 2:
                world.land()
            case 3:
                if START_US + (len(world.closed) + 1) * LENGTH_US <= world.now_us or rng.random() < 0.2:
                    world.close()
            case 4:
                watermark_us = world.now_us - rng.randrange(5_000_000)
                world.announce(watermark_us, "live step")
                world.steps[watermark_us] = world.read(START_US - 10**12, watermark_us)
            case 5:
                for number in rng.sample(sorted(world.closed), min(len(world.closed), 1)):
                    start_us = START_US + number * LENGTH_US if number else START_US - 10**12
                    assert world.read(start_us, START_US + (number + 1) * LENGTH_US) == world.closed[number]
            case 6:
                world.table.refresh()
                compact(world.table, LENGTH_US, fewest=2)
    for watermark_us, names in world.steps.items():
        assert world.read(START_US - 10**12, watermark_us) == names, "a live step missed a record"
    while START_US + len(world.closed) * LENGTH_US < world.now_us + 60_000_000:
        world.close()
    everywhere = [name for names in world.closed.values() for name in names]
    assert sorted(everywhere) == sorted(record.name for record in world.records)
    for number, names in world.closed.items():
        end_us = START_US + (number + 1) * LENGTH_US
        for record in world.records:
            at = world.arrival_us(record)
            assert at is not None
            first = number == 0 and at < end_us
            assert (record.name in names) == (first or end_us - LENGTH_US <= at < end_us)


def test_of_two_who_land_the_one_without_the_lease_stops(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(0))
    files = world._task(0, [Record("a", START_US)])
    other = LandedTable(tmp_path / landed_name(STREAM))
    other.refresh()
    assert other.take_lease() is None
    world.table.renew_lease(world.epoch, 0)
    assert other.take_lease() == world.epoch + 1
    with pytest.raises(Exception, match="another process lands this stream now"):
        world.table.land(files, world.epoch, world.plan.number, 0)
    other.refresh()
    assert other.files() == []


def test_a_query_whose_client_has_died_keeps_no_lease(tmp_path: Path) -> None:
    """It goes on landing on a Spark Connect server; on another machine nobody knows that its client is gone."""
    world = World(tmp_path, random.Random(0))
    world.table.renew_lease(world.epoch, 0.2)
    assert world.table.land(world._task(0, [Record("a", START_US)]), world.epoch, world.plan.number, 0)
    other = LandedTable(tmp_path / landed_name(STREAM))
    time.sleep(0.3)
    epoch = other.take_lease()
    assert epoch == world.epoch + 1
    files = world._task(0, [Record("b", START_US)])
    with pytest.raises(Exception, match="another process lands this stream now"):
        world.table.land(files, world.epoch, world.plan.number, 1)
    assert other.land(files, epoch, world.plan.number, 1)


def test_the_lease_of_a_process_that_was_killed_is_taken_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(0))
    world.table.renew_lease(world.epoch, 0)
    code = (
        "import sys, time; from pathlib import Path; from tidegate.store.landed import LandedTable\n"
        "print(LandedTable(Path(sys.argv[1])).take_lease(), flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(world.table.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{world.epoch + 1}\n"
        assert world.table.take_lease() is None
        process.kill()
    assert world.table.take_lease() == world.epoch + 2
