"""What starts Python workers on our own Spark server: a process that has loaded what they need, forked for every task.

Spark runs this module instead of ``pyspark.daemon`` where ``spark.python.daemon.module`` names it. A fork begins with
the packages in memory, so that workers need not be kept from task to task: each ends with its task, and what it took
of memory is that task's alone.

Tidegate's own modules are loaded too. If one of their files has changed since, a worker loads them anew: what runs is
what is on the disk.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

_PACKAGES = (
    "numpy", "pyarrow", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pandas", "scipy.optimize",
    "deltalake", "pyspark.worker",
)  # fmt: skip
_OURS = (
    "engine.slices", "sources.parse", "sources.settle", "queries.slices", "queries.keys", "queries.failures",
    "stages.ingest", "stages.calibrate", "stages.calibrate_slacks", "stages.calibrate_misses",
    "stages.calibrate_widths", "stages.sample_history", "stages.resample_history",
)  # fmt: skip


def load() -> None:
    """Load what tasks need; what is not installed is left out."""
    for name in (*_PACKAGES, *(f"tidegate.{name}" for name in _OURS)):
        with suppress(ImportError):
            importlib.import_module(name)


def state() -> dict[str, int]:
    """Of each loaded module of Tidegate its file, and when that was changed; 0 where it is gone. Cost: a stat each."""
    return {file: _changed_ns(file) for module in _loaded().values() if (file := getattr(module, "__file__", None))}


def forget_changed(then: dict[str, int]) -> None:
    """Have Tidegate's modules loaded anew when next imported, if one of their files is another than it was."""
    if any(_changed_ns(file) != changed for file, changed in then.items()):
        for name in _loaded():
            del sys.modules[name]


def _loaded() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "tidegate"}


def _changed_ns(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def without_archives(path: list[str]) -> list[str]:
    """A search path without PySpark's zipped copies, if PySpark is installed: tasks read their directories anew."""
    installed = any((Path(folder) / "pyspark" / "worker.py").is_file() for folder in path)
    return [folder for folder in path if not (installed and folder.endswith(".zip") and "python/lib" in folder)]


def main() -> None:
    """Load, then fork a worker for everyone who connects, as ``pyspark.daemon`` does."""
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    from pyspark import daemon

    # What a package says while it is loaded must not reach Spark, which reads a port from this stream.
    said, spoken = os.dup(1), os.dup(2)
    os.dup2(spoken, 1)
    load()
    # What is loaded stays: no collection in a fork then writes to its pages, which are shared as long as nobody does.
    gc.freeze()
    os.dup2(said, 1)
    os.close(said)
    os.close(spoken)
    then = state()
    os.register_at_fork(after_in_child=lambda: forget_changed(then))
    daemon.manager()


if __name__ == "__main__":
    main()
