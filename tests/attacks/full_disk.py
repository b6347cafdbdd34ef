"""A disk that fills up under a whole command, dbt's process and Spark's JVM included: one sentence, a clean next run.

The disk is a small tmpfs in a mount namespace of the command's own (``unshare``; where user namespaces are allowed, it
needs no rights). What these processes write nobody counts: how much is left decides where they fail.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.attacks.faults import PUBLISH, SINGLE, files, prepared

DISKS = ("warehouse", "temporary")
"""Of the command's disks, which one is small: that of the tables, or that of TMPDIR."""
STAGES = {"publish": PUBLISH, "join_aggregate": SINGLE[1]}
_ROOM = 1 << 30
_MOUNT = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "small"]
# Slices as tasks of Spark, however few rows they have.
_ON_SPARK = """
import sys
from tidegate.cli import main
from tidegate.engine import context
context.ROWS_HERE = context.ROWS_BEFORE_SPARK = -1
sys.exit(main(sys.argv[1:]))
"""


@cache
def allowed() -> bool:
    """Whether this machine lets a process mount something for itself."""
    words = ["unshare", "-rm", *_MOUNT, "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(words, capture_output=True).returncode == 0


def attack(seed: int, folder: Path, count: int = 4) -> tuple[int, list[str]]:
    """So many runs of publish, and of join_aggregate on Spark, with some kilobytes to some megabytes left on a disk."""
    chance, faults = random.Random(seed), list[str]()
    for number in range(count):
        left = int(10 ** chance.uniform(4, 6.6))
        faults += tried(list(STAGES)[number % 2], DISKS[(number // 2 + seed) % 2], left, folder / f"{number}")
    return count, faults


def tried(stage: str, disk: str, left: int, folder: Path) -> list[str]:
    """What is wrong with how the command ended that found so many bytes on a disk, and with the next one."""
    case = prepared(STAGES[stage])
    (folder / "small").mkdir(parents=True)
    words = ["run", str(case.pipeline.folder), "--from", "2026-01-05T10", "--to", "2026-01-05T11", "--stage", stage]
    inside = ["unshare", "-rm", sys.executable, "-m", "tests.attacks.full_disk", str(folder), str(case.before)]
    ended = subprocess.run([*inside, disk, str(left), *words], capture_output=True, text=True, cwd=Path.cwd())
    faults = (ended.stdout + ended.stderr).splitlines()
    if not faults and files(case.pipeline, folder / "after") != case.expected:
        faults = ["the next run has other rows"]
    return [f"{stage}, {left} bytes left on the disk, {disk}: {fault}" for fault in faults]


def main(folder: Path, before: Path, disk: str, left: int, words: Sequence[str]) -> int:
    """In the namespace: run a command twice, the second time with enough room; say what is wrong."""
    small = folder / "small"
    subprocess.run([*_MOUNT, str(small)], check=True)
    root = (small if disk == "warehouse" else folder) / "wh"
    shutil.copytree(before, root)
    words = [*words, "--warehouse", str(root)]
    environment = os.environ | ({"TMPDIR": str(small)} if disk == "temporary" else {})
    for size in (shutil.disk_usage(small).used + left, _ROOM):
        subprocess.run(["mount", "-o", f"remount,size={size}", str(small)], check=True)
        ended = subprocess.run(
            [sys.executable, "-c", _ON_SPARK, *words], env=environment, capture_output=True, text=True
        )
        *progress, last = ended.stderr.splitlines()
        if size == _ROOM and ended.returncode:
            print(f"the next run ended with {ended.returncode}: {last}")
        elif ended.returncode and not (last.startswith("tidegate: error: ") and "run it again" in last):
            print("no sentence: ", *ended.stderr.splitlines()[-3:])
        elif unlike := [line for line in progress if " shop: " not in line]:
            print(f"{len(unlike)} lines too many: {unlike[0]}")
    shutil.copytree(root, folder / "after")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5:]))
