"""What tests of several kinds share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from infra.airflow.environment import archived_classes
from tests.command import shared_session
from tests.examples import examples
from xdist.scheduler import LoadScopeScheduling

from tidegate.engine import session as engine_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Workers must run this Python, and find the package as the tests do. Every JVM starts from the archive of Spark's
# classes, if there is one.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.update(archived_classes())
# The main module of an xdist worker has no file. Spark Connect takes that for doctests and would end the process when
# Great Expectations imports it; with a file its import fails as it does everywhere without Spark Connect.
if not hasattr(sys.modules["__main__"], "__file__"):
    sys.modules["__main__"].__file__ = __file__

# A law that says nothing else; a busy machine is no fault of what it tries.
settings.register_profile("tests", max_examples=examples(100), deadline=None)
settings.load_profile("tests")

# Run by whoever names them: `make test-research`, `make test-wheel`.
APART = [Path(__file__).parent / name for name in ("research", "wheel")]
# With several workers, these share what one of them makes: Airflow's DAGs, a published warehouse, a night of flights,
# a shop before and after an hour's run.
TOGETHER = {
    "/attacks/test_attacks": "hour",
    "/attacks/test_power_cut": "hour",
    "/dags/": "dags",
    "/dbt/": "dbt",
    "/quality/": "quality",
    "/e2e/test_demo_answers": "night",
    "/e2e/test_repeatability": "night",
}
LONG = ("wheel", "strangers", "e2e", "dbt", "attacks", "sql", "quality", "spark")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders that stand apart unless they are named."""
    if collection_path not in APART:
        return None
    given = [Path(config.invocation_params.dir, word.split("::")[0]) for word in config.args]
    return None if any(path.is_relative_to(collection_path) for path in given) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long runs first; whoever uses Spark is marked so."""
    items.sort(key=lambda item: next((n for n, kind in enumerate(LONG) if f"/{kind}/" in item.nodeid), len(LONG)))
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


class Together(LoadScopeScheduling):
    """Gives a whole module, or what shares a fixture, to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return next((group for part, group in TOGETHER.items() if part in module), module)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """How `make test` gives the tests to its workers."""
    return Together(config, log)


@pytest.fixture(scope="session")
def jvm() -> Iterator[SparkSession]:
    """The one JVM of a test run, and the session that it was started with. Tests ask for ``spark``."""
    session = shared_session()
    yield session
    session.stop()


def _shared_session_is_active() -> bool:
    """A run in this process that has work enough for a Spark shares that of the tests, whichever comes first."""
    shared_session()
    return True


engine_session.session_is_active = _shared_session_is_active


@pytest.fixture(scope="module")
def spark(jvm: SparkSession) -> Any:
    """A session of this module: Tidegate's settings, its own temporary views, the JVM of the whole run.

    A stage works beside it: ``RunContext(pipeline, root, beside=spark)``.
    """
    return jvm.newSession()
