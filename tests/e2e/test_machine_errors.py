"""A machine that runs out: one sentence, whatever failed, and the next run is as if nothing had been."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tidegate.cli.init import init
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Stream
from tidegate.landing.failures import sentence_of
from tidegate.stages.machine_errors import of_the_machine
from tidegate.stages.publish import _failure

pytestmark = pytest.mark.e2e

# The command; when its slices are to run as tasks of Spark, something happens to Spark's JVM.
RUN = """
import os, sys
import psutil
import tidegate.engine.context as context

def killed(spark):
    for process in psutil.Process().children(recursive=True):
        if process.name() == "java":
            process.kill()

def filled(spark):
    held = [spark._jvm.java.util.BitSet(2**31 - 1) for _ in range(64)]

def task_filled(part):
    import numpy
    return numpy.zeros(2**60, "int8")

def task_killed(part):
    import signal
    os.kill(os.getpid(), signal.SIGKILL)

true = context.run_as_tasks

def run_as_tasks(slices, work, spark, measured=False):
    what = globals()[case]
    if case.startswith("task"):
        return true(slices, what, spark)
    what(spark)
    return spark.range(3).count()

context.ROWS_HERE = context.ROWS_BEFORE_SPARK = -1
context.run_as_tasks = run_as_tasks
from tidegate.cli import main
for case in sys.argv[1].split(","):
    print("case", case, main(sys.argv[2:]), file=sys.stderr)
"""

SAYS = {
    "task_filled": "Spark ran out of memory",
    "task_killed": "workers of Spark were killed",
    "killed": "Spark's JVM has ended",
    "filled": "Spark's JVM has ended",
}


@pytest.fixture(autouse=True)
def as_users_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings of Spark that come with Tidegate, not from the tests' archive of classes."""
    for name in ("SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("cases", ["task_filled,task_killed,killed", "filled"])
def test_what_ends_the_machine_is_one_sentence(cases: str, tmp_path: Path) -> None:
    """One process after another failure as well: what ends the JVM comes last."""
    init(tmp_path / "shop", "shop")
    words = ["run", str(tmp_path / "shop"), "--warehouse", str(tmp_path / "wh"), "--stage", "answers"]
    words += ["--from", "2026-01-05T08", "--to", "2026-01-05T09"]
    command = [sys.executable, "-c", RUN, cases, *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr and "\tat " not in ended.stderr
    left = ended.stderr
    for case in cases.split(","):
        before, mark, left = left.partition(f"case {case} 1\n")
        assert mark, ended.stderr
        *progress, last = before.splitlines()
        assert last.startswith(f"tidegate: error: {SAYS[case]}") and "run it again" in last
        assert all(" shop: " in line or "OutOfMemoryError" in line for line in progress), ended.stderr
    assert left == ""


def test_a_disk_that_is_full_where_a_task_runs_is_one_sentence() -> None:
    """As Spark passes on what its workers raise."""
    text = (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times: PythonException: \n"
        "Traceback (most recent call last):\n"
        "  File \"/x/settle.py\", line 1, in write\nOSError: [Errno 28] No space left on device: '/warehouse/x'\n\n"
        "\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)"
    )
    said = of_the_machine(RuntimeError(text))
    assert said is not None and said.startswith("a task: /warehouse/x: No space left on device; nothing of this run")
    assert of_the_machine(RuntimeError("Traceback (most recent call last):\nValueError: MemoryError")) is None


@pytest.mark.parametrize(
    "text",
    [
        '<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "down"',
        "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.CANCELLED\n\tdetails = "
        '"Stream removed (RST_STREAM (Received RST_STREAM with error code 8))"',
        "[RETRIES_EXCEEDED] The maximum number of retries has been exceeded.",
        "(org.apache.spark.SparkSQLException) [INVALID_HANDLE.SESSION_NOT_FOUND] The handle a is invalid.",
        "(org.apache.spark.SparkSQLException) [INVALID_HANDLE.SESSION_CHANGED] The handle a is invalid.",
    ],
)
def test_a_connect_server_that_is_gone_is_the_machines_fault_while_a_stream_lands_too(text: str) -> None:
    from pyspark.errors.exceptions.connect import SparkConnectGrpcException

    error = SparkConnectGrpcException(text)
    said = of_the_machine(error)
    assert said is not None and said.startswith("the Spark Connect server has ended, or is out of reach; nothing")
    # It is no fault of the stream's.
    assert sentence_of(error, Stream.model_construct(name="orders", source=None)) is None


def test_a_worker_that_is_gone_is_the_machines_fault_while_a_source_in_python_is_read_too() -> None:
    from pyspark.errors.exceptions.connect import StreamingQueryException

    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to read from the python data source.\nTraceback (most recent call last):\n"
        "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    )
    error = StreamingQueryException(text)
    said = of_the_machine(error)
    assert said is not None and said.startswith("workers of Spark were killed, again and again; nothing")
    assert sentence_of(error, Stream.model_construct(name="orders", source=None)) is None


def test_a_disk_that_is_full_where_the_jvm_works_is_one_sentence() -> None:
    """As dbt passes it on, model by model, in a line."""
    text = (
        "An error occurred while calling o59.sql. : org.apache.spark.SparkException: Job aborted: Task 0 in stage 0.0 "
        "failed 1 times: java.io.IOException: No space left on device at java.base/java.io.FileOutputStream.writeBytes"
    )
    failed = {"name": "answers", "status": "error", "message": text}
    skipped = {"name": "promises", "status": "error", "message": "java.lang.NoClassDefFoundError: org.xerial.snappy"}
    said = of_the_machine(_failure({"failures": [skipped, failed]}, Path()))
    assert said is not None and said.startswith("Spark: No space left on device, in the warehouse or in ")
    assert isinstance(_failure({"failures": [skipped]}, Path()), UserError)


def test_a_run_that_is_ended_takes_its_dbt_process_with_it() -> None:
    """SIGTERM lets no code of the run's own run."""
    waits = "from tidegate.stages.dbt_session import end_with_parent as e; e(); print('up', flush=True); input()"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"
    command = [sys.executable, "-c", starts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "up\n"
        (child,) = psutil.Process(run.pid).children()
        run.terminate()
        assert run.wait(60) == -signal.SIGTERM
        child.wait(60)
