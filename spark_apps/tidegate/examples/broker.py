"""A Kafka broker to try things on: one process of Apache Kafka (KRaft), on this machine only, without a container.

    python -m tidegate.examples.broker                  until Ctrl-C, on 127.0.0.1:9092, its data in a temporary folder
    python -m tidegate.examples.broker --folder DIR     its data stays in DIR, and is there when it is started anew

It is for examples and tests: one copy of everything, no encryption, three seconds to start, 330 MB of memory. Its jars
are those of ``tidegate.engine.jars``, group ``broker``; Java 17 runs it.
"""

from __future__ import annotations

import argparse
import base64
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self

from tidegate.declarations.errors import UserError
from tidegate.engine.jars import jars

HOST = "127.0.0.1"
PORT = 9092
_READY_S = 60
_STOP_S = 20
# Replication of one; internal topics of one partition, so that the first transaction need not wait for fifty; looks for
# what to delete and to compact every second, not every five minutes. After a kill the controller knows the broker as
# alive until its session ends, and lets nobody in its place.
_SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners={listeners},CONTROLLER://{host}:{controller}
advertised.listeners={listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.dirs={data}
num.partitions=1
num.network.threads=2
num.io.threads=4
background.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.initial.task.delay.ms=1000
log.retention.check.interval.ms=1000
log.cleaner.backoff.ms=1000
log.segment.delete.delay.ms=1000
"""
_JAVA_OPTIONS = (
    *("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
# Becomes Java, and dies with the process that started it, however that one ends (Linux; elsewhere it stays until it is
# stopped). Between fork and exec nothing of a process with threads may run, so this is a process of its own.
_WITH_ITS_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Broker:
    """A broker on a data folder and a port, which stay the same over stops, kills and starts.

    It ends with the thread that started it. Use it as a context manager, or call ``stop``.

    Args:
        folder: where its data, settings and log are; made if missing.
        port: the port of clients on 127.0.0.1; a free one if 0.
        users: names and passwords. If there are any, a second port, ``sasl_port``, asks for them by SASL/PLAIN.
    """

    def __init__(self, folder: Path, port: int = 0, users: Mapping[str, str] | None = None):
        self.folder = folder.resolve()
        self.port = port or _free_port()
        self.sasl_port = _free_port() if users else 0
        self._users = dict(users or {})
        self._controller_port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """What clients call ``bootstrap.servers``."""
        return f"{HOST}:{self.port}"

    @property
    def sasl_servers(self) -> str:
        """The same, where a password is needed."""
        return f"{HOST}:{self.sasl_port}"

    @property
    def pid(self) -> int:
        """The process's id; 0 while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def start(self) -> Self:
        """Start it, and wait until it answers; three seconds.

        Raises:
            UserError: its jars or Java are not there, the port is in use, or it ended instead.
        """
        if self.pid:
            return self
        java = [_java(), *_JAVA_OPTIONS, "-cp", os.pathsep.join(_jars())]
        if _answers(self.port):
            raise UserError(f"something listens on {self.servers} already: choose another --port")
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self._write_settings()
        if not (self.folder / "data" / "meta.properties").exists():
            # Never one that begins with a dash.
            identity = base64.urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")
            format_it = [*java, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)]
            done = subprocess.run(format_it, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise UserError(f"the broker's folder could not be prepared: {_last_line(done.stderr or done.stdout)}")
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _WITH_ITS_PARENT, str(os.getpid()), *java, "kafka.Kafka", str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C at the terminal is for whoever started it, who then stops it.
                start_new_session=True,
            )
        self._wait_until_ready()
        return self

    def kill(self) -> None:
        """Kill it with -9: nothing is closed, nothing flushed."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Have it close its files and end; kill it if that takes too long."""
        self._end(signal.SIGTERM)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(by)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _READY_S
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                log = self.folder / "broker.log"
                raise UserError(f"the broker did not start: {_last_line(log.read_text(errors='replace'))}; see {log}")
            time.sleep(0.05)

    def _write_settings(self) -> Path:
        """The broker's settings, readable by this user only: they hold passwords."""
        listeners = f"PLAINTEXT://{self.servers}"
        if self._users:
            listeners += f",SASL://{self.sasl_servers}"
        text = _SETTINGS.format(
            host=HOST, controller=self._controller_port, listeners=listeners, data=self.folder / "data"
        )
        if self._users:
            users = " ".join(f'user_{name}="{_quoted(password)}"' for name, password in self._users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            text += f"sasl.enabled.mechanisms=PLAIN\nlistener.name.sasl.plain.sasl.jaas.config={module} {users};\n"
        file = self.folder / "server.properties"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        return file


def missing() -> str:
    """What a broker needs and this machine does not have, in a sentence; empty if it can be started.

    >>> missing() == "" or "broker" in missing()
    True
    """
    try:
        _jars()
        _java()
    except UserError as error:
        return str(error)
    return ""


def _jars() -> list[str]:
    paths = jars("broker")
    if not paths:
        raise UserError(
            "the jars of a broker are not here: `make setup` in a checkout of Tidegate fetches them, and TIDEGATE_JARS "
            "names the folder that has them as broker/*.jar; or use a broker of yours"
        )
    return paths


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise UserError("a broker needs Java 17, and there is none: install it, or set JAVA_HOME to its folder")
    return java


def _quoted(password: str) -> str:
    """As it stands between quotes of a JAAS entry in a properties file."""
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    return escaped.replace("\\", "\\\\")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    """Whether a broker answers there: to Kafka's request for the versions it speaks, which needs no password."""
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return bool(connection.recv(4))
    except OSError:
        return False


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return lines[-1][:300] if lines else "it said nothing"


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tidegate.examples.broker", description="Run a Kafka broker on this machine until Ctrl-C."
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where its data stays (default: a temporary folder)")
    parser.add_argument("--port", type=int, default=PORT, help=f"on 127.0.0.1 (default {PORT})")
    arguments = parser.parse_args(words)
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory(prefix="tidegate-broker-") as temporary:
        try:
            with Broker(arguments.folder or Path(temporary), arguments.port) as broker:
                print(f"Kafka  {broker.servers}   until Ctrl-C; its data is in {broker.folder}", flush=True)
                signal.pause()
        except UserError as error:
            print(error, file=sys.stderr)
            return error.exit_status
        except KeyboardInterrupt:
            print("The broker is stopped.")
    return 0


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
