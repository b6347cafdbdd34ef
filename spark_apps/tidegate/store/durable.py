"""What has been written is on the disk before the commit that names it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path


def flushed(folder: Path) -> None:
    """Return once everything written so far to the folder's file system is on its disk; OSError if that fails.

    One call for all files of a commit and the folders that name them. Cost: what is still to be written.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "syncfs"):
            os.sync()
        elif libc.syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(handle)
