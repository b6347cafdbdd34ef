"""moto's S3 in a process of its own, and the environment that leads to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest

from tidegate.store import places
from tidegate.store.places import ObjectPath, place

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """The address of a server that ends with the block; it keeps its objects in memory, and its log in a folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "s3.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@contextmanager
def a_bucket(address: str) -> Iterator[ObjectPath]:
    """A new bucket, and an environment that leads to it: for this process, and those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": address, "AWS_REGION": "us-east-1"}.items():
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
