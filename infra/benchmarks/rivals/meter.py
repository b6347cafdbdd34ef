"""What a process tree takes: CPU time, and the peak of its memory, from /proc."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from tidegate.engine.metrics import tree_bytes

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> dict[int, float]:
    """Process → CPU seconds of it and of its children that died, for a process and all its descendants."""
    parents, cpu_s = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The second field is the command in brackets, which may hold spaces: the rest stands behind the last.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if len(fields) > 14:
            parents[int(entry.name)] = int(fields[1])
            cpu_s[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS_PER_S
    children: dict[int, list[int]] = {}
    for process, parent in parents.items():
        children.setdefault(parent, []).append(process)
    found, todo = {}, [root]
    while todo:
        process = todo.pop()
        if process in cpu_s:
            found[process] = cpu_s[process]
            todo.extend(children.get(process, ()))
    return found


class TreeMeter:
    """Samples a process tree in a thread: ``peak_bytes`` is the largest sum of proportional set sizes seen.

    ``cpu_s()`` never falls: between two looks a process may be counted nowhere, when it has died and its parent has
    not yet been told. What looking takes is left out, if the tree is this process's own.
    """

    def __init__(self, root: int, every_s: float = 0.3):
        self.peak_bytes = 0
        self._root = root
        self._every_s = every_s
        self._cpu_s = self._looking_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="tree-meter")

    def cpu_s(self) -> float:
        """CPU seconds of the whole tree so far."""
        own = self._looking_s if self._root == os.getpid() else 0.0
        self._cpu_s = max(self._cpu_s, sum(tree(self._root).values()) - own)
        return self._cpu_s

    def processes(self) -> list[int]:
        """The tree as it is now."""
        return list(tree(self._root))

    def _sample(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            self.cpu_s()
            self.peak_bytes = max(self.peak_bytes, tree_bytes(self._root))
            self._looking_s = time.thread_time()
            # Looking at large trees takes a while; do it a tenth of the time at most.
            self._stop.wait(max(self._every_s, 9 * (time.monotonic() - began)))

    def __enter__(self) -> TreeMeter:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
