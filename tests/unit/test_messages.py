"""Landed records, told one by one: what each part of a record is, and what is said of those that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.property.judging import Outcome
from tests.property.landed import SPARK, TIMESTAMP, from_kafka, judged, kafka_rows, us
from tests.property.test_judge_laws import HOUR_US
from tests.property.test_message_laws import stream_of

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, Stream
from tidegate.sources.files import SourceFile
from tidegate.sources.formats.base import Batch
from tidegate.sources.formats.messages import arrivals, message_batches

FILE = SourceFile(Path("landed"), 1, HOUR_US, None, None, identity="landed")


def value(name: str, **more: Any) -> bytes:
    return json.dumps({"id": name, "at": "2024-03-01T10:00:00Z", **more}).encode()


def both(stream: Stream, rows: pa.Table) -> Outcome:
    """What becomes of rows, at once and one by one."""
    outcome = judged(stream, FILE, rows, True)
    assert outcome == judged(stream, FILE, rows, False)
    return outcome


def keyed(**columns: tuple[str, str, tuple[str, ...]]) -> Stream:
    """A stream with columns of other parts: name → type, part, path."""
    more = [Column(name=n, type=type_, part=part, path=path) for n, (type_, part, path) in columns.items()]
    return from_kafka(stream_of("jsonl", id="string", at="timestamp"), more=more)


def test_keys_and_headers_are_read_as_cells_are_and_the_last_header_of_a_name_counts() -> None:
    stream = keyed(key=("integer", "key", ()), hop=("timestamp", "headers", ("hop.at",)))
    headers = [[("hop.at", b"x"), ("other", b"1"), ("hop.at", b"2024-03-01T11:00Z")], [], [("hop.at", None)], []]
    rows = kafka_rows(
        [value("a"), value("b"), value("c"), value("d")], key=[b" 7 ", None, b"-1.0", b"8"], headers=headers
    )
    tuples, refused = both(stream, rows)
    later = str(HOUR_US + 3_600_000_000)
    assert refused == []
    assert [row[-5:-3] for row in tuples] == [("7", later), ("None", "None"), ("-1", "None"), ("8", "None")]


def test_a_key_that_is_no_text_or_no_number_is_refused_with_its_place() -> None:
    stream = keyed(key=("integer", "key", ()))
    rows = kafka_rows([value("a"), value("b"), value("c")], key=[b"\xff", b"seven", b"7"], position=[40, 41, 43])
    tuples, refused = both(stream, rows)
    assert [row[:4] for row in refused] == [(40, 0, "wrong_type", "key"), (41, 0, "wrong_type", "key")]
    assert len(tuples) == 1


def test_topic_partition_offset_and_timestamp_are_columns_like_others() -> None:
    stream = keyed(
        topic=("string", "topic", ()),
        shard=("integer", "partition", ()),
        offset=("string", "offset", ()),
        sent=("timestamp", "timestamp", ()),
    )
    rows = kafka_rows([value("a"), value("b")], position=[5, 9], timestamp=[HOUR_US + 1000, -1000])
    tuples, refused = both(stream, rows)
    assert refused == []
    assert [row[-7:-3] for row in tuples] == [
        ("'orders'", "3", "'5'", str(HOUR_US + 1000)),
        ("'orders'", "3", "'9'", "None"),
    ]


def test_a_tombstone_has_its_key_and_nothing_else() -> None:
    stream = keyed(key=("string", "key", ()))
    rows = kafka_rows([value("a"), None, None], key=[b"a", b"b", None])
    _, refused = both(stream, rows)
    assert [row[2:4] + row[5:] for row in refused] == [
        ("missing_value", "id", "null, of the key b"),
        ("missing_value", "id", "null"),
    ]
    by_key = stream.model_copy(update={"id": ("key",), "columns": stream.columns[1:], "event_time": "sent"})
    by_key = from_kafka(by_key, more=[Column(name="sent", type="timestamp", part="timestamp")])
    by_key = by_key.model_copy(update={"columns": tuple(c for c in by_key.columns if c.name in ("at", "key", "sent"))})
    tuples, refused = both(by_key, rows.set_column(10, "timestamp", pa.array([HOUR_US] * 3, TIMESTAMP)))
    assert [row[0] for row in tuples] == ["'a'", "'b'"] and [row[2:4] for row in refused] == [("missing_value", "key")]


@pytest.mark.parametrize(
    "odd", [b"", b"{}", b"{ }", b"null", b"1", b"[]", value("x") + value("y"), value("x") + b"\n" + value("y"), b"\0"]
)
def test_a_value_is_one_object_or_none(odd: bytes) -> None:
    """Even where the stream's own columns are all of other parts of the record."""
    stream = keyed(key=("string", "key", ()), sent=("timestamp", "timestamp", ()))
    stream = stream.model_copy(update={"id": ("key",), "event_time": "sent"})
    values = [value(str(i)) for i in range(30)]
    values[11] = odd
    rows = kafka_rows(values, key=[b"%d" % i for i in range(30)], timestamp=[HOUR_US] * 30)
    tuples, refused = both(stream, rows)
    assert len(tuples) == 29 and [row[:1] + row[2:3] for row in refused] == [(11, "broken_record")]


def test_records_unlike_the_others_become_what_they_become_alone() -> None:
    """Of a hundred and fifty, more than are read one by one at once."""
    number = Column(name="n", type="double")
    stream = keyed(more=("string", "key", ()))
    stream = stream.model_copy(update={"columns": (*stream.columns, number)})
    odd = [b"", b"x", b'{"id": 5', b"{}", b'"s"', b'{"id": 7, "at": 3}', b'{"id": "d", "id": "e"}', b'{"id": {"a": 1}}']
    for text in (b'"7"', b"7", b"-0", b"-0.0", b"NaN", b"1e400", b"null", b"true", b"[1]", b"12345678901234567890"):
        odd.append(value("odd")[:-1] + b', "n": ' + text + b"}")
    values = [value(str(i))[:-1] + b', "n": %d.5}' % i for i in range(150)]
    for place, text in enumerate(odd):
        values[place * 8] = values[place * 8 + 3] = text
    tuples, refused = both(stream, kafka_rows(values, key=[b"k"] * 150))
    assert len(tuples) + len(refused) == 150 and 20 <= len(refused) < 40


def test_a_value_of_several_lines_is_a_record() -> None:
    stream = keyed()
    pretty = json.dumps(json.loads(value("a")), indent=2).encode()
    rows = kafka_rows([pretty, value("b") + b"\n", pretty.replace(b"\n", b"\r\n") + b"\r\n"])
    tuples, refused = both(stream, rows)
    assert [row[0] for row in tuples] == ["'a'", "'b'", "'a'"] and refused == []


def test_what_is_said_of_a_batch_holds_for_its_parts_too() -> None:
    stream = keyed()
    (batch,) = message_batches(stream, kafka_rows([value(str(i)) for i in range(9)], batch=range(9)), None, {})
    batch.arrival_us, batch.too_early, batch.file = np.arange(9), np.arange(9) > 4, FILE
    part: Batch = batch.take(np.arange(3, 8)).take(np.array([1, 2, 3]))
    assert part.arrival_us is not None and part.too_early is not None and part.file is FILE
    assert part.arrival_us.tolist() == part.positions.tolist() == part.lines.tolist() == [4, 5, 6]
    assert part.too_early.tolist() == [False, True, True]
    assert [json.loads(part.text(row))["id"] for row in range(3)] == ["4", "5", "6"]


def test_ids_of_places_are_those_of_the_file_that_a_batch_names() -> None:
    stream = keyed().model_copy(update={"id": ()})

    def say(batch: Batch) -> None:
        batch.file = SourceFile(Path("x"), 0, HOUR_US, None, None, identity="orders/0/3")

    rows = kafka_rows([value("a")], position=[77])
    assert judged(stream, FILE, rows, True, about=say)[0][0][0] == "'orders/0/3:77'"


def test_a_column_of_arrivals_keeps_its_value_beside_the_arrival_that_counts() -> None:
    stream = keyed(seen=("timestamp", "timestamp", ())).model_copy(update={"arrival_time": "seen"})

    def say(batch: Batch) -> None:
        batch.arrival_us = np.full(len(batch), HOUR_US + 9)

    rows = kafka_rows([value("a")], timestamp=[HOUR_US + 5])
    ((_, _, arrival, _, _, seen, *_),) = judged(stream, FILE, rows, True, about=say)[0]
    assert (arrival, seen) == (str(HOUR_US + 9), str(HOUR_US + 5))


def test_records_arrive_when_kafka_says_or_when_they_land() -> None:
    rows = kafka_rows([value("a"), None], landed_at=[7, 8], timestamp=[HOUR_US, -1000])
    landed = keyed()
    assert us(arrivals(landed, rows, None)) == [7, 8]
    assert us(arrivals(landed.model_copy(update={"arrival_stamp": "broker"}), rows, None)) == [HOUR_US, None]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.string_view()])
def test_a_source_of_spark_may_hold_objects_in_its_column_value(kind: pa.DataType) -> None:
    stream = stream_of("jsonl", id="string", at="timestamp").model_copy(update={"source": SPARK})
    texts = pa.array([value("a"), None, b"x"], pa.binary()).cast(pa.string()).cast(kind)
    rows = pa.table(
        {"batch": [1, 1, 1], "landed_at": pa.array([0] * 3, TIMESTAMP), "position": [0, 1, 2], "value": texts}
    )
    tuples, refused = both(stream, rows)
    assert [row[0] for row in tuples] == ["'a'"]
    assert [(row[2], row[5]) for row in refused] == [("missing_value", "null"), ("broken_record", "x")]
    with pytest.raises(UserError, match="no column 'value' to hold records of format jsonl"):
        judged(stream, FILE, rows.drop_columns(["value"]), True)


def test_a_column_of_a_source_that_is_called_as_one_of_landing_is_read() -> None:
    stream = stream_of("", id="string", at="timestamp", source="string").model_copy(update={"source": SPARK})
    rows = pa.table(
        {
            "batch": [1],
            "landed_at": pa.array([0], TIMESTAMP),
            "source": ["landing's"],
            "position": [0],
            "id": ["a"],
            "at": pa.array([HOUR_US], TIMESTAMP),
            "source_": ["theirs"],
            "more": [1],
        }
    )
    ((*_, source, others, _, _),) = both(stream, rows)[0]
    assert (source, others) == ("'theirs'", ("more",))


def test_names_of_fields_are_gathered_from_a_record_that_has_some() -> None:
    seen: dict[str, None] = {}
    list(message_batches(keyed(), kafka_rows([None, value("a", more={"x": 1})]), None, seen))
    assert list(seen) == ["id", "at", "more", "more.x"]


def test_no_rows_are_no_batches() -> None:
    stream = keyed(key=("string", "key", ()), hop=("string", "headers", ("hop",)))
    rows = kafka_rows([])
    assert list(message_batches(stream, rows, None, {})) == []
    assert len(arrivals(stream.model_copy(update={"arrival_time": "at"}), rows, None)) == 0
