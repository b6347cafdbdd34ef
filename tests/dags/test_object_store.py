"""DAGs of a pipeline whose files and tables are in an object store."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.init import init

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
CONNECTION = {
    "conn_type": "aws",
    "login": "AKIAIOSFODNN7EXAMPLE",
    "password": SECRET,
    "extra": {"region_name": "eu-central-1", "endpoint_url": "http://127.0.0.1:1", "aws_session_token": "t0ken"},
}
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": "t0ken",
    "AWS_REGION": "eu-central-1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
}


@pytest.fixture
def dag(airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from tidegate_dags import build_dag

    init(tmp_path / "shop", "shop")
    declared = tmp_path / "shop" / "pipeline.yml"
    declared.write_text(declared.read_text().replace("path: landing", "path: s3://lake/landing"))
    monkeypatch.setenv("TIDEGATE_WAREHOUSE", "s3://lake/tables/")
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(CONNECTION))
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    return build_dag(tmp_path / "shop")


def test_assets_bear_the_uris_of_the_objects(dag: Any) -> None:
    found = {asset.name: asset.uri for task in dag.tasks for asset in (*task.inlets, *task.outlets)}
    assert found["shop.files_orders"] == "s3://lake/landing/orders"
    assert found["shop.answers_revenue"] == "s3://lake/tables/shop/answers_revenue"
    assert any(uri.startswith("s3://lake/tables/shop/marts/") for uri in found.values())


def test_the_connections_keys_are_in_the_environment_of_the_process_and_nowhere_else(dag: Any) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    for task in dag.tasks:
        if hasattr(task, "command"):
            said, environment = task.command(), task._environment()
        else:
            said, environment = task.bash_command, task.get_env({"ti": None})
        assert KEYS.items() <= environment.items(), task.task_id
        rendered = [str(getattr(task, name)) for name in task.template_fields]
        assert not any(key in str([said, rendered]) for key in (SECRET, "t0ken", CONNECTION["login"]))
    assert SECRET not in json.dumps(DagSerialization.to_dict(dag), default=str)


def test_what_the_environment_says_goes_first(dag: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_dags.object_store import keys

    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert keys() == {name: value for name, value in KEYS.items() if name != "AWS_REGION"}
    monkeypatch.delenv("AIRFLOW_CONN_AWS_DEFAULT")
    assert keys() == {}


def test_a_pipeline_on_a_disk_asks_for_no_keys(flights: Any) -> None:
    assert not any(task.objects for task in flights.tasks)


@pytest.mark.parametrize(
    "more",
    [
        "    checkpoint: s3a://lake/checkpoints\n    source: {kafka: {servers: 'a:9092', topic: orders}}",
        "    source: {spark: {format: parquet, options: {path: '${LAKE:-s3a://lake}/orders'}}}",
    ],
)
def test_a_warehouse_on_a_disk_has_keys_where_one_place_is_in_a_store(
    airflow_home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    from tidegate_dags import build_dag

    init(tmp_path / "shop", "shop")
    declared = tmp_path / "shop" / "pipeline.yml"
    text = declared.read_text()
    monkeypatch.setenv("TIDEGATE_WAREHOUSE", str(tmp_path / "tables"))
    assert not any(task.objects for task in build_dag(tmp_path / "shop").tasks)
    changed = re.sub(r" +path: landing/orders\S+", more, text)
    assert changed != text
    declared.write_text(changed)
    assert all(task.objects for task in build_dag(tmp_path / "shop").tasks)


def test_pages_are_where_the_stages_write_them(dag: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_dags.places import local_warehouse

    from tidegate.store.places import local_folder, place

    for name, value in (("XDG_STATE_HOME", str(tmp_path)), ("TIDEGATE_LOCAL", str(tmp_path / "own"))):
        monkeypatch.setenv(name, value)
        assert local_warehouse() / "shop" == local_folder(place("s3://lake/tables/shop"))
