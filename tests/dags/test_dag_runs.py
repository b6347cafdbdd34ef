"""Manual runs: what is checked, what is skipped, what is said when something fails."""

from __future__ import annotations

import asyncio
import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HOUR = {
    "data_interval_start": datetime(2013, 2, 8, 10, tzinfo=UTC),
    "data_interval_end": datetime(2013, 2, 8, 11, tzinfo=UTC),
}
NOTHING = {"from": None, "to": None, "stages": [], "dry_run": False}


def _gate(dag: Any, task_id: str, **params: Any) -> None:
    task = dag.get_task(task_id)
    task._pre_execute_hook({**HOUR, "params": NOTHING | params, "task": task})


def test_a_run_that_asks_for_nothing_runs_everything(flights: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Every gate lets its stage run, for the run's own interval; no day ends in it."""
    from airflow.sdk.exceptions import AirflowSkipException

    from tidegate.declarations.stages import stages_of

    stages = stages_of(landed=True)
    with caplog.at_level("INFO", logger="tidegate_dags.run_range"):
        for stage in stages:
            if stage.daily:
                with pytest.raises(AirflowSkipException, match="No day ends"):
                    _gate(flights, stage.name)
            else:
                _gate(flights, stage.name)
    due = [stage.name for stage in stages if not stage.daily]
    assert {task.task_id for task in flights.tasks} == {stage.name for stage in stages}
    span = "[2013-02-08T10:00, 2013-02-08T11:00)"
    assert caplog.messages == [f"{name}: 1 interval(s) of arrival time, {span}" for name in due]


def test_only_the_stages_that_were_asked_for_run(flights: Any) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    _gate(flights, "top_k", stages=["top_k"])
    with pytest.raises(AirflowSkipException, match="this run includes top_k only"):
        _gate(flights, "calibrate", stages=["top_k"])


def test_a_dry_run_says_what_it_would_run(flights: Any) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with pytest.raises(AirflowSkipException, match=r"nothing was done for .2013-02-08T10:00.*python\S* .*ingest\.py"):
        _gate(flights, "ingest", dry_run=True)
    with pytest.raises(AirflowSkipException, match=r"tidegate.cli report"):
        _gate(flights, "report", dry_run=True)


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        ("2013-02-08T10:30:00Z", "2013-02-08T12:00:00Z", r"`from`.*nearest are 2013-02-08T10:00:00Z and .*T11:00:00Z"),
        ("2013-02-08T10:00:00Z", "2013-02-08T10:00:00Z", "must be later"),
        ("2013-02-08T12:00:00Z", "2013-02-08T10:00:00Z", "must be later"),
        ("2013-02-08T10:00:00Z", None, "`from` and `to` must be given together"),
    ],
)
def test_a_stretch_that_cannot_be_run_fails_at_once(flights: Any, start: str, end: str | None, says: str) -> None:
    """Without a retry: the same run would fail the same way."""
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=says):
        _gate(flights, "ingest", **{"from": start, "to": end})


def test_stages_are_validated(flights: Any) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    param = copy.deepcopy(flights.params.get_param("stages"))
    assert param.resolve(["ingest", "top_k"]) == ["ingest", "top_k"]
    for wrong in (["ingets"], "ingest", [1]):
        with pytest.raises(ParamValidationError):
            param.resolve(wrong)


def _alerts(warehouse: Path) -> list[dict[str, str]]:
    path = warehouse / "flights" / "_docs" / "alerts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_failure_names_the_promise(
    airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_dags import alerts

    monkeypatch.setenv("TIDEGATE_WAREHOUSE", str(tmp_path))
    folder = tmp_path / "flights" / "_docs" / "quality"
    folder.mkdir(parents=True)
    row = {"interval": "2013-02-08T10", "severity": "critical", "query": "most_delayed", "table": "accuracy",
           "detail": "ACCURACY 90 %: measured 0.81, promised at least 0.9"}  # fmt: skip
    other = row | {"interval": "2013-02-08T09", "query": "elsewhere"}
    (folder / "summary.json").write_text(json.dumps({"broken": [other, row]}))
    alerts.failed({**HOUR, "ti": SimpleNamespace(task_id="check_quality", dag_id="flights")})
    (alert,) = _alerts(tmp_path)
    assert (
        "check_quality of pipeline flights failed for the interval [2013-02-08T10:00, 2013-02-08T11:00)"
        in alert["text"]
    )
    assert "most_delayed: ACCURACY 90 %: measured 0.81, promised at least 0.9." in alert["text"]
    assert "elsewhere" not in alert["text"]


def test_a_failure_names_the_stretch_that_was_asked_for(
    airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_dags import alerts
    from tidegate_dags.run_range import RangeError

    monkeypatch.setenv("TIDEGATE_WAREHOUSE", str(tmp_path))
    params = {"from": "2013-02-08T10:30:00Z", "to": "2013-02-08T12:00:00Z"}
    task = SimpleNamespace(task_id="ingest", dag_id="flights")
    alerts.failed({**HOUR, "params": params, "ti": task, "exception": RangeError("`from` is no bound.")})
    (alert,) = _alerts(tmp_path)
    assert alert["text"].endswith("for the interval [2013-02-08T10:30, 2013-02-08T12:00). `from` is no bound.")


def test_a_late_run_names_what_is_not_fresh(flights: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of the DAG calls what the triggerer can import, and a backfill that takes its turn is not late."""
    from tidegate_dags import alerts

    monkeypatch.setenv("TIDEGATE_WAREHOUSE", str(tmp_path))
    (deadline,) = flights.deadline if isinstance(flights.deadline, list) else [flights.deadline]
    assert deadline.interval == timedelta(hours=2)
    assert deadline.callback.path == "tidegate_dags.alerts.late"
    run = {
        "run_type": "scheduled",
        "data_interval_start": "2013-02-08T10:00:00Z",
        "data_interval_end": "2013-02-08T11:00:00Z",
    }
    asyncio.run(alerts.late(**deadline.callback.kwargs, context={"dag_run": run}))
    asyncio.run(alerts.late(**deadline.callback.kwargs, context={"dag_run": run | {"run_type": "backfill"}}))
    (alert,) = _alerts(tmp_path)
    assert "[2013-02-08T10:00, 2013-02-08T11:00) was not complete 2:00:00 after" in alert["text"]
    assert "most_delayed (ACCURACY 90%)" in alert["text"] and "bad_weather (no promise)" in alert["text"]


def test_alerts_are_kept_in_bounds(airflow_home: dict[str, str], tmp_path: Path) -> None:
    from tidegate_dags import alerts

    for number in range(alerts.MOST_ALERTS + 3):
        alerts.record(tmp_path, "failure", str(number))
    kept = [json.loads(line)["text"] for line in (tmp_path / "alerts.jsonl").read_text().splitlines()]
    assert len(kept) == alerts.MOST_ALERTS and kept[-1] == str(alerts.MOST_ALERTS + 2)
