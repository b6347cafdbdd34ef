"""One good warehouse for all tests; each test that spoils something works on a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tidegate.store.warehouse import Warehouse

from .good_warehouse import good_pipeline, write_good


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """The good warehouse: read only."""
    return write_good(tmp_path_factory.mktemp("good"))


@pytest.fixture
def spoilt(good: Warehouse, tmp_path: Path) -> Warehouse:
    """A copy to spoil."""
    shutil.copytree(good.root, tmp_path / "warehouse")
    return Warehouse(tmp_path / "warehouse", good_pipeline())
