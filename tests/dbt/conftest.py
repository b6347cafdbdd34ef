"""A warehouse of three intervals and its marts, published for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dbt.contracts.graph.manifest import Manifest
from tests.dbt.parsing import parse
from tests.dbt.sensors import Published, sensors
from tests.dbt.warehouse_rows import fill_warehouse, replace_rows, rows_of

from tidegate.stages import publish
from tidegate.stages.dbt_project import render_project
from tidegate.engine.context import RunContext
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """Three intervals, published; the middle one lost rows, and it and the last one were published again.

    Tests that change something put it back.
    """
    pipeline = sensors()
    start = datetime(2013, 2, 8, 10, tzinfo=UTC)
    intervals = intervals_between(pipeline, start, start.replace(hour=13))
    root = tmp_path_factory.mktemp("ware house's")
    with RunContext(pipeline, root, output=sys.stdout) as context:
        fill_warehouse(context.warehouse, intervals)
        result = Published(context, intervals)
        result.publish()
        result.first, result.page_written_ns = result.contents(), result.page.stat().st_mtime_ns
        _, middle, last = intervals
        schema = context.warehouse.schema("window_plan")
        fewer = rows_of(pipeline, "window_plan", middle, schema)[:1]
        with publish.turn(context) as turn:
            replace_rows(context.warehouse, "accuracy", middle, [])
            turn.start([middle, last])
            for table, rows in {"answers_total": [], "window_plan": fewer}.items():
                replace_rows(context.warehouse, table, middle, rows)
            turn.run([middle, last])
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
