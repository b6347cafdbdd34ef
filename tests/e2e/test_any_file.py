"""Whatever lands: each record is in exactly one table, a bad file stops neither other files nor other streams.

One slice, so no Spark is started: the same code that Spark's tasks run (``tests/spark/test_ingest_slices.py``).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.engine.context import RunContext
from tidegate.stages import ingest
from tidegate.stages.ingest_account import RecordsLostError
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e

START = datetime(2024, 3, 1, 10, tzinfo=UTC)
PIPELINE = """\
name: whatever
owner: nobody
start: 2024-03-01T00:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 3 GiB
streams:
  s:
    format: {format}
    path: "{path}"
    columns: {{id: string, at: timestamp, value: double, n: integer}}
    id: id
    event_time: at
    arrival_time: at
    rate: 10 per hour
    max_late: 2 hours
"""


def good(number: int, **other: object) -> dict[str, object]:
    at = (START + timedelta(seconds=number)).isoformat()
    return {"id": f"r{number}", "at": at, "value": number / 4, "n": number, **other}


def lines(*numbers: int) -> bytes:
    return b"".join(json.dumps(good(n)).encode() + b"\n" for n in numbers)


class Place:
    """A pipeline with a feed and a warehouse, run in this process."""

    def __init__(self, folder: Path, format: str, path: str):
        self.folder, self.root = folder / "whatever", folder / "warehouse"
        (self.folder / "queries").mkdir(parents=True)
        (self.folder / "queries" / "q.sql").write_text("SELECT COUNT(*) AS n FROM s [1 HOUR] EVERY 5 MINUTES\n")
        (self.folder / "pipeline.yml").write_text(PIPELINE.format(format=format, path=path))
        self.feed = self.folder / "feed"
        self.feed.mkdir()
        self.pipeline = load_pipeline(self.folder)
        self.warehouse = Warehouse(self.root, self.pipeline)

    def run(self, hours: int = 1, **options: int) -> Place:
        intervals = intervals_between(self.pipeline, START, START + timedelta(hours=hours))
        # Slices run here one by one, as Spark's tasks would run them.
        with RunContext(self.pipeline, self.root, here=True) as context:
            ingest.read(context, intervals, **options)
        return self

    def ids(self) -> list[str]:
        return sorted(self.rows("events_s").column("event_id").to_pylist())

    def reasons(self) -> Counter[str]:
        return Counter(self.rows("quarantine").column("reason").to_pylist())

    def files(self) -> dict[str, tuple[str, int]]:
        return {Path(r["path"]).name: (r["status"], r["rows"]) for r in self.rows("source_files").to_pylist()}

    def rows(self, table: str) -> pa.Table:
        self.warehouse.refresh()
        return self.warehouse.read_arrow(table)


@pytest.fixture
def jsonl(tmp_path: Path) -> Place:
    return Place(tmp_path, "jsonl", "feed/%Y-%m-%dT%H*")


NAME = "2024-03-01T10"


def test_a_damaged_file_is_refused_whole_and_the_others_go_on(jsonl: Place) -> None:
    packed = gzip.compress(lines(*range(100, 2000)))
    zstd = pa.compress(lines(*range(3000, 4000)), "zstd", asbytes=True)
    files = {
        "a.jsonl": lines(1, 2),
        "b.jsonl.gz": packed[: len(packed) // 2],
        "c.jsonl.gz": b"no gzip at all",
        "d.jsonl.gz": packed[:-30] + b"\0" * 30,
        "e.jsonl.zst": zstd[: len(zstd) // 2],
        "f.jsonl.zst": b"no zstd",
        "g.jsonl.bz2": b"BZh91AY",
        "h.jsonl.snappy": b"\0\1",
        "i.jsonl": packed,
        "j.jsonl.gz": gzip.compress(lines(3)) + gzip.compress(lines(4)),
        "k.jsonl.zst": pa.compress(lines(5), "zstd", asbytes=True),
        "l:m n.jsonl": lines(6),
        "empty.jsonl": b"",
    }
    for name, content in files.items():
        (jsonl.feed / f"{NAME}{name}").write_bytes(content)
    with open(os.fsencode(jsonl.feed) + f"/{NAME}".encode() + b"\xff.jsonl", "wb") as odd:
        odd.write(lines(7))
    jsonl.run()
    # A packed file is known by its first bytes, whatever its name says.
    assert jsonl.ids() == sorted(f"r{n}" for n in (*range(1, 8), *range(100, 2000)))
    assert jsonl.reasons() == Counter(broken_file=7)
    found = {name.removeprefix(NAME): status for name, (status, _) in jsonl.files().items()}
    assert {name for name, status in found.items() if status == "unreadable"} == {
        *("b.jsonl.gz", "c.jsonl.gz", "d.jsonl.gz", "e.jsonl.zst", "f.jsonl.zst", "g.jsonl.bz2", "h.jsonl.snappy")
    }
    assert found["empty.jsonl"] == "empty" and found["\\xff.jsonl"] == "ok"


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv"])
def test_text_of_no_bytes_holds_no_records(kind: str, packed: str, tmp_path: Path) -> None:
    place = Place(tmp_path, kind, f"feed/%Y-%m-%dT%H*.{kind}*")
    (place.feed / f"{NAME}x.{kind}{packed}").write_bytes(b"")
    place.run()
    assert [status for status, _ in place.files().values()] == ["empty"]


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_what_has_a_footer_or_a_header_is_broken_without_it(kind: str, tmp_path: Path) -> None:
    place = Place(tmp_path, kind, f"feed/%Y-%m-%dT%H*.{kind}*")
    (place.feed / f"{NAME}x.{kind}").write_bytes(b"")
    place.run()
    assert [status for status, _ in place.files().values()] == ["unreadable"]
    assert place.reasons() == Counter(broken_file=1)


def test_ids_that_come_again_are_shown_whatever_the_file_is_packed_in(jsonl: Place) -> None:
    """Their lines are looked up again, in files that cannot be read from the middle too."""
    content = lines(*range(3000), 2, 1500, 2999)
    (jsonl.feed / f"{NAME}a.jsonl.zst").write_bytes(pa.compress(content, "zstd", asbytes=True))
    (jsonl.feed / f"{NAME}b.jsonl.gz").write_bytes(gzip.compress(lines(7, 8)))
    (jsonl.feed / f"{NAME}c.jsonl").write_bytes(lines(9, 10))
    jsonl.run()
    assert jsonl.reasons() == Counter(duplicate_id=7)
    shown = sorted(jsonl.rows("quarantine").column("record").to_pylist())
    assert shown == sorted(lines(2, 1500, 2999, 7, 8, 9, 10).decode().splitlines())


@pytest.mark.parametrize("levels", [99, 100, 5000])
def test_how_deep_a_record_may_be_depends_on_nothing_else(jsonl: Place, levels: int) -> None:
    """Of 100 levels a record may consist, its own among them; brackets in text are none."""
    line = json.dumps(good(1, id="[" * 6000))[:-1] + ', "n": ' + "[" * levels + "]" * levels + "}\n"
    (jsonl.feed / f"{NAME}.jsonl").write_bytes(line.encode().replace(b'"n": 1, ', b"").replace(b', "n": 1}', b"}"))
    jsonl.run()
    assert jsonl.reasons() == Counter(broken_record=levels > 99, wrong_type=levels == 99) - Counter()


def test_nothing_vanishes_between_the_lines(jsonl: Place) -> None:
    """Two objects on a line, a line of NULs, CR only, a byte-order mark, no end of the last line."""
    first, second = lines(1).strip(), lines(2).strip()
    (jsonl.feed / f"{NAME}.jsonl").write_bytes(first + second + b"\n" + b"\0" * 20 + b"\n" + lines(3).strip())
    (jsonl.feed / f"{NAME}cr.jsonl").write_bytes(b"\xef\xbb\xbf" + lines(4, 5).replace(b"\n", b"\r"))
    (jsonl.feed / f"{NAME}utf.jsonl").write_bytes(lines(6).replace(b"r6", b"r\xff") + b'{"id": "x", "id": "y"}\n')
    jsonl.run()
    assert jsonl.ids() == ["r3", "r4", "r5"]
    assert jsonl.reasons() == Counter(broken_record=4)
    texts = jsonl.rows("quarantine").column("record").to_pylist()
    assert (first + second).decode() in texts and "\0" * 20 in texts
    assert {rows for _, rows in jsonl.files().values()} == {3, 2}


def test_csv_headers_that_differ_by_case_or_cannot_be_names(tmp_path: Path) -> None:
    place = Place(tmp_path, "csv", "feed/%Y-%m-%dT%H*.csv")
    row = good(1)
    cells = ",".join(str(v) for v in row.values())
    contents = {
        "a": f"id,at,value,n\n{cells}\n",
        "b": f"id,at,value,n,ID\n{cells.replace('r1', 'r2')},x\n",
        "c": f"id,at,value,n,`_corrupt`\n{cells.replace('r1', 'r3')},x\n",
        "d": f"id,id,value,n\n{cells}\n",
        "e": "id,at,value,n\r" + cells.replace("r1", "r4") + "\r",
        "f": "id,at,value,n\n" + "\0" * 9 + "\n",
        "g": 'id,at,value,n\n"r""5",' + cells.split(",", 1)[1] + "\n",
        "h": "\nid,at,value,n\n",
    }
    for name, content in contents.items():
        (place.feed / f"{NAME}{name}.csv").write_text(content, newline="")
    place.run()
    assert place.ids() == ['r"5', "r1", "r2", "r3", "r4"]
    assert place.reasons() == Counter(broken_file=1, broken_record=1)
    ignored = {row["column"]: row["records"] for row in place.rows("unknown_columns").to_pylist()}
    assert ignored == {"ID": 1, "`_corrupt`": 1}


def test_parquet_as_others_write_it(tmp_path: Path) -> None:
    place = Place(tmp_path, "parquet", "feed/%Y-%m-%dT%H*.parquet")
    at = [START + timedelta(seconds=n) for n in range(2)]
    frame = pd.DataFrame({"id": ["pandas0", "pandas1"], "at": pd.to_datetime(at, utc=True).as_unit("ns")})
    frame["value"], frame["n"] = [1.5, None], pd.array([1, None], "Int64")
    frame.to_parquet(place.feed / f"{NAME}pandas.parquet")
    base = {"at": pa.array(at, pa.timestamp("ms", "Europe/Berlin")), "value": [1.0, 2.0], "n": [1, 2]}

    def write(name: str, **columns: object) -> None:
        ids = columns.pop("id", pa.array([f"{name}0", f"{name}1"]))
        table = pa.table({"id": ids, **base, **columns})  # type: ignore[dict-item]
        pq.write_table(table, place.feed / f"{NAME}{name}.parquet")

    write("uint64", n=pa.array([1, 2**64 - 1], pa.uint64()))
    write("float16", value=pa.array(np.array([1, 2], np.float16)))
    write("decimal256", n=pa.array([Decimal("1"), Decimal("2.5")], pa.decimal256(60, 1)))
    write("view", id=pa.array(["view0", "view1"], pa.string_view()))
    write("coded", id=pa.array(["coded0", "coded1"]).dictionary_encode())
    write("time", n=pa.array([1, None], pa.int32()).cast(pa.time32("ms")))
    write("far", at=pa.array([-(2**63), 0], pa.int64()).cast(pa.timestamp("us")))
    write("names", _file=pa.array(["x", "y"]), ID=pa.array([1, 2]))
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["id", "id"])
    pq.write_table(table, place.feed / f"{NAME}twice.parquet")
    five = pa.table({"id": pa.array(list("abcde")).dictionary_encode(), "at": [at[0]] * 5})
    (place.feed / f"{NAME}codes.parquet").write_bytes(_damaged(five, _lacks_a_code))
    (place.feed / f"{NAME}short.parquet").write_bytes(_damaged(five, _ends_early))
    write("damaged")
    path = place.feed / f"{NAME}damaged.parquet"
    content = bytearray(path.read_bytes())
    content[10:120] = bytes(110)
    path.write_bytes(content)
    place.run()
    assert place.ids() == sorted(
        ["pandas0", "pandas1", "uint640", "float160", "float161", "decimal2560", "view0", "view1"]
        + ["coded0", "coded1", "time1", "names0", "names1"]
    )
    assert place.reasons() == Counter(wrong_type=4, too_late=0, broken_file=4) + Counter(too_early=0) + (
        Counter(outside_file_interval=1)
    )


def _damaged(table: pa.Table, how: Callable[[pq.ParquetFile], bool]) -> bytes:
    """A file with an octet changed so that it is damaged in a certain way."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none")
    for at, octet in itertools.product(range(4, len(content := sink.getvalue())), b"\0\x7f"):
        damaged = content[:at] + bytes([octet]) + content[at + 1 :]
        with contextlib.suppress(pa.ArrowException, OSError, ValueError, AttributeError):
            if how(pq.ParquetFile(io.BytesIO(damaged))):
                return damaged
    raise AssertionError("no octet does that")


def _lacks_a_code(file: pq.ParquetFile) -> bool:
    """A row's code is not in its column's dictionary."""
    try:
        file.read(["id"]).column(0).chunk(0).dictionary_decode()
        return False
    except IndexError:
        return True


def _ends_early(file: pq.ParquetFile) -> bool:
    """There are fewer rows than the footer says, and pyarrow says nothing."""
    return sum(batch.num_rows for batch in file.iter_batches()) < file.metadata.num_rows == 5


def test_records_without_an_arrival_in_files_without_a_time(tmp_path: Path) -> None:
    """Such a file was modified outside the run: its broken records are with its good ones, and it is listed."""
    place = Place(tmp_path, "jsonl", "feed/*.jsonl")
    (place.feed / "x.jsonl").write_bytes(b"broken\n" + lines(1, 2, 4000) + b'{"id": "late", "at": "1999-01-01"}\n')
    place.run(hours=2)
    assert place.ids() == ["r1", "r2", "r4000"]
    assert [place.warehouse.rows("quarantine", f"2024-03-01T{h}") for h in (10, 11)] == [1, 0]
    listed = [(r["interval"][-2:], r["rows"]) for r in place.rows("source_files").to_pylist()]
    assert listed == [("10", 3), ("11", 1)]


def test_a_file_without_a_time_and_without_a_good_record_is_of_the_run_that_first_saw_it(tmp_path: Path) -> None:
    """Whenever it landed; a re-run keeps to that, and so does whoever sees it later."""
    place = Place(tmp_path, "jsonl", "feed/*.jsonl")
    file = place.feed / "x.jsonl"
    file.write_bytes(b"broken\n" + json.dumps(good(1, n="red")).encode() + b"\n")
    (place.feed / "y.jsonl").write_bytes(lines(1))
    os.utime(file, (0.0, 0.0))
    for _ in range(2):
        place.run(hours=2)
        listed = [r for r in place.rows("source_files").to_pylist() if r["path"].endswith("x.jsonl")]
        assert [(r["interval"][-2:], r["status"], r["rows"], r["since"]) for r in listed] == [("10", "ok", 2, START)]
        refused = place.rows("quarantine").to_pylist()
        assert [(r["interval"][-2:], r["reason"], Path(r["source"]).name, r["position"]) for r in refused] == [
            ("10", "broken_record", "x.jsonl", 1),
            ("10", "wrong_type", "x.jsonl", 2),
        ]


def test_lines_that_a_file_gains_are_of_the_run_that_first_saw_them(tmp_path: Path) -> None:
    """What cannot be placed by its arrival is in the interval that was being run when it came, for ever."""
    place = Place(tmp_path, "jsonl", "feed/app.log")
    log = place.feed / "app.log"
    log.write_bytes(lines(1) + b"one\n")
    hours = [
        intervals_between(place.pipeline, START + timedelta(hours=n), START + timedelta(hours=n + 1)) for n in range(3)
    ]
    seen = []
    for run in (0, 1, 2, 1, 0):
        if run == 1:
            log.write_bytes(lines(1) + b"one\n" + lines(3700) + b"two\nthree\n")
        with RunContext(place.pipeline, place.root, here=True) as context:
            ingest.read(context, hours[run])
        rows = place.rows("quarantine").to_pylist()
        seen.append([(r["interval"][-2:], r["record"], r["position"]) for r in rows])
    assert seen[0] == [("10", "one", 2)]
    assert seen[1:] == [[("10", "one", 2), ("11", "three", 5), ("11", "two", 4)]] * 4


def test_a_file_that_grows_moves_no_refused_record(tmp_path: Path) -> None:
    """Whether an arrival is one that its records can have is known when the record is first seen, for ever."""
    place = Place(tmp_path, "jsonl", "feed/app.log")
    log = place.feed / "app.log"

    def refused(number: int) -> bytes:
        return json.dumps({**good(number), "n": "red"}).encode() + b"\n"

    at_first = lines(1) + refused(3700) + refused(-9000)
    log.write_bytes(at_first)
    hours = [
        intervals_between(place.pipeline, START + timedelta(hours=n), START + timedelta(hours=n + 1)) for n in range(3)
    ]
    seen = []
    for run in (0, 1, 2, 1, 0):
        if run == 1:
            log.write_bytes(at_first + lines(7300) + refused(3701) + refused(90_000))
        with RunContext(place.pipeline, place.root, here=True) as context:
            ingest.read(context, hours[run])
        rows = place.rows("quarantine").to_pylist()
        seen.append(sorted((r["position"], r["interval"][-2:]) for r in rows))
    assert seen[0] == [(2, "10"), (3, "10")]
    assert seen[1:] == [[(2, "10"), (3, "10"), (5, "11"), (6, "11")]] * 4


def test_rows_are_the_same_however_the_files_are_cut(tmp_path: Path) -> None:
    """Ids that come again within a slice, in another, in another hour; files of two hours; several files an hour."""
    chance = random.Random(5)
    contents: dict[str, bytes] = {}
    for hour in (10, 11, 12):
        for part in "ab":
            own = []
            for _ in range(400):
                number = chance.randrange(3600)
                record = good((hour - 10) * 3600 + number, id=f"i{chance.randrange(1500)}")
                own.append("{broken" if number % 50 == 0 else json.dumps(record))
            contents[f"2024-03-01T{hour}{part}.jsonl"] = ("\n".join(own) + "\n").encode()
    found = []
    for size in (1 << 30, 20_000, 3_000, 500):
        place = Place(tmp_path / str(size), "jsonl", "feed/%Y-%m-%dT%H*.jsonl")
        for name, content in contents.items():
            (place.feed / name).write_bytes(content)
        place.run(hours=3, slice_bytes=size)
        found.append(_both(place))
    assert all(one == found[0] for one in found[1:])
    records = sum(content.count(b"\n") for content in contents.values())
    assert len(found[0][0]) + len(found[0][1]) == records
    # An oracle of the rule for ids: within two whole hours before, and in the record's own.
    by_hours = Place(tmp_path / "hours", "jsonl", "feed/%Y-%m-%dT%H*.jsonl")
    for name, content in contents.items():
        (by_hours.feed / name).write_bytes(content)
    for hour in range(3):
        intervals = intervals_between(
            by_hours.pipeline, START + timedelta(hours=hour), START + timedelta(hours=hour + 1)
        )
        with RunContext(by_hours.pipeline, by_hours.root) as context:
            ingest.read(context, intervals)
    assert _both(by_hours) == found[0]
    assert len({row["event_id"] for row in found[0][0]}) == len(found[0][0])


def _both(place: Place) -> list[list[dict[str, object]]]:
    """Tuples and refused records, wherever the feed is."""
    refused = place.rows("quarantine").to_pylist()
    return [place.rows("events_s").to_pylist(), [{**r, "source": Path(r["source"]).name} for r in refused]]


def test_a_record_that_is_counted_and_not_judged_stops_the_commit(jsonl: Place) -> None:
    (jsonl.feed / f"{NAME}.jsonl").write_bytes(lines(1, 2, 3))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidegate.sources.formats.json_lines.block_of", _shorter)
        with pytest.raises(RecordsLostError, match="3 records were counted and 2 read"):
            jsonl.run()
    assert jsonl.warehouse.labels("events_s") == []


def _shorter(*arguments: Any) -> Any:
    from tidegate.sources.text import block_of

    block = block_of(*arguments)
    return block.take(np.arange(len(block) - 1))


def test_files_that_a_worker_wrote_elsewhere_are_missed(jsonl: Place) -> None:
    """A worker that does not see the warehouse's folder: an error, not an empty table."""
    (jsonl.feed / f"{NAME}.jsonl").write_bytes(lines(1, 2, 3))
    true = RunContext.run_slices

    def elsewhere(context, work, parts, rows=None):  # type: ignore[no-untyped-def]
        done = true(context, work, parts, rows)
        for part in parts if work is ingest.write_sorted else ():
            for item in part:
                os.unlink(item.tuples)
        return done

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunContext, "run_slices", elsewhere)
        with pytest.raises(UserError, match="3 records were judged, 0 rows are in the files"):
            jsonl.run()
    assert jsonl.warehouse.labels("events_s") == []
