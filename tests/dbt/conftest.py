"""A warehouse of three intervals and its marts, published once for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.dbt.sensors import Published, sensors
from tests.dbt.warehouse_rows import fill_warehouse

from tidegate.hosts.context import RunContext
from tidegate.hosts.intervals import intervals_between


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
