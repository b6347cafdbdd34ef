"""Folders that hold a pipeline's data."""

from __future__ import annotations

import errno

from tidegate.store.places import ObjectPath, Place

_OWNER_ONLY = 0o700


def private_folder(path: Place) -> None:
    """Make a folder, and the parents that it lacks, for its owner alone; what is there keeps its permissions.

    Who shares a warehouse makes its folder beforehand, with the permissions that it shall have. What is in an object
    store is seen by whom the store lets.
    """
    if isinstance(path, ObjectPath):
        if not ObjectPath(path.root).exists():
            raise FileNotFoundError(errno.ENOENT, "there is no such bucket", path.root)
        return
    for folder in (*reversed(path.absolute().parents), path):
        if not folder.exists():
            folder.mkdir(mode=_OWNER_ONLY, exist_ok=True)
