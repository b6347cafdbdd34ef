from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.objects.server import a_bucket, s3_server

from tidegate.store.places import ObjectPath


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture(scope="module")
def bucket(server: str) -> Iterator[ObjectPath]:
    with a_bucket(server) as found:
        yield found
