"""Which interval a run is about."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest


def _timetable(dag: Any) -> Any:
    from airflow.serialization.serialized_objects import DagSerialization

    return DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable


def test_a_backfilled_run_is_about_the_hour_that_begins_with_its_logical_date(flights: Any) -> None:
    """Logical date 05:00: arrivals from 05:00 to 06:00."""
    from airflow.timetables.base import TimeRestriction

    restriction = TimeRestriction(earliest=_utc(2013, 2, 8, 5), latest=_utc(2013, 2, 8, 6), catchup=True)
    info = _timetable(flights).next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    assert info.logical_date == _utc(2013, 2, 8, 5)
    assert (info.data_interval.start, info.data_interval.end) == (_utc(2013, 2, 8, 5), _utc(2013, 2, 8, 6))
    assert info.run_after == _utc(2013, 2, 8, 6), "not before the interval is over"


def test_a_manual_run_is_about_the_hour_that_ended_last(flights: Any) -> None:
    """Triggered at 05:00 or 05:59: arrivals from 04:00 to 05:00."""
    for minute in (0, 59):
        interval = _timetable(flights).infer_manual_data_interval(run_after=_utc(2013, 2, 8, 5, minute))
        assert (interval.start, interval.end) == (_utc(2013, 2, 8, 4), _utc(2013, 2, 8, 5))


def test_unpausing_starts_nothing_of_today(flights: Any) -> None:
    """The data ends with 2013, and so does the schedule."""
    from airflow.timetables.base import TimeRestriction

    assert flights.catchup is False
    assert flights.start_date == datetime(2013, 1, 1, tzinfo=UTC)
    restriction = TimeRestriction(
        earliest=_pendulum(flights.start_date), latest=_pendulum(flights.end_date), catchup=False
    )
    assert _timetable(flights).next_dagrun_info(last_automated_data_interval=None, restriction=restriction) is None


@pytest.mark.parametrize(
    ("interval", "cron"),
    [
        ("1 hour", "0 * * * *"),
        ("60 minutes", "0 * * * *"),
        ("10 minutes", "*/10 * * * *"),
        ("6 hours", "0 */6 * * *"),
        ("1 day", "0 0 * * *"),
    ],
)
def test_any_pipeline_gets_its_dag(airflow_home: dict[str, str], tmp_path: Path, interval: str, cron: str) -> None:
    """A folder elsewhere, of another interval, is enough."""
    from tidegate_dags import build_dag

    dag = build_dag(_pipeline(tmp_path, interval), owner_link="mailto:me@example.org")
    assert dag.dag_id == "other"
    assert dag.timetable.expression == cron
    assert dag.owner_links == {"me": "mailto:me@example.org"}
    assert dag.end_date is None


def test_a_pipeline_is_found_beside_the_file_of_its_dag(
    airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name in pipelines/, or by a path from that file, wherever Airflow works; a missing one is named."""
    from airflow.dag_processing.dagbag import DagBag

    (tmp_path / "dags" / "pipelines").mkdir(parents=True)
    (tmp_path / "named").mkdir()
    _pipeline(tmp_path / "named", "1 hour").rename(tmp_path / "dags" / "pipelines" / "other")
    for name, argument in (("by_name", '"other"'), ("by_path", 'Path("pipelines/other")'), ("lost", '"nowhere"')):
        text = '"""For airflow."""\nfrom pathlib import Path\nfrom tidegate_dags import build_dag\n'
        (tmp_path / "dags" / f"{name}.py").write_text(f"{text}dag = build_dag({argument})\n")
    monkeypatch.chdir(tmp_path)
    for name in ("by_name", "by_path"):
        bag = DagBag(dag_folder=str(tmp_path / "dags" / f"{name}.py"))
        assert bag.import_errors == {}
        arguments = bag.dags["other"].get_task("ingest").application_args
        assert arguments[0] == str(tmp_path / "dags" / "pipelines" / "other")
    (error,) = DagBag(dag_folder=str(tmp_path / "dags" / "lost.py")).import_errors.values()
    assert f"there is no {tmp_path}/dags/pipelines/nowhere/pipeline.yml" in error


def test_a_stranger_needs_no_pool_and_no_place(
    airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word in the environment: one stage at a time, and the warehouse in Airflow's home."""
    from tidegate_dags import build_dag

    monkeypatch.delenv("TIDEGATE_POOL")
    monkeypatch.delenv("TIDEGATE_WAREHOUSE")
    dag = build_dag(_pipeline(tmp_path, "1 hour"))
    assert dag.max_active_tasks == 1
    for task in dag.tasks:
        assert task.pool == "default_pool"
        words = task.bash_command if hasattr(task, "bash_command") else " ".join(task.application_args)
        assert f"--warehouse {airflow_home['AIRFLOW_HOME']}/tidegate/warehouse" in words


@pytest.mark.parametrize(
    ("interval", "expected"), [("90 minutes", "1:30:00"), ("45 minutes", "0:45:00"), ("7 hours", "7:00")]
)
def test_an_interval_that_no_schedule_can_have_is_named(
    airflow_home: dict[str, str], tmp_path: Path, interval: str, expected: str
) -> None:
    """The import error that the UI shows says which file and what was expected."""
    from tidegate_dags import build_dag

    with pytest.raises(ValueError, match=rf"pipeline.yml: interval {expected}.* expected minutes that divide an hour"):
        build_dag(_pipeline(tmp_path, interval))


def test_a_broken_declaration_is_named(airflow_home: dict[str, str], tmp_path: Path) -> None:
    """Missing keys are named together, with the command that finds the rest."""
    from tidegate_dags import build_dag

    (tmp_path / "pipeline.yml").write_text("name: other\n")
    with pytest.raises(ValueError, match="owner, start, interval missing; `tidegate validate"):
        build_dag(tmp_path)


@pytest.mark.parametrize(
    ("start", "end", "runs"),
    [
        ("2013-02-08T22:00Z", "2013-02-08T23:00Z", False),
        ("2013-02-08T23:00Z", "2013-02-09T00:00Z", True),
        ("2013-02-09T00:00Z", "2013-02-09T01:00Z", False),
        ("2013-02-08T00:00Z", "2013-02-09T00:00Z", True),
        ("2013-02-07T20:00Z", "2013-02-09T05:00Z", True),
    ],
)
def test_history_is_resampled_when_a_day_ends(flights: Any, start: str, end: str, runs: bool) -> None:
    """The one interval that ends at midnight, or a stretch with a midnight in it."""
    from airflow.sdk.exceptions import AirflowSkipException

    gate = flights.get_task("resample_history")._pre_execute_hook
    context = {"params": {"from": start, "to": end}}
    if runs:
        gate(context)
    else:
        with pytest.raises(AirflowSkipException, match="No day ends"):
            gate(context)


def _pipeline(folder: Path, interval: str) -> Path:
    (folder / "pipeline.yml").write_text(
        f"name: other\nowner: me\nstart: 2020-01-01T00:00:00Z\ninterval: {interval}\nstreams: {{}}\n"
    )
    return folder


def _utc(*parts: int) -> Any:
    return _pendulum(datetime(*parts, tzinfo=UTC))  # type: ignore[misc, arg-type]


def _pendulum(instant: datetime) -> Any:
    import pendulum

    return pendulum.from_timestamp(instant.timestamp(), tz="UTC")
