"""Every benchmark and figure can be imported: what the product renames or deletes is missed at once."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "infra" / "benchmarks", ROOT / "infra" / "research")
MODULES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts) for folder in FOLDERS for file in folder.rglob("*.py")
)


@pytest.mark.parametrize("module", MODULES)
def test_it_can_be_imported(module: str) -> None:
    importlib.import_module(module.removesuffix(".__init__"))
