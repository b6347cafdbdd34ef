"""How much memory an application really took: the peak of its whole process tree."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PAUSE_BY_LOOK = 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Process → how it was when its PSS was looked up, and that.
_LOOKED_UP: dict[int, tuple[_Stat, int]] = {}


def application_root() -> int:
    """The process at the root of this application: the submitting JVM under spark-submit, else this process."""
    return os.getppid() if "PYSPARK_GATEWAY_PORT" in os.environ else os.getpid()


def executor_root() -> int:
    """The executor above this Python worker: the nearest JVM; this process if there is none."""
    process = os.getpid()
    while process > 1:
        try:
            now = _stat(process)
        except OSError:
            break
        if now.command == "java":
            return process
        process = now.parent
    return os.getpid()


def tree_bytes(root: int) -> int:
    """Proportional set size of a process and all its descendants, bytes; 0 where /proc is not there.

    PSS shares common pages among those who map them, so the sum counts no page twice. Cost: of a process without
    children, which this one is most of the time, a look at itself; else at every process of the machine.
    """
    if root == os.getpid() and not _has_children():
        return _pss_bytes(root)
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*"):
        try:
            children.setdefault(_stat(int(entry.name)).parent, []).append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    total, todo = 0, [root]
    while todo:
        process = todo.pop()
        todo.extend(children.get(process, ()))
        total += _pss_bytes(process)
    return total


def process_bytes(process: int) -> int:
    """Proportional set size of one process alone, bytes; 0 where /proc is not there."""
    return _pss_bytes(process)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


@dataclass(frozen=True)
class _Stat:
    """Of a process: what it runs, its parent, when it began (clock ticks), and the pages that it has in memory."""

    command: str
    parent: int
    began: int
    pages: int


def _stat(process: int) -> _Stat:
    # The second field is the command in brackets, which may hold spaces: the others stand behind the last one.
    command, _, rest = (_PROC / str(process) / "stat").read_text().rpartition(")")
    fields = rest.split()
    return _Stat(command.partition("(")[2], int(fields[1]), int(fields[19]), int(fields[21]))


def _pss_bytes(process: int) -> int:
    """PSS of a process. It is looked up again once its resident size has changed by a sixteenth: until then by as much.

    The kernel goes over all pages for it, ten milliseconds a gigabyte; what a process gets or gives back is its own.
    """
    try:
        now = _stat(process)
        known = _LOOKED_UP.get(process)
        if known is None or known[0].began != now.began or abs(now.pages - known[0].pages) > known[0].pages // 16:
            known = _LOOKED_UP[process] = now, _looked_up_bytes(process)
        return known[1] + (now.pages - known[0].pages) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def _looked_up_bytes(process: int) -> int:
    for line in (_PROC / str(process) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
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
