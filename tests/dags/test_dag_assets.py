"""The lineage that Airflow shows: every table is an asset of the stage that writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk.definitions.asset import AssetUniqueKey
from airflow.sdk.execution_time.context import OutletEventAccessor
from tidegate_dags.declaration import parse_instant

PROJECT = Path(__file__).resolve().parents[2]


def _names(assets: Any) -> set[str]:
    return {asset.name.removeprefix("flights.") for asset in assets}


def test_every_table_of_the_warehouse_is_written_by_one_stage(flights: Any) -> None:
    """The tables that the stages' code declares, no more and no fewer."""
    from tidegate.declarations import load_pipeline
    from tidegate.declarations.tables import tables

    pipeline = load_pipeline(PROJECT / "dags" / "pipelines" / "flights")
    declared = {*tables(pipeline), "landings", "watermarks"}
    declared |= {f"landed_{stream.name}" for stream in pipeline.landed_streams}
    written = [name for task in flights.tasks if task.task_id != "publish" for name in _names(task.outlets)]
    assert sorted(written) == sorted(declared - {"run_metrics"})


def test_answers_come_from_the_stage_that_gives_them(flights: Any) -> None:
    """Top-k is told from the rest by LIMIT, as the parser does."""
    from tidegate.declarations import load_pipeline

    queries = load_pipeline(PROJECT / "dags" / "pipelines" / "flights").queries
    for task_id in ("top_k", "join_aggregate"):
        own = {f"answers_{query.id}" for query in queries if (query.kind == "top_k") == (task_id == "top_k")}
        assert own and _names(flights.get_task(task_id).outlets) == own


def test_marts_are_assets_and_stages_read_assets_that_are_written(flights: Any) -> None:
    """The way leads from the files to the marts without a gap."""
    marts = {path.stem for path in (PROJECT / "dbt" / "models" / "marts").glob("*.sql")}
    assert marts
    assert _names(flights.get_task("publish").outlets) == marts | {"flights_models"}
    written = {name for task in flights.tasks for name in _names(task.outlets)}
    outside = {"source_departures", "source_landings", "files_weather"}
    for task in flights.tasks:
        assert _names(task.inlets) - outside <= written, task.task_id
        assert task.inlets, task.task_id
    assert "events_weather" in _names(flights.get_task("join_aggregate").inlets)


def _said(dag: Any, task_id: str, start: str, end: str) -> dict[str, OutletEventAccessor]:
    """What is noted on the events of a task's assets after it ran for a stretch."""
    task = dag.get_task(task_id)
    events = {asset: OutletEventAccessor(key=AssetUniqueKey.from_asset(asset)) for asset in task.outlets}
    task._post_execute_hook({"params": {"from": start, "to": end}, "task": task, "outlet_events": events}, None)
    return {asset.name.removeprefix("flights."): event for asset, event in events.items()}


def test_an_event_says_which_stretch_and_partitions_it_is_about(flights: Any) -> None:
    """A consumer reads of an event the partition's label, as its folder has it, and the range of arrival time."""
    from tidegate.declarations import load_pipeline
    from tidegate.store.intervals import intervals_between

    start, end = "2013-02-07T22:00:00Z", "2013-02-08T01:00:00Z"
    pipeline = load_pipeline(PROJECT / "dags" / "pipelines" / "flights")
    labels = {i.label for i in intervals_between(pipeline, parse_instant(start), parse_instant(end))}
    events = _said(flights, "top_k", start, end)
    assert events and all(event.extra == {"from": start, "to": end} for event in events.values())
    assert all(event.partition_keys == labels for event in events.values())
    assert len(labels) == 3
    assert _said(flights, "resample_history", start, end)["history_passes"].partition_keys == {"2013-02-07T23"}


def test_what_triggers_plain_consumers_has_no_partition(flights: Any) -> None:
    """Airflow starts a DAG that knows no partitions only by events that have none."""
    events = _said(flights, "publish", "2013-02-07T22:00:00Z", "2013-02-08T01:00:00Z")
    assert not events.pop("flights_models").partition_keys
    assert events and all(len(event.partition_keys) == 3 for event in events.values())


def test_a_long_stretch_is_one_event_an_asset(flights: Any) -> None:
    events = _said(flights, "ingest", "2013-01-01T00:00:00Z", "2014-01-01T00:00:00Z")
    assert events and not any(event.partition_keys for event in events.values())
