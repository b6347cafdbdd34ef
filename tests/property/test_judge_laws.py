"""The two judges agree, on every record, reason and value; and what they read is what an independent reader reads.

The independent reader (`tests.reader`) shares no code with the product. Files are those of the mutation campaign, of
streams that hypothesis draws.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attacks.columnar_files import avro_file, parquet_file
from tests.attacks.odd import TEXTS
from tests.attacks.text_files import csv_content, json_content, lines_content
from tests.examples import examples
from tests.property.judging import BROKEN, Outcome, counts, in_pieces, one_by_one, whole
from tests.property.streams import DATES, TIMES, TYPES, ZONES, streams
from tests.reader.files import Record, records
from tests.reader.raw import BrokenError, RefusedError
from tests.reader.records import event_id, judge
from tests.reader.values import value

from tidegate.declarations.models import Column, Stream
from tidegate.declarations.tables import STREAM_KEYS
from tidegate.sources.files import SourceFile

laws = settings(derandomize=True, deadline=None, max_examples=examples(120))

HOUR = datetime(2024, 3, 1, 10, tzinfo=UTC)
HOUR_US = int(HOUR.timestamp()) * 1_000_000
PERIOD = (HOUR_US, HOUR_US + 3_600_000_000)
TEXT_FORMATS = ("jsonl", "json", "csv")
FORMATS = (*TEXT_FORMATS, "parquet", "avro")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> SourceFile:
    """A file that landed in the hour, and holds records of it alone."""
    return SourceFile(tmp_path_factory.mktemp("feed") / "x", 1, HOUR_US + 5, *PERIOD)


def content(kind: str, stream: Stream, chance: Random, count: int) -> bytes:
    """The octets of a file of mutated records."""
    if kind == "parquet":
        return parquet_file(chance, stream, 0).content
    if kind == "avro":
        pytest.importorskip("fastavro")
        return avro_file(chance, stream, 0).content
    make = {"jsonl": lines_content, "json": json_content, "csv": csv_content}[kind]
    return make(chance, stream, 0, count)


def expected(stream: Stream, file: SourceFile, data: bytes) -> Outcome:
    """What the independent reader makes of a file, as the product's reading is shown."""
    try:
        items = records(stream, Path(str(file.path)).name, data)
    except BrokenError:
        return BROKEN
    tuples, refused = [], []
    for record in items:
        verdict = judge(stream, PERIOD, file.modified_us, record)
        line = record.position - 1
        if verdict.reason is not None:
            shown = record.text if has_text(stream) else None
            refused.append((record.place, line, verdict.reason, verdict.column, verdict.arrival_us, shown))
            continue
        values = verdict.values
        others = [values[c.name] for c in stream.columns if c.name not in STREAM_KEYS]
        identity = event_id(stream, values, Path(str(file.path)).name, record.place)
        keys = [identity, values[stream.event_time], verdict.arrival_us]
        tuples.append((*map(repr, [*keys, *others]), others_of(record), record.place, line))
    return tuples, refused


def others_of(record: Record) -> tuple[str, ...]:
    """The names that no column is read from."""
    return record.others


def has_text(stream: Stream) -> bool:
    """Whether a refused record is shown as the very text that its file has."""
    return stream.format in ("jsonl", "csv") and stream.csv.encoding == "utf-8"


def comparable(stream: Stream, outcome: Outcome) -> Outcome:
    """An outcome without the texts that the independent reader does not know."""
    tuples, refused = outcome
    return tuples, refused if has_text(stream) else [(*row[:-1], None) for row in refused]


@pytest.mark.parametrize("kind", FORMATS)
@laws
@given(st.data(), st.integers(0, 2**32), st.sampled_from([3, 12, 60]))
def test_both_judges_agree(kind: str, file: SourceFile, data: st.DataObject, seed: int, count: int) -> None:
    stream = data.draw(streams(kind))
    octets = content(kind, stream, Random(seed), count)
    assert whole(stream, file, octets) == one_by_one(stream, file, octets)


@pytest.mark.parametrize("kind", FORMATS)
@laws
@given(st.data(), st.integers(0, 2**32), st.sampled_from([3, 12, 60]))
def test_a_file_is_read_as_an_independent_reader_reads_it(
    kind: str, file: SourceFile, data: st.DataObject, seed: int, count: int
) -> None:
    stream = data.draw(streams(kind))
    octets = content(kind, stream, Random(seed), count)
    actual, wanted = comparable(stream, whole(stream, file, octets)), expected(stream, file, octets)
    assert actual[1] == wanted[1]
    assert actual[0] == wanted[0]


@pytest.mark.parametrize("kind", FORMATS)
@laws
@given(st.data(), st.integers(0, 2**32), st.integers(1, 3000))
def test_however_a_file_is_cut_its_records_are_the_same(
    kind: str, file: SourceFile, data: st.DataObject, seed: int, size: int
) -> None:
    stream = data.draw(streams(kind))
    octets = content(kind, stream, Random(seed), 12)
    if kind in TEXT_FORMATS:
        # What is cut is cut at LF: a CR that ends a line by itself is read where it stands.
        octets = octets if kind != "jsonl" else octets.replace(b"\r\n", b"\n").replace(b"\r", b"")
    assert in_pieces(stream, file, octets, size) == whole(stream, file, octets)


@pytest.mark.parametrize("kind", FORMATS)
@laws
@given(st.data(), st.integers(0, 2**32))
def test_what_is_counted_apart_is_what_is_read(kind: str, file: SourceFile, data: st.DataObject, seed: int) -> None:
    stream = data.draw(streams(kind))
    octets = content(kind, stream, Random(seed), 12)
    if whole(stream, file, octets) == BROKEN:
        return
    counted, read = counts(stream, file, octets)
    assert counted == read
    if kind == "jsonl":
        assert counted == len([line for line in re.split(rb"[\r\n]", octets) if line.strip(b" \t")])


# One value in a record that is good but for it

PLAIN = {"id": "a", "at": "2024-03-01T10:00:00Z", "seen": "2024-03-01T10:00:30Z", "kind": "k", "x": "1.5"}


def stream_of(extra: Column) -> Stream:
    """A stream of JSON lines with one more column beside the roles."""
    columns = [Column(name=name, type=TYPES[name]) for name in ("id", "at", "seen", "kind")]
    rules = {"rate": 1.0, "max_early_s": 10**6, "max_late_s": 10**6}
    names = {"event_time": "at", "arrival_time": "seen", "id": ("id",)}
    return Stream(name="s", format="jsonl", path="/x", columns=(*columns, extra), **names, **rules)


def read_value(file: SourceFile, column: Column, token: bytes) -> object:
    """What the product makes of a JSON token: the value in words, or the reason for which there is none."""
    members = b", ".join(f'"{name}": "{text}"'.encode() for name, text in PLAIN.items() if name != "x")
    line = b"{" + members + b', "extra": ' + token + b"}"
    tuples, refused = one_by_one(stream_of(column), file, line)
    if refused:
        assert refused[0][3] == "extra"
        return refused[0][2]
    return tuples[0][-4]


def expected_value(column: Column, text: str) -> object:
    """What the independent reader makes of a text."""
    try:
        return repr(value(column, text))
    except RefusedError as error:
        return str(error)


@pytest.mark.parametrize("kind", ["string", "integer", "double", "boolean", "date", "timestamp", "decimal(20,4)"])
@pytest.mark.parametrize("text", [t for t in TEXTS if t and "\0" not in t])
def test_a_text_is_what_an_independent_reader_takes_it_for(kind: str, text: str, file: SourceFile) -> None:
    column = Column(name="extra", type=kind)
    assert read_value(file, column, json.dumps(text).encode()) == expected_value(column, text)


SHAPES = {
    "integer": r"[-+]?[0-9]{1,20}(\.[0-9]{0,3})?",
    "double": r"[-+]?[0-9]{0,20}(\.[0-9]{0,20})?([eE][-+]?[0-9]{0,3})?",
    "decimal(12,3)": r"[-+]?[0-9]{0,11}(\.[0-9]{0,5})?([eE][-+]?[0-9]{0,2})?",
    "decimal(38,19)": r"[-+]?[0-9]{0,21}(\.[0-9]{0,20})?([eE][-+]?[0-9]{0,2})?",
    "timestamp": r"[0-9]{4}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?"
    r"(Z|[-+]0[0-9]:[0-6][0-9])?)?",
    "date": r"[0-9]{4}-[01][0-9]-[0-3][0-9]",
    "boolean": r"[tT][rR]?[uU][eE]|[fF][aA][lL][sS][eE]|[01]",
}


@laws
@given(st.sampled_from(list(SHAPES)), st.sampled_from(ZONES), st.data())
def test_texts_at_random_are_what_an_independent_reader_takes_them_for(
    file: SourceFile, kind: str, zone: str, data: st.DataObject
) -> None:
    text = data.draw(st.from_regex(re.compile(SHAPES[kind], re.ASCII), fullmatch=True))
    column = Column(name="extra", type=kind, zone=zone if kind in ("timestamp", "date") else "UTC")
    if text:
        assert read_value(file, column, f'"{text}"'.encode()) == expected_value(column, text), text


@laws
@given(
    st.sampled_from(["epoch_s", "epoch_ms", "epoch_us", "epoch_ns"]), st.sampled_from(["timestamp", "date"]), st.data()
)
def test_counts_since_1970_are_exact(file: SourceFile, written: str, kind: str, data: st.DataObject) -> None:
    shape = re.compile(r"[-+]?[0-9]{0,22}(\.[0-9]{0,20})?([eE][-+]?[0-9]{1,3})?", re.ASCII)
    text = data.draw(st.from_regex(shape, fullmatch=True))
    zone = data.draw(st.sampled_from(ZONES)) if kind == "date" else "UTC"
    column = Column(name="extra", type=kind, format=written, zone=zone)
    if text:
        assert read_value(file, column, f'"{text}"'.encode()) == expected_value(column, text), text


@laws
@given(
    st.sampled_from([p for p in (*TIMES, *DATES) if "%" in p]),
    st.sampled_from(["timestamp", "date"]),
    st.sampled_from(ZONES),
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - what a clock shows
    st.data(),
)
def test_patterns_are_read_as_strptime_reads_them(
    file: SourceFile, pattern: str, kind: str, zone: str, at: datetime, data: st.DataObject
) -> None:
    text = at.replace(tzinfo=UTC).strftime(pattern)
    if at.year < 1000 and "%Y" in pattern:
        text = text.replace(str(at.year), f"{at.year:04}", 1)
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(text)))
        text = (
            text[:place]
            + data.draw(st.sampled_from([*"0189: +-Z.a", "", "  "]))
            + text[place + data.draw(st.sampled_from([0, 1])) :]
        )
    column = Column(name="extra", type=kind, format=pattern, zone=zone)
    assert read_value(file, column, f'"{text}"'.encode()) == expected_value(column, text), text


@laws
@given(st.sampled_from(ZONES), st.sampled_from([2018, 2011, 2024, 1900, 2050]), st.integers(0, 366 * 96), st.data())
def test_local_times_are_those_of_the_zones_clocks(
    file: SourceFile, zone: str, year: int, quarter: int, data: st.DataObject
) -> None:
    """Every quarter of an hour: those that come twice, and those that never come, too."""
    text = (datetime(year, 1, 1, tzinfo=UTC) + timedelta(minutes=15 * quarter)).strftime("%Y-%m-%d %H:%M:%S")
    column = Column(
        name="extra", type="timestamp", zone=zone, format=data.draw(st.sampled_from(["iso", "%Y-%m-%d %H:%M:%S"]))
    )
    assert read_value(file, column, f'"{text}"'.encode()) == expected_value(column, text), text


def test_a_file_that_names_no_interval_refuses_no_arrival(file: SourceFile) -> None:
    at_any_time = replace(file, period_start_us=None, period_end_us=None)
    line = b'{"id": "a", "at": "2031-03-01T10:00:00Z", "seen": "2031-03-01T10:00:00Z", "kind": "k", "extra": 1}'
    stream = stream_of(Column(name="extra", type="integer"))
    assert len(whole(stream, at_any_time, line)[0]) == 1
    assert whole(stream, file, line)[1][0][2] == "outside_file_interval"
