"""Stages on Spark as a service: what is asked of the providers' operators, which record it here.

The classes below have arguments and template fields of the providers' operators, so an argument that these do not take
is an error here, too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
START, END = "2013-02-08T10:00:00Z", "2013-02-08T11:00:00Z"
OPTIONS = ["--warehouse", "/warehouse", "--from", START, "--to", END]


@pytest.fixture
def operators(airflow_home: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The three operators, in the modules that have them."""
    from airflow.sdk import BaseOperator

    class DatabricksSubmitRunOperator(BaseOperator):
        template_fields = ("json", "databricks_conn_id")
        operator_extra_links = ("a provider's link",)

        def __init__(self, *, json: Any = None, databricks_conn_id: str = "databricks_default",
                     polling_period_seconds: int = 30, wait_for_termination: bool = True, deferrable: bool = False,
                     **kwargs: Any) -> None:  # fmt: skip
            super().__init__(**kwargs)
            self.json, self.databricks_conn_id = json, databricks_conn_id
            self.polling_period_seconds = polling_period_seconds
            self.wait_for_termination, self.deferrable = wait_for_termination, deferrable

    class EmrServerlessStartJobOperator(BaseOperator):
        template_fields = ("application_id", "config", "execution_role_arn", "job_driver", "configuration_overrides",
                           "name", "aws_conn_id")  # fmt: skip

        def __init__(self, application_id: str, execution_role_arn: str, job_driver: dict[str, Any],
                     configuration_overrides: Any = None, config: Any = None, wait_for_completion: bool = True,
                     name: str | None = None, aws_conn_id: str | None = None, deferrable: bool = False,
                     **kwargs: Any) -> None:  # fmt: skip
            super().__init__(**kwargs)
            self.application_id, self.execution_role_arn, self.job_driver = (
                application_id,
                execution_role_arn,
                job_driver,
            )
            self.configuration_overrides, self.config, self.name = configuration_overrides, config or {}, name
            self.wait_for_completion, self.aws_conn_id, self.deferrable = wait_for_completion, aws_conn_id, deferrable

    class KubernetesPodOperator(BaseOperator):
        template_fields = ("image", "name", "cmds", "arguments", "env_vars", "labels", "namespace")

        def __init__(self, *, image: Any = None, name: Any = None, cmds: Any = None, arguments: Any = None,
                     env_vars: Any = None, labels: Any = None, namespace: Any = None, deferrable: bool = False,
                     on_finish_action: str = "delete_pod", **kwargs: Any) -> None:  # fmt: skip
            super().__init__(**kwargs)
            self.image, self.name, self.cmds, self.arguments = image, name, cmds, arguments
            self.env_vars, self.labels, self.namespace = env_vars, labels, namespace
            self.deferrable, self.on_finish_action = deferrable, on_finish_action

    for module, kind in (
        ("airflow.providers.databricks.operators.databricks", DatabricksSubmitRunOperator),
        ("airflow.providers.amazon.aws.operators.emr", EmrServerlessStartJobOperator),
        ("airflow.providers.cncf.kubernetes.operators.pod", KubernetesPodOperator),
    ):
        stub = ModuleType(module)
        setattr(stub, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, module, stub)


def task(submit: Any, stage: str = "top_k") -> Any:
    """The operator of a stage of the flights, rendered for 10:00 to 11:00."""
    from tidegate_dags import build_dag

    dag = build_dag(PROJECT / "dags" / "pipelines" / "flights", submit=submit)
    found = dag.get_task(stage)
    macros = {"interval_from": lambda *_: START, "interval_to": lambda *_: END}
    found.render_template_fields({"params": {"driver_memory": "1g"}, "dag": dag, **macros}, dag.get_template_env())
    return found


def test_databricks(operators: None) -> None:
    from tidegate_dags.submitters import databricks

    wheel = {"client": "4", "dependencies": ["/Volumes/tidegate.whl"]}
    found = task(databricks("/Volumes/flights", environment=wheel, polling_period_seconds=5))
    assert found.json == {
        "run_name": "flights.top_k",
        "tasks": [
            {
                "task_key": "top_k",
                "python_wheel_task": {
                    "package_name": "tidegate",
                    "entry_point": "tidegate",
                    "parameters": ["run", "/Volumes/flights", *OPTIONS, "--stage", "top_k"],
                },
                "environment_key": "tidegate",
            }
        ],
        "environments": [{"environment_key": "tidegate", "spec": wheel}],
    }
    assert (found.deferrable, found.databricks_conn_id, found.polling_period_seconds) == (True, "databricks_default", 5)
    assert found.operator_extra_links[0] == "a provider's link"
    assert [link.name for link in found.operator_extra_links[1:]] == ["Report"]

    (job,) = task(databricks("/f", cluster={"num_workers": 2}, libraries=[{"whl": "w"}])).json["tasks"]
    assert job["new_cluster"] == {"num_workers": 2} and job["libraries"] == [{"whl": "w"}]
    (job,) = task(databricks("/f", cluster_id="0123")).json["tasks"]
    assert job["existing_cluster_id"] == "0123" and "new_cluster" not in job
    with pytest.raises(ValueError, match="one of cluster, cluster_id and environment"):
        databricks("/f", cluster_id="0123", cluster={})


def test_emr_serverless(operators: None) -> None:
    from tidegate_dags.submitters import emr_serverless

    found = task(
        emr_serverless("00f1", "arn:role", "s3://b/stages/", "./pipeline/flights", parameters="--archives a#b")
    )
    assert found.job_driver == {
        "sparkSubmit": {
            "entryPoint": "s3://b/stages/top_k.py",
            "entryPointArguments": ["./pipeline/flights", *OPTIONS],
            "sparkSubmitParameters": "--conf spark.driver.memory=1g --archives a#b",
        }
    }
    assert (found.application_id, found.execution_role_arn, found.name) == ("00f1", "arn:role", "flights.top_k")
    assert found.deferrable and found.wait_for_completion


def test_kubernetes(operators: None) -> None:
    from tidegate_dags.submitters import kubernetes

    found = task(kubernetes("tidegate:1", "/pipelines/flights", namespace="n", env_vars={"A": "b"}), "join_aggregate")
    assert found.cmds == ["python3", "-m", "tidegate.stages.join_aggregate"]
    assert found.arguments == ["/pipelines/flights", *OPTIONS]
    assert (found.image, found.name, found.namespace) == ("tidegate:1", "flights-join-aggregate", "n")
    assert found.env_vars == {"A": "b"} and found.deferrable
    assert found.labels == {"app": "tidegate", "pipeline": "flights", "stage": "join_aggregate"}


def test_what_every_task_has_is_theirs_too(operators: None) -> None:
    from tidegate_dags.submitters import kubernetes

    found, own = task(kubernetes("i", "/f"), "ingest"), task(None, "ingest")
    for name in ("retries", "execution_timeout", "wait_for_downstream", "depends_on_past", "outlets", "doc_md", "pool"):
        assert getattr(found, name) == getattr(own, name), name
    assert hasattr(task(kubernetes("i", "/f"), "publish"), "bash_command"), "what Spark has no part in stays a command"


def test_a_dry_run_says_what_would_have_been_asked_for(operators: None) -> None:
    from tidegate_dags.run_range import _command
    from tidegate_dags.submitters import kubernetes

    assert "tidegate.stages.top_k" in _command({"task": task(kubernetes("i", "/f"))})


@pytest.mark.parametrize("kind", ["databricks", "amazon", "cncf-kubernetes"])
def test_a_missing_provider_is_named(airflow_home: dict[str, str], kind: str) -> None:
    from tidegate_dags import submitters

    submit = {
        "databricks": lambda: submitters.databricks("/f", cluster_id="1"),
        "amazon": lambda: submitters.emr_serverless("a", "r", "s", "f"),
        "cncf-kubernetes": lambda: submitters.kubernetes("i", "f"),
    }[kind]()
    with pytest.raises(ImportError, match=f"needs the provider apache-airflow-providers-{kind}: install it"):
        task(submit)
