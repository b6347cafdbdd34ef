"""What `tidegate init --from` proposes for strangers' files, what it says of them, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from csv import writer as csv_writer
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.unit.files_of_strangers import FILES, Strangers, at, csv, jsonl, put

from tidegate.cli import _parser, main
from tidegate.cli.init_from import init_from
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import DeclarationErrors, UserError
from tidegate.declarations.models import Column, CsvDialect, Pipeline, Stream
from tidegate.declarations.source_paths import show_path
from tidegate.stages.launcher import instant


def proposed(folder: Path, *files: Path) -> Pipeline:
    """The pipeline that is proposed for the files."""
    assert main(["init", str(folder), "--from", *map(str, files)]) == 0
    return load_pipeline(folder)


def shown(column: Column, stream: Stream) -> str:
    """A column's path as ``from`` has it."""
    first = column.steps[0]
    return f"[{first}]" if isinstance(first, int) else first if stream.format == "csv" else show_path(column.steps)


@pytest.fixture(params=sorted(FILES), scope="module")
def feed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Strangers, Path, Pipeline]:
    """Each stranger's files, and the pipeline that is proposed for their folder."""
    strangers = FILES[request.param]
    home = tmp_path_factory.mktemp("from")
    (home / "landing").mkdir()
    strangers.make(home / "landing")
    return strangers, home, proposed(home / "mine", home / "landing")


def test_the_columns_are_those_that_are_there(feed: tuple[Strangers, Path, Pipeline]) -> None:
    strangers, _, pipeline = feed
    (stream,) = pipeline.streams
    columns = {shown(column, stream): column for column in stream.columns}
    seen = {}
    for path, expected in strangers.columns.items():
        column = columns[path]
        kind = (column.type, column.format, column.zone)
        seen[path] = kind[: len(expected)] if isinstance(expected, tuple) else column.type
        assert isinstance(expected, tuple) or column.format == "iso"
    assert seen == strangers.columns
    assert not set(strangers.absent) & columns.keys()
    assert stream.format == strangers.format
    assert stream.csv == CsvDialect(**strangers.csv)


def test_the_roles_are_those_that_the_data_have(feed: tuple[Strangers, Path, Pipeline]) -> None:
    strangers, _, pipeline = feed
    (stream,) = pipeline.streams
    paths = {column.name: shown(column, stream) for column in stream.columns}
    assert paths[stream.event_time] == strangers.event
    assert paths[stream.arrival_time or ""] == strangers.arrival
    assert tuple(paths[name] for name in stream.id) == strangers.id


def test_the_path_names_the_files_where_they_are(feed: tuple[Strangers, Path, Pipeline]) -> None:
    strangers, home, pipeline = feed
    (stream,) = pipeline.streams
    assert Path(stream.path).parent == home / "landing"
    assert Path(stream.path).name == strangers.path or not strangers.path
    assert "path: '../landing/" in (home / "mine" / "pipeline.yml").read_text(encoding="utf-8")


def test_the_query_is_about_what_is_interesting(feed: tuple[Strangers, Path, Pipeline]) -> None:
    strangers, _, pipeline = feed
    (query,) = pipeline.queries
    assert "COUNT(*)" in query.text and strangers.query in query.text
    assert query.description
    (window,) = query.windows
    assert window.range_s % pipeline.tick_s == 0 and query.every_s <= window.range_s


def test_every_guess_says_what_was_seen(feed: tuple[Strangers, Path, Pipeline]) -> None:
    _, home, _ = feed
    lines = (home / "mine" / "pipeline.yml").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if re.match(r" {6}\w+: |    (id|event_time|arrival_time|rate|max_late): |(interval|horizon): ", line):
            assert "  # " in line or lines[number - 1].strip().startswith("# "), line
        assert len(line) <= 160


@pytest.mark.parametrize("name", ["hourly", "mysql", "taxi"])
def test_the_same_files_give_the_same_proposal(name: str, tmp_path: Path) -> None:
    FILES[name].make(tmp_path)
    texts = []
    for folder in (tmp_path / "_one" / "p", tmp_path / "_two" / "p"):
        proposed(folder, tmp_path)
        texts.append(
            {file.name: file.read_bytes() for file in folder.rglob("*") if file.suffix in (".yml", ".sql", ".md")}
        )
    assert texts[0] == texts[1]


def test_the_last_line_runs_all_that_arrived_to_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "landing").mkdir()
    FILES["hourly"].make(tmp_path / "landing")
    pipeline = proposed(tmp_path / "mine", tmp_path / "landing")
    said = capsys.readouterr().out
    arguments = _parser().parse_args(shlex.split(said.splitlines()[-1])[1:])
    assert (arguments.start, arguments.end) == (instant("2026-01-05T08"), instant("2026-01-05T11"))
    assert arguments.stage == ["answers"] and arguments.warehouse == str(tmp_path / "mine" / "warehouse")
    assert pipeline.interval_s == 3600 and pipeline.start == arguments.start
    for name in ("pipeline.yml", "README.md", "dags/mine.py"):
        assert name in said and (tmp_path / "mine" / name).is_file()


def test_every_command_of_the_readme_is_one_that_tidegate_takes(tmp_path: Path) -> None:
    FILES["bids"].make(tmp_path)
    proposed(tmp_path / "mine", tmp_path / "bids.jsonl")
    text = (tmp_path / "mine" / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    (tidegate .*)$|`(tidegate [^`-]* \..*?)`", text, re.MULTILINE)
    parsed = [_parser().parse_args(shlex.split("".join(both).split(">")[0])[1:]) for both in commands]
    assert len(parsed) >= 5 and all(str(arguments.pipeline) == "." for arguments in parsed)


def test_files_that_differ_are_streams_of_their_own(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    FILES["hourly"].make(landing)
    put(
        landing,
        "alarms-1.csv",
        csv([("alarm_id", "raised_at", "level"), *((n, at(n).isoformat(), n % 3) for n in range(50))]),
    )
    pipeline = proposed(tmp_path / "mine", landing)
    assert {stream.name: stream.format for stream in pipeline.streams} == {"alarms": "csv", "orders": "jsonl"}
    assert {query.streams[0] for query in pipeline.queries} == {"alarms", "orders"}


def test_names_that_say_another_time_than_the_arrivals_become_wildcards(tmp_path: Path) -> None:
    for day in ("2026-01-05", "2026-01-06"):
        put(
            tmp_path,
            f"landing/log_{day}.jsonl",
            jsonl({"id": f"{day}-{n}", "at": at(n * 60).isoformat()} for n in range(99)),
        )
    pipeline = proposed(tmp_path / "mine", tmp_path / "landing")
    (stream,) = pipeline.streams
    assert stream.path.endswith("/landing/*.jsonl") and stream.name == "log"
    assert "has a record of 2026-01-05 08:00:00 UTC" in (tmp_path / "mine" / "pipeline.yml").read_text(encoding="utf-8")


def test_days_in_names_make_intervals_of_a_day(tmp_path: Path) -> None:
    for day in range(5, 8):
        rows = [(f"e{day}-{n}", at((day - 5) * 86400 + n * 60).isoformat(), n % 3) for n in range(200)]
        put(tmp_path, f"data/2026/01/{day:02d}/part-{day}.csv.gz", csv([("event_id", "event_time", "kind"), *rows]))
    pipeline = proposed(tmp_path / "mine", tmp_path / "data")
    (stream,) = pipeline.streams
    assert stream.path.endswith("/data/%Y/%m/%d/part-*.csv.gz")
    assert pipeline.interval_s == 86_400 and stream.event_time == "event_time" and stream.id == ("event_id",)


def test_a_part_of_a_large_file_is_read_and_its_rate_is_that_of_the_whole(tmp_path: Path) -> None:
    rows = [{"id": n, "ts": 1767600000 + n // 10, "v": n % 10, "kind": "ab"[n % 2]} for n in range(60_000)]
    put(tmp_path, "big.jsonl", jsonl(rows))
    put(tmp_path, "big.jsonl.gz", jsonl(rows))
    for name in ("big.jsonl", "big.jsonl.gz"):
        (stream,) = proposed(tmp_path / f"of_{name[3:].replace('.', '_').strip('_')}", tmp_path / name).streams
        assert stream.rate == pytest.approx(10, rel=0.3)


def test_a_hundred_files_are_one_stream(tmp_path: Path) -> None:
    for n in range(100):
        put(tmp_path, f"in/f{n}.jsonl", jsonl({"id": 100 * n + m, "ts": 1767600000 + 100 * n + m} for m in range(100)))
    (stream,) = proposed(tmp_path / "mine", tmp_path / "in").streams
    assert stream.path.endswith("/in/*.jsonl") and stream.rate == pytest.approx(1, rel=0.1)


def test_days_without_their_times_are_said(tmp_path: Path) -> None:
    rows = [(n, at(n * 3600).strftime("%d.%m.%Y"), at(n * 3600).strftime("%H:%M"), n % 7) for n in range(90)]
    put(tmp_path, "log.csv", csv([("nr", "date", "clock", "v"), *rows]))
    (stream,) = proposed(tmp_path / "mine", tmp_path / "log.csv").streams
    assert stream.column("date").type == "timestamp"
    text = (tmp_path / "mine" / "pipeline.yml").read_text(encoding="utf-8")
    assert "days only" in text and "the time of day in clock cannot be joined" in text


def test_a_stream_of_very_many_fields_declares_the_fullest_ones(tmp_path: Path) -> None:
    rows = [
        {"id": n, "ts": 1767600000 + n, **{f"f{m}": n * m for m in range(60)}, "seldom": n if n == 7 else None}
        for n in range(300)
    ]
    put(tmp_path, "wide.jsonl", jsonl(rows))
    (stream,) = proposed(tmp_path / "mine", tmp_path / "wide.jsonl").streams
    assert len(stream.columns) == 40
    text = (tmp_path / "mine" / "pipeline.yml").read_text(encoding="utf-8")
    assert "not declared, rare: seldom" in text and "one of more than 40" in text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("no_time.csv", csv([("a", "b"), *((n, n * 2) for n in range(30))]), "no time can be seen in no_time.csv"),
        ("lists.json", json.dumps([[1767600000, 1.5], [1767600001, 1.6]]), "a record is an object with named fields"),
        ("empty.csv", "", "is empty"),
        ("header.csv", "id,at\n", "no records"),
        ("book.xlsx", b"PK\x03\x04" + bytes(50), "save its sheet as CSV"),
        ("packed.gz", b"", "is empty"),
        ("prose.txt", "It was a dark and stormy night.\nThe rain fell in torrents.\n", "its lines are no JSON"),
        ("octets.bin", bytes(range(256)) * 20, "no text"),
        ("cut.json", '[{"at": "2026-01-05T08:00:00Z"}, {"at"', "ends within an object"),
        ("python.json", "{'at': 1767600000}\n", "empty or not valid"),
        ("wide.jsonl", '{"at": 1767600000}\n'.encode("utf-16"), "JSON in utf-16"),
        ("plain.jsonl.gz", '{"at": 1767600000}\n', "Not a gzipped file"),
    ],
)
def test_what_cannot_be_seen_is_said(
    name: str, content: str | bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    assert main(["init", str(tmp_path / "mine"), "--from", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tidegate: error: ") and said in error
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("name", ["a.parquet", "a.parquet.gz", "a.parquet.zst"])
def test_parquet_is_read_where_the_product_reads_it(name: str, tmp_path: Path) -> None:
    FILES["decimals"].make(tmp_path)
    put(tmp_path, f"landing/{name}", (tmp_path / "a.parquet").read_bytes())
    (stream,) = proposed(tmp_path / "mine", tmp_path / "landing").streams
    assert stream.format == "parquet" and stream.id == ("trip",)


def test_a_header_may_begin_as_some_binary_files_do(tmp_path: Path) -> None:
    put(tmp_path, "authors.csv", csv([("ORCID", "at"), *((n, at(n * 60).isoformat()) for n in range(30))]))
    (stream,) = proposed(tmp_path / "mine", tmp_path / "authors.csv").streams
    assert [shown(column, stream) for column in stream.columns] == ["ORCID", "at"]


def test_a_container_of_avro_is_read(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    time = {"type": "long", "logicalType": "timestamp-millis"}
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    fields = [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": time},
        {"name": "amount", "type": amount},
        {"name": "shop", "type": {"type": "record", "name": "shop", "fields": [{"name": "city", "type": "string"}]}},
    ]
    schema = fastavro.parse_schema({"type": "record", "name": "sale", "fields": fields})
    rows = [
        {"id": UUID(int=n), "at": at(n * 20), "amount": Decimal(n) / 4, "shop": {"city": f"c{n % 3}"}}
        for n in range(150)
    ]
    with (tmp_path / "sales.avro").open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate")
    (stream,) = proposed(tmp_path / "mine", tmp_path / "sales.avro").streams
    assert stream.format == "avro" and stream.id == ("id",) and stream.event_time == "at"
    assert {column.name: column.type for column in stream.columns} == {
        "id": "string", "at": "timestamp", "amount": "decimal(10,2)", "shop_city": "string"
    }  # fmt: skip


def test_avro_that_is_cut_off_or_cannot_be_read_here_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.avro").write_bytes(b"Obj\x01" + bytes(40))
    assert main(["init", str(tmp_path / "mine"), "--from", str(tmp_path / "a.avro")]) == 2
    assert "a.avro is" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "fastavro", None)  # as if it were not installed
    assert main(["init", str(tmp_path / "mine"), "--from", str(tmp_path / "a.avro")]) == 2
    assert "pip install fastavro" in capsys.readouterr().err


ODD_NAMES = (
    "interval", "event_time", "Event_Time", "arrival_time", "event_id", "a.b", "", " x", "`", "${HOME}", "select",
    "Größe", "größe", "n" * 200, "window_end", "[0]", "a[1]", "id", "ID", "null", "on", "yes", "a: b", "#", "'", '"',
    "a\nb", "%Y", "1st", "$date", "_", "time", "records", "leaf_start", "order",
)  # fmt: skip
ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=9),
    st.sampled_from(["2026-01-05T08:00:00Z", "05/01/2026", "NA", "1,5", "12.50", "0012", "true", 1767600000, 10**12]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(ODD_NAMES), st.integers(), max_size=2),
)


@settings(max_examples=60, deadline=None, phases=[Phase.generate])
@given(
    names=st.lists(st.sampled_from(ODD_NAMES), min_size=1, max_size=8, unique=True),
    form=st.sampled_from(["jsonl", "csv"]),
    data=st.data(),
)
def test_whatever_the_fields_the_proposal_is_a_pipeline_or_no_time_is_seen(
    names: list[str], form: str, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 12))
    columns = {name: data.draw(st.lists(ODD_VALUES, min_size=count, max_size=count)) for name in names}
    rows = [{name: values[n] for name, values in columns.items()} | {"when": at(n).isoformat()} for n in range(count)]
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        if form == "jsonl":
            put(home, "in.jsonl", jsonl(rows))
        else:
            with (home / "in.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv_writer(file)
                writer.writerows([[*names, "when"], *([str(value) for value in row.values()] for row in rows)])
        try:
            init_from(home / "mine", [home / f"in.{form}"])
        except DeclarationErrors:
            raise
        except UserError as error:
            # Text with signs of all kinds may not look like cells any more.
            assert form == "csv", error
            return
        (stream,) = load_pipeline(home / "mine").streams
        assert stream.event_time in {column.name for column in stream.columns}


def test_from_and_example_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["init", str(tmp_path / "p"), "--example", "shop", "--from", "x"])
    assert main(["init", str(tmp_path / "p"), "--from", str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("documents", [1, 3])
def test_records_in_a_list_of_each_document_are_remarked_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], documents: int
) -> None:
    events = [{"eventID": f"e-{n}", "eventTime": f"2026-01-05T08:{n:02d}:00Z"} for n in range(40)]
    put(tmp_path, "trail.json", jsonl([{"Records": events}] * documents))
    assert main(["init", str(tmp_path / "trail"), "--from", str(tmp_path / "trail.json")]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "up to 40 objects in its list 'Records' are not records of their own" in output
    assert "jq -c '.Records[]'" in output


def test_lists_of_parts_are_no_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orders = [{"id": n, "at": at(n).isoformat(), "items": [{"sku": "a"}, {"sku": "b"}]} for n in range(30)]
    put(tmp_path, "orders.jsonl", jsonl(orders))
    assert main(["init", str(tmp_path / "orders"), "--from", str(tmp_path / "orders.jsonl")]) == 0
    assert "of their own" not in capsys.readouterr().out


def test_a_time_of_day_is_no_id(tmp_path: Path) -> None:
    rows = [("05.01.2026", f"{n // 60:02d}:{n % 60:02d}:00", n % 7) for n in range(600)]
    put(tmp_path, "days.csv", csv([("Tag", "Uhrzeit", "Wert"), *rows], ";"))
    (stream,) = proposed(tmp_path / "days", tmp_path / "days.csv").streams
    assert "Uhrzeit" not in stream.id


def test_times_without_a_year_are_no_times(tmp_path: Path) -> None:
    rows = [(f"Jan 05 08:{n:02d}:00", f"m{n}") for n in range(40)]
    put(tmp_path, "syslog.csv", csv([("timestamp", "message"), *rows]))
    with pytest.raises(UserError, match="no time can be seen"):
        init_from(tmp_path / "syslog", [tmp_path / "syslog.csv"])
