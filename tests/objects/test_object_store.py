"""Tables in an object store: places, commits, upkeep."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.live_files import a_pipeline
from tests.objects.server import KEYS

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, Stream
from tidegate.declarations.tables import common_schema
from tidegate.engine.context import RunContext
from tidegate.live.intake import Intake
from tidegate.sources.files import BrokenFileError, Piece, expected_files
from tidegate.sources.formats import format_named
from tidegate.sources.text import LineSplitter, read_blocks
from tidegate.store.delta import DeltaLog
from tidegate.store.intervals import Interval, interval_at
from tidegate.store.places import ObjectPath, link, move, octets, place, remove_tree
from tidegate.store.upkeep import tidy
from tidegate.store.warehouse import Warehouse

START = a_pipeline().start
TABLE = "needed_slack"


def hour(number: int) -> Interval:
    return interval_at(a_pipeline(), START + timedelta(hours=number))


def rows(name: str, count: int = 3) -> pa.Table:
    return pa.Table.from_pylist([{"query": name}] * count, schema=common_schema(TABLE))


def put(warehouse: Warehouse, number: int, name: str) -> str:
    with warehouse.commit("stage", [hour(number)]) as commit:
        commit.put_arrow(TABLE, hour(number), rows(name))
        commit.put_state("state", hour(number), rows(name, 1))
    return commit.id


def seen(warehouse: Warehouse) -> dict[str, set[str]]:
    found = warehouse.read_arrow(TABLE).to_pylist()
    return {label: {row["query"] for row in found if row["interval"] == label} for label in warehouse.labels(TABLE)}


def test_a_place_has_what_a_path_has(bucket: ObjectPath, tmp_path: Path) -> None:
    for top in (tmp_path, bucket / "places"):
        file = top / "a" / "one.txt"
        file.parent.mkdir(parents=True)
        assert not file.exists() and not list(top.glob("a/*"))
        file.write_text("1234")
        assert file.exists() and file.is_file() and top.is_dir() and not file.is_dir()
        assert (file.name, file.suffix, file.parent.name, file.stat().st_size) == ("one.txt", ".txt", "a", 4)
        link(file, top / "a" / "two.txt")
        move(file, top / "a" / "three.txt")
        assert [found.name for found in sorted((top / "a").glob("t*.txt"))] == ["three.txt", "two.txt"]
        assert [str(found) for found in top.glob("*/three.txt")] == [f"{top}/a/three.txt"]
        with octets(top / "a" / "two.txt") as opened:
            opened.seek(1)
            assert (opened.peek(1)[:1], opened.read()) == (b"2", b"234")
        with pytest.raises(FileNotFoundError):
            file.stat()
        file.unlink(missing_ok=True)
        remove_tree(top / "a")
        assert not (top / "a" / "two.txt").exists()


def test_what_is_no_place_is_refused() -> None:
    for where in ("ftp://host/x", "s3://", "http://host/bucket"):
        with pytest.raises(UserError, match="is no place for files"):
            place(where)


def test_keys_in_a_uri_are_refused_and_not_shown() -> None:
    with pytest.raises(UserError, match="a URI holds no keys") as refused:
        place("s3://AKIAEXAMPLE:s3cret@bucket/folder")
    assert "s3cret" not in str(refused.value)


def test_runs_commit_and_are_read_in_cuts(bucket: ObjectPath) -> None:
    writer, other = (Warehouse(bucket / "runs", a_pipeline()) for _ in range(2))
    first = put(writer, 0, "old")
    put(other, 1, "other")
    before = Warehouse(f"{bucket}/runs", a_pipeline(), as_of=first)
    assert seen(before) == {hour(0).label: {"old"}}
    with pytest.raises(UserError, match="by another process meanwhile"), writer.commit("stage", [hour(0)]) as slow:
        slow.put_arrow(TABLE, hour(0), rows("slow"))
        put(other, 0, "fast")
    writer.refresh()
    assert seen(writer) == {hour(0).label: {"fast"}, hour(1).label: {"other"}}
    assert writer.read_state("state", hour(0).label).column("query").to_pylist() == ["fast"]


def test_an_error_inside_leaves_nothing(bucket: ObjectPath) -> None:
    warehouse = Warehouse(bucket / "errors", a_pipeline())
    put(warehouse, 0, "old")
    before = sorted(map(str, (warehouse.folder / TABLE).glob("*/*.parquet")))
    with pytest.raises(RuntimeError), warehouse.commit("stage", [hour(0)]) as commit:
        commit.put_arrow(TABLE, hour(0), rows("new"))
        raise RuntimeError
    assert sorted(map(str, (warehouse.folder / TABLE).glob("*/*.parquet"))) == before


def test_a_commit_whose_answer_was_lost_is_found(bucket: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the store wrote the log's file, and the connection broke before it could say so."""
    warehouse = Warehouse(bucket / "lost", a_pipeline())
    put(warehouse, 0, "old")
    transact = DeltaLog._transact
    monkeypatch.setattr(DeltaLog, "_transact", lambda *given: transact(*given) and False)
    run = put(warehouse, 0, "new")
    monkeypatch.undo()
    again = Warehouse(bucket / "lost", a_pipeline())
    assert seen(again) == {hour(0).label: {"new"}}
    assert [row["run"] for row in again.commits.rows().to_pylist()].count(run) == 1


def test_upkeep_removes_what_is_superseded(bucket: ObjectPath) -> None:
    warehouse = Warehouse(bucket / "upkeep", a_pipeline())
    for name in ("old", "new"):
        put(warehouse, 0, name)
    (warehouse.folder / "_staging" / "stage-dead" / "parts" / "x.arrow").write_bytes(b"left")
    tidied = tidy(warehouse, retention_hours=0, orphan_hours=0)
    assert (tidied.files >= 3, tidied.folders) == (True, 1)
    assert len(list((warehouse.folder / TABLE).glob("interval=*/*.parquet"))) == 1
    assert not list((warehouse.folder / "_staging" / "stage-dead" / "parts").glob("*"))
    assert seen(Warehouse(bucket / "upkeep", a_pipeline())) == {hour(0).label: {"new"}}


def test_a_bucket_that_is_not_there_is_named(bucket: ObjectPath) -> None:
    with pytest.raises(UserError, match=r"s3://no-such-bucket/x cannot be written: there is no such bucket"):
        RunContext(a_pipeline(), "s3://no-such-bucket/x").__enter__()


def a_stream(path: str, format_: str = "jsonl") -> Stream:
    columns = (Column(name="id", type="string"), Column(name="t", type="timestamp"))
    return a_pipeline().streams[0].model_copy(update={"path": path, "format": format_, "columns": columns})


def test_source_files_are_found_as_locally(bucket: ObjectPath, tmp_path: Path) -> None:
    names = ["2013-01-01T00-a.jsonl", "2013-01-01T00-b.jsonl", "2013-01-01T02-a.jsonl", "_2013-01-01T00-c.jsonl", "x"]
    found = []
    for top in (tmp_path, bucket):
        (top / "in").mkdir()
        for name in names:
            (top / "in" / name).write_text(name)
        listed = expected_files(a_stream(f"{top}/in/%Y-%m-%dT%H-*.jsonl"), START, START + timedelta(hours=3))
        found.append([[(file.path.name, file.bytes, file.period_start_us) for file in one.files] for one in listed])
    assert found[0] == found[1] and [len(files) for files in found[0]] == [2, 0, 1]


def test_a_file_that_changes_is_noticed(bucket: ObjectPath) -> None:
    """Even within the second that a store counts in, and of the same size."""
    file = bucket / "changes" / "a.jsonl"
    file.write_text("old")
    (listed,) = next(expected_files(a_stream(str(file)), START, START)).files
    assert not listed.changed()
    file.write_text("new")
    assert listed.changed()
    file.unlink()
    assert listed.changed()


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_text_is_read_as_locally(bucket: ObjectPath, tmp_path: Path, packing: str) -> None:
    text = "".join(f'{{"id": "{number}", "t": "2013-01-01"}}\n' for number in range(2000)).encode()
    packed = pa.Codec({"": "uncompressed", ".gz": "gzip", ".zst": "zstd"}[packing]).compress if packing else bytes
    found = []
    for top in (tmp_path, bucket / "text"):
        file = top / f"a.jsonl{packing}"
        file.write_bytes(bytes(memoryview(packed(text))) if packing else text)
        stream = a_stream(str(file))
        (listed,) = next(expected_files(stream, START, START)).files
        kind = format_named(stream.format)
        pieces = kind.cut(stream, listed, 9_000)
        assert len(pieces) == (1 if packing else -(-len(text) // 9_000))
        parts = [read_blocks(piece, LineSplitter(), block_bytes=1 << 12) for piece in pieces]
        found.append([[(part.offset, part.data) for part in own] for own in parts])
        assert kind.texts_at(stream, listed, [0, text.index(b'{"id": "77"')])[1] == text.splitlines()[77].decode()
    assert found[0] == found[1] and b"".join(data for own in found[1] for _, data in own) == text


def test_a_live_run_takes_files_from_a_store_once(bucket: ObjectPath, tmp_path: Path) -> None:
    stream = a_stream(f"{bucket}/live/%Y-%m-%dT%H-*.jsonl")
    intake = Intake(a_pipeline().model_copy(update={"streams": (stream,)}), tmp_path, print)
    intake.start(1.0)
    for name in ("a", "b"):
        (bucket / "live" / f"2013-01-01T00-{name}.jsonl").write_text('{"id": "1", "t": "2013-01-01T00:00:01Z"}\n')
        for _ in range(2):
            intake.settle()
        names = [file.path.rpartition("-")[2] for file in intake.landed()]
        assert names == ["a.jsonl", "b.jsonl"][: len(names)] and names[-1] == f"{name}.jsonl"
    assert sum(part.rows for part in intake.taken(intake.landed()).tuples) == 2


def test_a_store_that_cannot_be_asked_stops_the_run(bucket: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in a file, an outage does not say: such a file is not refused as broken."""
    file = bucket / "outage.jsonl"
    file.write_text("{}\n")
    stream = a_stream(str(file))
    (listed,) = next(expected_files(stream, START, START)).files
    file.unlink()
    with pytest.raises(BrokenFileError):  # gone: that is about the file
        list(read_blocks(Piece(stream, listed), LineSplitter()))
    told = OSError("When reading information for key 'x': AWS Error NETWORK_CONNECTION during HeadObject operation")
    monkeypatch.setattr("tidegate.sources.text.opened_text", lambda *_: (_ for _ in ()).throw(told))
    with pytest.raises(UserError, match=r"s3://.*/outage.jsonl could not be read: .*NETWORK_CONNECTION"):
        list(read_blocks(Piece(stream, listed), LineSplitter()))


def test_a_process_that_has_used_the_store_ends_cleanly(bucket: ObjectPath) -> None:
    """apache/arrow #34314, #50188: threads of the AWS SDK at the end of a process."""
    program = f"from tidegate.store.places import place; place('{bucket}/end').write_text('x'); print('done')"
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_keys_may_stand_in_a_profile(bucket: ObjectPath, tmp_path: Path) -> None:
    """Both libraries, pyarrow for data and delta-rs for commits, find them there."""
    names = {"aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
    (tmp_path / "credentials").write_text("[team]\n" + "".join(f"{name} = {key}\n" for name, key in names.items()))
    environment = {name: value for name, value in os.environ.items() if name not in KEYS}
    environment |= {"AWS_PROFILE": "team", "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    program = (
        "from tests.objects.test_object_store import *\n"
        f"w = Warehouse('{bucket}/profile', a_pipeline()); put(w, 0, 'x'); print(seen(w))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert datetime.strftime(START, "%Y-%m-%dT%H") in ended.stdout
