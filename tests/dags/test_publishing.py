"""In a backfill, publishes wait for each other: when, for how long, and what they are told then."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.dags.test_dag_commands import INTERVAL

NOTHING = {"from": None, "to": None}


class Said(Exception):
    """The command was to be run."""


@pytest.fixture
def under_way(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What Airflow says of a DAG's runs: how many are running, how many of them have come to ``publish``."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    counts = {"running": 1, "there": 1}
    monkeypatch.setattr(RuntimeTaskInstance, "get_dr_count", lambda **_: counts["running"])
    monkeypatch.setattr(RuntimeTaskInstance, "get_ti_count", lambda **_: counts["there"])
    return counts


@pytest.fixture
def publish(flights: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The task, with a warehouse of its own; it raises ``Said`` instead of running its command."""
    from airflow.providers.standard.operators.bash import BashOperator

    def execute(*_: Any) -> None:
        raise Said

    monkeypatch.setenv("TIDEGATE_WAREHOUSE", str(tmp_path))
    monkeypatch.setattr(BashOperator, "execute", execute)
    return flights.get_task("publish")


def context(kind: str) -> dict[str, Any]:
    return {**INTERVAL, "params": NOTHING, "dag_run": SimpleNamespace(run_type=kind)}


@pytest.mark.parametrize(("kind", "running"), [("scheduled", 5), ("manual", 5), ("backfill", 1)])
def test_nobody_waits_outside_of_a_backfill_or_without_others(
    publish: Any, under_way: dict[str, int], kind: str, running: int
) -> None:
    under_way["running"] = running
    with pytest.raises(Said):
        publish.execute(context(kind))


def test_while_others_come_it_waits_without_a_slot_and_then_publishes(publish: Any, under_way: dict[str, int]) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    under_way["running"] = 3
    with pytest.raises(TaskDeferred) as deferred:
        publish.execute(context("backfill"))
    trigger = deferred.value.trigger
    name, arguments = trigger.serialize()
    assert name == "tidegate_dags.publishing.Gathered"
    assert 0 < arguments["until"] - time.time() <= 60
    under_way["there"] = 3
    assert asyncio.run(first(type(trigger)(**arguments))) is not None
    with pytest.raises(Said):
        getattr(publish, deferred.value.method_name)(context("backfill"))


def test_it_does_not_wait_for_ever(under_way: dict[str, int]) -> None:
    from tidegate_dags.publishing import Gathered

    under_way["running"] = 3
    assert asyncio.run(first(Gathered("flights", time.time() - 1))) is not None


async def first(trigger: Any) -> Any:
    return await anext(trigger.run())


def test_what_another_run_has_published_is_not_waited_for(
    publish: Any, under_way: dict[str, int], tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    under_way["running"] = 3
    start: datetime = INTERVAL["data_interval_start"]
    home = tmp_path / "flights" / "_dbt"
    home.mkdir(parents=True)
    for starts, expected in (([start - timedelta(hours=1)], TaskDeferred), ([start], Said)):
        told = {"fingerprint": "", "starts": [one.astimezone(UTC).isoformat() for one in starts]}
        (home / "published.json").write_text(json.dumps(told))
        with pytest.raises(expected):
            publish.execute(context("backfill"))


def test_only_a_backfill_publishes_what_waits_beside_it(flights: Any) -> None:
    macro = flights.user_defined_macros["with_checked"]
    options = {kind: macro(SimpleNamespace(run_type=kind)) for kind in ("backfill", "scheduled", "manual")}
    assert options == {"backfill": "--with-checked", "scheduled": "", "manual": ""}
    assert macro(None) == ""
