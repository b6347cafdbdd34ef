"""What tests of several kinds share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# Workers must run this Python, and find the package as the tests do.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A Spark session with Tidegate's settings, of this module alone."""
    from types import SimpleNamespace

    from tidegate.hosts.session import start_session, suit_to_size

    session = start_session(SimpleNamespace(name="tests", process_budget_bytes=2 * 2**30, partitions=2), "tests")  # type: ignore[arg-type]
    suit_to_size(session, 0)
    yield session
    session.stop()
