"""Where things are: what is installed, and the warehouse."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def installed(package: str) -> Path:
    """The folder of a package of this distribution; found without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations, "one distribution installs them together"
    return Path(next(iter(spec.submodule_search_locations)))


def warehouse() -> str:
    """Path or URI of the folder that holds one folder per pipeline.

    ``TIDEGATE_WAREHOUSE``, else a folder in Airflow's home.
    """
    given = os.environ.get("TIDEGATE_WAREHOUSE") or ""
    if is_uri(given):
        return given.rstrip("/")
    return str(Path(given or Path(os.environ.get("AIRFLOW_HOME") or "~/airflow", "tidegate", "warehouse")).expanduser())


def local_warehouse() -> Path:
    """Where the pipelines' pages are: the warehouse, or for a URI the local folder that stands for it.

    The rule of ``tidegate.store.places.local_folder``, which is not imported here.
    """
    if not is_uri(warehouse()):
        return Path(warehouse())
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    top = os.environ.get("TIDEGATE_LOCAL") or Path(state, "tidegate")
    return Path(top, *warehouse().replace("://", "/").split("/"))


def is_uri(where: str) -> bool:
    """Whether it is a place in an object store."""
    return "://" in where
