"""How much memory an application really took: the peak of its whole process tree."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_PROC = Path("/proc")
_PAUSE_BY_LOOK = 100


def application_root() -> int:
    """The process at the root of this application: the submitting JVM under spark-submit, else this process."""
    return os.getppid() if "PYSPARK_GATEWAY_PORT" in os.environ else os.getpid()


def executor_root() -> int:
    """The executor above this Python worker: the nearest JVM; this process if there is none."""
    process = os.getpid()
    while process > 1:
        try:
            command, _, rest = (_PROC / str(process) / "stat").read_text().rpartition(")")
        except OSError:
            break
        if command.endswith("(java"):
            return process
        process = int(rest.split()[1])
    return os.getpid()


def tree_bytes(root: int) -> int:
    """Proportional set size of a process and all its descendants, bytes; 0 where /proc is not there.

    PSS shares common pages among those who map them, so the sum counts no page twice. Cost: of a process without
    children, which this one is most of the time, a walk of its own pages; else a look at every process of the machine.
    """
    if root == os.getpid() and not _has_children():
        return _pss_bytes(root)
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        try:
            # The second field is the command in brackets, which may hold spaces: the parent stands behind the last.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    total, todo = 0, [root]
    while todo:
        process = todo.pop()
        todo.extend(children.get(process, ()))
        total += _pss_bytes(process)
    return total


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _pss_bytes(process: int) -> int:
    try:
        for line in (_PROC / str(process) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return 0
    return 0


class ProcessMeter:
    """Samples a process tree in a thread of its own; ``peak_bytes`` is the largest sum seen, of one look at least.

    ``root``: the process at its root, by default this application's.
    """

    def __init__(self, root: int | None = None, every_s: float = 0.5):
        self._seen_bytes = 0
        self._every_s = every_s
        self._root = application_root() if root is None else root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="process-meter")

    def _sample(self) -> None:
        # A look walks the pages of every process: a short stage is looked at once, when it has done its work; of a
        # long one no more than a hundredth goes into looking.
        pause = self._every_s
        while not self._stop.wait(pause):
            began = time.thread_time()
            self._look()
            pause = max(self._every_s, _PAUSE_BY_LOOK * (time.thread_time() - began))

    def _look(self) -> None:
        self._seen_bytes = max(self._seen_bytes, tree_bytes(self._root))

    @property
    def peak_bytes(self) -> int:
        """The largest sum seen so far; looked at now if nothing was."""
        if self._seen_bytes == 0:
            self._look()
        return self._seen_bytes

    def __enter__(self) -> ProcessMeter:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
