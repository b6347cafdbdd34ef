"""One landing query: from a stream's source into its landed table, as far as the source goes, or without end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import KafkaSource, Pipeline, SparkSource, Stream
from tidegate.declarations.variables import expanded
from tidegate.landing.failures import sentence_of
from tidegate.landing.kafka import Topic, TopicWatch, described, watch_of
from tidegate.store import parquet
from tidegate.store.landed import (
    LEASE_S,
    LandedTable,
    Landing,
    Landings,
    landed_name,
    landed_schema,
)
from tidegate.store.landed_upkeep import compact
from tidegate.store.places import ObjectPath, Place, place
from tidegate.store.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidegate.landing.idle import IdleListener

CHECKPOINTS = "_checkpoints"
_RENEW_S = LEASE_S / 3
_SAY_S = 10.0
_TIDY_BATCHES = 200
_READ_TO_EVERY_US = 60_000_000
_FILE_SOURCES = ("text", "json", "csv", "parquet", "orc")
# A file server's clock may be another than ours by so much.
_CLOCKS_APART_US = 10_000_000
_DEFAULT_OFFSETS = "1000000"
# All of a fetch at once: Spark asks the broker for the first and the last offset after each poll, by default of 500.
_POLL_RECORDS = "50000"
_ARROW = "spark.sql.execution.arrow"
# By default Spark asks after each record how large its block for Python is by now: a seventh of what a landing costs.
# Bounded by its rows it is bounded too, as Kafka bounds a record by its topic's max.message.bytes (1 MiB).
_BY_ROWS = {f"{_ARROW}.maxRecordsPerBatch": "256", f"{_ARROW}.maxBytesPerBatch": str(2**31 - 1)}
# A job of a task for each file that is looked at, from 33 files on, is for stores that take long to answer.
_LISTED_HERE = {"spark.sql.sources.parallelPartitionDiscovery.threshold": str(10**6)}
Say = Callable[[str], None]


@dataclass
class Landed:
    """What a landing query did: records and batches, and up to when the source was read.

    ``is_other_topic``: it has stopped because the topic was deleted and made again.
    """

    records: int = 0
    batches: int = 0
    read_to_us: int | None = None
    is_other_topic: bool = False


@dataclass(frozen=True)
class Start:
    """Where a landing query begins: the number, the base and the generation of its checkpoint.

    Of a checkpoint that begins where others have ended: ``known``, file of the source → rows of it that have landed, or
    Kafka's ``offsets``.
    """

    number: int
    base: int
    generation: int
    known: dict[str, int] | None = None
    offsets: str | None = None


@dataclass
class LandingQuery:
    """The landing of one stream. ``session``: gives a Spark session, if one is needed. ``say``: tells how far it is."""

    pipeline: Pipeline
    warehouse: Warehouse
    stream: Stream
    session: Callable[[], SparkSession]
    say: Say
    table: LandedTable = field(init=False)
    landings: Landings = field(init=False)

    def __post_init__(self) -> None:
        self.table = LandedTable(self.warehouse.folder / landed_name(self.stream))
        self.landings = Landings(self.warehouse.folder)

    def run(self, every_s: float | None, stop: Callable[[], bool]) -> Generator[None, None, Landed]:
        """Land what the source has now; with ``every_s``, go on until ``stop`` says so, a batch that often.

        Spark does the work: this yields while there is nothing to do here.

        Raises:
            UserError: the source cannot be read; what has landed before stays.
        """
        try:
            return (yield from self._run(every_s, stop))
        except UserError:
            raise
        except Exception as error:
            sentence = sentence_of(error, self.stream)
            if sentence is None:
                raise
            raise UserError(sentence) from None

    def _run(self, every_s: float | None, stop: Callable[[], bool]) -> Generator[None, None, Landed]:
        there = self.table.refresh()
        if not there:
            self._prepare()
        with self._lease() as epoch:
            if epoch is None:
                return (yield from self._wait_for_other(every_s, stop))
            now_us = time.time_ns() // 1000
            topic = described(self.stream.source) if isinstance(self.stream.source, KafkaSource) else None
            if there and every_s is None and self._has_nothing_new(topic):
                newest = self.landings.newest()[self.stream.name]
                self.landings.add(self.stream.name, newest.batch, newest.generation, read_to_us=now_us)
                return Landed(read_to_us=now_us)
            if there:
                self._prepare()
            before, batches = self._rows(), 0
            while True:
                landed = yield from self._follow(epoch, self._begin(epoch, topic), topic, every_s, stop)
                batches += landed.batches
                if not landed.is_other_topic:
                    # Counted by the table: what came a second time, after a kill or from a file, is not counted again.
                    return replace(landed, records=self._rows() - before, batches=batches)
                assert isinstance(self.stream.source, KafkaSource)
                topic = described(self.stream.source)

    def _rows(self) -> int:
        self.table.refresh()
        return sum(file.rows for file in self.table.files())

    def _has_nothing_new(self, topic: Topic | None) -> bool:
        """Whether it is certain, without Spark, that all that the source has has landed."""
        newest, state = self.landings.newest().get(self.stream.name), self.table.state()
        if newest is None or newest.read_to_us is None or state.spark_batch < 0 or newest.batch != state.last_batch:
            return False
        if not self._has_begun(state.checkpoint, state.spark_batch):
            return False
        if topic is not None:
            offsets = self._offsets(newest.offsets)
            same = newest.source_id == topic.id and newest.generation == state.generation
            return same and all(offsets.get(partition, 0) == end for partition, end in topic.ends.items())
        if self._files_path is None:
            return False
        where = place(self._files_path)
        if isinstance(where, ObjectPath) or not where.is_dir():
            return False
        return changed_us(str(where)) < newest.read_to_us - _CLOCKS_APART_US

    # ---------------------------------------------------------------- before it starts

    def _prepare(self) -> None:
        # Landed tables are what format 2 is about: an older program is refused before there is one.
        self.warehouse.commits.begin()
        self.table.create(landed_schema(self.stream, self._columns))

    @property
    def spark(self) -> SparkSession:
        """The session, started when it is needed first."""
        return self.session()

    @cached_property
    def _columns(self) -> pa.Schema | None:
        """Those of a source of Spark; None for Kafka, whose records are all alike."""
        if isinstance(self.stream.source, KafkaSource):
            return None
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self._source_frame({}).schema, timezone="UTC")

    @contextmanager
    def _lease(self) -> Iterator[int | None]:
        epoch = self.table.take_lease()
        try:
            yield epoch
        finally:
            if epoch is not None:
                with suppress(UserError):
                    self.table.renew_lease(epoch, 0)

    def _wait_for_other(self, every_s: float | None, stop: Callable[[], bool]) -> Generator[None, None, Landed]:
        """Until another process, which lands the stream, has read what the source has now."""
        now_us = time.time_ns() // 1000
        self.say(f"{self.stream.name}: another process is landing this stream: waiting for it")
        while not stop():
            newest = self.landings.newest().get(self.stream.name)
            if every_s is None and newest is not None and newest.read_to_us is not None and newest.read_to_us >= now_us:
                return Landed(read_to_us=newest.read_to_us)
            self.table.refresh()
            if not self.table.state().is_leased:
                return (yield from self._run(every_s, stop))
            yield
        return Landed()

    def checkpoint(self, number: int) -> Place:
        """Where Spark keeps its own of the landing."""
        root = self.stream.checkpoint
        folder = self.warehouse.folder / CHECKPOINTS if root is None else place(root) / self.pipeline.name
        return folder / self.stream.name / str(number)

    def _begin(self, epoch: int, topic: Topic | None) -> Start:
        """The checkpoint to go on with, another one where it is gone or the topic was made again."""
        state = self.table.state()
        newest = self.landings.newest().get(self.stream.name)
        generation = state.generation
        if state.checkpoint >= 0 and self._made_anew(topic, newest, generation):
            self.say(f"{self.stream.name}: the topic was deleted and made again: generation {generation + 1} begins")
            base, generation = state.last_batch + 1, generation + 1
            return Start(self.table.begin_checkpoint(epoch, base, generation), base, generation)
        there = state.checkpoint >= 0 and self._has_begun(state.checkpoint, state.spark_batch)
        if there or (state.checkpoint >= 0 and state.spark_batch < 0 and state.base == 0):
            self._refuse_lost(topic, newest)
            return Start(state.checkpoint, state.base, generation)
        base = state.last_batch + 1 if state.checkpoint >= 0 else 0
        known, offsets = None, None
        if base > 0:
            self.say(f"{self.stream.name}: its checkpoint is gone: another one begins where the last batch ended")
            known, offsets = self._resume(generation, newest)
            self._refuse_lost(topic, newest, offsets)
        return Start(self.table.begin_checkpoint(epoch, base, generation), base, generation, known, offsets)

    def _has_begun(self, number: int, spark_batch: int) -> bool:
        """Whether a checkpoint is there, and knows all that has landed under it: not one of an older backup."""
        folder = self.checkpoint(number)
        batches = [int(file.name) for file in (folder / "offsets").glob("*") if file.name.isdigit()]
        return (folder / "metadata").exists() and max(batches, default=-1) >= max(spark_batch, 0)

    def _made_anew(self, topic: Topic | None, newest: Landing | None, generation: int) -> bool:
        if topic is None or newest is None or newest.generation != generation:
            return False
        if newest.source_id:
            return newest.source_id != topic.id
        return any(topic.ends.get(p, 0) < offset for p, offset in self._offsets(newest.offsets).items())

    def _offsets(self, text: str) -> dict[int, int]:
        assert isinstance(self.stream.source, KafkaSource)
        try:
            parts = json.loads(text).get(self.stream.source.topic, {}) if text else {}
        except ValueError:
            parts = {}
        return {int(p): int(offset) for p, offset in parts.items()}

    def _refuse_lost(self, topic: Topic | None, newest: Landing | None, start: str | None = None) -> None:
        """UserError if retention has removed records that have not landed."""
        source = self.stream.source
        if topic is None or not isinstance(source, KafkaSource):
            return
        if source.options.get("failOnDataLoss", "true").lower() == "false":
            return
        offsets = self._offsets(start or (newest.offsets if newest else ""))
        lost = {p: (at, topic.least[p] - 1) for p, at in offsets.items() if topic.least.get(p, 0) > at}
        if lost:
            spans = ", ".join(f"partition {p}: offsets {a} to {b}" for p, (a, b) in sorted(lost.items()))
            raise UserError(
                f"{self.stream.name}: the topic's retention has removed records before they landed ({spans}); to go "
                "on without them, write failOnDataLoss: 'false' under options, land once, and take it out again"
            )

    def _resume(self, generation: int, newest: Landing | None) -> tuple[dict[str, int] | None, str | None]:
        """Where a new checkpoint begins: rows of files that have landed, or offsets."""
        source = self.stream.source
        if isinstance(source, KafkaSource):
            return None, self._next_offsets(generation, newest)
        frame = self._source_frame({})
        if _file_column(frame) is not None:
            return {file: following for (file, _, _), following in self._following().items()}, None
        if source is not None and source.format in ("rate", "rate-micro-batch"):
            return None, None
        if source is not None and any(name.lower().startswith("starting") for name in source.options):
            return None, None
        raise UserError(
            f"{self.stream.name}: the checkpoint of its landing is gone, and a source of format "
            f"'{source.format if source else ''}' cannot be told where to go on: restore {self.checkpoint(0).parent}; "
            "or write under 'options' where it begins, behind what has landed, with an option whose name begins with "
            "'starting' (startingVersion of a Delta table), land once, and take it out again"
        )

    def _next_offsets(self, generation: int, newest: Landing | None) -> str | None:
        """Per partition the offset behind the last that has landed."""
        assert isinstance(self.stream.source, KafkaSource)
        offsets = self._offsets(newest.offsets) if newest is not None and newest.generation == generation else {}
        state = self.table.state()
        if newest is None or newest.batch < state.last_batch or not offsets:
            # The last batch's row is missing: its records say where it ended.
            for (_, of_generation, partition), following in self._following().items():
                if of_generation == generation:
                    offsets[partition] = max(offsets.get(partition, 0), following)
        return json.dumps({self.stream.source.topic: {str(p): o for p, o in sorted(offsets.items())}})

    def _following(self) -> dict[tuple[str, int, int], int]:
        """(Source, generation, partition) → the position behind the last that has landed. Cost: reads the table."""
        keys = ["source", "generation", "partition"]
        following: dict[tuple[str, int, int], int] = {}
        for file in self.table.files():
            rows = parquet.opened(self.table.folder / file.path).read([*keys, "position"])
            for part in rows.group_by(keys).aggregate([("position", "max")]).to_pylist():
                key = part["source"], part["generation"], part["partition"]
                following[key] = max(following.get(key, 0), part["position_max"] + 1)
        return following

    # ---------------------------------------------------------------- the query

    def _plan(self, epoch: int, start: Start) -> str:
        from tidegate.landing.writer import LandingPlan

        return LandingPlan(
            stream=self.stream,
            folder=str(self.warehouse.folder),
            checkpoint=str(self.checkpoint(start.number)),
            interval_us=self.pipeline.interval_s * 1_000_000,
            epoch=epoch,
            number=start.number,
            base=start.base,
            generation=start.generation,
            columns=self._columns,
            known=start.known,
        ).packed()

    def _frame(self, offsets: str | None) -> DataFrame:
        """The source's records as the sink takes them."""
        from tidegate.landing.writer import SOURCE_FILE

        frame = self._source_frame({"startingOffsets": offsets} if offsets is not None else {})
        if isinstance(self.stream.source, KafkaSource):
            return frame.select("partition", frame["offset"].alias("position"), "key", "value", "headers", "timestamp")
        column = _file_column(frame)
        return frame if column is None else frame.select("*", column.alias(SOURCE_FILE))

    def _source_frame(self, more: dict[str, str]) -> DataFrame:
        source = self.stream.source
        assert source is not None
        options = expanded(source.options)
        if isinstance(source, KafkaSource):
            defaults = {
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": _DEFAULT_OFFSETS,
                "kafka.max.poll.records": _POLL_RECORDS,
            }
            options = {**defaults, **options, **more}
            options |= {
                "kafka.bootstrap.servers": expanded({"servers": source.servers})["servers"],
                "subscribe": source.topic,
                "includeHeaders": "true",
            }
            return self.spark.readStream.format("kafka").options(**options).load()
        reader = self.spark.readStream.format(source.format).options(**{**self._relative(source, options), **more})
        return (reader.schema(source.columns) if source.columns else reader).load()

    def _relative(self, source: SparkSource, options: dict[str, str]) -> dict[str, str]:
        """A path in the options is relative to the pipeline's folder."""
        path = options.get("path")
        if path is None or "://" in path or path.startswith("/"):
            return options
        return {**options, "path": str(self.pipeline.folder / path)}

    def _follow(
        self, epoch: int, start: Start, topic: Topic | None, every_s: float | None, stop: Callable[[], bool]
    ) -> Generator[None, None, Landed]:
        from tidegate.landing.writer import NAME, LandingSink

        # Spark looks for sources and sinks in Python in its JVM's active session, which a notebook's other session may
        # be. To make a frame of rows is the public call that makes a session the active one.
        self.spark.createDataFrame([], "nothing INT")
        self.spark.dataSource.register(LandingSink)
        writer = (
            self._frame(start.offsets)
            .writeStream.format(NAME)
            .option("plan", self._plan(epoch, start))
            .option("checkpointLocation", _hadoop(self.checkpoint(start.number)))
            .queryName(f"{self.pipeline.name}.{self.stream.name}")
        )
        trigger: dict[str, Any] = (
            {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
        )
        started_us = time.time_ns() // 1000
        progress = Progress(self.stream.name, self.say)
        query: StreamingQuery | None = None
        watch = self._watch(topic)
        with nullcontext() if every_s is None else self._idleness() as idleness:
            try:
                query = writer.trigger(**trigger).start()
                renewed, tidied, written_us = time.monotonic(), 0, 0
                while query.isActive and not (watch is not None and watch.is_other()):
                    yield
                    progress.look(query)
                    if time.monotonic() - renewed > _RENEW_S:
                        self.table.renew_lease(epoch)
                        renewed = time.monotonic()
                    if idleness is not None:
                        read_to_us = max(progress.read_to_us, self._idle_us(idleness, query))
                        if self._is_worth_writing(written_us, read_to_us):
                            written_us = read_to_us
                            self._write_landing(epoch, start, progress, read_to_us, topic)
                    if progress.batches >= tidied + _TIDY_BATCHES:
                        tidied = progress.batches
                        self.landings.table.merge()
                        compact(self.table, self.pipeline.interval_s * 1_000_000)
                    if stop():
                        break
                if query.isActive:
                    query.stop()
                query.awaitTermination(1)
            except Exception:
                # A topic that is gone, or shorter than it was, is an error for Spark.
                if watch is None or not watch.is_other(at_once=True):
                    raise
            finally:
                if query is not None:
                    with suppress(Exception):
                        query.stop()
        progress.look(query)
        is_other = watch is not None and watch.is_other()
        end_us = None if every_s is not None or is_other else started_us
        self._write_landing(epoch, start, progress, end_us, topic)
        return Landed(progress.records, progress.batches, end_us, is_other)

    @property
    def settings(self) -> dict[str, str]:
        """What a session that is for landing alone is told: it is spared what Spark does for other sources."""
        if isinstance(self.stream.source, KafkaSource):
            return _BY_ROWS
        path = self._files_path
        return _LISTED_HERE if path is not None and "://" not in path else {}

    @property
    def _files_path(self) -> str | None:
        """The path of a source of files, as Spark is told it; None for other sources."""
        source = self.stream.source
        if not isinstance(source, SparkSource) or source.format not in _FILE_SOURCES:
            return None
        return self._relative(source, expanded(source.options)).get("path")

    def _watch(self, topic: Topic | None) -> TopicWatch | None:
        source = self.stream.source
        return watch_of(source, topic) if topic is not None and isinstance(source, KafkaSource) else None

    def _idle_us(self, idleness: IdleListener, query: StreamingQuery) -> int:
        """When the source was seen to have nothing new; 0: never, or Spark may be idle while it waits for more."""
        source = self.stream.source
        if source is None or any(name.lower() == "minoffsetspertrigger" for name in source.options):
            return 0
        return idleness.idle_us.get(str(query.runId), 0)

    @contextmanager
    def _idleness(self) -> Iterator[IdleListener]:
        """Hears when Spark says that the source has nothing new."""
        from tidegate.landing.idle import IdleListener

        listener = IdleListener()
        self.spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1s")
        self.spark.streams.addListener(listener)
        try:
            yield listener
        finally:
            with suppress(Exception):
                self.spark.streams.removeListener(listener)

    def _is_worth_writing(self, before_us: int, now_us: int) -> bool:
        """Whether an interval has ended in between, which can be closed now, or much time has passed."""
        length_us = self.pipeline.interval_s * 1_000_000
        return now_us // length_us > before_us // length_us or now_us >= before_us + _READ_TO_EVERY_US

    def _write_landing(
        self, epoch: int, start: Start, progress: Progress, read_to_us: int | None, topic: Topic | None
    ) -> None:
        """A row of ``landings``: how far the stream has landed."""
        self.table.refresh()
        self.table.require_lease(epoch)
        newest = self.landings.newest().get(self.stream.name)
        offsets = progress.offsets or (newest.offsets if newest and newest.generation == start.generation else "")
        batch, topic_id = self.table.state().last_batch, None if topic is None else topic.id
        self.landings.add(self.stream.name, batch, start.generation, offsets, read_to_us, topic_id)
        self.landings.table.merge()


@dataclass
class Progress:
    """What a query says of itself: counted, and said from time to time.

    ``read_to_us``: start of the last trigger whose batch went to the source's end.
    """

    stream: str
    say: Say
    records: int = 0
    batches: int = 0
    offsets: str = ""
    read_to_us: int = 0
    _seen: int = -1
    _said: float = field(default_factory=time.monotonic)

    def look(self, query: Any) -> None:
        """Take in the batches that are done."""
        for progress in query.recentProgress:
            # By its text: the objects of Spark Connect lack some of what those of a session of one's own have.
            one = json.loads(progress.json)
            if one["batchId"] <= self._seen or not one.get("sources"):
                continue
            self._seen = one["batchId"]
            [source] = one["sources"][:1]
            rows = source.get("numInputRows") or 0
            self.records += rows
            self.batches += rows > 0
            self.offsets = _text(source.get("endOffset")) or self.offsets
            if _behind(source) == {}:
                self.read_to_us = trigger_us(one["timestamp"])
            self._tell(one, source)

    def _tell(self, one: Any, source: Any) -> None:
        now = time.monotonic()
        if now - self._said < _SAY_S:
            return
        self._said = now
        rate = one.get("processedRowsPerSecond") or 0.0
        behind = _behind(source)
        ahead = ""
        if behind:
            total = sum(behind.values())
            most = max(behind, key=lambda partition: behind[partition])
            ahead = f", {total} behind ({behind[most]} of them in partition {most})"
            if rate > 0:
                ahead += f", about {total / rate:.0f} s to go"
        self.say(f"{self.stream}: {self.records} records landed, {rate:.0f} a second{ahead}")


def trigger_us(text: str) -> int:
    """The start of a trigger, as Spark writes it (UTC, milliseconds), in µs since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


def _behind(source: Any) -> dict[str, int] | None:
    """Partition → records that it has beyond those that have landed; None where a source does not say."""
    end, latest = source.get("endOffset"), source.get("latestOffset")
    try:
        end, latest = (json.loads(x) if isinstance(x, str) else x for x in (end, latest))
        return {
            partition: offset - end.get(topic, {}).get(partition, 0)
            for topic, parts in latest.items()
            for partition, offset in parts.items()
            if offset > end.get(topic, {}).get(partition, 0)
        }
    except (ValueError, AttributeError, TypeError):
        return None


def _text(offset: Any) -> str:
    return offset if isinstance(offset, str) else "" if offset is None else json.dumps(offset)


def _file_column(frame: DataFrame) -> Any:
    """The column that says which file a row is from, None if the source has none."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    column = f.col("_metadata.file_path")
    try:
        frame.select(column).schema  # noqa: B018  # resolved when it is looked at
    except PySparkException:
        return None
    return column


def _hadoop(where: Place) -> str:
    """What Spark calls a place."""
    return str(where).replace("s3://", "s3a://", 1) if isinstance(where, ObjectPath) else str(where)


def changed_us(folder: str) -> int:
    """When anything in a folder was last written, renamed or removed. Cost: a look at each file."""
    newest = os.stat(folder).st_ctime_ns
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(OSError):
                newest = max(newest, os.stat(os.path.join(top, name)).st_ctime_ns)
    return newest // 1000
