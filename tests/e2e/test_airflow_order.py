"""A real Airflow runs the intervals of a pipeline in the order that their data needs.

The stages are stand-ins of a few lines that write down when they ran, so that the order is what is tested; see
test_airflow_interval.py for the real stages.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest
from airflow_stack import PROJECT, TemporaryStack

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DAG_FILE = '''"""A pipeline of stand-ins, for Airflow."""
import pathlib
from tidegate_dags import build_dag
STAND_INS = pathlib.Path(__file__).parents[1] / "stand_ins"
dag = build_dag("probe", end="2014-01-01T00:00:00Z")
for task in dag.tasks:
    task.retries = 0  # what fails here fails on purpose
    if hasattr(task, "application"):
        task.application = str(STAND_INS / pathlib.Path(task.application).name)
    else:
        task.bash_command = task.bash_command.replace("-m tidegate.cli", str(STAND_INS / "tidegate.py"))
'''

# Somebody else's DAG: one run for each partition of a table that is written.
CONSUMER = '''"""A DAG of Airflow that runs once for every partition of a table."""
import os, pathlib
from airflow.sdk import DAG, Asset, PartitionedAssetTimetable, task
table = Asset(name="probe.slack_plan", uri="tidegate://probe/tables/slack_plan")
with DAG("consumer", schedule=PartitionedAssetTimetable(assets=table), is_paused_upon_creation=False, catchup=False):
    @task
    def hear(dag_run=None):
        with open(pathlib.Path(os.environ["TIDEGATE_WAREHOUSE"], "heard.txt"), "a") as heard:
            heard.write(f"{dag_run.partition_key}\\n")
    hear()
'''

PIPELINE = """
name: probe
description: Stand-ins that write down when they ran
owner: nobody
start: 2013-01-01T00:00:00Z
interval: 1 hour
streams: {}
"""

# Notes stage, interval and moment; fails if a file <stage>-<start> in the landing folder says so.
STAND_IN = """
import os, pathlib, sys, time
words = sys.argv[1:]
if words[0] == "report":
    sys.exit()
stage = words[words.index("--stage") + 1] if "--stage" in words else pathlib.Path(sys.argv[0]).stem
start, end = words[words.index("--from") + 1], words[words.index("--to") + 1]
print("stand-in", stage, start, end)
if pathlib.Path(os.environ["TIDEGATE_LANDING"], f"{stage}-{start}").exists():
    sys.exit("the stand-in was told to fail")
with open(pathlib.Path(os.environ["TIDEGATE_WAREHOUSE"], "ran.txt"), "a") as ran:
    ran.write(f"{time.time()} {start} {stage} {words[words.index('--warehouse') + 1]}\\n")
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryStack]:
    """An Airflow with the one DAG of stand-ins."""
    home = tmp_path_factory.mktemp("home")
    pipeline = home / "dags" / "pipelines" / "probe"
    pipeline.mkdir(parents=True)
    (pipeline / "pipeline.yml").write_text(PIPELINE)
    (home / "dags" / "probe.py").write_text(DAG_FILE)
    (home / "dags" / "consumer.py").write_text(CONSUMER)
    shutil.copy(PROJECT / "dags" / ".airflowignore", home / "dags")
    (home / "stand_ins").mkdir()
    for name in ("ingest", "join_aggregate", "top_k", "sample_history", "resample_history", "calibrate", "tidegate"):
        (home / "stand_ins" / f"{name}.py").write_text(STAND_IN)
    stack = TemporaryStack(state=tmp_path_factory.mktemp("state"), dags=home / "dags")
    with stack.running():
        yield stack


def _ran(stack: TemporaryStack) -> list[tuple[str, str]]:
    lines = (stack.warehouse / "ran.txt").read_text().splitlines()
    return [(line.split()[1], line.split()[2]) for line in sorted(lines)]


def _deadlines(stack: TemporaryStack) -> set[str]:
    """Ends of the intervals whose late runs are reported."""
    with closing(sqlite3.connect(stack.state / "airflow" / "airflow.db")) as database:
        runs = database.execute("SELECT run_id FROM dag_run JOIN deadline ON deadline.dagrun_id = dag_run.id")
        return {run.removeprefix("backfill__") for (run,) in runs}


@pytest.mark.timeout(1200)
def test_intervals_wait_for_the_one_before(stack: TemporaryStack) -> None:
    """A stage that fails holds back the next interval; mended, the same command finishes the rest in order."""
    told_to_fail = stack.landing / "calibrate-2013-02-08T23:00:00Z"
    told_to_fail.touch()
    backfill = (
        "backfill",
        "--dag",
        "probe",
        "--from",
        "2013-02-08T22:00Z",
        "--to",
        "2013-02-09T01:00Z",
        "--timeout",
        "500",
    )

    failed = stack.command(*backfill)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "calibrate" in failed.stderr
    assert "the stand-in was told to fail" in failed.stderr
    assert all(start < "2013-02-09" for start, _ in _ran(stack)), "the interval after the failed one must wait"
    # The interval before it waits for a minute at most to be published together with others, which do not come.
    late = {"2013-02-09T00:00:00+00:00", "2013-02-09T01:00:00+00:00"}
    patience = time.monotonic() + 90
    while _deadlines(stack) != late and time.monotonic() < patience:
        time.sleep(1)
    assert _deadlines(stack) == late, "failed and waiting runs"
    assert ("2013-02-08T22:00:00Z", "publish") in _ran(stack)

    told_to_fail.unlink()
    mended = stack.command(*backfill)
    assert mended.returncode == 0, mended.stdout + mended.stderr

    ran = _ran(stack)
    position = {run: index for index, run in enumerate(ran)}  # of the last time that it ran
    intervals = ["2013-02-08T22:00:00Z", "2013-02-08T23:00:00Z", "2013-02-09T00:00:00Z"]
    for start in intervals:
        for stage in ("ingest", "join_aggregate", "top_k", "sample_history", "calibrate", "check_quality", "publish"):
            assert (start, stage) in position
    for before, after in zip(intervals, intervals[1:], strict=False):
        assert position[before, "calibrate"] < position[after, "ingest"]
        assert position[before, "sample_history"] < position[after, "ingest"]
    # A day ends with the second interval only; skipping stopped nothing.
    assert {start for start, stage in ran if stage == "resample_history"} == {"2013-02-08T23:00:00Z"}
    assert position["2013-02-08T23:00:00Z", "resample_history"] < position["2013-02-09T00:00:00Z", "sample_history"]
    assert ran.count(("2013-02-08T22:00:00Z", "ingest")) == 1, "what succeeded is not run again"
    assert not _deadlines(stack), "what is done cannot be late"


@pytest.mark.timeout(120)
def test_events_of_a_table_carry_its_partitions(stack: TemporaryStack) -> None:
    """One event a partition that was written, and one run of whoever is scheduled on the table."""
    with closing(sqlite3.connect(stack.state / "airflow" / "airflow.db")) as database:
        events = database.execute(
            "SELECT asset.name, partition_key FROM asset_event JOIN asset ON asset.id = asset_event.asset_id"
        ).fetchall()
    hours = ["2013-02-08T22", "2013-02-08T23", "2013-02-09T00"]
    for table in ("probe.slack_plan", "probe.quality_results"):
        assert sorted(key for name, key in events if name == table) == hours, table
    # The interval that failed was run again as a whole, so what had succeeded in it is said twice.
    assert {key for name, key in events if name == "probe.history_passes"} == set(hours[1:2])
    assert {key for name, key in events if name == "probe_models"} == {None}
    heard = stack.warehouse / "heard.txt"
    deadline = time.monotonic() + 60
    while not heard.exists() or len(heard.read_text().split()) < 3:
        assert time.monotonic() < deadline, heard.read_text() if heard.exists() else "nothing was heard"
        time.sleep(1)
    assert sorted(heard.read_text().split()) == hours


@pytest.mark.timeout(60)
def test_pages_ask_for_a_login_and_show_nothing_else(stack: TemporaryStack) -> None:
    """Reports are shown to whoever is logged in; the rest of the warehouse to nobody."""
    documents = stack.warehouse / "probe" / "_docs"
    documents.mkdir(parents=True, exist_ok=True)
    (documents / "report.html").write_text("the report")
    (stack.warehouse / "probe" / "table.txt").write_text("rows")
    url = stack.command("url").stdout.strip()
    password = stack.command("password").stdout.strip()
    assert oct((stack.state / "airflow" / "passwords.json").stat().st_mode & 0o777) == "0o600"

    login = urllib.request.Request(
        f"{url}/auth/token",
        data=json.dumps({"username": "admin", "password": password}).encode(),
        headers={"Content-Type": "application/json"},
    )
    token = json.load(urllib.request.urlopen(login))["access_token"]

    def fetch(path: str, logged_in: bool) -> str:
        headers = {"Cookie": f"_token={token}"} if logged_in else {}
        try:
            return urllib.request.urlopen(urllib.request.Request(url + path, headers=headers)).read().decode()
        except urllib.error.HTTPError as error:
            return str(error.code)

    assert fetch("/tidegate/probe/report", logged_in=True) == "the report"
    assert "the report" not in fetch("/tidegate/probe/report.html", logged_in=False)
    assert fetch("/tidegate/probe/%2e%2e/table.txt", logged_in=True) == "404"
    assert fetch("/tidegate/probe/..%2ftable.txt", logged_in=True) == "404"
    assert fetch("/tidegate/other/", logged_in=True) == "404"


@pytest.mark.timeout(60)
def test_a_killed_component_is_noticed_and_down_leaves_nothing(stack: TemporaryStack) -> None:
    """Status says that a component is gone; nothing of the stack survives `down`."""
    record = json.loads((stack.state / "airflow" / "stack.json").read_text())
    import psutil

    psutil.Process(record["processes"]["scheduler"]).kill()
    down = stack.command("down")
    assert down.returncode == 0, down.stdout + down.stderr
    assert stack.processes() == []
