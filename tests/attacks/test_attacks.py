"""A few seconds of each campaign, with seeds that do not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.attacks import declarations, faults, kills, records

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("seed", range(2))
def test_each_record_is_in_one_table_as_an_independent_reader_reads_it(seed: int, tmp_path: Path) -> None:
    tried, faults = records.attack(seed, tmp_path)
    assert tried > 3_000
    assert not faults, "\n".join([f"python -m tests.attacks records --seed {seed}", *faults])


@pytest.mark.spark
def test_what_validate_accepts_no_consumer_refuses(spark: Any, tmp_path: Path) -> None:
    _, faults = declarations.attack(0, tmp_path, 200)
    assert len(list((tmp_path / "dags").glob("*.py"))) > 20, "accepted, and given to all consumers"
    assert not faults, "\n".join(["python -m tests.attacks declarations --seed 0", *faults])


def test_killed_writers_upkeep_and_migrations_leave_whole_runs(tmp_path: Path) -> None:
    _, faults = kills.attack(0, tmp_path, 24)
    assert not faults, "\n".join(["python -m tests.attacks kills --seed 0", *faults])


def test_killed_writers_readers_and_upkeep_leave_whole_runs_in_a_store(tmp_path: Path) -> None:
    _, faults = kills.attack_objects(0, tmp_path, 6)
    assert not faults, "\n".join(["python -m tests.attacks object-kills --seed 0", *faults])


@pytest.mark.parametrize("seed", range(2))
def test_a_disk_that_fails_at_one_call_loses_nothing(seed: int, tmp_path: Path) -> None:
    _, found = faults.attack(seed, tmp_path, 3)
    assert not found, "\n".join([f"python -m tests.attacks faults --seed {seed}", *found])
