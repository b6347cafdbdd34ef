"""A warm host: a Python and a JVM that have loaded packages and Spark already, for one command after another.

To start Python's packages, and Spark for dbt, takes several times what an hour's data does. A host pays that once. For
every command it forks: the child has the packages, and ends with the command. A module (``tidegate.cli``: publish is
one) also gets the JVM, as a child of spark-submit does, and a session of its own. So commands share no state but loaded
code; each has its own process, exit status and session, and its memory is measured as ever, host and JVM included.

* One command at a time (the client holds a lock); two slots are two hosts.
* A command that fails, or whose client goes away, takes JVM and host with it: the next one starts afresh.
* The JVM is renewed when Java options or configuration folder change, and after ``MOST_APPLICATIONS``.
* Tidegate's modules are loaded too. If a file of theirs has changed since, or the command's search path is another one,
  a command loads them anew: what runs is what is on disk.
* Slices run on the Spark that is named, as ever; an application that is told of none starts a JVM if it wants one.

Run by warm_client.py as ``python warm_host.py SOCKET``; it ends when it was idle for ``IDLE_S``.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IDLE_S = 900.0
MOST_APPLICATIONS = 200
HEAP = "1g"
RELEASE_S = 5.0
# In the order of need; imported when there is nothing else to do.
PRELOADED = (
    "numpy", "pyarrow", "pyarrow.dataset", "pyarrow.parquet", "pandas", "pyspark.sql", "pyspark.sql.functions",
    "pyspark.sql.connect.session", "pydantic", "yaml", "sqlglot", "sqlglot.optimizer.qualify", "scipy.optimize",
    "great_expectations", "great_expectations.render.view", "great_expectations.render.renderer.content_block",
    "dbt.cli.main", "dbt.adapters.spark", "plotly.graph_objects", "jinja2",
    "tidegate.engine.python_workers", "tidegate.stages.launcher", "tidegate.stages.land", "tidegate.stages.ingest",
    "tidegate.stages.join_aggregate", "tidegate.stages.top_k", "tidegate.stages.sample_history",
    "tidegate.stages.calibrate", "tidegate.stages.check_quality", "tidegate.stages.publish", "tidegate.report",
)  # fmt: skip
_FAILED = 1
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass
class Jvm:
    """A JVM that Python applications talk to, started the way spark-submit starts it for a shell."""

    key: tuple[str | None, ...]
    process: subprocess.Popen[bytes]
    announced: Path
    applications: int = 0

    @staticmethod
    def start(key: tuple[str | None, ...], environment: dict[str, str]) -> Jvm:
        """Start one; returns at once, before it is there."""
        # Killed at the end, it removes nothing itself.
        scratch = Path(tempfile.mkdtemp(prefix="tidegate-jvm-"))
        announced = scratch / "connection"
        options = f"{environment.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={scratch}"
        import pyspark

        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        process = subprocess.Popen(
            [str(submit), "--conf", f"spark.driver.memory={HEAP}", "pyspark-shell"],
            # It ends with its standard input, so with this host.
            stdin=subprocess.PIPE,
            env={
                **environment,
                "SPARK_SUBMIT_OPTS": options,
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(announced),
            },
        )
        return Jvm(key, process, announced)

    def address(self, patience_s: float = 60) -> tuple[int, str]:
        """Port and secret, once it is there."""
        deadline = time.monotonic() + patience_s
        while not self.announced.exists() or self.announced.stat().st_size < 8:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the JVM did not start")
            time.sleep(0.05)
        content = self.announced.read_bytes()
        port, length = struct.unpack("!ii", content[:8])
        return port, content[8 : 8 + length].decode()

    def alive(self) -> bool:
        """Whether it can be given another application."""
        return self.process.poll() is None and self.applications < MOST_APPLICATIONS

    def end(self) -> None:
        """End it now."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.announced.parent, ignore_errors=True)


class Host:
    """The loop: wait for an application, fork it, tell its client how it ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jvm: Jvm | None = None
        self._todo = list(PRELOADED)
        # Of each of Tidegate's modules its file, and when that had been changed last.
        self._files: dict[str, int] = {}
        self._search_path = os.environ.get("PYTHONPATH")
        with suppress(FileNotFoundError):
            path.unlink()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.umask(0o077)
        # A socket's address has a hundred characters at most, a path may have more.
        folder = os.open(path.parent, os.O_DIRECTORY | os.O_CLOEXEC)
        self._listening.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        self._listening.listen(1)

    def serve(self) -> None:
        """Run applications until one fails, or none came for a while."""
        last = time.monotonic()
        while time.monotonic() - last < IDLE_S:
            if not select.select([self._listening], [], [], 0 if self._todo else 5.0)[0]:
                self._preload()
                continue
            connection, _ = self._listening.accept()
            with connection:
                if not self._run(connection):
                    return
            last = time.monotonic()

    def close(self) -> None:
        """Leave nothing behind."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        if self._jvm:
            self._jvm.end()

    def _preload(self) -> None:
        if not self._todo:
            return
        with suppress(ImportError):
            importlib.import_module(self._todo.pop(0))
        if workers := sys.modules.get("tidegate.engine.python_workers"):
            self._files = {**workers.state(), **self._files}
        if not self._todo:
            # What is loaded stays: no collection in a fork writes to its pages, which are shared until somebody does.
            gc.collect()
            gc.freeze()

    def _forget_changed(self, environment: dict[str, str]) -> None:
        """In a child: have Tidegate's modules loaded anew if they are not what its command would load."""
        if workers := sys.modules.get("tidegate.engine.python_workers"):
            is_other = environment.get("PYTHONPATH") != self._search_path
            workers.forget_changed({"": -1} if is_other else self._files)

    def _run(self, connection: socket.socket) -> bool:
        """Run one application; False if the host has to end."""
        head, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
        request = json.loads(_exactly(connection, int.from_bytes(head, "big")))
        gateway = {}
        if "module" in request:
            jvm = self._jvm_for(request["environment"])
            for name in ("pyspark.sql", "pyarrow", "pandas"):
                importlib.import_module(name)  # while the JVM starts
            port, secret = jvm.address()
            gateway = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret, "TIDEGATE_WARM": "1"}
            jvm.applications += 1
        child = os.fork()
        if child == 0:
            self._listening.close()
            connection.close()
            self._forget_changed(request["environment"])
            _become(request, descriptors, gateway)
        for descriptor in descriptors:
            os.close(descriptor)
        status = _wait(child, connection)
        if status is None:
            return False
        with suppress(OSError):
            connection.sendall(bytes([status]))
        return status == 0

    def _jvm_for(self, environment: dict[str, str]) -> Jvm:
        key = tuple(environment.get(name) for name in ("SPARK_SUBMIT_OPTS", "SPARK_CONF_DIR", "JAVA_HOME"))
        if self._jvm and (self._jvm.key != key or not self._jvm.alive()):
            self._jvm.end()
            self._jvm = None
        if self._jvm is None:
            self._jvm = Jvm.start(key, environment)
        return self._jvm


def _become(request: dict[str, Any], descriptors: list[int], gateway: dict[str, str]) -> None:
    """In the child: be the command that was asked for. Never returns."""
    status = _FAILED
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        os.environ.update(gateway)
        time.tzset()
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        # The host's own folder comes first by default; under Python it would be the application's, or this one.
        sys.path[0:1] = [str(Path(request["script"]).parent) if "script" in request else os.getcwd(), *paths]
        status = _execute(request)
    except BaseException:  # noqa: B036 - the last frame of a process: whatever it was, it is shown
        import traceback

        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _execute(request: dict[str, Any]) -> int:
    try:
        if "script" in request:
            sys.argv = [request["script"], *request["arguments"]]
            runpy.run_path(request["script"], run_name="__main__")
        else:
            sys.argv = [request["module"], *request["arguments"]]
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int) or ended.code is None:
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    finally:
        # The JVM outlives the command, the command's session must not.
        if "pyspark" in sys.modules:
            from pyspark import SparkContext

            if SparkContext._active_spark_context is not None:
                SparkContext._active_spark_context.stop()
    return 0


def _wait(child: int, connection: socket.socket) -> int | None:
    """The child's exit status; None if its client went away, and then the child is ended with all it started."""
    ended = os.pidfd_open(child)
    try:
        readable, _, _ = select.select([ended, connection], [], [])
        if ended in readable:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return status if status >= 0 else 128 - status
        # First so that it can release its session on a Spark that stays.
        for number, patience_s in ((signal.SIGTERM, RELEASE_S), (signal.SIGKILL, None)):
            with suppress(ProcessLookupError):
                os.killpg(child, number)
            if select.select([ended], [], [], patience_s)[0]:
                break
        os.waitpid(child, 0)
        return None
    finally:
        os.close(ended)


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = connection.recv(size - len(content))
        if not piece:
            raise EOFError("the client disconnected before it sent its request")
        content += piece
    return content


def main() -> None:
    """Serve at the socket that the command line names."""
    # A host is stopped like any process of the stack; what it started goes with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path = Path(sys.argv[1]).absolute()
    # Airflow removes the folder that a task started this in; no JVM starts in one that is gone.
    os.chdir(path.parent)
    host = Host(path)
    try:
        host.serve()
    finally:
        host.close()


if __name__ == "__main__":
    main()
