"""Records that landed are judged as records of files are, and both judges agree on them.

Values are those of the mutation campaign, of streams that hypothesis draws.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from tests.attacks.columnar_files import avro_file, parquet_file
from tests.attacks.text_files import lines_content
from tests.examples import examples
from tests.property.judging import BROKEN, one_by_one
from tests.property.landed import (
    KAFKA,
    SPARK,
    TIMESTAMP,
    arrivals_judged,
    from_kafka,
    given,
    judged,
    kafka_rows,
    us,
)
from tests.property.streams import streams
from tests.property.test_judge_laws import HOUR_US

from tidegate.declarations.models import Column, Stream
from tidegate.declarations.names import landed_name
from tidegate.sources.files import Piece, SourceFile
from tidegate.sources.formats import Reading, format_named
from tidegate.sources.formats.messages import arrivals, message_batches

laws = settings(derandomize=True, deadline=None, max_examples=examples(120))
PARTS = (
    Column(name="key", type="integer", part="key"),
    Column(name="key_text", type="string", part="key"),
    Column(name="trace", type="string", part="headers", path=("trace.id",)),
    Column(name="hop", type="double", part="headers", path=("hop",)),
    Column(name="topic", type="string", part="topic"),
    Column(name="shard", type="integer", part="partition"),
    Column(name="offset", type="string", part="offset"),
    Column(name="sent", type="timestamp", part="timestamp", format="epoch_ms"),
)
FIELDS = {"id": "string", "at": "string", "n": ["null", "long"]}
OCTETS = st.none() | st.sampled_from([b"", b"1", b" 7 ", b"x", b"\xff", "ü".encode(), b"2024-03-01T10:00:00Z"])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> SourceFile:
    """A file that landed in the hour, whose name says no interval."""
    return SourceFile(tmp_path_factory.mktemp("feed") / "x", 1, HOUR_US + 5, None, None, identity="x")


def stream_of(kind: str, **columns: str) -> Stream:
    """A stream whose records are known by ``id`` and happen ``at``."""
    return Stream(
        name="s",
        format=kind,
        columns=tuple(Column(name=name, type=type_) for name, type_ in columns.items()),
        event_time="at",
        arrival_time=None,
        id=("id",),
        rate=1.0,
        max_early_s=600,
        max_late_s=600,
    )


def lines_in(stream: Stream, file: SourceFile, content: bytes) -> tuple[list[bytes], list[int], list[int]]:
    """The records of JSON lines, their positions and lines."""
    Path(str(file.path)).write_bytes(content)
    piece = Piece(stream, replace(file, bytes=len(content)))
    blocks = [batch.block for batch in format_named("jsonl").read(Reading(piece))]  # type: ignore[attr-defined]
    records = [record for block in blocks for record in block.records()]
    positions = [at for block in blocks for at in block.positions.tolist()]
    return records, positions, [at for block in blocks for at in block.lines.tolist()]


def mutated_values(draw: st.DataObject, stream: Stream, file: SourceFile, seed: int, count: int) -> list[bytes | None]:
    """Values of the campaign, tombstones and odd ones among them."""
    values: list[bytes | None] = [*lines_in(stream, file, lines_content(Random(seed), stream, 0, count))[0]]
    odd = [None, b"", b"{}", b"{ }", b"\n", b'{"a":\n1}', b"null", b'{"a":1}\n{"b":2}', b"\0\0\0\0\x01x"]
    for one in draw.draw(st.lists(st.sampled_from(odd), max_size=5)):
        values.insert(draw.draw(st.integers(0, len(values))), one)
    if draw.draw(st.booleans()):
        values = [None if value is None else value + b"\r\n" for value in values]
    return values


@laws
@drawn(st.data(), st.integers(0, 2**32), st.sampled_from([3, 12, 60]))
def test_values_of_kafka_are_what_lines_of_a_file_are(
    file: SourceFile, data: st.DataObject, seed: int, count: int
) -> None:
    stream = data.draw(streams("jsonl"))
    content = lines_content(Random(seed), stream, 0, count)
    values, positions, lines = lines_in(stream, file, content)
    if values:
        rows = kafka_rows(values, position=positions, batch=lines)
        assert judged(from_kafka(stream), file, rows, True) == one_by_one(stream, file, content)


@laws
@drawn(st.data(), st.integers(0, 2**32), st.sampled_from([3, 12, 60]))
def test_both_judges_agree_on_all_parts_of_a_record(
    file: SourceFile, data: st.DataObject, seed: int, count: int
) -> None:
    drawn_stream = data.draw(streams("jsonl"))
    stream = from_kafka(drawn_stream, more=data.draw(st.lists(st.sampled_from(PARTS), unique=True)))
    if data.draw(st.booleans()):
        roles = {
            "id": ("key",),
            "event_time": "sent",
            "arrival_time": data.draw(st.sampled_from(["sent", "seen", None])),
        }
        stream = from_kafka(drawn_stream, more=PARTS).model_copy(update=roles)
    values = mutated_values(data, drawn_stream, file, seed, count)
    keys, hops = (data.draw(st.lists(OCTETS, min_size=len(values), max_size=len(values))) for _ in range(2))
    headers = [
        [("hop", b"0"), ("trace.id", key), ("hop", hop)][: i % 4]
        for i, (key, hop) in enumerate(zip(keys, hops, strict=True))
    ]
    sent = [HOUR_US + i if i % 5 else -1000 for i in range(len(values))]
    rows = kafka_rows(values, key=keys, headers=headers, timestamp=sent)
    assert judged(stream, file, rows, True) == judged(stream, file, rows, False)


@laws
@drawn(st.data(), st.integers(0, 2**32), st.sampled_from([3, 12, 60]))
def test_the_arrival_that_lands_is_the_one_that_the_judge_reads(
    file: SourceFile, data: st.DataObject, seed: int, count: int
) -> None:
    drawn_stream = data.draw(streams("jsonl"))
    stream = from_kafka(drawn_stream, more=PARTS)
    stream = stream.model_copy(update={"arrival_time": data.draw(st.sampled_from(["seen", "seen", "sent"]))})
    values = mutated_values(data, drawn_stream, file, seed, count)
    rows = kafka_rows(values, timestamp=[HOUR_US + i for i in range(len(values))])
    assert us(arrivals(stream, rows, None)) == arrivals_judged(stream, file, rows)


@laws
@drawn(st.data(), st.integers(0, 2**32), st.sampled_from([12, 60]))
def test_an_arrival_that_is_known_is_that_of_the_record_whatever_its_column_says(
    file: SourceFile, data: st.DataObject, seed: int, count: int
) -> None:
    stream = data.draw(streams("jsonl"))
    rows = kafka_rows(mutated_values(data, stream, file, seed, count))
    chance = np.random.default_rng(seed)
    arrival_us = HOUR_US + chance.integers(0, 60_000_000, rows.num_rows)
    early = chance.random(rows.num_rows) < 0.2
    landed = from_kafka(stream)
    outcome = judged(landed, file, rows, True, about=given(arrival_us, early))
    assert outcome == judged(landed, file, rows, False, about=given(arrival_us, early))
    tuples, refused = outcome
    assert all(int(row[2]) == arrival_us[row[-2]] and not early[row[-2]] for row in tuples)
    assert all(row[4] == arrival_us[row[0]] for row in refused)
    claimed = [row for row in refused if (row[2], row[3]) == ("too_early", stream.arrival_time)]
    assert all(early[row[0]] for row in claimed)
    # What is refused for another reason is, without a claim, refused for it as well.
    without = {row[0]: row for row in judged(landed, file, rows, True, about=given(arrival_us, early & False))[1]}
    assert all(without[row[0]] == row for row in refused if row not in claimed)


@laws
@drawn(st.data(), st.integers(0, 2**32))
def test_values_in_avro_are_what_records_of_a_container_are(file: SourceFile, data: st.DataObject, seed: int) -> None:
    stream = data.draw(streams("avro"))
    content = avro_file(Random(seed), stream, 0).content
    outcome = one_by_one(stream, file, content)
    if outcome == BROKEN:
        return
    container = fastavro.reader(io.BytesIO(content))
    schema: Any = container.writer_schema
    values = []
    for record in container:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, record)
        values.append(out.getvalue())
    landed = from_kafka(stream, KAFKA.model_copy(update={"schema_text": json.dumps(schema)}))
    rows = kafka_rows(values, batch=list(range(len(values))))
    assert judged(landed, file, rows, True) == judged(landed, file, rows, False) == outcome
    timed = landed.model_copy(update={"arrival_time": "seen"})
    assert us(arrivals(timed, rows, None)) == arrivals_judged(timed, file, rows)


@laws
@drawn(st.data(), st.integers(0, 2**32))
def test_a_damaged_value_in_avro_is_its_records_fault_alone(file: SourceFile, data: st.DataObject, seed: int) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in FIELDS.items()]}
    stream = stream_of("avro", id="string", at="timestamp", n="integer")
    stream = from_kafka(stream, KAFKA.model_copy(update={"schema_text": json.dumps(schema)}))
    chance, values = Random(seed), []
    for number in range(100):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"id": str(number), "at": "2024-03-01T10:00:00Z", "n": number})
        values.append(out.getvalue())
    broken = set(chance.sample(range(100), 5))
    for place in broken:
        at = chance.randrange(len(values[place]))
        values[place] = chance.choice([values[place][:at], values[place] + b"x", b"\xff" * 12, b""])
    tuples, refused = judged(stream, file, kafka_rows(values), True)
    assert [(row[0], row[2]) for row in refused] == [(place, "broken_record") for place in sorted(broken)]
    assert len(tuples) == 95


@laws
@drawn(st.data(), st.integers(0, 2**32))
def test_rows_of_a_source_of_spark_are_what_rows_of_a_parquet_file_are(
    file: SourceFile, data: st.DataObject, seed: int
) -> None:
    stream = data.draw(streams("parquet"))
    content = parquet_file(Random(seed), stream, 0).content
    outcome = one_by_one(stream, file, content)
    if outcome == BROKEN:
        return
    table = pq.read_table(pa.BufferReader(content))
    rows = table.rename_columns([landed_name(name) for name in table.column_names])
    for place, (name, kind) in enumerate([("batch", pa.int64()), ("landed_at", TIMESTAMP), ("position", pa.int64())]):
        rows = rows.add_column(place, name, pa.array(range(table.num_rows), kind))
    landed = stream.model_copy(update={"source": SPARK, "path": "", "format": ""})
    assert judged(landed, file, rows, True) == judged(landed, file, rows, False) == outcome
    timed = landed.model_copy(update={"arrival_time": "seen"})
    assert us(arrivals(timed, rows, None)) == arrivals_judged(timed, file, rows)


def test_blocks_hold_every_row_once_however_long_values_are(file: SourceFile) -> None:
    stream = from_kafka(stream_of("jsonl", id="string", at="timestamp"))
    values = [json.dumps({"id": str(i), "x": "y" * (5 << 20 if i == 7 else 60_000)}).encode() for i in range(200)]
    rows = pa.concat_tables([kafka_rows(values[:50]), kafka_rows(values[50:])])
    batches = list(message_batches(stream, rows, None, {}))
    assert len(batches) > 3 and sum(map(len, batches)) == 200
    assert [batch.text(row)[:12] for batch in batches for row in range(len(batch))] == [v[:12].decode() for v in values]
