"""Which interval a run is about."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import DeclarationErrors


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
    ("line", "told"),
    [
        *((f"interval: {n} minutes", "cannot be an interval") for n in (8, 9, 16, 18, 24, 32, 36, 40, 45, 48, 90)),
        ("interval: 1.5 hours", "cannot be an interval"),
        ("interval: +1 hour", ""),
        ("interval: 0.5 hours", ""),
        ("interval: ${LENGTH}", ""),
        ("interval: ${LENGTHS}", "LENGTHS is not set"),
        ("interval: 1 hour\ninterval: 1 hour", "given twice"),
        ("start: ${START}", ""),
        ("start: 2020-01-01 01:30+01:30", ""),
        ("start: 2020-02-30", "does not exist"),
        ("owner: yes", ""),
        ("owner: 2020-01-01", ""),
        ("owner: [a, b]", "not a plain value"),
        ("owner: {}", "not a plain value"),
        ("owner: ~", ""),
        ("owner:", "has no value"),
        ("description: 2026-02-30", ""),
        ("description: 1_000", ""),
        ('description: "\\0"', "not printable"),
        ("name: OTHER", "cannot name a pipeline"),
        ("name: another", "is not the name of the pipeline's folder"),
        ("<<: {owner: me}", "merge keys"),
        ("streams: []", "not a mapping"),
    ],
)
def test_what_validate_takes_and_refuses_airflow_takes_and_refuses(
    airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: str
) -> None:
    """By the same sentence."""
    from tidegate_dags import build_dag

    monkeypatch.setenv("LENGTH", "30 minutes")
    monkeypatch.setenv("START", "2020-01-01T01:00Z")
    folder = init_other(tmp_path, line)
    for read in (load_pipeline, build_dag):
        if told:
            with pytest.raises(DeclarationErrors, match=re.escape(told)):
                read(folder)
        else:
            read(folder)


def init_other(folder: Path, line: str) -> Path:
    """The example's folder with a line instead of that with the same key, or one more."""
    init(folder / "other", "shop")
    file = folder / "other" / "pipeline.yml"
    text = file.read_text().replace("%Y-%m-%dT%H", "*")
    key = line.partition(":")[0]
    if key == "streams":
        text = text[: text.index("\nstreams:")] + "\n"
    text = re.sub(rf"^{key}:.*\n", "", text, flags=re.MULTILINE) if key != "<<" else text
    file.write_text(f"{line}\n{text}")
    return folder / "other"


@pytest.mark.parametrize("interval", ["90 minutes", "45 minutes", "7 hours"])
def test_an_interval_that_no_schedule_can_have_is_named(
    airflow_home: dict[str, str], tmp_path: Path, interval: str
) -> None:
    """The import error that the UI shows says which file and what was expected."""
    from tidegate_dags import build_dag

    with pytest.raises(DeclarationErrors, match=rf"yml:4:11: .*'{interval}' .* expected minutes that divide an hour"):
        build_dag(_pipeline(tmp_path, interval))


def test_a_broken_declaration_is_named(airflow_home: dict[str, str], tmp_path: Path) -> None:
    """Missing keys are named together."""
    from tidegate_dags import build_dag

    (tmp_path / "pipeline.yml").write_text("name: other\n")
    with pytest.raises(DeclarationErrors, match=r"'owner' is missing(.|\n)*'start' is missing"):
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
    (folder / "other").mkdir()
    (folder / "other" / "pipeline.yml").write_text(
        f"name: other\nowner: me\nstart: 2020-01-01T00:00:00Z\ninterval: {interval}\nstreams: {{}}\n"
    )
    return folder / "other"


def _utc(*parts: int) -> Any:
    return _pendulum(datetime(*parts, tzinfo=UTC))  # type: ignore[misc, arg-type]


def _pendulum(instant: datetime) -> Any:
    import pendulum

    return pendulum.from_timestamp(instant.timestamp(), tz="UTC")
