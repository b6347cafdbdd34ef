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


def warehouse() -> Path:
    """The folder that holds one folder per pipeline: ``TIDEGATE_WAREHOUSE``, else one in Airflow's home."""
    given = os.environ.get("TIDEGATE_WAREHOUSE")
    return Path(given or Path(os.environ.get("AIRFLOW_HOME") or "~/airflow", "tidegate", "warehouse")).expanduser()
