"""A pipeline on a topic, landed and ingested by the session of the tests; and what is in its tables afterwards."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from tests.kafka.topics import Record

from tidegate.declarations import load_pipeline
from tidegate.engine.context import RunContext
from tidegate.landing.query import LandingQuery
from tidegate.stages.run import run
from tidegate.store.intervals import intervals_between
from tidegate.store.landed import Landings
from tidegate.store.warehouse import Warehouse

HOUR_MS = 3_600_000
START = datetime(2026, 1, 5, 8, tzinfo=UTC)
_PIPELINE = """\
name: orders_of_topic
owner: tests
start: 2026-01-05T08:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 16 MiB
process_budget: 3 GiB
streams:
  orders:
    source:
      kafka:
        servers: {servers}
        topic: {topic}
        options: {options}
{more}
    format: {format}
    columns:
      id: {{type: string, nullable: false}}
      at: timestamp
      amount: {{type: double, nullable: false}}
      who: {{type: string, from: $key}}
    id: id
    event_time: at
    arrival_time: broker
    rate: 1 per second
    max_early: 1 minute
    max_late: 1 day
"""
_QUERY = "-- Orders.\nSELECT COUNT(*) AS orders FROM orders [RANGE 1 HOUR] EVERY 1 HOUR\n"


@dataclass
class Landing:
    """A pipeline on a topic, and its warehouse. ``options``: of its Kafka source. ``more``: other keys of it."""

    folder: Path
    servers: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    format: str = "jsonl"
    said: str = ""

    @property
    def pipeline(self) -> Path:
        """The pipeline's folder."""
        return self.folder / "orders_of_topic"

    @property
    def warehouse(self) -> Path:
        """The warehouse."""
        return self.folder / "warehouse"

    def declare(self) -> None:
        """Write the pipeline as it is to be now."""
        (self.pipeline / "queries").mkdir(parents=True, exist_ok=True)
        more = "\n".join(f"        {key}: {json.dumps(value)}" for key, value in self.more.items())
        text = _PIPELINE.format(
            servers=self.servers,
            topic=self.topic,
            options=json.dumps(dict(self.options)),
            more=more,
            format=self.format,
        )
        (self.pipeline / "pipeline.yml").write_text(text)
        (self.pipeline / "queries" / "orders_an_hour.sql").write_text(_QUERY)

    def land(self, spark: Any) -> int:
        """Land what there is; returns how many records that were."""
        from tidegate.stages.land import land_all

        self.declare()
        pipeline, said = load_pipeline(self.pipeline), io.StringIO()
        with RunContext(pipeline, self.warehouse, beside=spark, output=said) as context:
            try:
                return land_all(context, pipeline.landed_streams)["orders"].records
            finally:
                self.said = said.getvalue()

    @contextmanager
    def live(self, spark: Any) -> Iterator[Callable[[Callable[[], bool]], None]]:
        """A landing without end; calls of it go on until a condition holds, for a minute at most."""
        self.declare()
        pipeline, stopped = load_pipeline(self.pipeline), Event()
        with RunContext(pipeline, self.warehouse, beside=spark, output=io.StringIO()) as context:
            query = LandingQuery(pipeline, context.warehouse, pipeline.streams[0], lambda: spark, print)
            running = query.run(0.2, stopped.is_set)

            def until(is_so: Callable[[], bool]) -> None:
                last = time.monotonic() + 60
                while not is_so():
                    assert time.monotonic() < last, "it has not come to pass in a minute"
                    next(running)
                    time.sleep(0.02)

            try:
                yield until
            finally:
                stopped.set()
                with suppress(StopIteration):
                    while True:
                        next(running)

    def read_to_us(self) -> int:
        """Up to when all that the topic had has landed."""
        newest = Landings(self.warehouse / "orders_of_topic").newest().get("orders")
        return 0 if newest is None or newest.read_to_us is None else newest.read_to_us

    def ingest(self, spark: Any, hours: int = 1) -> None:
        """Run landing and ingest of the first hours."""
        self.declare()
        pipeline = load_pipeline(self.pipeline)
        end = datetime.fromtimestamp(START.timestamp() + hours * 3600, UTC)
        with RunContext(pipeline, self.warehouse, beside=spark, output=io.StringIO()) as context:
            run(context, intervals_between(pipeline, START, end), ("land", "ingest"))

    def landed(self) -> list[dict[str, Any]]:
        """The rows of the landed table, by generation, partition and position."""
        rows: list[dict[str, Any]] = self._delta("landed_orders").to_pylist()
        return sorted(rows, key=lambda row: (row["generation"], row["partition"], row["position"]))

    def values(self) -> list[bytes | None]:
        """Their values."""
        return [row["value"] for row in self.landed()]

    def landings(self) -> list[dict[str, Any]]:
        """The rows of the table ``landings``."""
        rows: list[dict[str, Any]] = self._delta("landings").to_pylist()
        return rows

    def events(self) -> list[str]:
        """The ids of the accepted tuples, sorted."""
        return sorted(row["event_id"] for row in self.rows("events_orders"))

    def quarantine(self) -> list[dict[str, Any]]:
        """The refused records."""
        return self.rows("quarantine")

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table of the cut."""
        warehouse = Warehouse(self.warehouse, load_pipeline(self.pipeline))
        rows: list[dict[str, Any]] = warehouse.read_arrow(table).to_pylist()
        return rows

    def _delta(self, table: str) -> pa.Table:
        return pa.table(DeltaTable(str(self.warehouse / "orders_of_topic" / table)).to_pyarrow_table())


def order(number: int, *, minute: int = 0, partition: int = -1, **fields: object) -> Record:
    """An order of the first hour, placed two seconds before it reached Kafka."""
    stamp_ms = int(START.timestamp() * 1000) + minute * 60_000 + number * 10 + 2000
    at = datetime.fromtimestamp((stamp_ms - 2000) / 1000, UTC).isoformat()
    value = {"id": f"o{number:07d}", "at": at, "amount": number % 100 + 0.5, **fields}
    return Record(json.dumps(value).encode(), b"c%d" % (number % 5), partition=partition, timestamp_ms=stamp_ms)


def orders(numbers: Iterable[int], **fields: Any) -> list[Record]:
    """Such orders."""
    return [order(number, **fields) for number in numbers]


def ids(numbers: Iterable[int]) -> list[str]:
    """Their ids, sorted."""
    return sorted(f"o{number:07d}" for number in numbers)


def until(is_so: Any, seconds: float = 60.0) -> None:
    """Wait until something is so, or fail."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.2)
