"""One real interval of the flights pipeline, run by a real Airflow from the landed files to the published models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow_stack import PROJECT, TemporaryStack
from tests.live_files import live_files, live_rows
from tidegate_dags.spark_jobs import jobs

pytestmark = pytest.mark.e2e

INTERVAL = "2013-02-08T10"
FROM, TO = "2013-02-08T10:00Z", "2013-02-08T11:00Z"

# Every table that one interval of the pipeline leaves, apart from those named after queries and streams.
TABLES = (
    "quarantine",
    "source_files",
    "stream_rates",
    "window_plan",
    "query_plan",
    "accuracy",
    "promise_periods",
    "slack_plan",
    "needed_slack",
    "width_errors",
    "error_width_plan",
    "history_leaves",
    "run_metrics",
    "quality_results",
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryStack]:
    """An Airflow with the DAGs of the project and the files of two hours."""
    stack = TemporaryStack(state=tmp_path_factory.mktemp("state"))
    stack.landing.mkdir()
    landed = subprocess.run(
        [sys.executable, "-m", "tidegate.examples.land_flights", *landing_arguments(stack.landing)],
        capture_output=True,
        text=True,
    )
    assert landed.returncode == 0, landed.stdout + landed.stderr
    with stack.running():
        yield stack


def landing_arguments(landing: Path) -> list[str]:
    """The command line that lands the files of the interval and the hour before."""
    return ["--landing", str(landing), "--from", "2013-02-08T09:00Z", "--to", TO]


@pytest.mark.timeout(900)
def test_one_interval(stack: TemporaryStack) -> None:
    """Every stage succeeds, every table has the interval's partition, the pages are written."""
    backfill = stack.command("backfill", "--dag", "flights", "--from", FROM, "--to", TO, timeout_s=800)
    assert backfill.returncode == 0, backfill.stdout + backfill.stderr
    for stage in ("ingest", "join_aggregate", "top_k", "sample_history", "calibrate", "check_quality", "publish"):
        assert f"{stage:<17} success" in backfill.stdout, backfill.stdout
    assert f"{'resample_history':<17} skipped" in backfill.stdout, "no day ends at 11:00"

    folder = stack.warehouse / "flights"
    queries = sorted(file.stem for file in (PROJECT / "dags" / "pipelines" / "flights" / "queries").glob("*.sql"))
    assert queries
    expected = [*TABLES, *(f"answers_{query}" for query in queries), *(f"truth_{query}" for query in queries)]
    expected += [f"events_{stream}" for stream in ("departures", "landings", "weather")]
    missing = [table for table in expected if INTERVAL not in live_files(folder / table)]
    assert missing == []

    metrics = live_rows(folder / "run_metrics").to_pylist()
    assert {row["app"] for row in metrics} >= {"ingest", "join_aggregate", "top_k", "sample_history", "calibrate"}
    assert all(row["peak_process_bytes"] <= row["process_budget_bytes"] for row in metrics)

    # The stages' slices were tasks of the stack's own Spark, which Airflow's tasks lead to.
    assert {"client", "worker", "jvm"} == {row["kind"] for row in metrics if row["app"] == "join_aggregate"}
    found = jobs(stack.state / "spark" / "events", pipeline="flights", interval=INTERVAL)
    assert {"ingest", "join_aggregate", "top_k", "sample_history"} <= {job.tags["stage"] for job in found}
    assert not any(job.server_ended for job in found)
    token = (stack.state / "spark" / "token").read_text()
    assert token not in backfill.stdout and token not in (folder.parent.parent / "airflow" / "stack.json").read_text()
