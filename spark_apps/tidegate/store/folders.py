"""Folders that hold a pipeline's data."""

from __future__ import annotations

from pathlib import Path

_OWNER_ONLY = 0o700


def private_folder(path: Path) -> None:
    """Make a folder, and the parents that it lacks, for its owner alone; what is there keeps its permissions.

    Who shares a warehouse makes its folder beforehand, with the permissions that it shall have.
    """
    for folder in (*reversed(path.absolute().parents), path):
        if not folder.exists():
            folder.mkdir(mode=_OWNER_ONLY, exist_ok=True)
