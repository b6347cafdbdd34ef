"""In a backfill, intervals are published together: what dbt and Spark take for one is most of what they take for ten.

``publish`` waits there, deferred, so without a slot, while another run of the DAG is on its way to it, for ``PATIENCE``
at most. Then it publishes all that has been checked, and the runs beside it find theirs done. Outside of backfills
nothing waits: a scheduled run is published at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from tidegate_dags.declaration import parse_instant
from tidegate_dags.object_store import StageCommand
from tidegate_dags.places import local_warehouse
from tidegate_dags.run_range import interval_from

PATIENCE = timedelta(minutes=1)
_EVERY_S = 3.0
_THERE = ["scheduled", "queued", "running", "deferred", "restarting", "up_for_retry"]


def with_checked(dag_run: Any) -> str:
    """The option of ``tidegate run`` that takes along what waits; for a backfill only."""
    return "--with-checked" if _is_backfill(dag_run) else ""


class PublishCommand(StageCommand):
    """``publish``; in a backfill it waits for others first."""

    def execute(self, context: Any) -> Any:
        """Publish, or defer until others have come."""
        if _is_backfill(context["dag_run"]) and not self._is_done(context) and others_come(self.dag_id):
            self.log.info("Other intervals will be published too; waiting for them, %s at most", PATIENCE)
            until = time.time() + PATIENCE.total_seconds()
            self.defer(trigger=Gathered(self.dag_id, until), method_name="resume")
        return super().execute(context)

    def resume(self, context: Any, event: Any = None) -> Any:
        """Publish, after it was deferred."""
        return super().execute(context)

    def _is_done(self, context: Any) -> bool:
        """Whether the run before has published the interval; if it has changed since, it is published all the same."""
        last = local_warehouse() / self.dag_id / "_dbt" / "published.json"
        starts = json.loads(last.read_text())["starts"] if last.is_file() else []
        own = parse_instant(interval_from(context["params"], context.get("data_interval_start")))
        return own in map(parse_instant, starts)


class Gathered(BaseTrigger):
    """Fires when no run of the DAG is on its way to ``publish`` any more, or at ``until`` (seconds since 1970)."""

    def __init__(self, dag_id: str, until: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag_id, self.until = dag_id, until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As it is kept until the triggerer takes it up."""
        return f"{__name__}.Gathered", {"dag_id": self.dag_id, "until": self.until}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look every three seconds."""
        while time.time() < self.until and await sync_to_async(others_come)(self.dag_id):
            await asyncio.sleep(_EVERY_S)
        yield TriggerEvent(None)  # type: ignore[no-untyped-call]


def others_come(dag_id: str) -> bool:
    """Whether a run of the DAG is under way that has not come to ``publish``; asked of Airflow, by task or trigger."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    running = RuntimeTaskInstance.get_dr_count(dag_id=dag_id, states=["running"])
    there = RuntimeTaskInstance.get_ti_count(dag_id=dag_id, task_ids=["publish", "report"], states=_THERE)
    return running > there


def _is_backfill(dag_run: Any) -> bool:
    """Whether the run is one of a backfill; None is none: Airflow renders commands without a run, too."""
    return dag_run is not None and str(getattr(dag_run.run_type, "value", dag_run.run_type)) == "backfill"
