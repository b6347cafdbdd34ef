"""Whether the files of PySpark are its own.

The distribution ``pyspark-client``, which Airflow's provider for Spark depends on, owns 700 of the same files.
Installed after PySpark it overwrites them, and sessions fail in ways that do not name the cause; uninstalled, it
removes them.
"""

from __future__ import annotations

import csv
import hashlib
from base64 import urlsafe_b64encode
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

# Of both distributions; some are always there, some differ between the two even at the same version.
_LOOKED_AT = {
    "pyspark/__init__.py",
    "pyspark/accumulators.py",
    "pyspark/daemon.py",
    "pyspark/sql/__init__.py",
    "pyspark/sql/conversion.py",
    "pyspark/version.py",
}


def require_whole_pyspark() -> None:
    """UserError that says how to mend it if PySpark's files are not those that were installed with it; 10 ms."""
    try:
        installed = distribution("pyspark")
    except PackageNotFoundError:
        return  # Spark's own copy, put on the path by whoever runs the cluster
    if wrong := _foreign(installed):
        from tidegate.declarations.errors import UserError

        raise UserError(
            f"PySpark {installed.version} is damaged: {', '.join(wrong)} belong to another package or are missing "
            "(pyspark-client, which apache-airflow-providers-apache-spark installs, overwrites them; Tidegate needs "
            f"neither): pip install --force-reinstall --no-deps pyspark=={installed.version}"
        )


def _foreign(installed: Distribution) -> list[str]:
    """Names of the files that are not as the distribution's record has them."""
    found = []
    # Not by `files`: once importlib_metadata, the backport, has been imported, that leaves out what is missing.
    for name, recorded, *_ in csv.reader((installed.read_text("RECORD") or "").splitlines()):
        algorithm, _, digest = recorded.partition("=")
        if name not in _LOOKED_AT or not digest:
            continue
        path = Path(str(installed.locate_file(name)))
        if not path.is_file() or _digest(path, algorithm) != digest:
            found.append(name)
    return found


def _digest(path: Path, algorithm: str) -> str:
    """As a record writes it."""
    return urlsafe_b64encode(hashlib.new(algorithm, path.read_bytes()).digest()).rstrip(b"=").decode()
