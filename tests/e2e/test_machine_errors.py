"""A machine that runs out: one sentence, whatever failed, and the next run is as if nothing had been."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli.init import init

pytestmark = pytest.mark.e2e

# The command; when its slices are to run as tasks of Spark, something happens to Spark's JVM.
RUN = """
import os, sys
import psutil
import tidegate.queries.slices as query_slices

def killed(spark):
    for process in psutil.Process().children(recursive=True):
        if process.name() == "java":
            process.kill()

def filled(spark):
    held = [spark._jvm.java.util.BitSet(2**31 - 1) for _ in range(64)]

def run_slices(slices, work, spark):
    globals()[sys.argv[1]](spark())
    return spark().range(3).count()

query_slices.ROWS_HERE, query_slices.run_slices = -1, run_slices
from tidegate.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("what", ["killed", "filled"])
def test_a_jvm_that_ends_is_one_sentence(what: str, tmp_path: Path) -> None:
    init(tmp_path / "shop", "shop")
    words = ["run", str(tmp_path / "shop"), "--warehouse", str(tmp_path / "wh"), "--stage", "answers"]
    words += ["--from", "2026-01-05T08", "--to", "2026-01-05T09"]
    command = [sys.executable, "-c", RUN, what, *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr and "\tat " not in ended.stderr
    *progress, last = ended.stderr.splitlines()
    assert last.startswith("tidegate: error: Spark's JVM has ended") and "run it again" in last
    assert all(" shop: " in line or "OutOfMemoryError" in line for line in progress), ended.stderr
