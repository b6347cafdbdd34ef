"""One broker of Apache Kafka for all tests of a run, and whether there can be one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kafka.topics import Topics

from tidegate.examples.broker import Broker, missing

# The password has what a careless writer of properties or URLs gets wrong.
USERS = {"tidegate": "s3cret-5f1c;%&=\\x"}
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def broker_jars() -> None:
    """A broker can be started here, or the test says in one line why it does not run."""
    if missing():
        pytest.skip(missing())


@pytest.fixture(scope="session")
def broker(broker_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that stays up; it wants a password at its port ``sasl_port``."""
    with Broker(tmp_path_factory.mktemp("broker"), users=USERS) as running:
        yield running


@pytest.fixture
def mortal(broker_jars: None, tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test's, to be killed and started."""
    with Broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def topics(broker: Broker) -> Topics:
    """Makes, fills and deletes topics of the broker."""
    return Topics(broker.servers)


@pytest.fixture
def topic(topics: Topics) -> Callable[..., str]:
    """Makes a topic with a name of its own: ``topic(partitions=3, retention_ms=…)``."""

    def make(partitions: int = 1, **settings: object) -> str:
        name = f"t{next(_NUMBERS)}"
        topics.create(name, partitions, **settings)
        return name

    return make
