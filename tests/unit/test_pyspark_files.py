"""A PySpark whose files another distribution has overwritten or removed is noticed, and how to mend it is said."""

from __future__ import annotations

import hashlib
import importlib
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from tidegate.declarations.errors import UserError
from tidegate.engine.pyspark_files import require_whole_pyspark


def _install(site: Path, name: str, files: dict[str, str]) -> None:
    """As pip does it: the files, and a record of their hashes."""
    record = site / f"{name}-4.3.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.3.0\n")
    lines = []
    for file, content in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(content)
        digest = urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{file},sha256={digest},{len(content)}\n")
    (record / "RECORD").write_text("".join(lines))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages with a whole PySpark, found before all others."""
    _install(tmp_path, "pyspark", {"pyspark/__init__.py": "", "pyspark/daemon.py": "whole", "pyspark/other.py": "own"})
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_pyspark_of_this_environment_is_whole() -> None:
    require_whole_pyspark()


def test_a_whole_pyspark_is_fine(site: Path) -> None:
    require_whole_pyspark()


def test_overwritten_files_are_named_with_the_remedy(site: Path) -> None:
    _install(site, "pyspark_client", {"pyspark/daemon.py": "another"})
    with pytest.raises(UserError, match=r"pyspark/daemon\.py .*--force-reinstall --no-deps pyspark==4\.3\.0$"):
        require_whole_pyspark()


def test_removed_files_are_named(site: Path) -> None:
    """As uninstalling pyspark-client leaves it; the backport, which Airflow imports, leaves out missing files."""
    importlib.import_module("importlib_metadata")
    (site / "pyspark" / "__init__.py").unlink()
    with pytest.raises(UserError, match=r"pyspark/__init__\.py .*missing"):
        require_whole_pyspark()
