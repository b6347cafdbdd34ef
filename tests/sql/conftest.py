from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from tests.dbt.sensors import sensors
from tests.dbt.warehouse_rows import fill_warehouse
from tests.sql.door import START, Door

from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    root = tmp_path_factory.mktemp("ware house's")
    fill_warehouse(Warehouse(root, sensors()), intervals_between(sensors(), START, START.replace(hour=13)))
    opened = Door(root, tmp_path_factory.mktemp("door"))
    yield opened
    assert opened.close() == ""


@pytest.fixture
def client(door: Door) -> Iterator[psycopg.Connection]:
    with door.connect() as connection:
        yield connection
