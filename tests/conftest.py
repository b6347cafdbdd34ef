"""What tests of several kinds share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Workers must run this Python, and find the package as the tests do.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Targets of their own: `make test-research`, which costs seconds to import, and `make test-wheel`.
APART = [Path(__file__).parent / "research", Path(__file__).parent / "wheel"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave what has a target of its own to those who name it."""
    given = [Path(config.invocation_params.dir, word.split("::")[0]) for word in config.args]
    if collection_path not in APART:
        return None
    return None if any(path.is_relative_to(collection_path) for path in given) else True


@pytest.fixture(scope="session")
def jvm() -> Iterator[SparkSession]:
    """The one JVM of a test run, and the session that it was started with. Tests ask for ``spark``."""
    from tidegate.hosts.session import start_session

    session = start_session(SimpleNamespace(name="tests", process_budget_bytes=3 * 2**30, partitions=2), "tests")  # type: ignore[arg-type]
    yield session
    session.stop()


@pytest.fixture(scope="module")
def spark(jvm: SparkSession) -> Any:
    """A session of this module: Tidegate's settings, its own temporary views, the JVM of the whole run.

    A stage works beside it: ``RunContext(pipeline, root, beside=spark)``.
    """
    from tidegate.hosts.session import session_beside, suit_to_size

    session = session_beside(jvm, SimpleNamespace(partitions=2))  # type: ignore[arg-type]
    suit_to_size(session, 0)
    return session
