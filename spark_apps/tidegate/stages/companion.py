"""A second process, in which stages run for some intervals while this one goes on with the next."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread

from tidegate.declarations.models import Pipeline
from tidegate.engine.context import RunContext
from tidegate.store.intervals import Interval
from tidegate.store.places import Place

_PATIENCE_S = 10
# What waits here and what is being done: a stage that takes longer in one pass does not hold up the other process.
_AHEAD = 2


@dataclass(frozen=True)
class _Asked:
    """Stages for some intervals."""

    stages: tuple[str, ...]
    intervals: tuple[Interval, ...]
    cold_start: bool
    days_follow: bool


class Companion:
    """Runs stages one after the other beside this process. Use as a context manager: it waits for what was asked for.

    The process is started when it is first asked for something, and ends with this one, however this one ends. Its
    slices run in itself: it starts no Spark session. What it says goes to the error stream.
    """

    def __init__(self, context: RunContext):
        self._context = context
        self._process: subprocess.Popen[bytes] | None = None
        self._to_be_done = 0

    def __enter__(self) -> Companion:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._process is None:
            return
        try:
            if kind is None:
                self.wait()
            elif issubclass(kind, Exception):
                # What failed is another stage for other intervals: what is being done here is of use all the same.
                with contextlib.suppress(Exception):
                    self.wait()
            if kind is None or issubclass(kind, Exception):
                self._send(None)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._connection.close()

    def run(self, stages: Sequence[str], intervals: Sequence[Interval]) -> None:
        """Have it done after what was asked for before; waits if that is much. What that has raised is raised here."""
        self.wait(_AHEAD - 1)
        if self._process is None:
            self._connection, theirs = Pipe()
            command = [sys.executable, "-m", "tidegate.stages.companion", str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
            theirs.close()
            self._send((self._context.pipeline, self._context.warehouse_root))
        self._send(_Asked(tuple(stages), tuple(intervals), self._context.cold_start, self._context.days_follow))
        self._to_be_done += 1

    def _send(self, what: object) -> None:
        with contextlib.suppress(OSError):  # of a process that has ended, wait() tells
            self._connection.send(what)

    def wait(self, left: int = 0) -> None:
        """Return when no more than so much is to be done; raises what it has raised."""
        while self._to_be_done > left or (self._to_be_done and self._connection.poll()):
            self._to_be_done -= 1
            try:
                error = self._connection.recv()
            except (EOFError, OSError):
                message = "the process that ran beside this one was ended from outside: run this again"
                raise RuntimeError(message) from None
            if error is not None:
                raise error


def main(connection: Connection) -> None:
    """What the process does: stages, as they are asked for, until the other one ends it, or is gone."""
    # Who interrupts means the other one, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    of: tuple[Pipeline, str | Place] = connection.recv()
    asked: SimpleQueue[_Asked | None] = SimpleQueue()
    Thread(target=_listen, args=(connection, asked), daemon=True).start()
    with RunContext(*of, here=True) as context:
        while (one := asked.get()) is not None:
            context.cold_start, context.days_follow = one.cold_start, one.days_follow
            try:
                for stage in one.stages:
                    importlib.import_module(f"tidegate.stages.{stage}").run(context, one.intervals)
                connection.send(None)
            except Exception as error:
                connection.send(_sendable(error))


def _listen(connection: Connection, asked: SimpleQueue[_Asked | None]) -> None:
    try:
        while True:
            asked.put(connection.recv())
    except (EOFError, OSError):
        # A run that is not committed leaves nothing that anybody sees.
        os._exit(1)


def _sendable(error: Exception) -> Exception:
    """The error, or one that says the same where it cannot be made again on the other side."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
