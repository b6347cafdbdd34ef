"""A run that never committed is soon gone from the tables' newest versions; one that commits is never taken away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.live_files import a_pipeline
from tests.unit.test_warehouse import TABLE, interval, put, rows, seen

from tidegate.declarations.errors import UserError
from tidegate.store import withdraw
from tidegate.store.commits import Commits
from tidegate.store.delta import DeltaLog
from tidegate.store.upkeep import tidy
from tidegate.store.warehouse import Warehouse

KILLED = """
    import os, signal, sys
    from pathlib import Path
    from tests.live_files import a_pipeline
    from tests.unit.test_warehouse import put
    from tidegate.store.commits import Commits
    from tidegate.store.warehouse import Warehouse

    Commits.append = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    put(Warehouse(Path(sys.argv[1]), a_pipeline()), 2, 7, (0, 1, 2))
"""


def newest(folder: Path, table: str = TABLE) -> Counter[str]:
    """What a reader of the newest version finds."""
    return Counter(DeltaTable(folder / "p" / table).to_pyarrow_table()["query"].to_pylist())


def notes(folder: Path) -> list[Path]:
    return list((folder / "p" / withdraw.FOLDER).glob("*"))


def killed_before_its_commit(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(folder)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_run_that_was_killed_goes_when_the_next_one_begins(tmp_path):
    put(Warehouse(tmp_path, a_pipeline()), 1, 3, (0, 1))
    killed_before_its_commit(tmp_path)
    assert (seen(tmp_path), newest(tmp_path)) == ({"v1": 6}, {"v2": 21})
    with Warehouse(tmp_path, a_pipeline()).commit("another", [interval(5)]) as commit:
        assert newest(tmp_path) == {"v1": 6}
        commit.put_file("run_metrics", interval(5), "another", commit.warehouse.schema("run_metrics").empty_table())
    assert notes(tmp_path) == []
    assert seen(tmp_path) == {"v1": 6}


def test_a_refused_run_is_gone_at_once(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    with pytest.raises(UserError, match="by another process"), warehouse.commit("stage", [interval()]) as slower:
        slower.put_arrow(TABLE, interval(), rows(1, 9))
        put(Warehouse(tmp_path, a_pipeline()), 2, 4)
    assert seen(tmp_path) == newest(tmp_path) == {"v2": 4}
    assert notes(tmp_path) == []


def test_a_run_that_is_alive_is_left_alone(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    append = Commits.append

    def meanwhile(commits, *arguments):
        commits_append.undo()
        put(Warehouse(tmp_path, a_pipeline()), 2, 2, (1,))
        append(commits, *arguments)

    with pytest.MonkeyPatch.context() as commits_append:
        commits_append.setattr(Commits, "append", meanwhile)
        put(warehouse, 1, 3)
    assert seen(tmp_path) == newest(tmp_path) == {"v1": 3, "v2": 2}


@pytest.mark.parametrize("commits", [True, False])
def test_a_refused_run_gives_back_what_a_run_that_is_still_alive_had_put_there(tmp_path, commits):
    """The slowest knows neither: it replaces rows of a run that has not committed yet, and is refused for another."""
    append, warehouse = Commits.append, Warehouse(tmp_path, a_pipeline())
    slowest = Warehouse(tmp_path, a_pipeline()).commit("stage", [interval()])
    commit = slowest.__enter__()
    commit.put_arrow(TABLE, interval(), rows(3, 9))
    put(Warehouse(tmp_path, a_pipeline()), 1, 3)

    def meanwhile(*arguments):
        appending.undo()
        assert newest(tmp_path) == {"v2": 4}
        with pytest.raises(UserError, match="by another process"):
            slowest.__exit__(None, None, None)
        assert newest(tmp_path) == {"v2": 4}
        if not commits:
            raise UserError("this one is refused, too")
        append(*arguments)

    with pytest.MonkeyPatch.context() as appending, suppress(UserError):
        appending.setattr(Commits, "append", meanwhile)
        put(warehouse, 2, 4)
    assert seen(tmp_path) == newest(tmp_path) == ({"v2": 4} if commits else {"v1": 3})
    assert notes(tmp_path) == []


def test_a_run_that_fails_while_its_files_come_back_does_not_leave_them_there(tmp_path):
    append, put_back = Commits.append, DeltaLog.put_back
    first, second = (Warehouse(tmp_path, a_pipeline()).commit("stage", [interval()]) for _ in range(2))
    commits = [first.__enter__(), second.__enter__()]
    for version, commit in enumerate(commits, 2):
        commit.put_arrow(TABLE, interval(), rows(version, 9))
    put(Warehouse(tmp_path, a_pipeline()), 1, 3)

    def second_over_first(*arguments):
        """The first has put its files into the log; the second does, and is refused; then the first is."""
        patch.undo()

        def late(log, groups):
            patch.undo()
            if any(file.run == commits[0].id for _, before in groups for file in before):
                with pytest.raises(UserError, match="by another process"):
                    append(*arguments)
                withdraw.withdraw(first_home, commits[0].warehouse.logs, arguments[0], commits[0].id, [TABLE])
            return put_back(log, groups)

        patch.setattr(DeltaLog, "put_back", late)
        with pytest.raises(UserError, match="by another process"):
            second.__exit__(None, None, None)
        assert newest(tmp_path) == {"v1": 3}
        raise UserError("refused")

    first_home = tmp_path / "p"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Commits, "append", second_over_first)
        with pytest.raises(UserError, match="refused"):
            first.__exit__(None, None, None)
    assert seen(tmp_path) == newest(tmp_path) == {"v1": 3}


def test_a_run_that_is_only_taken_for_dead_is_refused_and_loses_nothing_but_its_rows(tmp_path, monkeypatch):
    """It is on another machine, and slow; when it comes to commit, it has been withdrawn."""
    put(Warehouse(tmp_path, a_pipeline()), 1, 3)
    append, slow = Commits.append, Warehouse(tmp_path, a_pipeline())

    def late(commits, *arguments):
        monkeypatch.setattr(Commits, "append", append)
        (note,) = notes(tmp_path)
        note.write_text(json.dumps(json.loads(note.read_text()) | {"host": "elsewhere"}))
        os.utime(note, (0, 0))
        put(Warehouse(tmp_path, a_pipeline()), 3, 1, (1,))
        append(commits, *arguments)

    monkeypatch.setattr(Commits, "append", late)
    with pytest.raises(UserError, match="was taken for dead by another process.*run the stage stage again"):
        put(slow, 2, 5, (0, 2))
    assert seen(tmp_path) == newest(tmp_path) == {"v1": 3, "v3": 1}


def test_a_run_that_died_right_after_its_commit_stays(tmp_path):
    put(Warehouse(tmp_path, a_pipeline()), 1, 3)
    warehouse = Warehouse(tmp_path, a_pipeline())
    (run,) = warehouse.cut.runs
    folder = tmp_path / "p" / withdraw.FOLDER
    told = {"tables": [TABLE], "host": withdraw.platform.node(), "process": os.getpid(), "since": 0.0}
    (folder / f"{run}.json").write_text(json.dumps(told))
    assert withdraw.withdraw_dead(warehouse.folder, warehouse.logs, warehouse.commits) == 0
    assert notes(tmp_path) == []
    assert seen(tmp_path) == newest(tmp_path) == {"v1": 3}


def test_what_has_been_replaced_since_is_not_put_back(tmp_path):
    put(Warehouse(tmp_path, a_pipeline()), 1, 3, (0, 1))
    killed_before_its_commit(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.store.warehouse.withdraw_dead", lambda *_: None)
        put(Warehouse(tmp_path, a_pipeline()), 3, 2, (1,))
    warehouse = Warehouse(tmp_path, a_pipeline())
    assert withdraw.withdraw_dead(warehouse.folder, warehouse.logs, warehouse.commits) == 2
    assert seen(tmp_path) == newest(tmp_path) == {"v1": 3, "v3": 2}


def test_new_partitions_come_before_those_that_replace_others(tmp_path):
    """Whoever streams and skips versions that replace misses the replaced intervals alone."""
    put(Warehouse(tmp_path, a_pipeline()), 1, 3, (0,))
    put(Warehouse(tmp_path, a_pipeline()), 2, 4, (0, 1, 2))
    log = tmp_path / "p" / TABLE / "_delta_log"
    kinds = [
        {next(iter(json.loads(line))) for line in file.read_text().splitlines()} - {"commitInfo"}
        for file in sorted(log.glob("*.json"))
    ]
    assert kinds == [{"protocol", "metaData"}, {"add"}, {"add"}, {"add", "remove"}]
    assert seen(tmp_path) == newest(tmp_path) == {"v2": 12}


@pytest.mark.parametrize("table", [TABLE, "run_metrics", "_commits"])
def test_files_that_another_program_merges_change_no_row_and_upkeep_restores_them(tmp_path, table):
    for stage in ("one", "two", "three"):
        with Warehouse(tmp_path, a_pipeline()).commit(stage, [interval()]) as commit:
            commit.put_file("run_metrics", interval(), stage, metrics(stage))
    with Warehouse(tmp_path, a_pipeline()).commit("stage", [interval()]) as commit:
        folder = commit.stage_folder(TABLE, interval().label)
        for part in range(3):
            pa.parquet.write_table(
                rows(1, 2).cast(commit.warehouse.schema(TABLE)), folder / f"part-{part}-{commit.id}.parquet"
            )
    done = DeltaTable(tmp_path / "p" / table).optimize.compact()
    assert done["numFilesRemoved"] >= 3
    assert apps(tmp_path) == ["one", "three", "two"]
    assert seen(tmp_path) == {"v1": 6}
    with Warehouse(tmp_path, a_pipeline()).commit("two", [interval()]) as commit:
        commit.put_file("run_metrics", interval(), "two", metrics("anew"))
    assert apps(tmp_path) == ["anew", "one", "three"]
    tidy(Warehouse(tmp_path, a_pipeline()))
    assert apps(tmp_path) == ["anew", "one", "three"]
    assert seen(tmp_path) == newest(tmp_path) == {"v1": 6}
    live = DeltaTable(tmp_path / "p" / table).file_uris()
    assert table == "_commits" or not any("c000" in name for name in live)
    assert len(Warehouse(tmp_path, a_pipeline()).cut.runs) == 5


def test_rows_that_another_program_has_changed_are_refused_by_name(tmp_path):
    put(Warehouse(tmp_path, a_pipeline()), 1, 3, (0, 1))
    table = DeltaTable(tmp_path / "p" / TABLE)
    table.delete("event_id = '1'")
    with pytest.raises(UserError, match=rf"table {TABLE}: another program has changed its rows \(version 2 \(DELETE"):
        seen(tmp_path)
    table.restore(1)
    assert seen(tmp_path) == {"v1": 6}


def metrics(app: str) -> pa.Table:
    schema = Warehouse(Path("nowhere"), a_pipeline()).schema("run_metrics")
    return pa.Table.from_pylist([{"app": app, "query": ""}], schema=schema)


def apps(folder: Path) -> list[str]:
    return sorted(Warehouse(folder, a_pipeline()).read_arrow("run_metrics").column("app").to_pylist())
