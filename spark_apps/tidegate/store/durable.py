"""What has been written is on the disk before the commit that names it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from tidegate.store.places import ObjectPath, Place

_AT_ONCE = 16


def flush(files: Iterable[Place], within: Place) -> None:
    """Return once these files are on the disk, and the folders from ``within`` to them; OSError if that fails.

    An object is where it stays as soon as it has been written. Cost: what is still to be written; where nothing is, a
    fifth of a millisecond a file or folder: a disk is asked for many at once, and serves them together.
    """
    if isinstance(within, ObjectPath):
        return
    paths = {within}
    for file in files:
        assert isinstance(file, Path), "what is within a folder is a file"
        paths.add(file)
        folder = file.parent
        while folder not in paths and within in folder.parents:
            paths.add(folder)
            folder = folder.parent
    todo = sorted(paths)
    threads = min(len(todo), _AT_ONCE)
    # A share each: handing paths over one by one costs more than opening them.
    list(_pool(os.getpid()).map(_flush, [todo[first::threads] for first in range(threads)]))


@lru_cache(None)
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads that are kept: starting them costs more than what they do. They do not survive a fork."""
    return ThreadPoolExecutor(_AT_ONCE)


def _flush(paths: Iterable[Path]) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
