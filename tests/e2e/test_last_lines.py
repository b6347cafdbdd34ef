"""What a run says at its end of files and records: nothing is refused in silence, and it says what would mend it."""

from __future__ import annotations

import gzip
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.command import Run, tidegate

pytestmark = pytest.mark.e2e

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
PIPELINE = """\
name: feed
owner: nobody
start: 2026-01-05T08:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 10 MiB
process_budget: 3 GiB
streams:
  s:
    format: {format}
    path: {path}
    columns: {{{columns}}}
    id: id
    event_time: at
    arrival_time: at
    rate: 1 per minute
    {more}
"""


def feed(
    folder: Path,
    columns: str,
    files: dict[str, bytes | str],
    format_: str = "jsonl",
    more: str = "",
    path: str = "in/*",
) -> Path:
    home = folder / "feed"
    (home / "queries").mkdir(parents=True, exist_ok=True)
    (home / "queries" / "n.sql").write_text("SELECT COUNT(*) AS n FROM s [1 HOUR] EVERY 30 MINUTES\n")
    text = PIPELINE.format(format=format_, columns=columns, more=more, path=path)
    (home / "pipeline.yml").write_text(text)
    (home / "in").mkdir(exist_ok=True)
    for name, content in files.items():
        (home / "in" / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return home


def ran(home: Path, *, start: str = "2026-01-05T08", end: str = "2026-01-05T10") -> Run:
    run = tidegate("run", home, "--warehouse", home / "warehouse", "--from", start, "--to", end, "--stage", "ingest")
    assert "Traceback" not in run.errors
    return run


def unbroken(text: str) -> str:
    return " ".join(text.split())


def records(count: int, **other: Any) -> str:
    rows = [{"id": f"r{n}", "at": (START + timedelta(minutes=n)).isoformat(), "v": n, **other} for n in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows)


MILLISECONDS = "".join(json.dumps({"id": f"r{n}", "at": 1767600000000 + n * 60_000, "v": n}) + "\n" for n in range(20))
COMMAS = "id;at;v\n" + "".join(f"r{n};2026-01-05 08:{n:02d}:00;{n},5\n" for n in range(20))
LOCAL = "id,at,v\n" + "".join(f"r{n},05.01.2026 08:{n:02d}:00,{n}\n" for n in range(20))
PRINTED = "".join(
    json.dumps({"id": f"r{n}", "at": f"2026-01-05T08:{n:02d}:00Z", "v": n}, indent=2) + "\n" for n in range(20)
)


@pytest.mark.parametrize(
    ("format_", "columns", "more", "content", "says"),
    [
        ("jsonl", "id: string, at: timestamp, v: integer", "", MILLISECONDS, "format: epoch_ms"),
        ("csv", "id: string, at: timestamp, v: double", "csv: {delimiter: ';'}", COMMAS, "csv: {decimal: ','}"),
        ("csv", "id: string, at: timestamp, v: double", "", COMMAS, "csv: {delimiter: ';'}"),
        ("csv", "id: string, at: timestamp, v: double", "", LOCAL, "format: '%d.%m.%Y %H:%M:%S', zone: …"),
        ("jsonl", "id: string, at: timestamp, v: integer", "", PRINTED, "format: json"),
        ("jsonl", "id: string, at: timestamp, v: string", "", records(20, v={"w": 1}), ""),
        ("jsonl", "id: string, at: timestamp, v: integer", "", records(20, v={"w": 1}), "from: v.… picks a field"),
        ("jsonl", "id: string, at: timestamp, v: integer", "", records(20, v=1.5), "type: double, or decimal(p, s)"),
        ("jsonl", "id: string, at: timestamp, v: 'decimal(4, 1)'", "", records(20, v=12345.25), "decimal(7,2)"),
        ("jsonl", "id: string, at: timestamp", "other_columns: refuse", records(20), "other_columns: ignore"),
        ("jsonl", "id: {type: string, from: idd}, at: timestamp, v: integer", "", records(20), "from: id"),
    ],
    ids=(
        "milliseconds",
        "decimal comma",
        "delimiter",
        "local time",
        "printed JSON",
        "object as text",
        "object",
        "fraction",
        "digits",
        "other columns",
        "renamed id",
    ),
)
def test_what_all_of_a_file_lacks_is_said_with_the_key_that_mends_it(
    tmp_path: Path, format_: str, columns: str, more: str, content: str, says: str
) -> None:
    home = feed(tmp_path, columns, {"a": content}, format_, more)
    run = ran(home)
    text = unbroken(run.output)
    if not says:
        assert run.status == 0 and "20 records read, 20 accepted" in text
        return
    assert says in text, text
    assert run.status == 1 and "every record was refused" in run.errors
    tried = tidegate("validate", home, "--data")
    assert tried.status == 1 and says in unbroken(tried.output), tried.output


def test_a_column_that_no_record_has_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    run = ran(feed(tmp_path, "id: string, at: timestamp, login: {type: string, from: actor.lgoin}", {
        "a": records(5, actor={"login": "x"})
    }))  # fmt: skip
    assert run.status == 0
    assert "no record of s has a value for column login; did you mean from: actor.login?" in unbroken(run.output)
    assert "did you mean from: actor.login?" in run.errors


def test_records_of_other_times_are_not_none(tmp_path: Path) -> None:
    home = feed(tmp_path, "id: string, at: timestamp, v: integer", {"a": records(20)})
    run = ran(home, start="2026-02-01T08", end="2026-02-01T09")
    assert "1 file, 20 records read, none of them of these intervals" in unbroken(run.output)
    assert "arrived from 2026-01-05 08:00 to 2026-01-05 08:19 UTC" in unbroken(run.output)
    assert run.status == 0
    shutil.rmtree(home / "warehouse")
    assert "20 records read, 20 accepted" in unbroken(ran(home, end="2026-01-05T09").output)


@pytest.mark.parametrize("path", ["in/*", "in/%Y-%m-%dT%H.jsonl"])
def test_no_records_arrived_is_said_only_if_there_were_none(tmp_path: Path, path: str) -> None:
    home = feed(tmp_path, "id: string, at: timestamp", {}, path=path)
    run = ran(home)
    assert run.status == 0 and unbroken(run.output).startswith("No records arrived in these intervals: no file")
    assert str(home / "in") in "".join(run.output.split("\n"))


def test_the_first_examples_have_their_places_and_reasons(tmp_path: Path) -> None:
    content = records(3) + "\n\noops\n" + records(1).replace('"v": 0', '"v": "x"').replace("r0", "r9")
    home = feed(tmp_path, "id: string, at: timestamp, v: integer", {"a.jsonl.gz": gzip.compress(content.encode())})
    run = ran(home)
    lines = [line.strip() for line in run.output.splitlines()]
    assert unbroken(run.output).startswith("1 file, 5 records read, 3 accepted, 2 refused (table quarantine):")
    assert "a.jsonl.gz:6: broken_record: oops" in lines and "a.jsonl.gz:7: wrong_type v: x" in lines
    assert run.status == 0


def test_a_declaration_is_tried_on_the_newest_files_without_a_warehouse(tmp_path: Path) -> None:
    names = {f"2026-01-05T{hour:02d}.jsonl": records(3).replace("T08", f"T{hour:02d}") for hour in (8, 9)}
    home = feed(tmp_path, "id: string, at: timestamp, v: integer", names, path="in/%Y-%m-%dT%H.jsonl")
    tried = tidegate("validate", home, "--data")
    assert (tried.status, tried.errors) == (0, "")
    assert "2 files, 6 records read, 6 would be accepted" in unbroken(tried.output)
    assert sorted(path.name for path in home.iterdir()) == ["in", "pipeline.yml", "queries"]
