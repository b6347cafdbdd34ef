"""Commands that are killed, with all that they have started: the command line's, and a Spark Connect server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil
from tests.cluster.conftest import free_port

ROOT = Path(__file__).resolve().parents[2]
TIDEGATE = (sys.executable, "-m", "tidegate.cli")
_MARK = "TIDEGATE_ATTACK"
_GONE_S, _PATIENCE_S = 30.0, 120.0
# What would make a command the client of another Spark.
_SPARK = ("SPARK_REMOTE", "TIDEGATE_SPARK_MASTER", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")


class Running:
    """A command that runs, with all that it has started. ``log``: what it says."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None):
        self.command, self._log = list(command), log
        self._mark = f"{os.getpid()}-{time.monotonic_ns()}"
        kept = {name: value for name, value in os.environ.items() if name not in _SPARK}
        kept |= {"PYSPARK_PYTHON": sys.executable, _MARK: self._mark, **(environment or {})}
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=kept, cwd=ROOT
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive():
            self._process.kill()
        self._process.wait()

    def alive(self) -> bool:
        """Whether the command itself still runs."""
        return self._process.poll() is None

    def crashed(self) -> bool:
        """Whether it ended by itself, and not in a sentence."""
        status, said = self._process.returncode, self.said()
        # 1 is the machine's fault, such as a server that is gone: in a sentence, too.
        return "Traceback" in said or not (status == 0 or (status in (1, 2) and "tidegate: error: " in said))

    def said(self) -> str:
        """The end of what it said, and how it ended."""
        return f"{self._log.read_text(errors='replace')[-6000:]}\n(status {self._process.poll()})"

    def kill(self, chance: random.Random) -> str:
        """Kill -9: the command, its JVM or one of its workers, or all at once; what was killed."""
        parent = psutil.Process(self._process.pid)
        tree = [parent, *parent.children(recursive=True)]
        what, victims = chance.choice([("command", [parent]), ("tree", tree), ("", [chance.choice(tree)])])
        if not what:
            what = "command" if victims == [parent] else _kind(victims[0])
        _kill(victims)
        # Without a worker it may go on, or end in a sentence; either is right.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(None if parent in victims else chance.uniform(0, 10))
        return what

    def terminate(self) -> None:
        """End it as a user does, and wait for that."""
        if self.alive():
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)

    def children(self) -> list[psutil.Process]:
        """What it has started, and what those have."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def left(self) -> Iterator[str]:
        """Processes that it has started and that are there half a minute later."""
        yield from left(self._mark)


class ConnectServer:
    """A `tidegate spark-server`, whose supervisor starts it anew when it dies, and which is started anew itself."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._ports = free_port(), free_port()
        self._running: Running | None = None
        self.address = f"sc://localhost:{self._ports[0]}"

    def start(self) -> list[str]:
        """Start it unless it runs; processes that the one before has left behind."""
        faults: list[str] = []
        if self._running is not None:
            if self._running.alive():
                return []
            faults = [f"left behind by the server: {line}" for line in self._running.left()]
        words = ["--folder", self._folder, "--master", "local[2]", "--memory", "1 GiB"]
        words += ["--port", self._ports[0], "--ui-port", self._ports[1]]
        self._running = Running([*TIDEGATE, "spark-server", *map(str, words)], self._folder.with_suffix(".log"))
        return faults

    def kill(self, chance: random.Random) -> str:
        """Kill -9: the server's JVM mostly, or one of its workers, or its supervisor; what was killed, if anything."""
        assert self._running is not None
        below = self._running.children()
        victims = [one for one in below if _kind(one) == "JVM"] if chance.random() < 0.7 else below
        if not victims:
            return ""
        if chance.random() < 0.15:
            self._running.__exit__()
            return "server's supervisor"
        victim = chance.choice(victims)
        what = f"server's {_kind(victim)}"
        _kill([victim])
        return what

    def wait_until_up(self) -> None:
        """Until it answers, or a minute."""
        from tidegate.declarations.errors import UserError
        from tidegate.engine.session import require_answer

        until = time.monotonic() + 60
        while time.monotonic() < until:
            with suppress(UserError):
                require_answer(self.address)
                return
            time.sleep(0.5)

    def said(self) -> str:
        """The end of what it said."""
        return self._running.said() if self._running is not None else ""

    def stop(self) -> list[str]:
        """End it; processes that it has left behind."""
        if self._running is None:
            return []
        self._running.terminate()
        return [f"left behind by the server: {line}" for line in self._running.left()]


def left(mark: str = f"{os.getpid()}-") -> Iterator[str]:
    """Processes of a command, or of all of this process's commands, that are there half a minute later; they end."""
    until = time.monotonic() + _GONE_S
    while (alive := list(_marked(mark))) and time.monotonic() < until:
        time.sleep(0.2)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            yield " ".join(process.cmdline())[:200]
            process.kill()


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_MARK, "").startswith(mark) and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _kind(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return "JVM" if process.name() == "java" else "worker"
    return "worker"


def _kill(victims: Sequence[psutil.Process]) -> None:
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.kill()
