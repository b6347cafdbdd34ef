"""How a stage is submitted to Spark: by the connection's word, or without a connection, and what becomes of its end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

CONNECTION = "AIRFLOW_CONN_SPARK_DEFAULT"


@pytest.fixture
def submission(airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stage whose application says its arguments and ends with the status that it is given."""
    from airflow.sdk import DAG
    from tidegate_dags.submission import SparkSubmission

    monkeypatch.setenv("TIDEGATE_PYTHON", str(tmp_path / "bin" / "python"))
    application = tmp_path / "application.py"
    with DAG("shop"):
        return SparkSubmission(task_id="ingest", application=str(application), application_args=["a b"],
                               conf={"spark.driver.memory": "1g"})  # fmt: skip


def _connect(monkeypatch: pytest.MonkeyPatch, **connection: Any) -> None:
    monkeypatch.setenv(CONNECTION, json.dumps(connection))


def test_without_a_connection_it_runs_here_and_no_spark_is_named(
    submission: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CONNECTION)
    monkeypatch.delenv("TIDEGATE_SPARK_MASTER", raising=False)
    assert submission.command() == [os.environ["TIDEGATE_PYTHON"], submission.application, "a b"]
    monkeypatch.setenv("TIDEGATE_SPARK_MASTER", "spark://there:7077")
    assert submission.command() == [
        "spark-submit", "--master", "spark://there:7077", "--conf", "spark.driver.memory=1g", "--name", "shop.ingest",
        submission.application, "a b",
    ]  # fmt: skip
    monkeypatch.delenv("TIDEGATE_SPARK_MASTER")
    _stand_in(tmp_path, 0)
    submission.execute({})
    _, environment = json.loads((tmp_path / "said.json").read_text())
    assert "TIDEGATE_SPARK_MASTER" not in environment


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ({"conn_type": "spark", "host": "yarn"}, "yarn"),
        ({"conn_type": "spark", "host": "spark://there", "port": 7077}, "spark://there:7077"),
        ({"conn_type": "spark", "host": "there", "port": 7077}, "spark://there:7077"),
        ({"conn_type": "k8s", "host": "there", "port": 443}, "k8s://there:443"),
    ],
)
def test_the_master_is_the_connections(
    submission: Any, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], master: str
) -> None:
    """Written into the host, or apart, as the form and the URI of Airflow have it."""
    _connect(monkeypatch, **connection)
    assert submission.command()[1:3] == ["--master", master]


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ({"conn_type": "spark_connect", "host": "there", "port": 15002}, "sc://there:15002"),
        ({"conn_type": "spark_connect", "host": "sc://there", "port": 15002}, "sc://there:15002"),
        ({"conn_type": "spark_connect", "host": "there", "login": "a b"}, "sc://there/;user_id=a%20b"),
        (
            {"conn_type": "spark_connect", "host": "there", "port": 443, "extra": {"use_ssl": True}, "password": "s"},
            "sc://there:443/;use_ssl=true",
        ),
        ({"conn_type": "spark_connect", "host": "127.0.0.1", "port": 1}, "sc://127.0.0.1:1"),
        ({"conn_type": "spark_connect", "host": "127.0.0.1", "port": 1, "password": "s"}, "sc://localhost:1"),
        ({"conn_type": "spark", "host": "sc://there:1"}, "sc://there:1"),
        ({"conn_type": "sc", "host": "there", "port": 1}, "sc://there:1"),
    ],
)
def test_of_a_connect_server_the_stage_is_a_client(
    submission: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], address: str
) -> None:
    """A process here, whatever else this machine says; its token is in the environment alone."""
    _connect(monkeypatch, **connection)
    monkeypatch.setenv("TIDEGATE_SPARK_MASTER", "local[2]")
    _stand_in(tmp_path, 0)
    submission.execute({})
    words, environment = json.loads((tmp_path / "said.json").read_text())
    assert words == submission.command() == [os.environ["TIDEGATE_PYTHON"], submission.application, "a b"]
    assert environment["TIDEGATE_SPARK_MASTER"] == address
    assert environment.get("SPARK_CONNECT_AUTHENTICATE_TOKEN") == connection.get("password")
    assert "PYSPARK_SUBMIT_ARGS" not in environment


def test_extras_of_the_connection(submission: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"deploy-mode": "cluster", "queue": "night", "namespace": "spark", "rest-port": 1}
    _connect(monkeypatch, conn_type="spark", host="spark://there:7077", extra=extra)
    line = " ".join(submission.command())
    assert "--deploy-mode cluster --queue night" in line
    assert "--conf spark.kubernetes.namespace=spark" in line
    assert "--conf spark.standalone.submit.waitAppCompletion=true" in line, "the task ends when the application does"


def test_a_connection_names_no_other_program(submission: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    _connect(monkeypatch, conn_type="spark", host="local", extra={"spark-binary": "/bin/sh"})
    with pytest.raises(AirflowFailException, match="spark-binary is '/bin/sh'; expected one of spark-submit"):
        submission.command()


def _stand_in(folder: Path, status: int) -> None:
    """A Python that has Tidegate and a spark-submit beside it, which write down what they are given."""
    (folder / "bin").mkdir()
    said = folder / "said.json"
    for name in ("python", "spark-submit"):
        program = folder / "bin" / name
        program.write_text(
            f"#!{sys.executable}\nimport json, os, sys\n"
            f"json.dump([sys.argv, dict(os.environ)], open({str(said)!r}, 'w'))\nsys.exit({status})\n"
        )
        program.chmod(0o700)


def test_here_the_python_that_has_tidegate_runs_it(
    submission: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings for a session that it may start, unless the environment names others."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    _stand_in(tmp_path, 0)
    submission.execute({})
    words, environment = json.loads((tmp_path / "said.json").read_text())
    assert words == submission.command()
    assert environment["PYSPARK_SUBMIT_ARGS"] == "--conf spark.driver.memory=1g pyspark-shell"
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == str(tmp_path / "bin" / "python")
    assert (Path(environment["SPARK_CONF_DIR"]) / "log4j2.properties").is_file()

    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    submission.execute({})
    words, environment = json.loads((tmp_path / "said.json").read_text())
    assert environment["PYSPARK_PYTHON"] == "/opt/python"
    assert "SPARK_CONF_DIR" not in environment, "a Spark of its own has settings of its own"


def test_on_a_cluster_the_settings_of_one_machine_do_not_apply(
    submission: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_CONF_DIR", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
    _connect(monkeypatch, conn_type="spark", host="yarn")
    _stand_in(tmp_path, 0)
    submission.execute({})
    words, environment = json.loads((tmp_path / "said.json").read_text())
    assert words[0] == str(tmp_path / "bin" / "spark-submit"), "the program beside the Python that has Tidegate"
    assert words == submission.command() and "PYSPARK_SUBMIT_ARGS" not in environment
    assert environment["TIDEGATE_SPARK_MASTER"] == "yarn"
    # Its workers have a Python of their own, and have to reach the driver.
    assert not {"SPARK_CONF_DIR", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"} & environment.keys()


def test_a_failure_of_the_application_is_one_of_the_task(submission: Any, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowException

    _stand_in(tmp_path, 2)
    with pytest.raises(AirflowException, match="ingest ended with status 2"):
        submission.execute({})
