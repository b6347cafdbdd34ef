"""The machine loses power right after a run: what was not synced is gone, nothing that is committed is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.attacks.faults import SCENARIOS, attempt, files, hours, prepared

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("which", [0, 1], ids=["hours with data", "the end of a day"])
def test_what_was_never_synced_is_not_needed(which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = prepared(SCENARIOS[which])
    pipeline, before, expected = case.pipeline, case.before, case.expected
    root, synced, sync = tmp_path / "wh", set[str](), os.fsync
    shutil.copytree(before, root)
    there = {str(path) for path in root.rglob("*")}

    def noted(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    assert not case.run(root)
    written = [path for path in root.rglob("*") if path.is_file() and str(path) not in there]
    homes = {root, *root.parents}
    lost = [path for path in written if not {str(path), *(str(f) for f in path.parents if f not in homes)} <= synced]
    assert len(lost) < len(written) / 2, "most of what a run writes is committed"
    for path in lost:
        path.unlink()
    assert files(pipeline, root) == expected
    # What the next run continues from is there, too.
    again = tmp_path / "again"
    shutil.copytree(before, again)
    following = hours(pipeline, case.scenario.start, case.scenario.end)[0]
    for place in (root, again):
        assert not attempt(pipeline, place, [following])
    assert files(pipeline, root) == files(pipeline, again) == expected
