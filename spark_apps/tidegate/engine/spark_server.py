"""A Spark Connect server for the stages of one machine: one JVM that stays, so that a stage need not start its own.

:func:`serve` starts it, watches over it, and starts it anew on the same ports when it has died. A stage is then its
client, with a session of its own, and its slices are tasks here, each in a Python process of its own
(``python_workers``).

It listens on loopback, and asks for Spark's own token where ``SPARK_CONNECT_AUTHENTICATE_TOKEN`` is set. What its jobs
were is in its event log, for longer than it lives.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tidegate.declarations.errors import UserError
from tidegate.engine.context import cores
from tidegate.engine.jvm_scratch import jvm_scratch
from tidegate.engine.pyspark_files import require_whole_pyspark
from tidegate.engine.session import ALWAYS, CORES, JVM_BYTES, NOT_COMPILED, SPARK_CONF

CONNECT_PORT, UI_PORT = 15002, 4040
LEAST_BYTES = 768 * 2**20
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_HEAP_SHARE = 0.55
_DAYS_KEPT = 7
_PATIENCE_S = 10.0
# One that ends so soon after its start ends again: each next one waits twice as long, up to half a minute.
_SOON_S, _LONGEST_PAUSE_S = 30.0, 30.0


@dataclass(frozen=True)
class SparkServer:
    """What is to be served.

    ``master``: where its tasks run. ``memory_bytes``: what the JVM may take, heap and all else; Python workers are
    beside it. ``folder``: where its event logs are kept, in ``events``, for a week. ``jars``: files for its class
    path. ``settings``: more of Spark's settings.
    """

    folder: Path
    master: str = "local[*]"
    port: int = CONNECT_PORT
    ui_port: int = UI_PORT
    memory_bytes: int = 2 * 2**30
    jars: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def events(self) -> Path:
        """The folder of the event logs."""
        return self.folder / "events"

    @property
    def address(self) -> str:
        """What a client is told; by this name Spark's client sends its token to a server without TLS."""
        return f"sc://localhost:{self.port}"

    def conf(self, scratch: Path) -> dict[str, str]:
        """All of Spark's settings, for a JVM with this folder for temporary files."""
        conf = {
            "spark.app.name": "Tidegate",
            "spark.master": self.master,
            # As a plugin, since SparkConnectServer insists on isolation.
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            # With it each session has a factory of Python workers, a process and some threads, that never ends.
            "spark.sql.artifact.isolation.enabled": "false",
            "spark.python.daemon.module": "tidegate.engine.python_workers",
            # Each task is forked anew: it takes no memory that another one took.
            "spark.python.worker.reuse": "false",
            # Stages that run at once share the cores.
            "spark.scheduler.mode": "FAIR",
            "spark.ui.enabled": "true",
            "spark.ui.port": str(self.ui_port),
            "spark.port.maxRetries": "0",
            # It asks nobody who he is.
            "spark.ui.killEnabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.maxFileSize": "64m",
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{int(self.memory_bytes * _HEAP_SHARE) >> 20}m",
            "spark.driver.extraJavaOptions": self._java_options(scratch),
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
            JVM_BYTES: str(self.memory_bytes),
            CORES: str(cores(self.master)),
            **{name: str(value) for name, value in NOT_COMPILED.items()},
        }
        if self.jars:
            here = self.master.startswith("local")
            conf["spark.driver.extraClassPath" if here else "spark.jars"] = (os.pathsep if here else ",").join(
                self.jars
            )
        return conf | dict(self.settings)

    def _java_options(self, scratch: Path) -> str:
        beside = self.memory_bytes - int(self.memory_bytes * _HEAP_SHARE)
        given = os.environ.get(
            "TIDEGATE_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:-UsePerfData -XX:ReservedCodeCacheSize=128m"
        )
        return (
            f"{ALWAYS} -Duser.timezone=UTC {given} -XX:MaxDirectMemorySize={(beside // 4) >> 20}m"
            f" -XX:MaxMetaspaceSize={(beside // 2) >> 20}m -Djava.io.tmpdir={scratch}"
        )


def serve(server: SparkServer, say: Callable[[str], None], stop_signals: bool = True) -> None:
    """Run it until this process is interrupted or terminated; a server that has died is started anew.

    Raises:
        UserError: something else has the ports, the folder cannot be written, or it never came up.
    """
    if server.memory_bytes < LEAST_BYTES:
        raise UserError(f"a Spark server needs {LEAST_BYTES >> 20} MiB at least: give it more with --memory")
    for port, option in ((server.port, "--port"), (server.ui_port, "--ui-port")):
        _require_free(port, option)
    require_whole_pyspark()
    try:
        server.events.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder {server.folder} cannot be written: {error.strerror}; give another") from None
    if stop_signals:
        signal.signal(signal.SIGTERM, _interrupt)
    _prepare_environment()
    scratch, pause_s, been_up = jvm_scratch(), 0.0, False
    try:
        while True:
            _remove_old(server.events)
            began = time.monotonic()
            with _Jvm(server, scratch) as jvm:
                if jvm.is_up():
                    been_up = True
                    say(f"Spark Connect at {server.address}, its UI at http://127.0.0.1:{server.ui_port}")
                    status = jvm.wait()
                elif not been_up:
                    raise UserError("the Spark server did not start; what Spark said of it stands above")
                else:
                    status = None
            soon = time.monotonic() - began < _SOON_S
            pause_s = min(max(2 * pause_s, 1.0), _LONGEST_PAUSE_S) if soon else 0.0
            say(f"the Spark server has ended{'' if status is None else f' (status {status})'}; starting it anew")
            time.sleep(pause_s)
    except KeyboardInterrupt:
        say("the Spark server is stopped")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class _Jvm:
    """One JVM with the server in it. As a context manager: it ends with the block, and with this process."""

    def __init__(self, server: SparkServer, scratch: Path):
        self._server = server
        self._scratch = scratch
        self._gateway: Any = None
        self._context: Any = None

    def __enter__(self) -> _Jvm:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark import SparkConf
        from pyspark.errors import PySparkException
        from pyspark.java_gateway import launch_gateway

        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(mode=0o700)
        conf = SparkConf(loadDefaults=False)
        for name, value in self._server.conf(self._scratch).items():
            conf.set(name, value)
        try:
            # It reads its standard input, and ends when that does: with this process, however this ends.
            self._gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
            java = self._gateway.jvm
            self._context = java.org.apache.spark.api.java.JavaSparkContext(java.org.apache.spark.SparkConf())
        except (Py4JError, PySparkException, OSError) as error:
            print(error, file=sys.stderr, flush=True)
        return self

    def is_up(self) -> bool:
        """Whether it answers."""
        return self._context is not None and _answers(self._server.port)

    def wait(self) -> int:
        """Wait for its end; its exit status."""
        process: subprocess.Popen[bytes] = self._gateway.proc
        return process.wait()

    def __exit__(self, *_: object) -> None:
        if self._gateway is None:
            return
        process: subprocess.Popen[bytes] = self._gateway.proc
        with suppress(Exception):  # whatever it says: it is ended next
            if self._context is not None and process.poll() is None:
                # Its event log then says that it has ended.
                self._context.stop()
        with suppress(Exception):
            self._gateway.shutdown()
        with suppress(OSError):
            if process.stdin:
                process.stdin.close()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _prepare_environment() -> None:
    """What the JVM and its workers find: this Python, the package's settings, and no address of the network's."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not {"SPARK_CONF_DIR", "SPARK_HOME"} & os.environ.keys():
        os.environ["SPARK_CONF_DIR"] = str(SPARK_CONF)
    # They would make it the client of another server, or of itself; or the application of a spark-submit.
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        os.environ.pop(name, None)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _require_free(port: int, option: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise UserError(f"port {port} is taken: give the Spark server another one with {option}") from None


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(_PATIENCE_S)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _remove_old(events: Path) -> None:
    """Remove the logs of servers that have ended longer ago than logs are kept."""
    for log in events.iterdir():
        with suppress(OSError):
            newest = max((file.stat().st_mtime for file in log.iterdir()), default=log.stat().st_mtime)
            if time.time() - newest > _DAYS_KEPT * 86_400:
                shutil.rmtree(log)
