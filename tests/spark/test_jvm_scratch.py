"""A JVM leaves nothing in the temporary folder, however it ends, and no traceback where it ends too early."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.command import ROOT

_SPARK = """
import os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from tidegate.engine.session import start_session
spark = start_session(SimpleNamespace(name="scratch", process_budget_bytes=2**31, partitions=1), "test")
Path(sys.argv[1]).write_text(str(spark.sparkContext.parallelize(range(10), 2).count()))
assert os.listdir(os.environ["TMPDIR"])
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
spark.sparkContext._gateway.proc.kill()
time.sleep(2)
"""


@pytest.mark.spark
def test_a_killed_jvm_leaves_nothing_and_a_killed_process_nothing_for_long(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    somebody_elses = temporary / f"tidegate-jvm-{os.getpid()}-alive"
    somebody_elses.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    for number, how in enumerate(("killed", "without its JVM")):
        command = [sys.executable, "-c", _SPARK, tmp_path / str(number), how]
        run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        assert (tmp_path / str(number)).read_text() == "10", run.stderr
        assert "Traceback" not in run.stderr
    assert list(temporary.iterdir()) == [somebody_elses]
