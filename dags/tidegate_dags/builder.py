"""Makes an Airflow DAG out of a pipeline's folder.

A pipeline that is declared in ``pipelines/<name>/`` beside the DAG files gets its DAG by one file, ``<name>.py``::

    \"\"\"The <name> pipeline in Airflow.\"\"\"
    from tidegate_dags import build_dag
    dag = build_dag("<name>")

(Airflow only opens files that contain the words *dag* and *airflow*; the docstring takes care of that, and a line
``pipelines/`` in ``.airflowignore`` keeps Airflow from looking for DAGs there.) Pass ``end=`` for data that is over,
``owner_link=`` to make the owner's name a link, or a path instead of a name for a folder elsewhere.

The DAG knows application names and string arguments. Spark stages are applications, a process or a submitted job each,
so that a memory budget means something; where Spark is says the connection ``spark_default``, or another submitter
(``submit=``, see submission.py and submitters.py). ``check_quality`` and ``publish`` are plain commands because Great
Expectations works on Arrow tables and dbt starts its own session. An interval runs one stage at a time, so that the
stages of a small machine do not compete for memory; ``TIDEGATE_POOL`` names a pool of Airflow that says instead how
many may run, over all pipelines.

The environment says where things are: ``TIDEGATE_WAREHOUSE``, a path or a URI such as ``s3://bucket/folder`` (default:
``$AIRFLOW_HOME/tidegate/warehouse``; keys: Airflow's connection ``aws_default``, see object_store.py) and
``TIDEGATE_PYTHON``, the interpreter that has Tidegate (default: Airflow's own).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, BaseOperatorLink, CronDataIntervalTimetable

from tidegate.declarations.stages import Stage
from tidegate_dags.alerts import deadline, failed
from tidegate_dags.assets import SayPartitions, inlets, outlets
from tidegate_dags.declaration import Declaration, parse_instant, read_declaration
from tidegate_dags.documentation import pipeline_documentation, stage_documentation
from tidegate_dags.links import PipelinePage, SparkJobs
from tidegate_dags.object_store import StageCommand
from tidegate_dags.places import is_uri, warehouse
from tidegate_dags.publishing import PublishCommand, with_checked
from tidegate_dags.run_range import Gate, interval_from, interval_to, parameters
from tidegate_dags.submission import Application, SparkSubmission, Submit, by_connection

_HOUR = timedelta(hours=1)

# Rendered by Airflow when a task starts; interval_from and interval_to are the functions below.
_RANGE = (
    "--from",
    "{{ interval_from(params, data_interval_start | default(none)) }}",
    "--to",
    "{{ interval_to(params, data_interval_end | default(none)) }}",
)


def build_dag(
    pipeline: str | Path,
    *,
    end: str | None = None,
    owner_link: str | None = None,
    done_within: timedelta | None = None,
    notify: Sequence[Callable[[Any], None]] = (),
    submit: Submit | None = None,
) -> DAG:
    """The DAG of a declared pipeline: its name is the pipeline's, its tasks are the stages.

    ``pipeline``: the name of a folder in ``pipelines/`` beside the file that calls this, or the path of a folder,
    absolute or relative to that file. ValueError if there is no ``pipeline.yml`` in it, or it cannot be scheduled.

    ``end``: no interval is scheduled that starts at or after it. ``owner_link``: where the owner can be reached, an
    http or mailto address. ``done_within``: a scheduled run that takes longer raises an alert (default: two intervals,
    at least an hour). ``notify``: Airflow's notifiers, called when a task failed for good. ``submit``: makes the
    operator of a stage that runs on Spark (default: where the connection ``spark_default`` says).
    """
    beside = Path(sys._getframe(1).f_code.co_filename).absolute().parent
    folder = beside / (pipeline if isinstance(pipeline, Path) else Path("pipelines", pipeline))
    declaration = read_declaration(folder)
    pool = os.environ.get("TIDEGATE_POOL")
    # Of one run. The pool, if there is one, knows better.
    limits: dict[str, Any] = {} if pool else {"max_active_tasks": 1}
    dag = _PipelineDag(
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
        **limits,
        tags=["tidegate"],
        owner_links={declaration.owner: owner_link} if owner_link else {},
        params=parameters(declaration),
        deadline=deadline(declaration.name, promises(declaration), done_within or max(2 * declaration.interval, _HOUR)),
        user_defined_macros={"interval_from": interval_from, "interval_to": interval_to, "with_checked": with_checked},
        default_args={
            "owner": declaration.owner,
            **({"pool": pool} if pool else {}),
            "retry_delay": timedelta(seconds=15),
            "retry_exponential_backoff": True,
            "max_retry_delay": timedelta(minutes=5),
            # What lies further downstream goes first: an interval is finished before the pool turns to the next.
            "weight_rule": "upstream",
            # Skipping resample_history stops nothing; a failure does.
            "trigger_rule": "none_failed",
            "on_failure_callback": [failed, *notify],
        },
        is_paused_upon_creation=True,
    )
    with dag:
        tasks: dict[str, BaseOperator] = {}
        for stage in declaration.stages:
            tasks[stage.name] = _task(stage, declaration, folder, submit or by_connection())
            for upstream in stage.after:
                if upstream in tasks:
                    tasks[upstream].set_downstream(tasks[stage.name])
            if stage.always:
                # A teardown runs whatever failed before it, and hides no failure: the run ends as `publish` did.
                tasks[stage.name].as_teardown()
    return dag


class _PipelineDag(DAG):
    """A DAG that can be tried with ``airflow dags test``, which fails over a deadline (apache/airflow #73428)."""

    def test(self, *arguments: Any, **named: Any) -> Any:
        """Run one interval in this process, with nobody to tell that it is late."""
        self.deadline = None
        return super().test(*arguments, **named)


def _task(stage: Stage, declaration: Declaration, folder: Path, submit: Submit) -> BaseOperator:
    common: dict[str, Any] = {
        "task_id": stage.name,
        "doc_md": stage_documentation(stage),
        "retries": stage.retries,
        "execution_timeout": stage.timeout,
        "wait_for_downstream": stage.waits_for_previous,
        "depends_on_past": stage.waits_for_previous,
        "inlets": inlets(stage, declaration),
        "outlets": outlets(stage, declaration),
        "pre_execute": Gate(stage.name, declaration, daily=stage.daily),
        "post_execute": SayPartitions(declaration, daily=stage.daily, partitions=not stage.landed),
    }
    objects = is_uri(warehouse()) or declaration.uses_objects
    task: BaseOperator
    links: list[BaseOperatorLink] = [PipelinePage(declaration.name, stage.page)]
    if stage.submitted:
        task = submit(
            Application(
                pipeline=declaration.name,
                stage=stage.name,
                folder=folder,
                options=("--warehouse", warehouse(), *_RANGE),
                conf={"spark.driver.memory": "{{ params.driver_memory }}"},
                objects=objects,
                task=common,
            )
        )
        if isinstance(task, SparkSubmission):
            links.append(SparkJobs(declaration.name, stage.name, declaration.interval))
    else:
        # Publishing several intervals costs little more than one.
        kind = PublishCommand if stage.name == "publish" else StageCommand
        task = kind(
            bash_command=_command(stage, folder),
            # dbt keeps its catalog in a folder that takes one process at a time; a page is written by one, too.
            max_active_tis_per_dag=1,
            objects=objects,
            **common,
        )
    # A provider's operator has links of its own.
    task.operator_extra_links = (*task.operator_extra_links, *links)
    return task


def _command(stage: Stage, folder: Path) -> str:
    """The shell's command line of a stage that is no application of Spark."""
    python = os.environ.get("TIDEGATE_PYTHON") or sys.executable
    tidegate, tables = ["exec", python, "-m", "tidegate.cli"], ["--warehouse", warehouse()]
    if stage.name == "report":
        return shlex.join([*tidegate, "report", str(folder), *tables])
    fixed = shlex.join([*tidegate, "run", str(folder), *tables, "--stage", stage.name])
    # What Airflow fills in consists of digits, "-", ":", "T" and "Z": nothing that a shell would interpret.
    together = " {{ with_checked(dag_run | default(none)) }}" if stage.name == "publish" else ""
    return f"{fixed} {' '.join(_RANGE)}{together}"


def promises(declaration: Declaration) -> list[str]:
    """Each query with what it promises, for alerts."""
    return [f"{query.id} ({query.promise or 'no promise'})" for query in declaration.queries]
