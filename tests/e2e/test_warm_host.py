"""A warm host runs commands like cold starts: output, status, session; and it ends what nobody waits for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest

PROJECT = Path(__file__).resolve().parents[2]
BIN = PROJECT / "infra" / "spark" / "bin"

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

APPLICATION = """
import os, sys, time
from pyspark.sql import SparkSession
name, ending = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").appName(name).getOrCreate()
rows = spark.range(1000).repartition(2).rdd.map(lambda row: row.id).sum()
print("sum", rows, spark.sparkContext.getConf().get("spark.app.name"), os.environ["SAID"], flush=True)
if ending == "wait":
    time.sleep(300)
spark.stop()
sys.exit(int(ending))
"""


class Host:
    """Commands through the one host of a test."""

    def __init__(self, folder: Path):
        self.folder = folder
        (folder / "application.py").write_text(APPLICATION)
        self.environment = {
            **os.environ, "TIDEGATE_WARM_HOSTS": str(folder / "hosts"), "TIDEGATE_WARM_PYTHON": sys.executable,
            "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SAID": "hello",
        }  # fmt: skip

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [BIN / "warm_python", *words],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def submit(self, name: str, ending: str) -> subprocess.Popen[str]:
        return self.start("-m", "application", name, ending)

    def processes(self) -> list[psutil.Process]:
        """The host and all it started."""
        found = []
        for process in psutil.process_iter():
            try:
                if str(self.folder / "hosts") in process.environ().get("TIDEGATE_WARM_HOSTS", ""):
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if process.pid != os.getpid()]

    def gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.processes():
                return True
            time.sleep(0.2)
        return False


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    for process in host.processes():
        process.kill()


@pytest.mark.timeout(240)
def test_applications_follow_each_other_and_failures_start_afresh(host: Host) -> None:
    first = host.submit("first", "0")
    assert first.communicate()[0].endswith("sum 499500 first hello\n") and first.returncode == 0
    jvm = {process.pid for process in host.processes() if process.name() == "java"}
    assert len(jvm) == 1

    second = host.submit("second", "0")
    assert second.communicate()[0].endswith("sum 499500 second hello\n"), "a session does not outlive its command"
    assert {process.pid for process in host.processes() if process.name() == "java"} == jvm

    failing = host.submit("failing", "2")
    assert "sum 499500 failing" in failing.communicate()[0] and failing.returncode == 2
    assert host.gone_within(20), "a failure takes JVM and host with it"

    again = host.submit("again", "0")
    assert "again" in again.communicate()[0] and again.returncode == 0
    assert {process.pid for process in host.processes() if process.name() == "java"}.isdisjoint(jvm)


@pytest.mark.timeout(240)
def test_an_application_gets_no_jvm(host: Host) -> None:
    script = host.folder / "script.py"
    script.write_text("import os, sys; print('PYSPARK_GATEWAY_PORT' in os.environ, sys.argv); sys.exit(0)")
    done = host.start(str(script), "a b")
    assert done.communicate()[0] == f"False {[str(script), 'a b']}\n" and done.returncode == 0
    assert host.processes() and not [process for process in host.processes() if process.name() == "java"]


@pytest.mark.timeout(240)
def test_what_runs_is_what_is_on_disk(host: Host) -> None:
    """Tidegate's modules are loaded beforehand; a changed file, or another search path, is seen by the next command."""
    script, copy = host.folder / "script.py", host.folder / "copy" / "tidegate"
    module = Path("declarations", "names.py")
    script.write_text(
        "import sys; loaded = 'tidegate.report' in sys.modules\n"
        "from tidegate.declarations import names; print(loaded, names.__file__, getattr(names, 'CHANGED', None))"
    )
    shutil.copytree(PROJECT / "spark_apps" / "tidegate", copy)

    def said(search_path: Path) -> str:
        host.environment["PYTHONPATH"] = str(search_path)
        return host.start(str(script)).communicate()[0]

    while said(copy.parent) != f"True {copy / module} None\n":
        time.sleep(1)
    with (copy / module).open("a") as source:
        source.write("\nCHANGED = 1\n")
    assert said(copy.parent) == f"False {copy / module} 1\n"
    other = PROJECT / "spark_apps"
    assert said(other) == f"False {other / 'tidegate' / module} None\n"


@pytest.mark.timeout(240)
def test_nothing_goes_on_once_its_client_was_killed(host: Host) -> None:
    client = host.submit("waiting", "wait")
    assert client.stdout is not None and "waiting" in client.stdout.readline()
    client.kill()
    assert host.gone_within(20)


@pytest.mark.timeout(240)
def test_a_killed_host_is_a_failure_and_leaves_nothing(host: Host) -> None:
    client = host.submit("waiting", "wait")
    assert client.stdout is not None and "waiting" in client.stdout.readline()
    # The application is a fork of its host, so both look the same: the host is the elder.
    hosts = [process for process in host.processes() if "warm_host.py" in " ".join(process.cmdline())]
    server = min(hosts, key=lambda process: process.create_time())
    server.kill()
    assert client.wait(20) == 1
    assert "host process ended" in client.stderr.read()  # type: ignore[union-attr]
    assert host.gone_within(20)
