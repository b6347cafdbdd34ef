"""What a pipeline writes is its owner's, unless somebody has said otherwise."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.dbt.sensors import sensors

from tidegate.engine.context import RunContext
from tidegate.examples.land_flights import main
from tidegate.store.folders import private_folder
from tidegate.store.intervals import interval_holding
from tidegate.store.warehouse import Warehouse


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_new_warehouse_is_its_owners_alone(tmp_path: Path) -> None:
    with RunContext(sensors(), tmp_path / "a" / "warehouse"):
        pass
    assert [mode(tmp_path / part) for part in ("a", "a/warehouse", "a/warehouse/sensors")] == [0o700] * 3
    warehouse = Warehouse(tmp_path / "other", sensors())
    with warehouse.commit("synthetic", [interval_holding(sensors(), 0)]):
        pass
    assert mode(tmp_path / "other") == 0o700


def test_a_folder_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    private_folder(shared / "new")
    assert mode(shared) == 0o755 and mode(shared / "new") == 0o700
    private_folder(shared)
    assert mode(shared) == 0o755


def test_landed_files_are_their_owners_alone(tmp_path: Path) -> None:
    words = ["--landing", str(tmp_path / "landing"), "--from", "2013-02-08T10", "--to", "2013-02-08T11"]
    assert main([*words, "--stream", "departures"]) == 0
    assert mode(tmp_path / "landing" / "departures") == 0o700
