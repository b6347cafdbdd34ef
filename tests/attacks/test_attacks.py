"""A few seconds of each campaign, with seeds that do not change."""

from __future__ import annotations

import errno
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from tests.attacks import declarations, faults, full_disk, histories, kills, landings, records, store_faults
from tests.attacks.transactions import transactions
from tests.live_files import a_pipeline

from tidegate.declarations.tables import common_schema
from tidegate.store import delta
from tidegate.store.delta import DeltaLog
from tidegate.store.warehouse import Warehouse

# Their coverage is not measured: what they run is measured elsewhere, and most of it is what judges.
pytestmark = [pytest.mark.e2e, pytest.mark.no_cover]


@pytest.mark.parametrize("seed", range(2))
def test_each_record_is_in_one_table_as_an_independent_reader_reads_it(seed: int, tmp_path: Path) -> None:
    tried, faults = records.attack(seed, tmp_path)
    assert tried > 6_000
    assert not faults, "\n".join([f"python -m tests.attacks records --seed {seed}", *faults])


@pytest.mark.spark
def test_what_validate_accepts_no_consumer_refuses(spark: Any, tmp_path: Path) -> None:
    _, faults = declarations.attack(0, tmp_path, 120)
    assert len(list((tmp_path / "dags").glob("*.py"))) > 10, "accepted, and given to all consumers"
    assert not faults, "\n".join(["python -m tests.attacks declarations --seed 0", *faults])


def test_killed_writers_upkeep_and_migrations_leave_whole_runs(tmp_path: Path) -> None:
    _, faults = kills.attack(0, tmp_path, 24)
    assert not faults, "\n".join(["python -m tests.attacks kills --seed 0", *faults])


def test_a_reader_sees_whole_commits_in_their_order(tmp_path: Path) -> None:
    events, found = histories.attack(0, tmp_path, 12)
    assert events > 120
    assert not found, "\n".join(["python -m tests.attacks histories --seed 0", *found])


def test_a_history_that_never_was_is_found() -> None:
    label, commits = "2013-01-01T00", [{"run": run, "interval": "2013-01-01T00"} for run in ("a", "b")]
    both = dict.fromkeys(histories.TABLES, {label: "b"})

    def judged(who: str, **told: Any) -> list[str]:
        event = {"what": "read", "who": who, "number": 0, "as_of": None, "begin": 9, "end": 9, "seen": both}
        wrote = {"what": "commit", "who": "hourly", "run": "a", "hours": [0], "known": 0, "begin": 0, "end": 1}
        return histories.judge([[wrote], [event | told]], commits)

    mixed = dict(zip(histories.TABLES, [{label: "a"}, {label: "b"}], strict=True))
    assert not judged("reader")
    assert "never was" in judged("reader", seen=mixed)[0]
    assert "had returned" in judged("reader", seen=dict.fromkeys(histories.TABLES, {}))[0]
    assert "as of a" in judged("historian", as_of="a")[0]
    late = {"what": "commit", "who": "live", "run": "b", "hours": [0], "known": 0, "begin": 0, "end": 2}
    first = late | {"run": "a"}
    assert "did not know" in histories.judge([[first, late]], commits)[0]


def test_a_record_that_was_lost_or_came_twice_is_found() -> None:
    assert landings.differences("events", ["a", "b"], ["b", "a"]) == []
    assert "1 missing, such as 'b'" in landings.differences("events", ["a"], ["a", "b"])[0]
    assert "1 too many, such as 'a'" in landings.differences("events", ["a", "a"], ["a"])[0]


def test_a_third_of_the_transactions_is_to_be_aborted() -> None:
    plan = transactions(1000, random.Random(0))
    assert [one.end for one in plan[:-1]] == [one.first for one in plan[1:]]
    sizes = {fate: [one.end - one.first for one in plan if one.commit is fate] for fate in (True, False)}
    assert (sum(sizes[True]), sum(sizes[False])) == (1000, 500) and len(sizes[True]) == 2 * len(sizes[False])
    assert [one.hour for one in plan] == sorted(one.hour for one in plan)


def test_killed_writers_readers_and_upkeep_leave_whole_runs_in_a_store(tmp_path: Path) -> None:
    _, faults = kills.attack_objects(0, tmp_path, 6)
    assert not faults, "\n".join(["python -m tests.attacks object-kills --seed 0", *faults])


@pytest.mark.parametrize("seed", range(1))
def test_a_disk_that_fails_at_one_call_loses_nothing(seed: int, tmp_path: Path) -> None:
    _, found = faults.attack(seed, tmp_path, 3)
    assert not found, "\n".join([f"python -m tests.attacks faults --seed {seed}", *found])


def test_a_request_to_a_store_that_fails_loses_nothing(tmp_path: Path) -> None:
    tried, found = store_faults.attack(0, tmp_path, 1, ["ingest"])
    assert tried == 1 and not found, "\n".join(["python -m tests.attacks requests --seed 0", *found])


def test_a_log_that_may_not_be_read_is_told_in_a_sentence() -> None:
    with store_faults.a_store() as (store, bucket):
        tables, ended = Warehouse(bucket / "wh", a_pipeline()), list[Exception]()
        kills.put(tables, [0])
        for fails in itertools.count(1):
            log = DeltaLog(tables.folder / kills.TABLES[0], common_schema(kills.TABLES[0]))
            log.refresh()
            kills.put(tables, [0])
            store.begin(fails)
            try:
                assert log.refresh() == fails + 1
            except Exception as error:
                ended.append(error)
            if not store.met:
                break
    assert fails > 3 and not [error for error in ended if not faults.sentence(error)], ended


def test_a_run_that_is_told_to_be_invisible_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call fails; of the last ones, which come after the commit, it is said."""
    monkeypatch.setattr(delta, "_CHECKPOINT_EVERY", 2)
    visible = list[bool]()
    for fails in itertools.count(1):
        root, ended = tmp_path / str(fails), None
        kills.put(Warehouse(root, a_pipeline()), [0])
        with faults.failing(str(root), fails, errno.EIO) as disk:
            try:
                kills.put(Warehouse(root, a_pipeline()), [0])
            except Exception as error:
                ended = error
        if not disk.met:
            break
        assert not kills.look(root)
        visible.append(len(Warehouse(root, a_pipeline()).cut.runs) == 2)
        assert visible[-1] == (ended is None or "; this run is visible" in str(ended)), f"{disk.met}: {ended}"
    assert fails > 50 and set(visible) == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["join_aggregate", "publish"])
@pytest.mark.skipif(not full_disk.allowed(), reason="nothing may be mounted here")
def test_a_disk_that_fills_up_under_spark_or_dbt_is_one_sentence(stage: str, tmp_path: Path) -> None:
    assert not full_disk.tried(stage, "temporary", 10_000, tmp_path)
