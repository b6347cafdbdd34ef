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

# Run by whoever names them: `make test-research`, `make test-wheel`.
APART = [Path(__file__).parent / name for name in ("research", "wheel")]
# With several workers, these modules share what one of them makes: a published warehouse, a night of flights.
TOGETHER = {"dbt": "dbt", "e2e/test_demo_answers.py": "night", "e2e/test_repeatability.py": "night"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders that stand apart unless they are named."""
    if collection_path not in APART:
        return None
    given = [Path(config.invocation_params.dir, word.split("::")[0]) for word in config.args]
    return None if any(path.is_relative_to(collection_path) for path in given) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long runs first, and each module (or what shares a fixture) on one worker: `--dist loadgroup`."""
    order = ("e2e", "dbt", "quality", "spark")
    kinds = {item: item.path.relative_to(item.config.rootpath / "tests").parts[0] for item in items if is_ours(item)}
    items.sort(key=lambda item: order.index(kinds[item]) if kinds.get(item) in order else len(order))
    for item in items:
        path = item.path.relative_to(item.config.rootpath)
        shared = [TOGETHER[key] for key in TOGETHER if path.is_relative_to(Path("tests", key))]
        item.add_marker(pytest.mark.xdist_group(shared[0] if shared else str(path)))


def is_ours(item: pytest.Item) -> bool:
    """Whether the item is a file of tests/, not an example of a docstring."""
    return item.path.is_relative_to(item.config.rootpath / "tests")


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
