"""Our own Spark Connect server: the rows of one process, tags, memory by kind, and nothing half when it is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.cluster.conftest import driver, finish, free_port, rows_of
from tests.cluster.server import PATIENCE_S, TOKEN, Server, living, serving, wait

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.engine.session import require_answer
from tidegate.store.places import place
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("spark") / "server", **{TOKEN: "secret-of-the-test"}) as found:
        yield found


def start(server: Server, pipeline: Pipeline, warehouse: Path, folder: Path) -> subprocess.Popen[str]:
    environment = {"TIDEGATE_SPARK_MASTER": server.address, TOKEN: "secret-of-the-test"}
    return driver(pipeline.folder, warehouse, folder, **environment)


def test_rows_are_those_of_one_process_and_jobs_bear_tags(shop, server: Server, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pipeline, here = shop
    before = len(server.jobs())
    assert finish(start(server, pipeline, tmp_path / "wh", tmp_path), tmp_path).endswith(": 2 cores\n")
    assert rows_of(pipeline, tmp_path / "wh") == here

    jobs = server.jobs()[: -before or None]
    tagged = [{tag.rpartition("_Tag_")[2] for tag in job["jobTags"]} for job in jobs]
    stages = {tag for tags in tagged for tag in tags if tag.startswith("stage:")}
    assert {"stage:ingest", "stage:join_aggregate", "stage:top_k", "stage:sample_history", "stage:calibrate"} <= stages
    of_stages = [tags for tags in tagged if any(tag.startswith("stage:") for tag in tags)]
    assert all({"pipeline:shop", "interval:2026-01-05T08…2026-01-05T11"} <= tags for tags in of_stages)
    # What the list of jobs in Spark's UI shows of them.
    descriptions = [job["description"] for job in jobs if "stage:" in str(job["jobTags"])]
    assert descriptions and all(re.search(r'user_id: "shop\.\w+"', description) for description in descriptions)

    metrics = Warehouse(place(str(tmp_path / "wh")), pipeline).read_arrow("run_metrics").to_pylist()
    kinds = {(row["app"], row["kind"]) for row in metrics}
    assert {("ingest", "client"), ("ingest", "worker"), ("ingest", "jvm"), ("top_k", "worker")} <= kinds
    assert all(row["process_budget_bytes"] == 2**30 for row in metrics if row["kind"] == "jvm")
    client, worker, jvm = (
        max(row["peak_process_bytes"] for row in metrics if row["kind"] == kind) for kind in ("client", "worker", "jvm")
    )
    # A JVM is larger than all that the stage has, and is not charged to it; workers are charged with their client.
    assert client < worker < jvm
    assert all(row["query"] is None and row["rows_in"] is None for row in metrics if row["kind"] != "client")


def test_a_client_without_the_token_is_refused(server: Server, tmp_path: Path) -> None:
    code = "from pyspark.sql import SparkSession; SparkSession.builder.remote({!r}).getOrCreate().range(1).count()"
    environment = {name: value for name, value in os.environ.items() if name != TOKEN}
    command = [sys.executable, "-c", code.format(server.address)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "No authentication token provided" in done.stderr
    lines = [" ".join(process.cmdline()) for process in server.processes() if process.status() != psutil.STATUS_ZOMBIE]
    assert len(lines) >= 2 and not any("secret-of-the-test" in line for line in lines)
    assert "secret-of-the-test" not in server.said()
    assert not any(b"secret-of-the-test" in log.read_bytes() for log in server.folder.glob("events/*/*"))


def test_a_server_that_is_killed_in_the_middle_costs_a_retry(shop, server: Server, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pipeline, here = shop
    statuses: list[int] = []
    for times, said in enumerate(("shop: ingest: ", "shop: top_k: ", "shop: sample_history: "), start=1):
        process = start(server, pipeline, tmp_path / "wh", tmp_path)
        wait(lambda said=said: said in (tmp_path / "driver.log").read_text())  # type: ignore[misc]
        jvm = server.jvm()
        workers = jvm.children(recursive=True)
        jvm.kill()
        statuses.append(process.wait(PATIENCE_S))
        # 2: the stage had not yet called the server, and nobody answers there now.
        assert statuses[-1] in (0, 1, 2)
        last = (tmp_path / "driver.log").read_text().splitlines()[-1]
        # Killed between two jobs it is up again for the next one, and the stage has not noticed.
        sentence = "tidegate: error: the Spark Connect server has ended, or is out of reach; nothing"
        assert statuses[-1] != 1 or last.startswith(sentence), last
        assert statuses[-1] != 2 or last.startswith("tidegate: error: the Spark Connect server "), last
        _, alive = psutil.wait_procs(workers, 30)
        assert not alive, "its Python processes end with it"
        server.wait_until_up(times + 1)
    assert any(statuses)
    finish(start(server, pipeline, tmp_path / "wh", tmp_path), tmp_path)
    assert rows_of(pipeline, tmp_path / "wh") == here


def test_of_two_pipelines_at_once_the_one_that_breaks_its_budget_fails(  # type: ignore[no-untyped-def]
    shop, server: Server, tmp_path: Path
) -> None:
    """Each is charged its own processes: neither the other's, nor the JVM, which takes more than either may."""
    pipelines = {}
    for name, budget in (("modest", "640 MiB"), ("greedy", "48 MiB")):
        folder = tmp_path / name
        shutil.copytree(shop[0].folder, folder)
        declared = (folder / "pipeline.yml").read_text()
        assert declared.count("process_budget: ") == 1
        declared = re.sub("process_budget: .*", f"process_budget: {budget}", declared)
        (folder / "pipeline.yml").write_text(declared.replace("name: shop", f"name: {name}"))
        (tmp_path / f"of-{name}").mkdir()
        pipelines[name] = load_pipeline(folder)
    started = {
        name: start(server, pipeline, tmp_path / "wh", tmp_path / f"of-{name}") for name, pipeline in pipelines.items()
    }
    for name, process in started.items():
        finish(process, tmp_path / f"of-{name}")
    checked = {}
    for name, pipeline in pipelines.items():
        words = ["run", pipeline.folder, "--warehouse", tmp_path / "wh", "--stage", "check_quality"]
        words += ["--from", "2026-01-05T08", "--to", "2026-01-05T12"]
        command = [sys.executable, "-m", "tidegate.cli", *map(str, words)]
        checked[name] = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert checked["modest"].returncode == 0, checked["modest"].stderr
    assert checked["greedy"].returncode == 1, checked["greedy"].stderr
    assert "the processes never took more memory than their budget" in checked["greedy"].stderr
    rows = Warehouse(place(str(tmp_path / "wh")), pipelines["modest"]).read_arrow("run_metrics").to_pylist()
    assert max(row["peak_process_bytes"] for row in rows if row["kind"] == "jvm") > 0


# A stage whose slices take a minute, in the place of the true one.
LONG_STAGE = """
import sys, time
from tidegate.stages import ingest, launcher

def sleeping(part):
    time.sleep(120)

ingest.run = lambda context, intervals: context.run_slices(sleeping, [1, 2], 1)
sys.argv = ["ingest.py", *sys.argv[1:]]
launcher.launch("ingest")
"""


def test_a_stage_that_is_ended_leaves_no_work_behind(shop, server: Server, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """As Airflow ends it, when somebody clears a running task or its time is up."""
    words = [shop[0].folder, "--warehouse", tmp_path / "wh", "--from", "2026-01-05T08", "--to", "2026-01-05T09"]
    environment = {**os.environ, "TIDEGATE_SPARK_MASTER": server.address, TOKEN: "secret-of-the-test"}
    process = subprocess.Popen([sys.executable, "-c", LONG_STAGE, *map(str, words)], env=environment)
    wait(lambda: any(job["status"] == "RUNNING" and job["numActiveTasks"] for job in server.jobs()))
    process.terminate()
    assert process.wait(PATIENCE_S) == 143
    wait(lambda: not any(job["status"] == "RUNNING" for job in server.jobs()))
    # Only the process that forks workers is left, and no worker.
    wait(lambda: sum("tidegate.engine.python_workers" in one.cmdline() for one in living(server.jvm())) == 1)


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path / "server") as server:
        below = server.processes()[1:]
        assert below
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        _, alive = psutil.wait_procs(below, 30)
        assert not alive
        # Where a server of before has the ports still, the next one says so; these are free.
        require_nobody(server.port)


def require_nobody(port: int) -> None:
    began = time.monotonic()
    with pytest.raises(UserError, match=rf"Connect server sc://localhost:{port} does not answer: Connection refused; "):
        require_answer(f"sc://localhost:{port}/;token=secret")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("master", ["sc://127.0.0.1:{}", "spark://127.0.0.1:{}", "sc://[::1]:{}/;user_id=a"])
def test_a_spark_that_nobody_answers_at_is_a_sentence_at_once(shop, tmp_path: Path, master: str) -> None:  # type: ignore[no-untyped-def]
    pipeline, _ = shop
    address = master.format(free_port())
    process = driver(pipeline.folder, tmp_path / "wh", tmp_path, TIDEGATE_SPARK_MASTER=address)
    assert process.wait(60) == 2
    last = (tmp_path / "driver.log").read_text().splitlines()[-1]
    assert "does not answer" in last and "TIDEGATE_SPARK_MASTER" in last and ";user_id" not in last


def test_a_port_that_is_taken_is_named(server: Server) -> None:
    command = [sys.executable, "-m", "tidegate.cli", "spark-server", "--folder", str(server.folder)]
    done = subprocess.run([*command, "--port", str(server.port)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == (
        f"tidegate: error: port {server.port} is taken: give the Spark server another one with --port\n"
    )
