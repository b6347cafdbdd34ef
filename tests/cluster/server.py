"""A `tidegate spark-server` of a test's: its processes, its jobs, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests.cluster.conftest import free_port

PATIENCE_S = 180
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


@dataclass
class Server:
    """A `tidegate spark-server`."""

    folder: Path
    port: int
    ui_port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"sc://localhost:{self.port}"

    def jvm(self) -> psutil.Process:
        """The JVM that serves now."""
        (jvm,) = [one for one in psutil.Process(self.process.pid).children() if one.name() == "java"]
        return jvm

    def processes(self) -> list[psutil.Process]:
        """The supervisor, the JVM and its Python processes."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def said(self) -> str:
        return (self.folder / "log").read_text()

    def wait_until_up(self, times: int = 1) -> None:
        wait(lambda: self.said().count("Spark Connect at") >= times or self.process.poll() is not None)
        assert self.process.poll() is None, self.said()

    def jobs(self) -> list[dict[str, Any]]:
        """What its REST API tells of its jobs."""
        base = f"http://127.0.0.1:{self.ui_port}/api/v1/applications"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        (application,) = json.load(opener.open(base, timeout=30))
        found: list[dict[str, Any]] = json.load(opener.open(f"{base}/{application['id']}/jobs", timeout=30))
        return found


def living(above: psutil.Process) -> list[psutil.Process]:
    """All processes below one that have not ended."""
    return [one for one in above.children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]


def wait(until: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something is so, or fail."""
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def serving(folder: Path, **more: str) -> Iterator[Server]:
    folder.mkdir()
    own = ("TIDEGATE", "SPARK", "PYSPARK")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)} | more
    ports = free_port(), free_port()
    words = ["--folder", folder, "--master", "local[2]", "--port", ports[0], "--ui-port", ports[1], "--memory", "1 GiB"]
    command = [sys.executable, "-m", "tidegate.cli", "spark-server", *map(str, words)]
    with (folder / "log").open("wb") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
    server = Server(folder, *ports, process)
    try:
        server.wait_until_up()
        yield server
    finally:
        if process.poll() is None:
            left = server.processes()
            process.terminate()
            process.wait(PATIENCE_S)
            _, alive = psutil.wait_procs(left, 30)
            assert not alive, alive
