"""The two judges agree, on every record, reason and value; and what they read is what an independent reader reads.

The independent reader shares no code with the product: json, csv, decimal and datetime of the standard library.
"""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attacks import reading
from tests.attacks.odd import ARROW, JSON_TOKENS, TEXTS
from tidegate.sources.blocks import block_of, read_lines
from tidegate.sources.parquet import givens, readable

from tidegate.declarations.models import Column, Stream
from tidegate.sources.counts import RawCount
from tidegate.sources.files import Piece, SourceFile, cut
from tidegate.sources.judge import by_record
from tidegate.sources.parse import csv_fields, json_fields
from tidegate.sources.records import Judged, judge_lines, judge_rows

laws = settings(derandomize=True, deadline=None, max_examples=120)

TYPES = {"id": "string", "at": "timestamp", "seen": "timestamp", "n": "integer", "x": "double"}
TYPES |= {"ok": "boolean", "day": "date", "kind": "string"}
NAMES = list(TYPES)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = datetime(2024, 3, 1, 10, tzinfo=UTC)


def us(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def stream(kind: str) -> Stream:
    columns = tuple(Column(name=n, type=t, nullable=n != "kind") for n, t in TYPES.items())
    rules = {"rate": 1.0, "max_early_s": 600, "max_late_s": 7200}
    return Stream(
        name="s", format=kind, path="x", columns=columns, event_time="at", arrival_time="seen", id=("id",), **rules
    )


FILE = SourceFile(Path("x"), 1, us(HOUR) + 5, us(HOUR), us(HOUR) + 3_600_000_000)
GOOD = {"id": "a", "at": "2024-03-01T10:00:00Z", "seen": "2024-03-01T10:00:30Z", "n": 1, "x": 1.5, "ok": True}
GOOD |= {"day": "2024-03-01", "kind": "k"}

BLANKS = [b"", b" ", b"\t", b"\r"]


@st.composite
def json_line(draw: st.DrawFn) -> bytes:
    record = {name: json.dumps(value) for name, value in GOOD.items()}
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        name = draw(st.sampled_from([*NAMES, "colour", "ID", "_file"]))
        record[name] = draw(st.sampled_from(JSON_TOKENS) | st.sampled_from(TEXTS).map(json.dumps))
    members = [f'"{name}": {token}' for name, token in record.items() if draw(st.integers(0, 30))]
    if draw(st.integers(0, 20)) == 0:
        members.append(members[0] if members else '"id": "b"')
    line = ("{" + ", ".join(members) + "}").encode()
    return draw(mutated(line))


@st.composite
def csv_line(draw: st.DrawFn) -> bytes:
    cells = [str(GOOD[name]) for name in NAMES]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        text = draw(st.sampled_from(TEXTS))
        cells[draw(st.integers(0, len(cells) - 1))] = draw(st.sampled_from([text, '"' + text.replace('"', '""') + '"']))
    return draw(mutated(",".join(cells).encode()))


@st.composite
def mutated(draw: st.DrawFn, line: bytes) -> bytes:
    """Mostly as it is; else octets are changed, lost or put in, or two lines become one."""
    what = draw(st.sampled_from([*["as it is"] * 12, "twice", "cut", "put", "change", "blank", "null"]))
    at = draw(st.integers(0, max(len(line) - 1, 0)))
    octet = draw(
        st.sampled_from([b"\0", b"\xff", b'"', b",", b"{", b"}", b" ", b"\r", b"\xc3", b"\\", b"\xe2\x80\xa8"])
    )
    match what:
        case "twice":
            return line + draw(st.sampled_from([b"", b" ", b","])) + line
        case "cut":
            return line[:at]
        case "put":
            return line[:at] + octet + line[at:]
        case "change":
            return line[:at] + octet + line[at + 1 :]
        case "blank":
            return draw(st.sampled_from(BLANKS))
        case "null":
            return b"\0" * len(line)
    return line


@st.composite
def content(draw: st.DrawFn, line: st.SearchStrategy[bytes]) -> bytes:
    lines = draw(st.lists(line, min_size=1, max_size=12))
    good = lines[0] if draw(st.booleans()) else b""
    # A good block around them, so that blocks are taken as a whole, and apart.
    lines = [good] * draw(st.sampled_from([0, 40, 90])) + lines
    ends = draw(st.sampled_from([[b"\n"], [b"\r\n"], [b"\n", b"\r\n"], [b"\n", b"\r"]]))
    return b"".join(x + draw(st.sampled_from(ends)) if len(ends) > 1 else x + ends[0] for x in lines)


def judged(kind: str, data: bytes, whole: bool) -> tuple[list, list]:
    found = Judged([], [])
    judge_lines(stream(kind), FILE, block_of(data, 1000), tuple(NAMES) if kind == "csv" else (), found, whole)
    return in_order(found)


def in_order(found: Judged) -> tuple[list, list]:
    tuples = sorted((row for table in found.tuples for row in rows_of(table)), key=lambda row: row[-1])
    refused = sorted((r.at, r.verdict.reason, r.verdict.column, r.verdict.arrival_us, r.text) for r in found.refused)
    return tuples, refused


def rows_of(table: pa.Table) -> list[tuple]:
    """Values as text that tells every bit apart (−0.0 from 0.0), the place last."""
    plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return [(*map(repr, row[:-1]), row[-1]) for row in zip(*(c.to_pylist() for c in plain), strict=True)]


@laws
@given(content(json_line()))
def test_both_judges_agree_on_json_lines(data: bytes) -> None:
    assert judged("jsonl", data, whole=True) == judged("jsonl", data, whole=False)


@laws
@given(content(csv_line()))
def test_both_judges_agree_on_csv(data: bytes) -> None:
    assert judged("csv", data, whole=True) == judged("csv", data, whole=False)


@laws
@given(content(json_line()))
def test_every_line_with_something_in_it_is_judged_once(data: bytes) -> None:
    tuples, refused = judged("jsonl", data, whole=True)
    lines = [line for line in re.split(rb"[\r\n]", data) if line.strip(b" \t")]
    assert len(tuples) + len(refused) == len(lines)
    counted = RawCount()
    counted.add(data)
    assert (counted.records, counted.bytes) == (len(lines), len(data))


@laws
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(ARROW)), max_size=3), st.integers(1, 5))
def test_both_judges_agree_on_parquet(replaced: list, rows: int) -> None:
    columns: dict[str, pa.Array] = {name: pa.array([GOOD[name]] * rows) for name in NAMES}
    columns |= {name: pa.concat_arrays([array] * rows)[:rows] for name, array in replaced}
    found = []
    for whole in (True, False):
        result = Judged([], [])
        judge_rows(stream("parquet"), FILE, 7, readable(pa.record_batch(columns)), result, whole)
        found.append(in_order(result))
    assert found[0] == found[1]
    assert len(found[0][0]) + len(found[0][1]) == rows


def expected(kind: str, text: str) -> object:
    """An independent reading of text: the value, or the reason for which there is none."""
    try:
        return reading.value(kind, text)
    except reading.NoValueError as error:
        return str(error)


@pytest.mark.parametrize("kind", ["string", "integer", "double", "boolean", "date", "timestamp"])
@pytest.mark.parametrize("text", [t for t in TEXTS if t])
def test_a_text_is_what_an_independent_reader_takes_it_for(kind: str, text: str) -> None:
    name = next(name for name, own in TYPES.items() if own == kind and name not in ("id", "seen"))
    name = "kind" if kind == "string" else name
    found = by_record(stream("jsonl"), FILE, {**{n: str(v) for n, v in GOOD.items()}, name: text})
    value = expected(kind, text)
    if value in ("wrong_type", "non_finite") and kind != "string":
        assert (found.reason, found.column) == (value, name)
    else:
        assert found.reason in (None, "too_early", "too_late")
        assert repr(found.values[name]) == repr(value)


@laws
@given(st.sampled_from(["integer", "double", "timestamp", "date", "boolean"]), st.data())
def test_texts_at_random_are_what_an_independent_reader_takes_them_for(kind: str, data: st.DataObject) -> None:
    name = next(name for name, own in TYPES.items() if own == kind and name != "seen")
    shapes = {
        "integer": r"[-+]?[0-9]{1,20}(\.[0-9]{0,3})?",
        "double": r"[-+]?[0-9]{0,20}(\.[0-9]{0,20})?([eE][-+]?[0-9]{0,3})?",
        "timestamp": r"[0-9]{4}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?"
        r"(Z|[-+]0[0-9]:[0-6][0-9])?)?",
        "date": r"[0-9]{4}-[01][0-9]-[0-3][0-9]",
        "boolean": r"[tT][rR]?[uU][eE]|[fF][aA][lL][sS][eE]|[01]",
    }
    text = data.draw(st.from_regex(re.compile(shapes[kind], re.ASCII), fullmatch=True))
    found = by_record(stream("jsonl"), FILE, {**{n: str(v) for n, v in GOOD.items()}, name: text})
    if not text:
        return
    value = expected(kind, text)
    if value in ("wrong_type", "non_finite"):
        assert (found.reason, found.column) == (value, name), text
    else:
        assert repr(found.values[name]) == repr(value), text


@laws
@given(content(csv_line()))
def test_csv_cells_are_those_of_the_standard_library(data: bytes) -> None:
    """Where the line is UTF-8 without NUL and its quotes are as RFC 4180 has them."""
    for line in re.split(rb"[\r\n]", data):
        fields = csv_fields(line, tuple(NAMES))
        if fields is not None:
            assert [cell or "" for cell in fields.values()] == next(csv.reader(io.StringIO(line.decode())))


@laws
@given(content(json_line()))
def test_json_members_are_those_of_the_standard_library(data: bytes) -> None:
    for line in re.split(rb"[\r\n]", data):
        fields = json_fields(line)
        try:
            pairs = json.loads(line, object_pairs_hook=lambda pairs: pairs)
            pairs = pairs if line.lstrip(b" \t").startswith(b"{") else None
        except ValueError:
            pairs = None
        if fields is None:
            surrogate = b"\\ud8" in line
            assert pairs is None or surrogate or repeated(pairs)
        else:
            assert pairs is not None and list(fields) == [name for name, _ in pairs]


def repeated(pairs: list) -> bool:
    names = [name for name, _ in pairs]
    return len(set(names)) < len(names)


@laws
@given(content(json_line()), st.integers(1, 60), st.integers(1, 50))
def test_however_a_file_is_cut_its_lines_are_the_same(tmp_path_factory, data: bytes, size: int, block: int) -> None:
    data = data.replace(b"\r\n", b"\n").replace(b"\r", b"")
    path = tmp_path_factory.mktemp("cut") / "x.jsonl"
    path.write_bytes(data)
    file = SourceFile(path, len(data), 0, None, None)
    pieces = cut(stream("jsonl"), file, size)
    whole = list(read_lines(Piece(stream("jsonl"), file)))
    found = [(at, own) for piece in pieces for at, own in read_lines(piece, block)]
    mark = len(data) - sum(len(own) for _, own in whole)
    assert b"".join(own for _, own in found) == b"".join(own for _, own in whole)
    at = mark
    for start, own in found:
        assert start == at
        at += len(own)


def test_a_parquet_row_of_every_type_is_given_as_it_is() -> None:
    table = pa.table({"a": pa.array([Decimal("1.5")], pa.decimal256(60, 3)), "b": pa.array([b"x"])})
    assert [type(value).__name__ for value in givens(table)[0].values()] == ["Decimal", "Nothing"]
