"""What is said when something went wrong: which stage, which interval, which query and promise, and where to look.

An alert is an error in the log and a line in ``<warehouse>/<pipeline>/_docs/alerts.jsonl``, which the Tidegate page
shows. ``build_dag(notify=[…])`` adds Airflow's own notifiers (mail, chat), which find the text in ``exception``.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import BaseDeadlineReference, DeadlineAlert

from tidegate.declarations.interval_labels import label_start
from tidegate_dags.declaration import parse_instant
from tidegate_dags.places import local_warehouse
from tidegate_dags.run_range import RangeError

MOST_ALERTS = 200
_NAMED = 5

_log = logging.getLogger(__name__)


def failed(context: Any) -> None:
    """A task failed for good: say so, with the promises that the interval's judgement names."""
    task = context["ti"]
    params = context.get("params") or {}
    start = _instant(params.get("from")) or context.get("data_interval_start")
    end = _instant(params.get("to")) or context.get("data_interval_end")
    documents = _documents(task.dag_id)
    text = f"Stage {task.task_id} of pipeline {task.dag_id} failed for the interval {_span(start, end)}."
    if isinstance(context.get("exception"), RangeError):
        text += f" {context['exception']}"
    broken = _broken(documents, start) if task.task_id == "check_quality" else []
    if broken:
        text += " " + " ".join(broken)
    _log.error(
        "%s The cause is in the log above. Refused records are in the table quarantine, what each application did in "
        "run_metrics, what was promised and kept in promise_periods, other findings in quality_results. After fixing "
        "it, clear this task: later stages and the intervals that wait for it then continue by themselves.",
        text,
    )
    record(documents, "failure", text)


class RunQueued(BaseDeadlineReference):
    """When a run was first queued. ``plugins/deadlines.py`` makes it known to Airflow.

    Airflow's own DAGRUN_QUEUED_AT moves a cleared run's deadline, and fails in that (apache/airflow #70368): no failed
    task could be cleared, and no failed interval be filled again.
    """

    required_kwargs = frozenset({"dag_id", "run_id"})

    def _evaluate_with(self, *, session: Any, dag_id: str, run_id: str) -> datetime | None:
        from airflow.models import DagRun
        from sqlalchemy import select

        queued: datetime | None = session.scalar(
            select(DagRun.queued_at).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        )
        return queued


def deadline(pipeline: str, promises: list[str], within: timedelta) -> DeadlineAlert:
    """Alert if a run is not done so long after it was queued: what it promises is then old news.

    Not from the logical date: every interval of a backfill would have missed that at once.
    """
    return DeadlineAlert(
        reference=RunQueued(),
        interval=within,
        callback=AsyncCallback(
            late, kwargs={"pipeline": pipeline, "promises": promises, "within_s": within.total_seconds()}
        ),
        name=f"{pipeline} is overdue",
    )


async def late(pipeline: str, promises: list[str], within_s: float, context: Any = None, **_: Any) -> None:
    """Called by the triggerer when a run missed its deadline."""
    run = (context or {}).get("dag_run") or {}
    if run.get("run_type") == "backfill":
        return  # its runs are queued together and take turns: waiting is no delay
    interval = _span(run.get("data_interval_start"), run.get("data_interval_end"))
    text = (
        f"Pipeline {pipeline}: the run for the interval {interval} was not complete {timedelta(seconds=within_s)} "
        f"after it was queued. Until it is, these answers are out of date: "
        f"{'; '.join(promises) or 'no query is declared'}."
    )
    _log.error("%s", text)
    record(_documents(pipeline), "late", text)


def record(documents: Path, kind: str, text: str) -> None:
    """Add an alert to those that the Tidegate page shows; the newest are kept."""
    path = documents / "alerts.jsonl"
    try:
        documents.mkdir(parents=True, exist_ok=True)
        kept = path.read_text(encoding="utf-8").splitlines()[1 - MOST_ALERTS :] if path.exists() else []
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), "kind": kind, "text": text})
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_text("\n".join([*kept, line]) + "\n", encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        _log.warning("The alert could not be written to %s: %s", path, error)


def _documents(pipeline: str) -> Path:
    return local_warehouse() / pipeline / "_docs"


def _broken(documents: Path, start: datetime | None) -> list[str]:
    """What check_quality found critical in the interval, in its own words."""
    try:
        judged = json.loads((documents / "quality" / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    found = [row for row in judged.get("broken", []) if row["severity"] == "critical"]
    own = [row for row in found if label_start(row["interval"]) == start] or found
    said = [f"{row['query'] or row['table']}: {row['detail']}." for row in own[:_NAMED]]
    return [*said, f"And {len(own) - _NAMED} more."] if len(own) > _NAMED else said


def _instant(given: Any) -> datetime | None:
    return parse_instant(given) if given else None


def _span(start: Any, end: Any) -> str:
    return f"[{_shown(start)}, {_shown(end)})"


def _shown(instant: Any) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M") if isinstance(instant, datetime) else str(instant or "?")[:16]
