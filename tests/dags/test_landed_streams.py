"""The DAG of a pipeline with a stream that comes through Spark has a stage more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.init import init

KAFKA = 'source: {kafka: {servers: "${KAFKA_SERVERS}", topic: orders}}'
HOUR = {"from": "2026-01-05T08:00:00Z", "to": "2026-01-05T09:00:00Z"}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The shop, its orders in a topic of Kafka, its payments in files."""
    init(tmp_path / "shop", "shop")
    declared = tmp_path / "shop" / "pipeline.yml"
    text = declared.read_text()
    changed = re.sub(r"( +)path: landing/orders\S+", rf"\1{KAFKA}", text)
    assert changed != text
    declared.write_text(changed)
    return tmp_path / "shop"


@pytest.fixture
def dag(airflow_home: dict[str, str], shop: Path) -> Any:
    from tidegate_dags import build_dag

    return build_dag(shop)


def _names(assets: Any) -> set[str]:
    return {asset.name.removeprefix("shop.") for asset in assets}


def test_the_schedule_reads_what_the_declaration_says(shop: Path) -> None:
    from tidegate_dags.declaration import read_declaration

    from tidegate.declarations import load_pipeline

    pipeline, declaration = load_pipeline(shop), read_declaration(shop)
    assert declaration.landed == tuple(stream.name for stream in pipeline.landed_streams) == ("orders",)
    assert dict(zip(declaration.streams, declaration.paths, strict=True))["orders"] == ""


def test_landing_comes_before_ingest_and_waits_for_no_interval(dag: Any) -> None:
    land = dag.get_task("land")
    assert land.downstream_task_ids == {"ingest"} and land.upstream_task_ids == set()
    assert not land.wait_for_downstream and not land.depends_on_past
    assert (land.retries, land.execution_timeout.total_seconds()) == (2, 6 * 3600)
    assert Path(land.application).is_file()
    assert "land" in dag.params.get_param("stages").schema["items"]["enum"]


def test_the_lineage_leads_from_the_source_through_what_landed(dag: Any) -> None:
    land, ingest = dag.get_task("land"), dag.get_task("ingest")
    assert _names(land.inlets) == {"source_orders"}
    assert _names(land.outlets) == {"landed_orders", "landings"} <= _names(ingest.inlets)
    assert "watermarks" in _names(ingest.outlets) and "files_orders" not in _names(ingest.inlets)


def test_an_event_of_what_landed_names_no_partition(dag: Any) -> None:
    from airflow.sdk.definitions.asset import AssetUniqueKey
    from airflow.sdk.execution_time.context import OutletEventAccessor

    task = dag.get_task("land")
    events = {asset: OutletEventAccessor(key=AssetUniqueKey.from_asset(asset)) for asset in task.outlets}
    task._post_execute_hook({"params": HOUR, "task": task, "outlet_events": events}, None)
    assert [event.extra for event in events.values()] == [HOUR] * 2
    assert not any(event.partition_keys for event in events.values())


def test_a_pipeline_of_files_alone_has_no_such_stage(airflow_home: dict[str, str], tmp_path: Path) -> None:
    from tidegate_dags import build_dag

    init(tmp_path / "shop", "shop")
    dag = build_dag(tmp_path / "shop")
    assert "land" not in dag.task_ids
    assert "land" not in dag.params.get_param("stages").schema["items"]["enum"]
    assert not {"landings", "watermarks"} & {name for task in dag.tasks for name in _names(task.outlets)}
