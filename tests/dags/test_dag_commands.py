"""The command lines that Airflow runs, compared with golden files.

After a change that is meant, write them anew: ``TIDEGATE_WRITE_GOLDEN=1 pytest tests/dags/test_dag_commands.py``.
"""

from __future__ import annotations

import copy
import json
import os
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent / "golden"

INTERVAL = {
    "data_interval_start": datetime(2013, 2, 8, 10, tzinfo=UTC),
    "data_interval_end": datetime(2013, 2, 8, 11, tzinfo=UTC),
}


def rendered(dag: Any, task_id: str, interval: dict[str, datetime] = INTERVAL, **params: Any) -> str:
    """The command line of a task, one word or option a line, the project's folder as {project}."""
    task = copy.copy(dag.get_task(task_id))
    values = {"from": None, "to": None, "driver_memory": "1g"} | params
    task.render_template_fields({**interval, "params": values, "dag": dag}, dag.get_template_env())
    words = shlex.split(task.bash_command) if hasattr(task, "bash_command") else task.command()
    return "\n".join(_one_option_a_line(words)).replace(str(PROJECT), "{project}") + "\n"


def _one_option_a_line(words: list[str]) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and lines[-1].startswith("--") and " " not in lines[-1] and not word.startswith("--"):
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@pytest.mark.parametrize(
    "task_id",
    [
        "land",
        "ingest",
        "join_aggregate",
        "top_k",
        "sample_history",
        "resample_history",
        "calibrate",
        "check_quality",
        "publish",
        "report",
    ],
)
def test_command_line(flights: Any, task_id: str) -> None:
    """The command of a scheduled run for 10:00 to 11:00."""
    golden = GOLDEN / f"flights.{task_id}.txt"
    command = rendered(flights, task_id)
    if os.environ.get("TIDEGATE_WRITE_GOLDEN"):
        golden.write_text(command)
    assert command == golden.read_text()


def test_a_stretch_overrides_the_interval(flights: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manual run with `from` and `to` hands them on, in UTC, and its memory to Spark."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "yarn"}))
    command = rendered(
        flights,
        "ingest",
        **{"from": "2013-02-07T00:00:00+01:00", "to": "2013-02-09T00:00:00Z", "driver_memory": "1536m"},
    )
    assert "--from 2013-02-06T23:00:00Z\n--to 2013-02-09T00:00:00Z\n" in command
    assert "--conf spark.driver.memory=1536m\n" in command


def test_half_a_stretch_is_refused(flights: Any) -> None:
    """One bound alone is a mistake."""
    with pytest.raises(ValueError, match="`from` and `to` must be given together"):
        rendered(flights, "ingest", **{"from": "2013-02-07T00:00:00Z"})


def test_a_run_without_interval_is_refused(flights: Any) -> None:
    """Airflow 3 lets a run have no logical date; then there is no interval to run."""
    with pytest.raises(ValueError, match="no interval"):
        rendered(flights, "ingest", interval={})


@pytest.mark.parametrize("memory", ["1", "g", "1 g", "0g", "1g; rm"])
def test_memory_is_validated(flights: Any, memory: str) -> None:
    """What is no size never reaches a command line."""
    from airflow.sdk.exceptions import ParamValidationError

    param = copy.deepcopy(flights.params.get_param("driver_memory"))
    assert param.resolve("1536m") == "1536m"
    with pytest.raises(ParamValidationError):
        param.resolve(memory)


@pytest.mark.parametrize("instant", ["yesterday", "2013-02-08", "2013-02-08 10:00"])
def test_a_stretch_is_validated(flights: Any, instant: str) -> None:
    """An invalid timestamp is refused when the run is triggered."""
    from airflow.sdk.exceptions import ParamValidationError

    param = copy.deepcopy(flights.params.get_param("from"))
    assert param.resolve(None) is None
    assert param.resolve("2013-02-08T10:00:00Z") == "2013-02-08T10:00:00Z"
    with pytest.raises(ParamValidationError):
        param.resolve(instant)
