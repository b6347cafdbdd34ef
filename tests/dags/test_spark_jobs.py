"""The page that lists a stage's Spark jobs, from event logs as Spark writes them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

AT_MS = 1_360_317_600_000  # 2013-02-08T10:00Z


def event(name: str, **more: Any) -> str:
    return json.dumps({"Event": f"SparkListener{name}", **more}, separators=(",", ":"))


def began(number: int, tags: str, tasks: tuple[int, ...] = (2,)) -> str:
    said = ",".join(f"SparkConnect_SessionTag_User__Session_0b_Tag_{tag}" for tag in tags.split())
    return event(
        "JobStart",
        **{
            "Job ID": number,
            "Submission Time": AT_MS + number * 1000,
            "Stage Infos": [{"Number of Tasks": count} for count in tasks],
            "Properties": {"spark.job.tags": f"{said},spark-session-0b-execution-root-id-{number}"},
        },
    )


def ended(number: int, result: str = "JobSucceeded") -> str:
    at = AT_MS + number * 1000 + 250
    return event("JobEnd", **{"Job ID": number, "Completion Time": at, "Job Result": {"Result": result}})


def server(folder: Path, name: str, *files: list[str], status: str) -> None:
    log = folder / f"eventlog_v2_{name}"
    log.mkdir(parents=True)
    (log / f"appstatus_{name}{status}").touch()
    for number, lines in enumerate(files, start=1):
        (log / f"events_{number}_{name}").write_text("\n".join(lines) + "\n")


INGEST = "pipeline:flights stage:ingest interval:2013-02-08T10"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A server that was killed in the middle of its second job, and one that serves."""
    folder = tmp_path / "events"
    server(folder, "local-1", [began(0, INGEST), ended(0), event("TaskEnd"), began(1, INGEST)], status=".inprogress")
    os.utime(folder / "eventlog_v2_local-1" / "events_1_local-1", (1, 1))
    os.utime(folder / "eventlog_v2_local-1" / "appstatus_local-1.inprogress", (1, 1))
    last = event("JobStart")[:30]  # as far as it has been written
    server(
        folder,
        "local-2",
        [began(0, INGEST.replace("ingest", "top_k")), ended(0, "JobFailed"), began(1, INGEST, (2, 3))],
        [ended(1), began(2, "pipeline:shop stage:ingest interval:2013-02-08T10"), began(3, INGEST), last],
        status=".inprogress",
    )
    return folder


def test_jobs_are_told_by_their_tags(airflow_home: dict[str, str], logs: Path) -> None:
    from tidegate_dags.spark_jobs import jobs

    found = jobs(logs, pipeline="flights", stage="ingest", interval="2013-02-08T10")
    assert [(job.server, job.number, job.tasks, job.seconds, job.succeeded) for job in found] == [
        ("local-2", 3, 2, None, None),
        ("local-2", 1, 5, 0.25, True),
        ("local-1", 1, 2, None, None),
        ("local-1", 0, 2, 0.25, True),
    ]
    assert {job.server: job.server_ended for job in found} == {"local-1": True, "local-2": False}
    assert [job.number for job in jobs(logs, pipeline="shop")] == [2]
    assert jobs(logs, pipeline="flights", interval="2013-02-08T11") == []


@pytest.fixture
def pages(airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setenv("TIDEGATE_WAREHOUSE", str(tmp_path / "warehouse"))
    from airflow.api_fastapi.core_api.security import get_user
    from tidegate_dags.plugins.pipeline_pages import app

    app.dependency_overrides[get_user] = lambda: None
    with TestClient(app) as client:
        yield client
    app.dependency_overrides.clear()


def test_the_page_leads_to_spark_as_long_as_it_serves(
    pages: TestClient, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_SPARK_EVENTS", str(logs))
    monkeypatch.setenv("TIDEGATE_SPARK_UI", "http://127.0.0.1:4040")
    text = pages.get("/flights/spark", params={"stage": "ingest", "interval": "2013-02-08T10"}).text
    assert "4 jobs, stage <b>ingest</b>, interval <b>2013-02-08T10</b>" in text
    assert 'href="http://127.0.0.1:4040/jobs/job/?id=1"' in text and "0.25 s" in text and "2013-02-08 10:00:01" in text
    # Of the one that was killed there is no page of Spark's any more.
    assert "0 of local-1" in text and text.count("lost with its server") == 1 and text.count("running") == 1
    assert f"logDirectory=file:{logs}" in text
    assert "failed" in pages.get("/flights/spark").text
    assert "No job yet, stage <b>&lt;b&gt;</b>" in pages.get("/flights/spark", params={"stage": "<b>"}).text


def test_without_a_server_it_says_where_else_to_look(pages: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_SPARK_EVENTS", raising=False)
    answer = pages.get("/flights/spark")
    assert answer.status_code == 200 and "history server" in answer.text
    assert pages.get("/no-name/spark").status_code == 404


def test_a_task_leads_to_its_jobs(flights: Any) -> None:
    from tidegate_dags.links import SparkJobs

    (link,) = [link for link in flights.get_task("ingest").operator_extra_links if isinstance(link, SparkJobs)]

    class Rendered:
        application_args = ["f", "--from", "2013-02-08T10:00:00Z", "--to", "2013-02-08T11:00:00Z"]

    assert link.get_link(Rendered, ti_key=None) == "/tidegate/flights/spark?stage=ingest&interval=2013-02-08T10"
    Rendered.application_args[-1] = "2013-02-08T12:00:00Z"
    assert link.get_link(Rendered, ti_key=None).endswith("interval=2013-02-08T10%E2%80%A62013-02-08T11")
    assert link.get_link(flights.get_task("ingest"), ti_key=None) == "/tidegate/flights/spark?stage=ingest"
