"""An object store for tests: moto's S3 in a process of its own, a bucket for each module."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tidegate.store import places
from tidegate.store.places import ObjectPath, place

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server of this process's own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("moto") / "log").open("w")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        process.kill()


@pytest.fixture(scope="module")
def bucket(server: str) -> Iterator[ObjectPath]:
    """A new bucket, and an environment that leads to it: for this process, and those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": server, "AWS_REGION": "us-east-1"}.items():
            patch.setenv(name, value)
        places._file_system.cache_clear()
        name = f"b-{uuid.uuid4().hex[:8]}"
        boto3.client("s3").create_bucket(Bucket=name)
        found = place(f"s3://{name}")
        assert isinstance(found, ObjectPath)
        yield found
        places._file_system.cache_clear()


def upload(folder: Path, to: ObjectPath) -> None:
    """Copy the files of a folder."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            (to / str(file.relative_to(folder))).write_bytes(file.read_bytes())
