"""Mutated records in files of every format: each in exactly one table, none unlike the independent reading."""

from __future__ import annotations

import io
import os
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from tests.attacks.columnar_files import avro_file, parquet_file
from tests.attacks.text_files import Attack, text_file
from tests.attacks.written import HOUR
from tests.reader.accounts import Account, Fate, Landed, account
from tests.reader.raw import us_of

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline, Stream
from tidegate.declarations.tables import STREAM_KEYS
from tidegate.engine.context import RunContext
from tidegate.stages import ingest
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

START_US = us_of(HOUR)
END_US = us_of(HOUR + timedelta(hours=1))
STREAMS = Path(__file__).with_name("record_streams.yml")
FILES = 90


def files(seed: int, pipeline: Pipeline, count: int) -> list[Attack]:
    """Files at random, equal for equal seeds."""
    chance = Random(f"records {seed}")
    made = []
    for number in range(count):
        stream = pipeline.streams[number % len(pipeline.streams)]
        make = {"parquet": parquet_file, "avro": avro_file}.get(stream.format, text_file)
        landed_us = START_US + chance.choice([*[chance.randrange(3_600_000_000)] * 6, -1, 3_600_000_000])
        attack = make(chance, stream, (number + 1) * 1000)
        prefix = f"{HOUR:%Y-%m-%dT%H}-" if "%" in stream.path else ""
        made.append(replace(attack, name=prefix + attack.name, landed_us=landed_us))
    return made


def attack(seed: int, folder: Path, count: int = FILES) -> tuple[int, list[str]]:
    """Ingest ``count`` files of a seed in an empty folder; records read, and what came out unlike the reading."""
    home = folder / "attacked"
    (home / "queries").mkdir(parents=True)
    (home / "pipeline.yml").write_bytes(STREAMS.read_bytes())
    (home / "queries" / "q.sql").write_text("SELECT COUNT(*) AS n FROM csv_string_seen [1 HOUR] EVERY 5 MINUTES\n")
    pipeline = load_pipeline(home)
    attacks = files(seed, pipeline, count)
    for one in attacks:
        path = home / "feed" / one.stream / one.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one.content)
        os.utime(path, ns=(one.landed_us * 1000, one.landed_us * 1000))
    with RunContext(pipeline, folder / "warehouse", output=io.StringIO(), here=True) as context:
        ingest.read(context, intervals_between(pipeline, HOUR, HOUR + timedelta(hours=1)))
    warehouse = Warehouse(folder / "warehouse", pipeline)
    quarantine = warehouse.read_arrow("quarantine").to_pylist()
    unknown = warehouse.read_arrow("unknown_columns").to_pylist()
    records, faults = 0, []
    for stream in pipeline.streams:
        expected = accounted(stream, [one for one in attacks if one.stream == stream.name])
        records += expected.read
        wanted = Counter(tuple_of(stream, fate) for fate in expected.accepted)
        faults += unlike(f"seed {seed}, events_{stream.name}", wanted, tuples(warehouse, stream))
        rows = Counter(shown(stream, row) for row in quarantine if row["stream"] == stream.name)
        faults += unlike(f"seed {seed}, quarantine of {stream.name}", refused(stream, expected), rows)
        names = Counter(
            (r["column"], r["records"], us_of(r["first_seen"])) for r in unknown if r["stream"] == stream.name
        )
        counted = Counter((name, *counts) for (_, name), counts in expected.unknown_columns().items())
        faults += unlike(f"seed {seed}, unknown_columns of {stream.name}", counted, names)
    return records, faults


def accounted(stream: Stream, attacks: list[Attack]) -> Account:
    """What must become of a stream's files."""
    period = (START_US, END_US) if "%" in stream.path else None
    broken = [one for one in attacks if one.broken]
    landed = [
        Landed(one.name, one.name, b"BZh" if one in broken else one.content, one.landed_us, period, START_US)
        for one in sorted(attacks, key=lambda one: one.name)
    ]
    return account(stream, landed, END_US - START_US, START_US, END_US)


def tuple_of(stream: Stream, fate: Fate) -> tuple[str, ...]:
    """A tuple as its table must have it, in words that tell −0.0 from 0.0."""
    values = fate.verdict.values
    others = [values[column.name] for column in stream.columns if column.name not in STREAM_KEYS]
    return tuple(map(repr, [fate.id, values[stream.event_time], fate.verdict.arrival_us, *others]))


def refused(stream: Stream, expected: Account) -> Counter[Any]:
    """The rows that the quarantine must have: of a broken file, and of rows of no text, without what they say."""
    rows = Counter[Any]()
    for fate in expected.refused:
        arrival = fate.verdict.arrival_us
        text = fate.record.text if has_text(stream) else None
        rows[fate.reason, fate.column, fate.file.path, fate.record.position, arrival, text] += 1
    for file in expected.broken:
        rows["broken_file", None, file.path, None, None, None] += 1
    return rows


def shown(stream: Stream, row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of the quarantine as `refused` has it."""
    source, arrival = Path(row["source"]).name, row["arrival_time"]
    if row["reason"] == "broken_file":
        return "broken_file", row["column"], source, None, None, None
    text = row["record"] if has_text(stream) else None
    return row["reason"], row["column"], source, row["position"], None if arrival is None else us_of(arrival), text


def has_text(stream: Stream) -> bool:
    """Whether the quarantine shows a record as the very text that its file has."""
    return stream.format in ("jsonl", "csv") and stream.csv.encoding == "utf-8"


def tuples(warehouse: Warehouse, stream: Stream) -> Counter[Any]:
    """The rows of a stream's table, as `tuple_of` has them."""
    table = warehouse.read_arrow(f"events_{stream.name}")
    names = [*STREAM_KEYS, *(c.name for c in stream.columns if c.name not in STREAM_KEYS)]
    plain = [
        c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c.cast(pa.int32()) if pa.types.is_date(c.type) else c
        for c in (table.column(name) for name in names)
    ]
    return Counter(tuple(map(repr, row)) for row in zip(*(c.to_pylist() for c in plain), strict=True))


def unlike(where: str, wanted: Counter[Any], actual: Counter[Any]) -> list[str]:
    """What is missing and what is too much."""
    missing, more = wanted - actual, actual - wanted
    return [
        f"{where}: {what} {row!r} ({n})"
        for what, rows in (("missing", missing), ("not expected", more))
        for row, n in rows.items()
    ]
