"""Every stage on a cluster that shares an object store with the driver and nothing else; executors and drivers die."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from infra.deploy.cluster import Cluster, wheel
from tests.cluster.conftest import driver, finish, rows_of
from tests.objects.server import upload

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.store.places import ObjectPath

pytestmark = pytest.mark.spark
# An address of the driver's own. Executors are told it; localhost would be each one's own machine.
DRIVER = "127.0.0.2"


@pytest.fixture(scope="module")
def cluster(bucket: ObjectPath, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    with Cluster(folder / "machines", wheel(folder), environment=keys) as found:
        yield found


@pytest.fixture(scope="module")
def pipeline(shop, bucket: ObjectPath, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:  # type: ignore[no-untyped-def]
    """The shop, its files in the bucket; its declaration is the driver's alone."""
    declared, _ = shop
    upload(declared.folder / "landing", bucket / "landing")
    folder = tmp_path_factory.mktemp("driver") / "shop"
    (folder / "queries").mkdir(parents=True)
    for query in declared.folder.glob("queries/*.sql"):
        (folder / "queries" / query.name).write_text(query.read_text())
    told = yaml.safe_load((declared.folder / "pipeline.yml").read_text())
    stream = told["streams"]["orders"]
    stream["path"] = f"{bucket}/{stream['path']}"
    (folder / "pipeline.yml").write_text(yaml.safe_dump(told))
    return load_pipeline(folder)


def start(cluster: Cluster, pipeline: Pipeline, warehouse: ObjectPath, folder: Path) -> subprocess.Popen[str]:
    environment = {"TIDEGATE_SPARK_MASTER": cluster.master, "SPARK_LOCAL_IP": DRIVER}
    return driver(pipeline.folder, str(warehouse), folder, **environment)


def when(process: subprocess.Popen[str], folder: Path, said: str, then: Callable[[], bool]) -> None:
    """Once the driver has said something, try until it is done."""
    while process.poll() is None:
        if said in (folder / "driver.log").read_text() and then():
            return
        time.sleep(0.05)
    raise AssertionError((folder / "driver.log").read_text()[-6000:])


def test_a_lost_executor_or_worker_is_not_noticed(shop, cluster, pipeline, bucket, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    process = start(cluster, pipeline, bucket / "wh", tmp_path)
    told = []

    def kill() -> bool:
        worker = cluster.workers[len(told)]
        for executor in worker.executors():
            told.append(" ".join(executor.cmdline()))
            if len(told) == 1:
                executor.kill()
            else:
                worker.lose()
            return True
        return False

    when(process, tmp_path, "shop: join_aggregate: ", kill)
    when(process, tmp_path, "shop: sample_history: ", kill)
    cluster.add()  # for those who come after
    said = finish(process, tmp_path)
    assert all(" shop: " in line for line in said.splitlines()), said
    assert said.endswith(": 2 cores\n")
    assert rows_of(pipeline, bucket / "wh") == shop[1]
    # Executors find the driver, and run their own code.
    assert len(told) == 2 and all(f"spark://CoarseGrainedScheduler@{DRIVER}:" in command for command in told)


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing_that_a_second_one_minds(  # type: ignore[no-untyped-def]
    shop, cluster, pipeline, bucket, tmp_path: Path
) -> None:
    for said in ("shop: ingest: ", "shop: calibrate_learn: ", "shop: join_aggregate: ", "shop: sample_history: "):
        process = start(cluster, pipeline, bucket / "killed", tmp_path)
        when(process, tmp_path, said, lambda: any(worker.executors() for worker in cluster.workers))
        process.kill()
        process.wait()
    finish(start(cluster, pipeline, bucket / "killed", tmp_path), tmp_path)
    assert rows_of(pipeline, bucket / "killed") == shop[1]
