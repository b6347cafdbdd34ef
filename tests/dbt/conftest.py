"""A warehouse of three intervals and its marts, published once for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dbt.contracts.graph.manifest import Manifest
from tests.dbt.parsing import parse
from tests.dbt.sensors import Published, sensors
from tests.dbt.warehouse_rows import fill_warehouse

from tidegate.stages.dbt_project import render_project
from tidegate.engine.context import RunContext
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """Three intervals, published once. Tests that change something put it back, or use intervals of their own."""
    pipeline = sensors()
    start = datetime(2013, 2, 8, 10, tzinfo=UTC)
    intervals = intervals_between(pipeline, start, start.replace(hour=13))
    root = tmp_path_factory.mktemp("ware house's")
    with RunContext(pipeline, root, output=sys.stdout) as context:
        fill_warehouse(context.warehouse, intervals)
        result = Published(context, intervals)
        result.publish()
        yield result


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A warehouse without a table."""
    return Warehouse(tmp_path_factory.mktemp("warehouse"), sensors())


@pytest.fixture(scope="session")
def project(warehouse: Warehouse) -> Path:
    """The pipeline's own dbt project."""
    folder = warehouse.folder / "project"
    render_project(warehouse, folder)
    return folder


@pytest.fixture(scope="session")
def manifest(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """What dbt knows of it."""
    return parse(project, tmp_path_factory.mktemp("parsed"))
