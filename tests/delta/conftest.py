from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.dbt.warehouse_rows import fill_warehouse
from tests.delta.client import Client, client

from tidegate.declarations import load_pipeline
from tidegate.engine.jars import jars
from tidegate.store.intervals import Interval, interval_at
from tidegate.store.warehouse import Warehouse

SHOP = Path(__file__).resolve().parents[2] / "spark_apps" / "tidegate" / "examples" / "shop"


@pytest.fixture(scope="session")
def delta_jars() -> None:
    if not jars("delta"):
        pytest.skip("the jar of delta-spark is not here: python infra/spark/jars.py fetch delta")


@pytest.fixture(scope="module")
def delta(delta_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Spark with Delta, and a catalog of its own."""
    folder = tmp_path_factory.mktemp("delta")
    with client(folder, str(folder)) as found:
        yield found


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the example's declaration."""
    folder = tmp_path_factory.mktemp("shop") / "shop"
    shutil.copytree(SHOP, folder)
    return folder


@pytest.fixture(scope="session")
def filled(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse in which every table has rows of two intervals, and one mart; copied by whoever changes it."""
    root = tmp_path_factory.mktemp("filled")
    warehouse = Warehouse(root, load_pipeline(shop))
    fill_warehouse(warehouse, (hour(warehouse, 0), hour(warehouse, 1)))
    return root


@pytest.fixture
def tables(filled: Path, shop: Path, tmp_path: Path) -> Callable[[], Warehouse]:
    """Opens a copy of the warehouse anew each time that it is called."""
    shutil.copytree(filled, tmp_path / "wh")
    return lambda: Warehouse(tmp_path / "wh", load_pipeline(shop))


def hour(warehouse: Warehouse, number: int) -> Interval:
    """The interval of this number since 2026-01-05T08."""
    return interval_at(warehouse.pipeline, datetime(2026, 1, 5, 8, tzinfo=UTC) + timedelta(hours=number))
