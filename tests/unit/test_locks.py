"""Whatever `make` installs from a registry is locked with a hash."""

from __future__ import annotations

import re

import pytest
from tests.command import ROOT


@pytest.mark.parametrize("lock", ["requirements.lock", "infra/bootstrap.lock"])
def test_every_locked_package_has_a_hash(lock: str) -> None:
    entries = re.findall(
        r"^[\w.-]+(?:\[[\w,]+\])?==.*?(?=^[\w.-]+(?:\[|==)|\Z)", (ROOT / lock).read_text(), re.M | re.S
    )
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)


def test_make_installs_nothing_without_a_hash() -> None:
    commands = re.findall(r"^\t.*\b(?:pip install|pip sync|uv build)\b.*$", (ROOT / "Makefile").read_text(), re.M)
    assert len(commands) == 8
    for command in commands:
        own = "--editable ." in command or "uv build" in command
        assert ("--no-build-isolation" if own else "--require-hashes") in command, command
