"""The DAGs that are there, their tasks, their order, and what a task needs to survive."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.declarations import TRAPS
from tests.spec.test_query_language import parse

PROJECT = Path(__file__).resolve().parents[2]

# Named one by one: a test over "all DAGs" would pass on none.
EXPECTED_DAGS = {"flights"}

EXPECTED_EDGES = {
    "land": {"ingest"},
    "ingest": {"join_aggregate", "top_k", "sample_history", "calibrate"},
    "join_aggregate": {"calibrate"},
    "top_k": {"calibrate"},
    "sample_history": {"resample_history"},
    "resample_history": {"check_quality"},
    "calibrate": {"check_quality"},
    "check_quality": {"publish"},
    "publish": {"report"},
    "report": set(),
}

SUBMITTED = ("land", "ingest", "join_aggregate", "top_k", "sample_history", "resample_history", "calibrate")


def test_the_expected_dags_and_no_errors(dag_bag: Any) -> None:
    """No file fails to import, and every pipeline that is declared has its DAG."""
    assert dag_bag.import_errors == {}
    assert set(dag_bag.dags) == EXPECTED_DAGS
    declared = {path.parent.name for path in (PROJECT / "dags" / "pipelines").glob("*/pipeline.yml")}
    assert declared == EXPECTED_DAGS


@pytest.mark.parametrize("dag_id", sorted(EXPECTED_DAGS))
def test_tasks_and_edges(dag_bag: Any, dag_id: str) -> None:
    """Tasks and edges are those that the data needs."""
    dag = dag_bag.dags[dag_id]
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == EXPECTED_EDGES


@pytest.mark.parametrize("dag_id", sorted(EXPECTED_DAGS))
def test_an_interval_waits_for_what_it_reads_of_the_one_before(dag_bag: Any, dag_id: str) -> None:
    """Ingest waits for the calibration of the interval before, sampling for its resampling; nothing else waits."""
    dag = dag_bag.dags[dag_id]
    waiting = {task.task_id for task in dag.tasks if task.wait_for_downstream}
    assert waiting == {"ingest", "sample_history"}
    assert waiting == {task.task_id for task in dag.tasks if task.depends_on_past}
    # wait_for_downstream looks at direct successors only.
    assert "calibrate" in dag.get_task("ingest").downstream_task_ids
    assert "resample_history" in dag.get_task("sample_history").downstream_task_ids


@pytest.mark.parametrize("dag_id", sorted(EXPECTED_DAGS))
def test_a_small_machine_is_not_overrun(dag_bag: Any, dag_id: str) -> None:
    """Pool, time limit, retries, the failure's note and documentation, for every task."""
    for task in dag_bag.dags[dag_id].tasks:
        assert task.pool == "spark"
        assert (
            task.weight_rule.__class__.__name__ == "_UpstreamPriorityWeightStrategy" or task.weight_rule == "upstream"
        )
        # A backlog of days may have to land.
        longest = timedelta(hours=6 if task.task_id == "land" else 1)
        assert task.execution_timeout is not None and task.execution_timeout <= longest
        assert task.retries == (0 if task.task_id in ("check_quality", "report") else 2)
        assert task.on_failure_callback
        assert "**Reads**" in task.doc_md and "**Writes**" in task.doc_md and "**Guarantees**" in task.doc_md
        page, *spark = [link.name for link in task.operator_extra_links]
        assert page in ("Report", "Data Docs", "dbt docs")
        assert spark == (["Spark jobs"] if hasattr(task, "application_args") else [])


def test_skipping_stops_nothing_and_a_failure_is_not_hidden(flights: Any) -> None:
    """What follows the skipped resampling runs; the report, which always runs, does not decide the run's end."""
    for task_id in ("calibrate", "check_quality", "publish"):
        assert flights.get_task(task_id).trigger_rule == "none_failed"
    assert flights.get_task("report").is_teardown
    assert not flights.get_task("report").on_failure_fail_dagrun


def test_documentation_shows_every_query(flights: Any) -> None:
    """What the pipeline answers, in words and in SQL."""
    queries = sorted((PROJECT / "dags" / "pipelines" / "flights" / "queries").glob("*.sql"))
    assert len(queries) >= 6
    for path in queries:
        assert f"### {path.stem}" in flights.doc_md
        statement = [line for line in path.read_text().splitlines() if line and not line.startswith("--")]
        assert statement[0] in flights.doc_md


@pytest.mark.parametrize("sql", TRAPS)
def test_a_querys_kind_and_promise_are_those_that_its_parser_finds(sql: str) -> None:
    """Words in strings, names and comments count for nothing."""
    from tidegate_dags.declaration import DeclaredQuery

    query, report = parse(sql)
    assert query is not None, report.mistakes
    declared = DeclaredQuery("q", "", sql)
    assert declared.kind == query.kind
    promised = [] if query.promised is None else [round(query.promised * 100, 9)]
    assert [float(number) for number in re.findall(r"[\d.]+", declared.promise)] == promised


def test_links_lead_to_the_pages_of_the_pipeline(flights: Any) -> None:
    """Each stage's button opens the page that shows what it did."""
    found = {task.task_id: task.operator_extra_links[0].get_link(task, ti_key=None) for task in flights.tasks}
    assert found["ingest"] == found["report"] == "/tidegate/flights/report"
    assert found["check_quality"] == "/tidegate/flights/quality"
    assert found["publish"] == "/tidegate/flights/models"


def test_dags_survive_serialization(flights: Any) -> None:
    """What the scheduler gets is what was built."""
    from airflow.serialization.serialized_objects import DagSerialization

    back = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(flights))))
    assert set(back.task_ids) == set(EXPECTED_EDGES)


def test_dag_files_read_fast_and_import_nothing_heavy(airflow_home: dict[str, str], tmp_path: Path) -> None:
    """In a fresh process, beyond Airflow itself: under a second of processor time, no Spark, pandas or numpy."""
    program = """
import json, sys, time
import airflow.sdk
import airflow.providers.standard.operators.bash
sys.path.insert(0, "dags")
before = time.process_time()
import flights
seconds = time.process_time() - before
heavy = {"pyspark", "pandas", "numpy", "pyarrow", "sqlglot", "great_expectations", "dbt"}
print(json.dumps({"seconds": seconds, "heavy": sorted(heavy & {name.split(".")[0] for name in sys.modules})}))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    assert measured["heavy"] == []
    assert measured["seconds"] < 1


@pytest.mark.parametrize("stage", SUBMITTED)
def test_every_submitted_application_exists(flights: Any, stage: str) -> None:
    """Spark is given a file that is there."""
    assert Path(flights.get_task(stage).application).is_file()
