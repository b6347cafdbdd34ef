"""Every kind of bad input, once: named in quarantine or source_files, nothing lost, and the rest goes on.

One pipeline with a stream per format. The first run meets all of it at once; then a file grows.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.oracle.answers import Row, read_rows
from tests.command import run_stages

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

HOURS = [datetime(2024, 3, 1, hour, tzinfo=UTC) for hour in range(10, 14)]

COLUMNS = (
    "{id: string, at: timestamp, seen: timestamp, kind: {type: string, nullable: false}, value: double, n: integer}"
)
STREAM = """\
  {format}s:
    format: {format}
    path: feed/{format}s/%Y-%m-%dT%H.{format}
    columns: {columns}
    id: id
    event_time: at
    arrival_time: seen
    rate: 10 per hour
    max_early: 10 minutes
    max_late: 2 hours
    missing_file: warn
    other_columns: refuse
"""
PIPELINE = """\
name: trouble
owner: nobody
start: 2024-03-01T00:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 3 GiB
streams:
""" + "".join(STREAM.format(format=kind, columns=COLUMNS) for kind in ("jsonl", "csv", "parquet"))

NAMES = ["id", "at", "seen", "kind", "value", "n"]


def row(number: int, hour: int = 0, **other: object) -> dict[str, object]:
    """A good record, arrived in the given hour, with some of it replaced."""
    seen = HOURS[hour] + timedelta(minutes=number % 60)
    good = {"id": f"r{hour}-{number}", "at": stamp(seen - timedelta(minutes=1)), "seen": stamp(seen)}
    return {**good, "kind": "x", "value": 1.5, "n": number, **other}


def stamp(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


# The reason that each record must be refused for, and the column to blame. Everything else in a file is good.
Bad = tuple[object, str, str | None]
BAD_JSON: list[Bad] = [
    ('{"id": "cut off', "broken_record", None),
    ("not json at all", "broken_record", None),
    ("[1, 2, 3]", "broken_record", None),
    (row(3, colour="red"), "unknown_column", "colour"),
    (row(4, kind=None), "missing_value", "kind"),
    (row(5, id=None), "missing_value", "id"),
    (row(6, value="seven"), "wrong_type", "value"),
    (row(7, n=7.5), "wrong_type", "n"),
    (row(8, at="yesterday"), "wrong_type", "at"),
    (row(9, seen="later"), "wrong_type", "seen"),
    (row(10, at="2099-01-01T00:00:00Z"), "too_early", "at"),
    (row(11, at="2024-03-01T01:00:00Z"), "too_late", "at"),
    (row(12, value="NaN"), "non_finite", "value"),
    (row(13, value="Infinity"), "non_finite", "value"),
    (row(14, value={"nested": 1}), "wrong_type", "value"),
    (row(20, id="r0-15"), "duplicate_id", "id"),
    (row(22, seen="2024-03-01T15:00:00Z", at="2024-03-01T15:00:00Z"), "outside_file_interval", "seen"),
]
BAD_CSV: list[Bad] = [
    ("only,three,cells", "broken_record", None),
    ("a,b,c,d,e,f,g,h", "broken_record", None),
    (row(4, kind=""), "missing_value", "kind"),
    (row(6, value="seven"), "wrong_type", "value"),
    (row(7, n="0x10"), "wrong_type", "n"),
    (row(10, at="2099-01-01T00:00:00Z"), "too_early", "at"),
    (row(12, value="-inf"), "non_finite", "value"),
    (row(20, id="r0-15"), "duplicate_id", "id"),
]
GOOD = [row(number) for number in (15, 16, 17)]


def json_line(record: object) -> str:
    return record if isinstance(record, str) else json.dumps(record)


def csv_line(record: object) -> str:
    return record if isinstance(record, str) else ",".join(str(record[name]) for name in NAMES)  # type: ignore[index]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The declaration and the feed."""
    folder = tmp_path_factory.mktemp("pipelines") / "trouble"
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    query = "SELECT COUNT(*) AS n FROM jsonls [1 HOUR] EVERY 5 MINUTES\n"
    (folder / "queries" / "counted.sql").write_text(query)
    best = "SELECT kind, value FROM jsonls [1 HOUR] ORDER BY value DESC LIMIT 2 ACCURACY 90% EVERY 5 MINUTES\n"
    (folder / "queries" / "best.sql").write_text(best)
    for kind in ("jsonls", "csvs", "parquets"):
        (folder / "feed" / kind).mkdir(parents=True)
    feed_jsonl(folder / "feed" / "jsonls")
    feed_csv(folder / "feed" / "csvs")
    feed_parquet(folder / "feed" / "parquets")
    return folder


def feed_jsonl(feed: Path) -> None:
    """10: every bad line; 11: byte-order mark, CRLF, a blank line, an id of the hour before; 12: empty; 13: missing."""
    lines = [json_line(record) for record in [*GOOD, *(bad for bad, _, _ in BAD_JSON)]]
    (feed / "2024-03-01T10.jsonl").write_text("\n".join(lines) + "\n")
    later = [json_line(row(30, 1)), "", json_line(row(31, 1, id="r0-16")), json_line(row(32, 1))]
    (feed / "2024-03-01T11.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(later).encode() + b"\r\n")
    (feed / "2024-03-01T12.jsonl").write_bytes(b"")


def feed_csv(feed: Path) -> None:
    """10: every bad line; 11: a byte-order mark and CRLF; 12: an unknown column; 13: binary garbage."""
    lines = [",".join(NAMES), *(csv_line(record) for record in [*GOOD, *(bad for bad, _, _ in BAD_CSV)])]
    (feed / "2024-03-01T10.csv").write_text("\n".join(lines) + "\n")
    later = [",".join(NAMES), csv_line(row(30, 1)), csv_line(row(32, 1))]
    (feed / "2024-03-01T11.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(later).encode() + b"\r\n")
    strange = [",".join([*NAMES, "colour"]), *(csv_line(row(number, 2)) + ",red" for number in (1, 2))]
    (feed / "2024-03-01T12.csv").write_text("\n".join(strange) + "\n")
    (feed / "2024-03-01T13.csv").write_bytes(bytes(range(256)) * 4)


def feed_parquet(feed: Path) -> None:
    """10: good, NaN, NULL, 2099; 11: a string where a double was declared; 12: no Parquet; 13: without a column."""
    records = [row(1), row(2, value=math.nan), row(3, kind=None), row(4, at="2099-01-01T00:00:00Z"), row(5, value=None)]
    write_parquet(feed / "2024-03-01T10.parquet", records)
    texts = pa.Table.from_pylist([row(1, 1, value="2.5"), row(2, 1, value="many")])
    pq.write_table(texts, feed / "2024-03-01T11.parquet")
    (feed / "2024-03-01T12.parquet").write_bytes(b"PAR1 and then nothing of the kind")
    write_parquet(feed / "2024-03-01T13.parquet", [row(1, 3), row(2, 3)], without="kind")


def write_parquet(path: Path, records: list[dict[str, object]], without: str = "") -> None:
    """A Parquet file with real timestamps."""

    def typed(record: dict[str, object]) -> dict[str, object]:
        times = {name: datetime.fromisoformat(str(record[name])) for name in ("at", "seen")}
        return {name: value for name, value in {**record, **times}.items() if name != without}

    pq.write_table(pa.Table.from_pylist([typed(record) for record in records]), path)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def said(folder: Path, root: Path) -> str:
    """All four hours in one run, which goes on in spite of everything; what it said."""
    stages = ("ingest", "join_aggregate", "top_k", "calibrate")
    return run_stages(folder, root, HOURS[0], HOURS[-1] + timedelta(hours=1), stages)


@pytest.fixture(scope="module")
def warehouse(said: str, root: Path) -> Path:
    return root / "trouble"


def refused(warehouse: Path, stream: str) -> list[Row]:
    return [found for found in read_rows(warehouse, "quarantine") if found["stream"] == stream]


def accepted(warehouse: Path, stream: str) -> list[str]:
    return sorted(found["event_id"] for found in read_rows(warehouse, f"events_{stream}"))


@pytest.mark.parametrize(("record", "reason", "column"), BAD_JSON)
def test_json_lines_are_refused_by_name(warehouse: Path, record: object, reason: str, column: str | None) -> None:
    line = json_line(record)
    found = [(q["reason"], q["column"]) for q in refused(warehouse, "jsonls") if q["record"] == line]
    assert found == [(reason, column)]


@pytest.mark.parametrize(("record", "reason", "column"), BAD_CSV)
def test_csv_lines_are_refused_by_name(warehouse: Path, record: object, reason: str, column: str | None) -> None:
    marks = [str(record[name]) for name in ("id", "value", "n")] if isinstance(record, dict) else [str(record)]  # type: ignore[index]
    found = [
        (q["reason"], q["column"])
        for q in refused(warehouse, "csvs")
        if all(mark in q["record"] for mark in marks) and (q["arrival_time"] is None or q["arrival_time"] < HOURS[1])
    ]
    assert found == [(reason, column)]


def test_nothing_else_is_refused(warehouse: Path) -> None:
    reasons = {name: Counter(q["reason"] for q in refused(warehouse, name)) for name in ("jsonls", "csvs", "parquets")}
    of_json, of_csv = (Counter(reason for _, reason, _ in bad) for bad in (BAD_JSON, BAD_CSV))
    assert reasons["jsonls"] == of_json + Counter(duplicate_id=1)
    rest = reasons["csvs"] - of_csv
    assert of_csv - reasons["csvs"] == Counter()
    assert rest.pop("unknown_column") == 2
    assert rest.keys() in ({"broken_file"}, {"broken_record"})  # the binary garbage, as a file or line by line
    expected = Counter(non_finite=1, missing_value=3, too_early=1, wrong_type=1, broken_file=1)
    assert reasons["parquets"] == expected


def test_the_good_records_between_the_bad_are_accepted(warehouse: Path) -> None:
    assert accepted(warehouse, "jsonls") == ["r0-15", "r0-16", "r0-17", "r1-30", "r1-32"]
    assert accepted(warehouse, "csvs") == ["r0-15", "r0-16", "r0-17", "r1-30", "r1-32"]
    assert accepted(warehouse, "parquets") == ["r0-1", "r0-5", "r1-1"]


def test_a_duplicate_in_another_hour_is_refused_there(warehouse: Path) -> None:
    found = [q for q in refused(warehouse, "jsonls") if q["reason"] == "duplicate_id" and "r0-16" in q["record"]]
    assert [f"{q['arrival_time']:%H:%M}" for q in found] == ["11:31"]


def test_every_file_has_a_status(warehouse: Path) -> None:
    files = read_rows(warehouse, "source_files")
    found = {(file["stream"], Path(file["path"]).stem[-2:]): file["status"] for file in files}
    assert len(found) == len(files) == 12
    assert found.pop(("csvs", "13")) in ("ok", "unreadable")  # garbage may happen to have lines
    assert {key: status for key, status in found.items() if status != "ok"} == {
        ("jsonls", "12"): "empty",
        ("jsonls", "13"): "missing",
        ("parquets", "12"): "unreadable",
    }


def test_a_missing_file_is_said_while_running(said: str) -> None:
    assert any("jsonls" in line and "missing" in line and "2024-03-01T13" in line for line in said.splitlines())


def test_progress_is_short_and_for_people(said: str, warehouse: Path) -> None:
    """No JSON between the lines: what each stage measured is in a file; nothing is said twice."""
    lines = said.splitlines()
    assert sum("cold start" in line for line in lines) == 1
    assert all(len(line) < 200 and line[:9].count(":") == 2 for line in lines), said
    stages = [json.loads(line)["app"] for line in (warehouse / "_logs" / "stages.jsonl").read_text().splitlines()]
    assert stages == [line.split(": ")[1] for line in lines if ": done in " in line] and "ingest" in stages


def test_records_in_are_rows_out_plus_refused(warehouse: Path) -> None:
    metrics = [row for row in read_rows(warehouse, "run_metrics") if row["app"] == "ingest"]
    assert len(metrics) == len(HOURS)
    for row_ in metrics:
        assert row_["rows_in"] == row_["rows_out"] + row_["rows_quarantined"]
    streams = ("jsonls", "csvs", "parquets")
    events = sum(len(read_rows(warehouse, f"events_{stream}")) for stream in streams)
    assert sum(row_["rows_out"] for row_ in metrics) == events
    assert sum(row_["rows_quarantined"] for row_ in metrics) == len(read_rows(warehouse, "quarantine"))


def test_answers_are_given_all_the_same(warehouse: Path) -> None:
    counts = {f"{row['window_end']:%H:%M}": row["n"] for row in read_rows(warehouse, "answers_counted")}
    assert counts["11:00"] == 3.0
    assert counts["13:55"] == 0.0


def test_forged_clocks_do_not_move_the_slack(warehouse: Path) -> None:
    """Every tuple that was accepted came a minute after it happened: no winner needs more, whatever was refused."""
    slacks = [plan["slack_s"] for plan in read_rows(warehouse, "slack_plan") if plan["query"] == "best"]
    assert len(slacks) == len(HOURS) and max(slacks) <= 60


def test_a_file_that_grew_is_noticed_and_read_again_on_demand(folder: Path, root: Path, said: str) -> None:
    file = folder / "feed" / "jsonls" / "2024-03-01T11.jsonl"
    with open(file, "ab") as grown:
        grown.write(json_line(row(40, 1)).encode() + b"\n")
    write_parquet(folder / "feed" / "parquets" / "2024-03-01T14.parquet", [row(1, 3, seen="2024-03-01T14:01:00Z")])
    # The next hour tells of it …
    next_hour = HOURS[-1] + timedelta(hours=1)
    noticed = run_stages(folder, root, next_hour, next_hour + timedelta(hours=1), ["ingest"])
    assert "2024-03-01T11.jsonl has changed since interval 2024-03-01T11 was ingested" in noticed
    warehouse = root / "trouble"
    changed = [Path(r["path"]).name for r in read_rows(warehouse, "source_files") if r["status"] == "changed"]
    assert changed == ["2024-03-01T11.jsonl"]
    assert "r1-40" not in accepted(warehouse, "jsonls")
    # … and running the hour again reads what was added, and nothing twice.
    run_stages(folder, root, HOURS[1], HOURS[2], ["ingest"])
    assert accepted(warehouse, "jsonls") == ["r0-15", "r0-16", "r0-17", "r1-30", "r1-32", "r1-40"]
