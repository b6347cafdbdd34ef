"""Partitions are replaced as a whole: at any moment a reader finds the old rows or the new, also after kill -9."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import time
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE

import psutil  # type: ignore[import-untyped, unused-ignore]
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from tests.live_files import a_pipeline

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, Output, Pipeline, Query, Window, from_us
from tidegate.engine.context import RunContext
from tidegate.store import delta
from tidegate.store.commit import Commit
from tidegate.store.commits import Commits, Committed
from tidegate.store.cut import Cut, Partitions, grouped
from tidegate.store.delta import DeltaLog, LiveFile
from tidegate.store.intervals import Interval, interval_at
from tidegate.store.upkeep import tidy
from tidegate.store.warehouse import Warehouse
from tidegate.values.types import ColumnType

TABLE = "needed_slack"


def rows(version: int, count: int) -> pa.Table:
    """A partition whose every row says which version it is of, and how many rows that version has."""
    return pa.table(
        {
            "query": [f"v{version}"] * count,
            "window_end": pa.array([datetime(2013, 1, 1, tzinfo=UTC)] * count, pa.timestamp("us", tz="UTC")),
            "event_id": [str(i) for i in range(count)],
            "slack_s": [float(count)] * count,
            "share": [None] * count,
            "group_key": [None] * count,
            "has_rows": [None] * count,
        }
    )


def interval(hour: int = 0) -> Interval:
    return interval_at(a_pipeline(), datetime(2013, 1, 1, hour, tzinfo=UTC))


def put(warehouse: Warehouse, version: int, count: int, hours: tuple[int, ...] = (0,)) -> None:
    with warehouse.commit("stage", map(interval, hours)) as commit:
        for hour in hours:
            commit.put_arrow(TABLE, interval(hour), rows(version, count))


def test_a_partition_is_replaced_as_a_whole(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 5)
    put(warehouse, 2, 3)
    assert warehouse.read_arrow(TABLE).column("query").to_pylist() == ["v2"] * 3
    assert warehouse.labels(TABLE) == ["2013-01-01T00"]


def test_an_empty_result_replaces_old_rows(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 5)
    put(warehouse, 2, 0)
    assert warehouse.read_arrow(TABLE).num_rows == 0
    assert warehouse.labels(TABLE) == ["2013-01-01T00"]


def test_an_error_inside_leaves_the_old_rows(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 5)
    with pytest.raises(ZeroDivisionError), warehouse.commit("stage", [interval()]) as commit:
        commit.put_arrow(TABLE, interval(), rows(2, 3))
        _ = 1 / 0
    assert warehouse.read_arrow(TABLE).column("query").to_pylist() == ["v1"] * 5
    assert len(list((warehouse.folder / TABLE).rglob("*.parquet"))) == 1


def test_files_of_several_stages_share_a_partition(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    metrics = warehouse.schema("run_metrics")
    for stage, count in (("one", 2), ("two", 3), ("one", 4)):
        with warehouse.commit(stage, [interval()]) as commit:
            commit.put_file("run_metrics", interval(), stage, pa.Table.from_pylist([{"app": stage}] * count, metrics))
    assert warehouse.read_arrow("run_metrics").column("app").to_pylist() == ["one"] * 4 + ["two"] * 3


def test_stages_that_write_other_tables_of_an_interval_at_once_are_both_committed(tmp_path):
    warehouse, other = Warehouse(tmp_path, a_pipeline()), Warehouse(tmp_path, a_pipeline())
    metrics = warehouse.schema("run_metrics")
    with warehouse.commit("one", [interval()]) as commit, other.commit("two", [interval()]) as beside:
        commit.put_arrow(TABLE, interval(), rows(1, 1))
        for stage, own in (("one", commit), ("two", beside)):
            own.put_file("run_metrics", interval(), stage, pa.Table.from_pylist([{"app": stage}], metrics))
    warehouse.refresh()
    assert warehouse.rows(TABLE, interval().label) == 1
    assert warehouse.read_arrow("run_metrics").column("app").to_pylist() == ["one", "two"]


def test_of_two_writers_of_an_interval_the_slower_is_refused_with_a_reason(tmp_path):
    warehouse, other = Warehouse(tmp_path, a_pipeline()), Warehouse(tmp_path, a_pipeline())
    with (
        pytest.raises(UserError, match="stage stage was run for 2013-01-01T00 by another process meanwhile"),
        warehouse.commit("stage", [interval()]) as commit,
    ):
        commit.put_arrow(TABLE, interval(), rows(1, 1))
        put(other, 2, 2)
    for reader in (warehouse, other, Warehouse(tmp_path, a_pipeline())):
        reader.refresh()
        assert reader.read_arrow(TABLE).column("query").to_pylist() == ["v2"] * 2


def test_writers_of_different_intervals_are_not_in_each_others_way(tmp_path):
    warehouse, other = Warehouse(tmp_path, a_pipeline()), Warehouse(tmp_path, a_pipeline())
    with warehouse.commit("stage", [interval(0)]) as commit:
        commit.put_arrow(TABLE, interval(0), rows(1, 1))
        put(other, 2, 2, (1,))
    assert warehouse.read_arrow(TABLE).column("query").to_pylist() == ["v1", "v2", "v2"]


def test_what_a_dead_writer_has_put_into_the_log_nobody_sees(tmp_path):
    """It replaced both partitions in the table's log, and died before its commit; then another run replaces one."""
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 3, (0, 1))
    with warehouse.commit("other", [interval()]) as commit:
        commit.put_file("run_metrics", interval(), "other", warehouse.schema("run_metrics").empty_table())
    dead = Commit(warehouse, "stage", ["2013-01-01T00", "2013-01-01T01"], frozenset())
    for hour in (0, 1):
        dead.put_arrow(TABLE, interval(hour), rows(2, 5))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Commits, "append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        dead.publish()
    assert seen(tmp_path) == {"v1": 6}
    put(warehouse, 3, 1, (1,))
    assert seen(tmp_path) == {"v1": 3, "v3": 1}
    # A day later it is taken for dead, and the log itself says what readers see.
    assert tidy(Warehouse(tmp_path, a_pipeline()), orphan_hours=0).restored == 1
    assert sorted(f.rows for f in logged(warehouse)) == [1, 3]
    assert seen(tmp_path) == {"v1": 3, "v3": 1}


def test_a_reader_keeps_its_cut_while_others_write(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 3)
    reader = Warehouse(tmp_path, a_pipeline())
    assert reader.rows(TABLE, interval().label) == 3
    put(warehouse, 2, 5)
    assert reader.read_arrow(TABLE).column("query").to_pylist() == ["v1"] * 3
    reader.refresh()
    assert reader.read_arrow(TABLE).num_rows == 5


def test_as_of_reads_what_had_been_committed_by_a_run_or_a_time(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    for version in (1, 2, 3):
        put(warehouse, version, version)
    first, second, _ = sorted(warehouse.cut.runs.values())
    for run, version in ((first, 1), (second, 2)):
        for as_of in (run.run, from_us(run.at_us)):
            assert Warehouse(tmp_path, a_pipeline(), as_of).read_arrow(TABLE).num_rows == version
    with pytest.raises(UserError, match="neither a time nor a committed run.*the newest runs: "):
        Warehouse(tmp_path, a_pipeline(), "nobody").labels(TABLE)
    with pytest.raises(UserError, match="nothing had been committed by 2013-01-01T00:00:00Z"):
        Warehouse(tmp_path, a_pipeline(), datetime(2013, 1, 1, tzinfo=UTC)).labels(TABLE)


def whole_at(versions: Sequence[tuple[LiveFile, ...]], runs: Collection[str]) -> Partitions:
    """What a cut reads, by a look at one version after the other, the newest last."""
    found, sought = dict[tuple[str, str], list[LiveFile]](), set(grouped(TABLE, versions[-1]))
    for files in reversed(versions):
        there = grouped(TABLE, files)
        found |= {key: there[key] for key in sought & there.keys() if all(file.run in runs for file in there[key])}
        sought &= there.keys() - found.keys()
    return {label: tuple(sorted(files)) for (label, _), files in found.items()}


def test_a_cut_of_long_ago_is_found_by_few_openings_and_is_that_of_a_look_at_every_version(tmp_path, monkeypatch):
    draw, runs = random.Random(4), [f"{number:012x}" for number in range(60)]
    log = DeltaLog(tmp_path / TABLE, Warehouse(tmp_path, a_pipeline()).schema(TABLE))
    for number, run in enumerate(runs):
        labels = {f"2013-01-01T{draw.randrange(2 + number // 5):02}" for _ in range(draw.randrange(1, 4))}
        names = [f"part-{part}-{run}.parquet" for part in (0, 1)]
        files = [LiveFile(label, name, number, 9) for label in sorted(labels) for name in names]
        log.replace(files, lambda file, own=frozenset(labels): file.label in own, sorted(labels))
        if number == 36:  # another program merges two files into one
            gone = files[:2]
            merged = LiveFile(gone[0].label, f"part-00000-{uuid.uuid4()}-c000.snappy.parquet", 2 * number, 18)
            log.replace([merged], gone.__contains__, rearranged=True)
    assert log.version > 48, "there is more than is looked back at first and second"
    versions = [log.live(version) for version in range(log.version + 1)]
    opened, openings = delta.opened, []

    def counted(folder: Path, version: int | None = None) -> DeltaTable:
        openings.append(version)
        return opened(folder, version)

    monkeypatch.setattr(delta, "opened", counted)
    for upto in (2, 20, 36, 37, 58):
        committed = {run: Committed(at, "stage", run) for at, run in enumerate(runs[:upto]) if run != runs[upto // 2]}
        reader = DeltaLog(log.folder, log.schema)
        openings.clear()
        read = Cut({TABLE: reader}, committed).table(TABLE)
        assert len(openings) <= 6
        assert dict(read) == whole_at(versions, committed)


def test_a_cut_is_found_where_the_log_begins_with_a_checkpoint(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    for version in range(1, 8):
        put(warehouse, version, version)
    *_, third, _, _, _, _ = sorted(warehouse.cut.runs.values())
    log = warehouse.folder / TABLE / "_delta_log"
    DeltaTable(str(log.parent), version=2).create_checkpoint()
    for version in (0, 1):
        (log / f"{version:020d}.json").unlink()
    assert Warehouse(tmp_path, a_pipeline(), third.run).read_arrow(TABLE).num_rows == 3


def test_upkeep_changes_nothing_that_is_seen_and_removes_what_is_not(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    for version in (1, 2, 3):
        with warehouse.commit("stage", [interval()]) as commit:
            commit.put_arrow(TABLE, interval(), rows(version, version))
            commit.put_state("what", interval(), rows(version, 1))
    before = Warehouse(tmp_path, a_pipeline())
    assert before.rows(TABLE, interval().label) == 3
    done = tidy(warehouse, retention_hours=0)
    # Two superseded files of the table and of the state; the three of _commits, which are one now.
    assert (done.restored, done.files) == (0, 7)
    assert seen(tmp_path) == {"v3": 3}
    assert before.read_arrow(TABLE).num_rows == 3
    state = Warehouse(tmp_path, a_pipeline()).read_state("what", interval().label)
    assert state is not None and state.column("query").to_pylist() == ["v3"]
    put(warehouse, 4, 4)
    assert seen(tmp_path) == {"v4": 4}
    assert tidy(warehouse, retention_hours=0).restored == 0


def test_a_column_that_a_stream_gains_is_null_in_what_is_older(tmp_path):
    old, hour = a_pipeline(), interval()
    stream = old.streams[0]

    def with_n(kind: ColumnType) -> Pipeline:
        columns = (*stream.columns, Column(name="n", type=kind))
        return old.model_copy(update={"streams": (stream.model_copy(update={"columns": columns}),)})

    more = with_n("integer")
    event = {"event_id": "a", "event_time": hour.start, "arrival_time": hour.start, "id": "a", "t": hour.start}
    for pipeline, at in ((old, interval(0)), (more, interval(1))):
        warehouse = Warehouse(tmp_path, pipeline)
        with warehouse.commit("ingest", [at]) as commit:
            rows_ = pa.Table.from_pylist([{**event, "n": 7}], warehouse.schema("events_s"))
            commit.put_arrow("events_s", at, rows_)
    assert Warehouse(tmp_path, more).read_arrow("events_s").column("n").to_pylist() == [None, 7]
    delta = DeltaTable(tmp_path / "p" / "events_s").to_pyarrow_table().sort_by("interval")
    assert delta.column("n").to_pylist() == [None, 7]
    warehouse = Warehouse(tmp_path, with_n("string"))
    with (
        pytest.raises(UserError, match=r"column n of table events_s is int64 .* and string now"),
        warehouse.commit("ingest", [hour]) as commit,
    ):
        commit.put_arrow("events_s", hour, warehouse.schema("events_s").empty_table())


def a_query(kind: ColumnType) -> Query:
    return Query(
        id="q", kind="aggregate", text="", description="", every_s=300.0, predicates={}, on_miss="correct",
        windows=(Window(alias="s", stream="s", range_s=300.0),),
        outputs=(Output(name="n", expression="a0", type=kind),),
    )  # fmt: skip


def test_a_count_that_was_a_double_stays_one_where_it_has_answers_and_is_an_integer_elsewhere(tmp_path):
    """Decision 33."""
    before, now = (a_pipeline().model_copy(update={"queries": (a_query(kind),)}) for kind in ("double", "integer"))
    tables = ("answers_q", "truth_q", "kept_q")
    for pipeline, hour in ((before, 0), (now, 1)):
        warehouse = Warehouse(tmp_path, pipeline)
        assert {warehouse.schema(table).field("n").type for table in tables} == {pa.float64()}
        with warehouse.commit("join_aggregate", [interval(hour)]) as commit:
            for table in tables[:2]:
                answers = pa.Table.from_pylist([{"n": 7 + hour}], warehouse.schema(table))
                commit.put_arrow(table, interval(hour), answers)
    found = Warehouse(tmp_path, now)
    assert found.read_arrow("answers_q").column("n").to_pylist() == [7.0, 8.0]
    assert found.schema("corrections_q").field("n_answered").type == pa.float64()
    elsewhere = Warehouse(tmp_path / "new", now)
    assert {elsewhere.schema(table).field("n").type for table in tables} == {pa.int64()}


def test_a_damaged_file_or_log_is_named_with_what_to_do(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 3)
    (file,) = (tmp_path / "p" / TABLE).rglob("*.parquet")
    file.write_bytes(b"nonsense")
    with pytest.raises(UserError, match=rf"{file} is damaged .* run that interval's stage again"):
        warehouse.read_arrow(TABLE)
    put(warehouse, 2, 2)
    assert seen(tmp_path) == {"v2": 2}
    log = tmp_path / "p" / TABLE / "_delta_log" / "00000000000000000001.json"
    log.write_bytes(log.read_bytes()[:50])
    with pytest.raises(UserError, match="the log of table needed_slack cannot be read: .*restore"):
        seen(tmp_path)


def test_outside_readers_find_an_ordinary_delta_table(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 5, (0, 1))
    put(warehouse, 2, 2, (1,))
    rows_ = DeltaTable(tmp_path / "p" / TABLE).to_pyarrow_table().to_pylist()
    found = Counter((row["interval"], row["query"]) for row in rows_)
    assert found == {("2013-01-01T00", "v1"): 5, ("2013-01-01T01", "v2"): 2}
    commits = DeltaTable(tmp_path / "p" / "_commits").to_pyarrow_table().sort_by("committed_at").to_pylist()
    assert [(row["stage"], row["interval"]) for row in commits] == [
        ("stage", "2013-01-01T00"),
        ("stage", "2013-01-01T01"),
        ("stage", "2013-01-01T01"),
    ]
    assert dict(commits[-1]["versions"]) == {TABLE: 2}


def logged(warehouse: Warehouse) -> Sequence[LiveFile]:
    log = warehouse.log(TABLE)
    log.refresh()
    return log.live()


def test_a_listing_has_the_files_of_each_partition_in_order_whatever_wrote_them(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 5, (2, 0))
    put(warehouse, 2, 3, (1, 2))
    listing = warehouse.log(TABLE).listing()
    assert list(listing) == [f"2013-01-01T0{hour}" for hour in (0, 1, 2)]
    assert {label: sum(file.rows for file in own) for label, own in listing.items()} == {
        "2013-01-01T00": 5,
        "2013-01-01T01": 3,
        "2013-01-01T02": 3,
    }
    files = [file for own in listing.values() for file in own]
    assert files == sorted(logged(warehouse))
    assert not warehouse.log(TABLE).listing().after([]).all_of({files[0].run})
    assert listing.all_of(warehouse.cut.runs)
    assert "2013-01-01T03" not in listing


def seen(root: Path) -> dict[str, int]:
    """Version → rows of it that a new reader finds."""
    return dict(Counter(Warehouse(root, a_pipeline()).read_arrow(TABLE).column("query").to_pylist()))


def test_a_missing_partition_is_named_with_what_makes_it(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 1)
    with pytest.raises(UserError, match=r"needed_slack .* 2013-01-01T01.*--stage calibrate"):
        warehouse.require(TABLE, ["2013-01-01T00", "2013-01-01T01"], "calibrate")


def test_a_warehouse_that_is_no_folder_is_the_user_s_error(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match="file cannot be written: Not a directory"),
        RunContext(a_pipeline(), tmp_path / "file"),
    ):
        pass


# For every version that it reads it forks a writer, and says the writer's process number: imports cost once.
WRITERS = """
    import os, signal, sys
    sys.path.insert(0, {tests!r})
    from test_warehouse import *
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    warehouse = Warehouse(Path({root!r}), a_pipeline())
    for line in sys.stdin:
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            version = int(line)
            while True:
                version += 1
                put(warehouse, version, 1 + version % 7, (0, 1, 2))
"""


def test_kill_at_random_moments_leaves_old_or_new_and_nothing_to_repair(tmp_path):
    """Twelve kills of a writer that replaces three partitions as fast as it can; a reader looks on all the time."""
    chance = random.Random(20131)
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 0, 1, (0, 1, 2))
    script = textwrap.dedent(WRITERS).format(tests=str(Path(__file__).parent), root=str(tmp_path))
    command = [sys.executable, "-c", script]
    looked = 0
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, bufsize=1) as writers:
        assert writers.stdin is not None and writers.stdout is not None
        for round_ in range(12):
            writers.stdin.write(f"{round_ * 10_000}\n")
            writer = psutil.Process(int(writers.stdout.readline()))
            until = time.monotonic() + chance.uniform(0.0, 0.25)
            while time.monotonic() < until:
                looked += look(tmp_path)
            assert writer.is_running(), "the writer must be killed while it writes"
            writer.kill()
            writer.wait()
            look(tmp_path)
    assert looked > 20
    put(warehouse, 1, 5, (0, 1, 2))
    assert seen(tmp_path) == {"v1": 15}


def files_of(log: DeltaLog) -> list[tuple[str, int, int]]:
    return [(file.path, file.rows, file.size) for file in log.live()]


def of_delta_rs(folder: Path) -> list[tuple[str, int, int]]:
    told = pa.table(DeltaTable(folder).get_add_actions(flatten=True)).sort_by("path").to_pylist()
    return [(row["path"], row["num_records"], row["size_bytes"]) for row in told]


def a_file(hour: int, run: str, rows: int) -> LiveFile:
    return LiveFile(interval(hour).label, f"part-00000-{run}.parquet", rows, 10 * rows)


def test_the_log_that_is_written_and_read_here_is_that_of_delta_rs(tmp_path):
    """Partitions come, are replaced and go, past a checkpoint; a reader from before follows version by version."""
    chance, schema_ = random.Random(3), pa.schema([("a", pa.int64())])
    log, following = DeltaLog(tmp_path / "t", schema_), DeltaLog(tmp_path / "t", schema_)
    for number in range(230):
        labels = {interval(hour).label for hour in chance.sample(range(20), 3)}
        kept = chance.random() < 0.2
        added = [] if kept else [a_file(chance.randrange(20), f"{number:012x}", number + 1)]
        log.replace(added, lambda file, labels=labels: file.label in labels)
        if chance.random() < 0.1:
            following.refresh()
            assert files_of(following) == files_of(log) == of_delta_rs(tmp_path / "t")
            assert list(following.listing()) == sorted({file.label for file in log.live()})
    assert (tmp_path / "t" / "_delta_log" / f"{199:020d}.checkpoint.parquet").exists()
    opened = DeltaLog(tmp_path / "t", schema_)
    assert opened.refresh() == log.version == following.refresh()
    assert files_of(opened) == files_of(log) == files_of(following)
    assert files_of(log)
    assert not list((tmp_path / "t" / "_delta_log").glob("*.tmp"))


def test_of_two_who_write_a_version_one_comes_behind_the_other(tmp_path):
    schema_ = pa.schema([("a", pa.int64())])
    one, other = DeltaLog(tmp_path / "t", schema_), DeltaLog(tmp_path / "t", schema_)
    one.create()
    other.create()
    assert one.append_alone(a_file(0, "one", 1))
    assert not other.append_alone(a_file(1, "other", 1))
    assert other.replace([a_file(1, "other", 1)], lambda file: False) == 2
    # What another program has put into the log is followed, too.
    DeltaTable(tmp_path / "t").alter.add_columns([Field("b", "long")])
    assert one.refresh() == other.refresh() == 3
    assert files_of(one) == files_of(other) == of_delta_rs(tmp_path / "t")


def test_partitions_without_rows_are_not_opened_those_of_unknown_rows_are(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 0, (0,))
    put(warehouse, 2, 3, (1,))
    (file,) = warehouse.files(TABLE, [interval(0).label])
    Path(file).unlink()
    assert len(warehouse.read_arrow(TABLE)) == 3
    version = tmp_path / "p" / TABLE / "_delta_log" / f"{warehouse.log(TABLE).version:020d}.json"
    version.write_text(version.read_text().replace("numRecords", "other"))
    assert len(Warehouse(tmp_path, a_pipeline()).read_arrow(TABLE, [interval(1).label])) == 3


def test_whether_all_files_are_of_committed_runs_is_known_after_each_version(tmp_path):
    log = DeltaLog(tmp_path / "t", pa.schema([("a", pa.int64())]))
    log.replace([a_file(0, "dead", 1), a_file(1, "good", 1)], lambda file: False)
    before = log.listing()
    assert not before.all_of({"good"})
    log.replace([a_file(0, "good", 2)], lambda file: file.run == "dead")
    assert log.listing().all_of({"good"})
    assert not before.all_of({"good"})
    log.replace([a_file(2, "late", 2)], lambda file: False)
    assert not log.listing().all_of({"good"})
    assert log.listing().all_of({"good", "late"})


def look(root: Path) -> int:
    """A new reader finds three partitions of one commit, each with all its rows; 1."""
    rows_ = Warehouse(root, a_pipeline()).read_arrow(TABLE)
    assert len(set(rows_.column("query").to_pylist())) == 1, "a commit is seen wholly or not at all"
    counts = Counter(rows_.column("interval").to_pylist())
    assert len(counts) == 3
    assert set(rows_.column("slack_s").to_pylist()) == {float(count) for count in counts.values()}
    return 1


def test_a_listing_that_lacks_a_version_is_made_again(tmp_path, monkeypatch):
    """Of files that appear while a folder is listed, a later one may be found and an earlier one not."""
    warehouse = Warehouse(tmp_path, a_pipeline())
    for version in (1, 2, 3):
        put(warehouse, version, version)
    for version in (4, 5):
        put(warehouse, version, version)
    reader = Warehouse(tmp_path, a_pipeline())
    missed = tmp_path / "p" / TABLE / "_delta_log" / "00000000000000000004.json"
    missed.rename(tmp_path / "later")
    monkeypatch.setattr(delta.time, "sleep", lambda _: (tmp_path / "later").rename(missed))
    assert reader.rows(TABLE, interval().label) == 5
