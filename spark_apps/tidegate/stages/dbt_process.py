"""dbt in a process of its own: started by ``publish``, it does what ``dbt_session`` says."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from tidegate.stages import dbt_session
from tidegate.stages.dbt_session import BUILT, SAID, Session

# A child of spark-submit would otherwise talk to its parent's JVM.
PARENTS_SPARK = {
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_ENV_LOADED",
    "SPARK_REMOTE",
}


class Process(Protocol):
    """As much of subprocess.Popen as is asked for here."""

    def kill(self) -> None:
        """End it."""

    def wait(self) -> int:
        """Return its exit status once it has ended."""


@dataclass(frozen=True)
class _Forked:
    """A child of this process."""

    pid: int

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Dbt:
    """A process that parses the project of the folder ``home`` and starts Spark, then builds what it is told to.

    Use as a context manager: it ends with it, whatever it is at. It shares the lock of this run: were this process
    killed, the next run would wait for what it left behind. ``forked``: a child of this process, which has dbt loaded
    and has no Spark session of its own; only in a warm host (infra/spark/warm_host.py), whose JVM waits for an
    application.
    """

    def __init__(self, home: Path, lock: int, forked: bool = False) -> None:
        for folder in ("slice", "scratch"):
            shutil.rmtree(home / folder, ignore_errors=True)
        (home / "logs").mkdir(exist_ok=True)
        self._home, self._errors = home, home / "logs" / "stderr.log"
        told, self._telling = os.pipe()
        reading, saying = os.pipe()
        with open(self._errors, "w") as errors:
            start = self._fork if forked else self._start
            self._process = start(told, saying, errors, lock)
        os.close(told)
        os.close(saying)
        self._said = os.fdopen(reading)
        self._status: int | None = None

    def __enter__(self) -> Dbt:
        return self

    def __exit__(self, *_: object) -> None:
        self._said.close()
        os.close(self._telling)
        if self._status is None:
            self._process.kill()
            self._process.wait()

    def build(self, session: Session, say: Callable[[str], None], built: Callable[[str], None]) -> dict[str, Any]:
        """Have it build and test, once; how that went.

        ``say`` gets a line now and then; ``built`` the name of each mart when it is there, before its tests have run.
        """
        result = Path(session.result)
        result.unlink(missing_ok=True)
        session.save(self._home / "session.json")
        with contextlib.suppress(BrokenPipeError):  # of one that has ended, the status says why
            os.write(self._telling, b"\n")
        for line in self._said:
            if line.startswith(SAID):
                say(line.strip())
            elif line.startswith(BUILT):
                built(line.removeprefix(BUILT).strip())
        self._status = self._process.wait()
        if self._status != 0 or not result.is_file():
            tail = "\n".join(self._errors.read_text().splitlines()[-20:])
            raise RuntimeError(f"dbt ended with status {self._status}; log: {self._errors.parent}\n{tail}")
        outcome: dict[str, Any] = json.loads(result.read_text())
        return outcome

    def _start(self, told: int, saying: int, errors: IO[str], lock: int) -> Process:
        environment = {key: value for key, value in os.environ.items() if key not in PARENTS_SPARK}
        command = [sys.executable, "-m", "tidegate.stages.dbt_session", str(self._home / "session.json")]
        return subprocess.Popen(
            command, env=environment, cwd=self._home, stdin=told, stdout=saying, stderr=errors, pass_fds=[lock]
        )

    def _fork(self, told: int, saying: int, errors: IO[str], lock: int) -> Process:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(self._telling)
                for target, descriptor in enumerate((told, saying, errors.fileno())):
                    os.dup2(descriptor, target)
                os.chdir(self._home)
                status = dbt_session.main([str(self._home / "session.json")])
            except BaseException:  # noqa: B036 - the last frame of a process: whatever it was, it is shown
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        return _Forked(child)
