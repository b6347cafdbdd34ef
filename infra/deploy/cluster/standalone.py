"""Master and workers as processes of their own, each in a folder of its own; Tidegate comes to them as a wheel.

A worker's Python is an environment that holds the wheel and nothing else of Tidegate; other packages are those that are
installed on the machine, as they would be in a base image. What driver and workers have in common is the store alone.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil
import pyspark

PROJECT = Path(__file__).resolve().parents[3]
SPARK_HOME = Path(pyspark.__file__).parent
# These JVMs do little: the first compiler is enough, and one thread collects.
_DAEMON = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PATIENCE_S = 180


def wheel(folder: Path) -> Path:
    """Build the project's wheel into a folder; its file."""
    uv = Path(sys.executable).parent / "uv"
    command = [uv, "build", "--wheel", "--quiet", "--no-build-isolation", "--python", sys.executable]
    # setuptools writes its notes into the project: another build waits.
    with (PROJECT / "setup.py").open() as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        subprocess.run([*command, "--out-dir", folder, PROJECT], check=True)
    (file,) = folder.glob("*.whl")
    return file


def unpacked(file: Path, folder: Path) -> Path:
    """An environment that has the wheel; the folder of its programs."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(packages)
    # Not by its own .pth files, one of which would lead to a checkout.
    (packages / "machine.pth").write_text(f"{SPARK_HOME.parent}\n")
    return folder / "bin"


@dataclass
class Worker:
    """One worker: its folder, its address, its process."""

    folder: Path
    process: subprocess.Popen[bytes]

    def executors(self) -> list[psutil.Process]:
        """The executors that it runs now."""
        found = []
        for one in _tree(self.process.pid):
            with suppress(psutil.Error):  # it has ended meanwhile
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in one.cmdline():
                    found.append(one)
        return found

    def lose(self) -> None:
        """Kill -9 it with all that it runs, as when its machine loses power."""
        for one in _tree(self.process.pid):
            with suppress(psutil.Error):
                one.kill()
        self.process.wait()


@dataclass
class Cluster:
    """A master and some workers; use as a context manager.

    Args:
        folder: where they keep what they have; must not exist.
        file: Tidegate's wheel.
        count: how many workers.
        cores: tasks that a worker runs at a time.
        memory: what a worker may give to executors.
        environment: what workers and executors find beside a search path: the credentials of the store.
    """

    folder: Path
    file: Path
    count: int = 2
    cores: int = 1
    memory: str = "2g"
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list, init=False)
    _added: int = field(default=0, init=False)

    def __enter__(self) -> Cluster:
        self.folder.mkdir(parents=True)
        self.port = _free_port()
        try:
            self._master = self._start(
                "master", "master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"
            )
            self._wait()
            for _ in range(self.count):
                self.add()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in [*(worker.process for worker in self.workers), *filter(None, [getattr(self, "_master", None)])]:
            for one in _tree(process.pid):
                one.kill()
            process.wait()

    @property
    def master(self) -> str:
        """What a driver is told: TIDEGATE_SPARK_MASTER."""
        return f"spark://127.0.0.1:{self.port}"

    def add(self) -> None:
        """Start one more worker."""
        self._added += 1
        name = f"worker-{self._added}"
        words = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", str(self.cores), "--memory", self.memory]
        words += ["--work-dir", str(self.folder / name / "work"), self.master]
        self.workers.append(Worker(self.folder / name, self._start(name, "worker.Worker", *words)))

    def _start(self, name: str, main: str, *words: str) -> subprocess.Popen[bytes]:
        home = self.folder / name
        home.mkdir()
        programs = unpacked(self.file, home / "environment")
        variables = {
            "PATH": f"{programs}:{os.defpath}",
            "HOME": str(home),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_JAVA_OPTS": _DAEMON,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(home / "scratch"),
            "LANG": "C.UTF-8",
            **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
            **self.environment,
        }
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *words]
        with (home / "log").open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=home,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and self._master.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"the master did not start: {(self.folder / 'master' / 'log').read_text()[-2000:]}")


def _tree(process: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(process)
        return [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return []


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def serve(folder: Path, count: int, cores: int) -> None:
    """Run a cluster until Ctrl-C, with this process's AWS_* variables, and say how to use it."""
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Cluster(folder / "cluster", wheel(folder), count, cores, environment=keys) as cluster:
        print(f"export TIDEGATE_SPARK_MASTER={cluster.master}", flush=True)
        cluster._master.wait()
