"""Where the JVM of this process keeps what it unpacks, shuffles and caches.

A JVM removes its own files when it ends, but not when it is killed, as the kernel does when memory runs out. So each
has a folder of its own, which goes when this process ends; what a killed process left goes at the next start.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import psutil  # type: ignore[import-untyped]

_PREFIX = "tidegate-jvm-"


def jvm_scratch() -> Path:
    """A new folder for the temporary files of a JVM that this process starts. Cost: a look at the temporary folder."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = left.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    atexit.register(_remove, scratch, os.getpid())
    return scratch


def _remove(scratch: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a process that was forked from it
        shutil.rmtree(scratch, ignore_errors=True)
