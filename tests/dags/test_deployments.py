"""The files for containers and Kubernetes: valid by their own tools, and in step with what `make up` starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tools import tool

PROJECT = Path(__file__).resolve().parents[2]
CONTAINERS, KUBERNETES = PROJECT / "infra" / "containers", PROJECT / "infra" / "kubernetes"
NEEDED = {
    "AIRFLOW_HOME", "AIRFLOW__CORE__DAGS_FOLDER", "TIDEGATE_POOL", "AIRFLOW__CORE__LOAD_EXAMPLES",
    "AIRFLOW__CORE__EXECUTOR", "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", "AIRFLOW__CORE__EXECUTION_API_SERVER_URL",
    "AIRFLOW__API__BASE_URL", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW_CONN_SPARK_DEFAULT",
    "TIDEGATE_SPARK_EVENTS", "TIDEGATE_SPARK_UI",
}  # fmt: skip


def _run(*words: str, given: str | None = None) -> str:
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _documents() -> list[dict[str, Any]]:
    return [one for file in sorted(KUBERNETES.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text())]


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    _run(tool("hadolint"), "--failure-threshold", "warning", str(CONTAINERS / "Dockerfile"))


def test_compose_follows_its_specification() -> None:
    _run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(CONTAINERS / "compose.yaml"))


def test_kubernetes_knows_every_field() -> None:
    files = [file for file in sorted(KUBERNETES.glob("*.yaml")) if file.name != "kustomization.yaml"]
    assert len(files) > 1
    _run(tool("kubernetes-validate"), "--version", "1.33", "--strict", *map(str, files))


@pytest.mark.slow
def test_kubernetes_knows_every_field_of_what_kubectl_renders(tmp_path: Path) -> None:
    rendered = tmp_path / "all.yaml"
    rendered.write_text(_run(tool("kubectl"), "kustomize", str(KUBERNETES)))
    _run(tool("kubernetes-validate"), "--version", "1.33", "--strict", str(rendered))


def test_all_deployments_start_the_same_components_with_the_same_settings() -> None:
    """What `make up` starts and the tests run is what compose and Kubernetes start."""
    sys.path.insert(0, str(PROJECT / "infra" / "airflow"))
    try:
        from environment import Spark, airflow_environment, places
        from stack import COMPONENTS
    finally:
        sys.path.remove(str(PROJECT / "infra" / "airflow"))
    spark = Spark(15002, 4040, "token")
    assert set(airflow_environment(places(), 8080, spark)) >= NEEDED

    services = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())["services"]
    assert set(services) == {"database", "prepare", "spark", *COMPONENTS}
    assert services["spark"]["command"][:2] == ["tidegate", "spark-server"]
    assert set(services["scheduler"]["environment"]) >= NEEDED

    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in _documents() if "metadata" in one}
    pod = by_kind["Deployment", "airflow"]["spec"]["template"]["spec"]
    started = {one["name"]: one["command"][2:] for one in pod["containers"]}
    assert started.pop("spark")[:2] == ["tidegate", "spark-server"]
    assert {name: command[1:] for name, command in started.items()} == COMPONENTS
    settings = set(by_kind["ConfigMap", "tidegate"]["data"])
    settings |= {one["name"] for one in pod["containers"][0]["env"]}
    assert settings >= NEEDED


def test_a_stage_gets_the_memory_that_its_pipeline_was_given() -> None:
    """The job's limit is the process budget of flights; no container runs without a limit or as root."""
    declared = yaml.safe_load((PROJECT / "dags" / "pipelines" / "flights" / "pipeline.yml").read_text())
    job = yaml.safe_load((KUBERNETES / "stage-job.yaml").read_text())["spec"]["template"]["spec"]
    assert job["containers"][0]["resources"]["limits"]["memory"] == declared["process_budget"].replace(" GiB", "Gi")
    for one in _documents():
        if "template" in one.get("spec", {}):
            pod = one["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            for container in pod["containers"] + pod.get("initContainers", []):
                assert "memory" in container["resources"]["limits"], container["name"]
