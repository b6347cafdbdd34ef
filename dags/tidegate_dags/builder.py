"""Makes an Airflow DAG out of a pipeline's folder.

A pipeline that is declared in ``dags/pipelines/<name>/`` gets its DAG by one file, ``dags/<name>.py``::

    \"\"\"The <name> pipeline in Airflow.\"\"\"
    from tidegate_dags import build_dag
    dag = build_dag("<name>")

(Airflow only opens files that contain the words *dag* and *airflow*; the docstring takes care of that.) Pass
``end=`` for data that is over, ``owner_link=`` to make the owner's name a link, or a path instead of a name for a
folder elsewhere.

The DAG knows application names and string arguments. Spark stages go through spark-submit, one JVM each, so that a
memory budget means something; ``check_quality`` and ``publish`` are plain commands because Great Expectations works on
Arrow tables and dbt starts its own session. Everything heavy runs in the pool ``spark``; with its one slot, the stages
of a small machine never compete for memory.

Paths come from the environment: ``TIDEGATE_HOME`` (the project, derived from this file), ``TIDEGATE_WAREHOUSE`` and
``TIDEGATE_LANDING`` (below ``<project>/.tidegate/``), ``TIDEGATE_PYTHON`` (the interpreter that has Tidegate).
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, BaseOperator, CronDataIntervalTimetable, Param
from airflow.sdk.exceptions import AirflowSkipException

from tidegate_dags.declaration import parse_instant, read_declaration
from tidegate_dags.documentation import pipeline_documentation, stage_documentation
from tidegate_dags.links import PipelinePage
from tidegate_dags.stages import STAGES, Stage

POOL = "spark"

# Rendered by Airflow when a task starts; interval_from and interval_to are the functions below.
_RANGE = (
    "--from",
    "{{ interval_from(params, data_interval_start | default(none)) }}",
    "--to",
    "{{ interval_to(params, data_interval_end | default(none)) }}",
)

_INSTANT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?$"

_log = logging.getLogger(__name__)


def build_dag(pipeline: str | Path, *, end: str | None = None, owner_link: str | None = None) -> DAG:
    """The DAG of a declared pipeline: its name is the pipeline's, its tasks are the stages.

    ``end``: no interval is scheduled that starts at or after it. ``owner_link``: where the owner can be reached, an
    http or mailto address.
    """
    home = Path(os.environ.get("TIDEGATE_HOME") or Path(__file__).resolve().parents[2])
    folder = pipeline if isinstance(pipeline, Path) else home / "dags" / "pipelines" / pipeline
    declaration = read_declaration(folder)
    warehouse = os.environ.get("TIDEGATE_WAREHOUSE") or str(home / ".tidegate" / "warehouse")
    environment = {
        "TIDEGATE_HOME": str(home),
        "TIDEGATE_WAREHOUSE": warehouse,
        "TIDEGATE_LANDING": os.environ.get("TIDEGATE_LANDING") or str(home / ".tidegate" / "landing"),
        # The package tidegate, and the project itself for expectations/.
        "PYTHONPATH": os.pathsep.join([str(home / "spark_apps"), str(home)]),
    }
    dag = DAG(
        dag_id=declaration.name,
        description=declaration.description,
        doc_md=pipeline_documentation(declaration),
        # A bare cron string would give runs without an interval.
        schedule=CronDataIntervalTimetable(declaration.cron, timezone="UTC"),
        start_date=declaration.start,
        end_date=parse_instant(end) - timedelta(microseconds=1) if end else None,
        catchup=False,
        # Not for correctness (see stages.py): while one interval is checked and published, the next may be ingested.
        max_active_runs=2,
        tags=["tidegate"],
        owner_links={declaration.owner: owner_link} if owner_link else {},
        params={
            "from": _instant_parameter("First instant of a stretch to run in one go. Empty: the run's own interval."),
            "to": _instant_parameter("First instant after that stretch. Empty: the run's own interval."),
            "driver_memory": Param(
                "1g",
                type="string",
                pattern="^[1-9][0-9]*[mg]$",
                description="Heap of each Spark driver, like 1g or 1536m.",
            ),
        },
        user_defined_macros={"interval_from": interval_from, "interval_to": interval_to},
        default_args={
            "owner": declaration.owner,
            "pool": POOL,
            "retry_delay": timedelta(seconds=15),
            "retry_exponential_backoff": True,
            "max_retry_delay": timedelta(minutes=5),
            # What lies further downstream goes first: an interval is finished before the pool turns to the next.
            "weight_rule": "upstream",
            # Skipping resample_history stops nothing; a failure does.
            "trigger_rule": "none_failed",
            "on_failure_callback": log_failure,
        },
        is_paused_upon_creation=True,
    )
    with dag:
        tasks: dict[str, BaseOperator] = {}
        for stage in STAGES:
            tasks[stage.name] = _task(stage, declaration.name, folder, home, warehouse, environment)
            for upstream in stage.after:
                tasks[upstream].set_downstream(tasks[stage.name])
            if stage.always:
                # A teardown runs whatever failed before it, and hides no failure: the run ends as `publish` did.
                tasks[stage.name].as_teardown()
    return dag


def interval_from(params: Any, data_interval_start: datetime | None) -> str:
    """The ``--from`` of a run: the parameter if it was given, else the start of the run's interval."""
    return _bound(params, data_interval_start, given="from")


def interval_to(params: Any, data_interval_end: datetime | None) -> str:
    """The ``--to`` of a run: the parameter if it was given, else the end of the run's interval."""
    return _bound(params, data_interval_end, given="to")


def _bound(params: Any, of_interval: datetime | None, *, given: str) -> str:
    if bool(params["from"]) != bool(params["to"]):
        raise ValueError("A stretch needs both `from` and `to`: trigger the run again with both, or with neither.")
    bound = parse_instant(params[given]) if params[given] else of_interval
    if not bound:
        raise ValueError("This run has no interval: trigger it with a logical date, or with `from` and `to`.")
    return bound.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _instant_parameter(description: str) -> Param:
    # The format gives the form its calendar; it is checked only where an optional package is installed.
    return Param(None, type=["null", "string"], format="date-time", pattern=_INSTANT, description=description)


def _task(
    stage: Stage, pipeline: str, folder: Path, home: Path, warehouse: str, environment: dict[str, str]
) -> BaseOperator:
    common: dict[str, Any] = {
        "task_id": stage.name,
        "doc_md": stage_documentation(stage),
        "retries": stage.retries,
        "execution_timeout": stage.timeout,
        "wait_for_downstream": stage.waits_for_previous,
        "depends_on_past": stage.waits_for_previous,
        "pre_execute": skip_unless_a_day_ends if stage.daily else None,
    }
    task: BaseOperator
    if stage.submitted:
        task = SparkSubmitOperator(
            application=str(home / "spark_apps" / "tidegate" / "apps" / f"{stage.name}.py"),
            application_args=[str(folder), "--warehouse", warehouse, *_RANGE],
            name=f"{pipeline}.{stage.name}",
            conn_id="spark_default",
            conf={"spark.driver.memory": "{{ params.driver_memory }}"},
            env_vars=environment,
            **common,
        )
    else:
        task = BashOperator(
            bash_command=_command(stage, folder, warehouse),
            env=environment,
            append_env=True,
            # dbt keeps its catalog in a folder that takes one process at a time; a page is written by one, too.
            max_active_tis_per_dag=1,
            outlets=_outlets(stage, pipeline),
            **common,
        )
    task.operator_extra_links = (PipelinePage(pipeline, stage.page),)
    return task


def _command(stage: Stage, folder: Path, warehouse: str) -> str:
    """The shell's command line of a stage that is not submitted to Spark."""
    python = os.environ.get("TIDEGATE_PYTHON") or sys.executable
    tidegate = ["exec", python, "-m", "tidegate.cli"]
    if stage.name == "report":
        return shlex.join([*tidegate, "report", str(folder), "--warehouse", warehouse])
    fixed = shlex.join([*tidegate, "run", str(folder), "--warehouse", warehouse, "--stage", stage.name])
    # What Airflow fills in consists of digits, "-", ":", "T" and "Z": nothing that a shell would interpret.
    return f"{fixed} {' '.join(_RANGE)}"


def _outlets(stage: Stage, pipeline: str) -> list[Asset]:
    """What other DAGs may be scheduled on: the published models, for consumers that keep no state."""
    return [Asset(name=f"{pipeline}_models", uri=f"tidegate://{pipeline}/models")] if stage.name == "publish" else []


def skip_unless_a_day_ends(context: Any) -> None:
    """Skip the task unless a UTC midnight lies in (from, to]."""
    start = parse_instant(interval_from(context["params"], context.get("data_interval_start")))
    end = parse_instant(interval_to(context["params"], context.get("data_interval_end")))
    midnight = end.replace(hour=0, minute=0, second=0, microsecond=0)
    if midnight <= start:
        raise AirflowSkipException(f"No day ends in [{start:%Y-%m-%dT%H:%M}, {end:%Y-%m-%dT%H:%M}).")


def log_failure(context: Any) -> None:
    """Say which stage of which interval failed and where to look."""
    task_instance = context["ti"]
    interval = f"[{context.get('data_interval_start')}, {context.get('data_interval_end')})"
    _log.error(
        "Stage %s of pipeline %s failed for the interval %s. The cause is in this log, above. Refused records are in "
        "the table quarantine, what each application did in run_metrics, which promise broke in quality_results. "
        "After mending it, clear this task: later stages and the intervals that wait for it go on by themselves.",
        task_instance.task_id,
        task_instance.dag_id,
        interval,
    )
