"""Stages on Spark as a service: what ``build_dag(submit=…)`` takes beside the connection's word.

Each function makes a submitter: what makes the operator of a stage. The operators are those of Airflow's providers,
which have to be installed where Airflow runs, and wait deferred, without a worker, until the stage is done. What a
stage needs where it runs (the package, the pipeline's folder, the store's credentials): docs/how-to/submit.md.

A submitter of your own is a function like those that these return.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator

from tidegate_dags.submission import Application, Submit


def databricks(
    folder: str,
    *,
    conn_id: str = "databricks_default",
    cluster: Mapping[str, Any] | None = None,
    cluster_id: str | None = None,
    environment: Mapping[str, Any] | None = None,
    libraries: Sequence[Mapping[str, Any]] = (),
    **operator: Any,
) -> Submit:
    """Each stage is a run of Databricks' jobs, of the wheel's entry point ``tidegate``.

    Args:
        folder: where the pipeline's folder is there: ``/Volumes/main/default/pipelines/shop``.
        conn_id: Airflow's connection to Databricks.
        cluster: a new cluster a run, as ``new_cluster`` of the jobs API.
        cluster_id: or one that is there.
        environment: or serverless compute, as ``spec`` of an environment, with the wheel among its ``dependencies``.
        libraries: of a cluster: the wheel, unless the cluster has it.
        operator: further arguments of ``DatabricksSubmitRunOperator``.

    Raises:
        ValueError: not one of ``cluster``, ``cluster_id`` and ``environment`` is given.
    """
    if sum(where is not None for where in (cluster, cluster_id, environment)) != 1:
        raise ValueError("give one of cluster, cluster_id and environment: where the stages run")

    def submit(application: Application) -> BaseOperator:
        kind = _operator(
            "databricks", "airflow.providers.databricks.operators.databricks", "DatabricksSubmitRunOperator"
        )
        task: dict[str, Any] = {
            "task_key": application.stage,
            "python_wheel_task": {
                "package_name": "tidegate",
                "entry_point": "tidegate",
                "parameters": ["run", folder, *application.options, "--stage", application.stage],
            },
        }
        job: dict[str, Any] = {"run_name": f"{application.pipeline}.{application.stage}", "tasks": [task]}
        if environment is not None:
            task["environment_key"] = "tidegate"
            job["environments"] = [{"environment_key": "tidegate", "spec": dict(environment)}]
        else:
            if cluster is not None:
                task["new_cluster"] = dict(cluster)
            else:
                task["existing_cluster_id"] = cluster_id
            task["libraries"] = [dict(library) for library in libraries]
        settings: dict[str, Any] = {
            "databricks_conn_id": conn_id,
            "deferrable": True,
            "wait_for_termination": True,
        } | operator
        return kind(json=job, **settings, **application.task)

    return submit


def emr_serverless(
    application_id: str,
    role: str,
    stages: str,
    folder: str,
    *,
    parameters: str = "",
    conn_id: str = "aws_default",
    **operator: Any,
) -> Submit:
    """Each stage is a job run of an application of EMR Serverless.

    Args:
        application_id: of the application, which has to be of type Spark.
        role: the job's execution role (ARN): it reads and writes warehouse and landed files.
        stages: where the stages' files are: ``s3://bucket/stages``.
        folder: where the job finds the pipeline's folder: ``./pipeline/shop`` of an archive.
        parameters: further words for spark-submit: ``--archives …#environment …``.
        conn_id: Airflow's connection to AWS.
        operator: further arguments of ``EmrServerlessStartJobOperator``.
    """

    def submit(application: Application) -> BaseOperator:
        kind = _operator("amazon", "airflow.providers.amazon.aws.operators.emr", "EmrServerlessStartJobOperator")
        conf = " ".join(f"--conf {name}={value}" for name, value in application.conf.items())
        driver = {
            "sparkSubmit": {
                "entryPoint": f"{stages.rstrip('/')}/{application.stage}.py",
                "entryPointArguments": [folder, *application.options],
                "sparkSubmitParameters": f"{conf} {parameters}".strip(),
            }
        }
        settings: dict[str, Any] = {"aws_conn_id": conn_id, "deferrable": True, "wait_for_completion": True} | operator
        return kind(
            application_id=application_id,
            execution_role_arn=role,
            job_driver=driver,
            name=f"{application.pipeline}.{application.stage}",
            **settings,
            **application.task,
        )

    return submit


def kubernetes(image: str, folder: str, *, python: str = "python3", **operator: Any) -> Submit:
    """Each stage is a pod: its slices are tasks of a Spark in the pod, or of the one that ``env_vars`` names.

    Args:
        image: with Tidegate, Java and the pipelines, as infra/containers has it.
        folder: the pipeline's folder in the image, or in a volume.
        python: the image's interpreter that has Tidegate.
        operator: further arguments of ``KubernetesPodOperator``: ``namespace``, ``env_vars``, ``volumes``, ``secrets``…
    """

    def submit(application: Application) -> BaseOperator:
        kind = _operator("cncf.kubernetes", "airflow.providers.cncf.kubernetes.operators.pod", "KubernetesPodOperator")
        settings: dict[str, Any] = {
            "name": f"{application.pipeline}-{application.stage}".replace("_", "-"),
            "labels": {"app": "tidegate", "pipeline": application.pipeline, "stage": application.stage},
            "deferrable": True,
            "on_finish_action": "delete_succeeded_pod",
        }
        settings |= operator
        return kind(
            image=image,
            cmds=[python, "-m", f"tidegate.stages.{application.stage}"],
            arguments=[folder, *application.options],
            **settings,
            **application.task,
        )

    return submit


def _operator(provider: str, module: str, name: str) -> Callable[..., BaseOperator]:
    """An operator's class. Looked up when a DAG is built: nobody needs a provider that he does not use."""
    try:
        kind: Callable[..., BaseOperator] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        package = f"apache-airflow-providers-{provider.replace('.', '-')}"
        raise ImportError(
            f"this submitter needs the provider {package}: install it where Airflow runs ({error})"
        ) from None
    return kind
