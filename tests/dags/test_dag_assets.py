"""The lineage that Airflow shows: every table is an asset of the stage that writes it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]


def _names(assets: Any) -> set[str]:
    return {asset.name.removeprefix("flights.") for asset in assets}


def test_every_table_of_the_warehouse_is_written_by_one_stage(flights: Any) -> None:
    """The tables that the stages' code declares, no more and no fewer."""
    from tidegate.declarations import load_pipeline
    from tidegate.declarations.tables import tables

    declared = set(tables(load_pipeline(PROJECT / "dags" / "pipelines" / "flights")))
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
    files = {"files_departures", "files_landings", "files_weather"}
    for task in flights.tasks:
        assert _names(task.inlets) - files <= written, task.task_id
        assert task.inlets, task.task_id
    assert "events_weather" in _names(flights.get_task("join_aggregate").inlets)


def test_an_event_says_which_stretch_it_is_about(flights: Any) -> None:
    """What a consumer reads of an event is the range of arrival time."""
    from tidegate_dags.assets import say_interval

    task = flights.get_task("top_k")
    events = {asset: SimpleNamespace(extra={}) for asset in task.outlets}
    params = {"from": "2013-02-07T00:00:00Z", "to": "2013-02-08T00:00:00Z"}
    say_interval({"params": params, "task": task, "outlet_events": events})
    assert all(event.extra == params for event in events.values())
