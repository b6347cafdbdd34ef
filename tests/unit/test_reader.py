"""The independent reader reads what was counted by hand: it judges others, so it is judged here."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest
from tests.reader.accounts import Landed, account
from tests.reader.csv_text import csv_rows
from tests.reader.json_text import documents
from tests.reader.raw import RefusedError, Written, instant_text
from tests.reader.values import value

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Column, CsvDialect

CASES = Path(__file__).parents[1] / "cases"
NAMES = sorted(path.parent.name for path in CASES.glob("*/expected.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_read_as_it_was_counted_by_hand(name: str, tmp_path: Path) -> None:
    if (CASES / name / "pipeline.yml").read_text(encoding="utf-8").count("format: avro"):
        pytest.importorskip("fastavro")
    home = tmp_path / name
    (home / "queries").mkdir(parents=True)
    (home / "queries" / "q.sql").write_text("SELECT COUNT(*) AS n FROM s [1 HOUR]")
    (home / "pipeline.yml").write_bytes((CASES / name / "pipeline.yml").read_bytes())
    (stream,) = load_pipeline(home).streams
    landing = sorted((CASES / name / "landing").iterdir())
    files = [Landed(str(path), path.name, path.read_bytes(), 0, None, 0) for path in landing]
    outcome = account(stream, files, 3_600_000_000, -(2**62), 2**62)
    expected = json.loads((CASES / name / "expected.json").read_text(encoding="utf-8"))
    assert not outcome.broken and len(outcome.accepted) == expected["accepted"]
    assert dict(Counter(fate.reason for fate in outcome.refused)) == expected["refused"]
    if "unknown" in expected:
        assert {name: count for (_, name), (count, _) in outcome.unknown_columns().items()} == expected["unknown"]


def read(kind: str, raw: object, **more: str) -> object:
    """A value in a type, or the reason for which there is none; instants and days as text."""
    try:
        outcome = value(Column(name="x", type=kind, **more), raw)
    except RefusedError as error:
        return str(error)
    return (
        instant_text(outcome * (86_400_000_000 if kind == "date" else 1)) if kind in ("timestamp", "date") else outcome
    )


@pytest.mark.parametrize(
    ("text", "written", "zone", "expected"),
    [
        ("2024-03-31 02:30", "iso", "Europe/Berlin", "2024-03-31T01:30:00Z"),  # an hour that there is not
        ("2024-10-27 02:30", "iso", "Europe/Berlin", "2024-10-27T00:30:00Z"),  # the first of two
        ("2024-07-01", "iso", "America/New_York", "2024-07-01T04:00:00Z"),
        ("2024-07-01T00:00Z", "iso", "America/New_York", "2024-07-01T00:00:00Z"),
        ("1.9999999", "epoch_s", "UTC", "1970-01-01T00:00:01.999999Z"),
        ("-0.0000001", "epoch_s", "UTC", "1969-12-31T23:59:59.999999Z"),
        ("1767600000999999999", "epoch_ns", "UTC", "2026-01-05T08:00:00.999999Z"),
        ("1.7676e9", "epoch_s", "UTC", "2026-01-05T08:00:00Z"),
        ("1e400", "epoch_s", "UTC", "wrong_type"),
        ("nan", "epoch_s", "UTC", "wrong_type"),
        ("10/Oct/2000:13:55:36 -0700", "%d/%b/%Y:%H:%M:%S %z", "UTC", "2000-10-10T20:55:36Z"),
        ("05.01.2026 09:00", "%d.%m.%Y %H:%M", "Europe/Berlin", "2026-01-05T08:00:00Z"),
        ("2026-01-05 09:00 GMT", "%Y-%m-%d %H:%M %Z", "Europe/Berlin", "2026-01-05T09:00:00Z"),
        ("2026-01-05 09:00 gmt", "%Y-%m-%d %H:%M %Z", "Europe/Berlin", "wrong_type"),
        ("2026-01-05 09:00 EST", "%Y-%m-%d %H:%M %Z", "UTC", "wrong_type"),
        ("0001-01-01 00:30", "iso", "Europe/Berlin", "wrong_type"),  # of the year 0 in UTC
    ],
)
def test_instants_are_read_as_a_calendar_says(text: str, written: str, zone: str, expected: str) -> None:
    assert read("timestamp", text, format=written, zone=zone) == expected


@pytest.mark.parametrize(
    ("raw", "kind", "expected"),
    [
        ("1e3", "decimal(4,0)", "1000"),
        ("1e4", "decimal(4,0)", "wrong_type"),
        ("0012.50", "decimal(4,2)", "12.50"),
        ("1.005", "decimal(4,2)", "wrong_type"),
        ("1.0050000e0", "decimal(5,3)", "1.005"),
        ("-.5", "decimal(1,1)", "-0.5"),
        ("0e9999999999999", "decimal(2,1)", "0.0"),
        ("Infinity", "decimal(2,1)", "non_finite"),
        (Written("12.3"), "decimal(3,1)", "12.3"),
        (0.125, "decimal(3,2)", "0.12"),
        (2.675, "decimal(3,2)", "2.68"),
        (float("inf"), "decimal(3,2)", "non_finite"),
        (7, "decimal(1,0)", "7"),
        (True, "decimal(1,0)", "wrong_type"),
    ],
)
def test_decimals_are_exact(raw: object, kind: str, expected: str) -> None:
    assert str(read(kind, raw)) == expected


def test_cells_run_over_line_ends_and_broken_quotes_end_with_their_line() -> None:
    text = 'a,"b\r\n""c"""\n"d" ,e\n\n "f",g\n"never,\nh,i'
    rows = [(row.text, row.cells and [cell.text for cell in row.cells]) for row in csv_rows(text, CsvDialect())]
    assert rows == [
        ('a,"b\r\n""c"""', ["a", 'b\r\n"c"']),
        ('"d" ,e', None),
        (' "f",g', [' "f"', "g"]),
        ('"never,', None),
        ("h,i", ["h", "i"]),
    ]


def test_well_quoted_cells_are_those_of_the_standard_library() -> None:
    cells = ["", "a", 'say "x"', "two\nlines", "three\r\nlines\n", "a;b", " blank ", "ä"]
    for delimiter in (",", ";", "\t", "|"):
        out = io.StringIO(newline="")
        rows = [[one, two, "x"] for one in cells for two in cells]
        csv.writer(out, delimiter=delimiter).writerows(rows)
        read_rows = [row.cells or [] for row in csv_rows(out.getvalue(), CsvDialect(delimiter=delimiter))]
        assert [[cell.text for cell in row] for row in read_rows] == rows


def test_documents_are_those_of_the_standard_library() -> None:
    values = [{"a": "} ]"}, {"b": [1, {"c": '\\"'}]}, 7, None, "x"]
    for indent in (None, 2):
        one_by_one = "\n".join(json.dumps(one, indent=indent) for one in values)
        for text in (one_by_one, json.dumps(values, indent=indent), "[]\n" + json.dumps(values) + " []"):
            assert [json.loads(text_alone) for _, text_alone in documents(text)] == values
