"""Backfills that are under way: Airflow runs one of a DAG at a time and refuses the next.

Whoever gives a second command wants it done, so it waits for the first; unless the first cannot end by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

FINAL = ("success", "failed")
_LOOK_EVERY_S = 2.0


class InTheWay(Exception):
    """A backfill that must end first and will not, or not in time; the message says which, why and what to do."""


class Pages(Protocol):
    """What is needed of the REST API."""

    def pages(self, path: str, of: str, **query: Any) -> list[Any]: ...  # noqa: D102


def under_way(rest: Pages, dag: str) -> list[Any]:
    """The DAG's backfills that are neither done nor cancelled, the oldest first."""
    found = [b for b in rest.pages("/backfills", of="backfills", dag_id=dag) if b["completed_at"] is None]
    return sorted(found, key=lambda backfill: backfill["id"])


def wait_until_free(
    rest: Pages, dag: str, timeout_s: float, say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Return as soon as no backfill of the DAG is running.

    Raises:
        InTheWay: it is paused, waits behind an interval that failed, or is overdue.
    """
    began, told = time.monotonic(), None
    while older := under_way(rest, dag):
        first = older[0]
        within = {"logical_date_gte": first["from_date"], "logical_date_lte": first["to_date"]}
        runs = rest.pages(f"/dags/{dag}/dagRuns", of="dag_runs", run_type="backfill", **within)
        failed = sorted(run["logical_date"] for run in runs if run["state"] == "failed")
        done = sum(run["state"] in FINAL for run in runs)
        which = (
            f"backfill {first['id']} of {dag}, from {label(first['from_date'])} to {label(first['to_date'])} "
            f"({done} of {len(runs)} intervals done)"
        )
        cancel = f"cancel it: `python infra/airflow/stack.py cancel --dag {dag}`, or on the DAG's page, tab Backfills"
        if first["is_paused"]:
            raise InTheWay(f"Blocked by {which}: it is paused. Resume it in the UI, or {cancel}.")
        if failed and done < len(runs):
            raise InTheWay(
                f"Blocked by {which}: {label(failed[0])} failed, and the intervals after it wait. "
                f"Fix it and clear its tasks, or {cancel}."
            )
        if time.monotonic() - began > timeout_s:
            raise InTheWay(f"Not started after {timeout_s:.0f} s: blocked by {which}. Wait longer, or {cancel}.")
        if told is None:
            say(f"Waiting for {which}: Airflow runs one of a DAG at a time. To have this one now, {cancel}.")
        elif told != (first["id"], done):
            say(f"Waiting: {done} of {len(runs)} intervals done")
        told = (first["id"], done)
        sleep(_LOOK_EVERY_S)


def label(instant: str) -> str:
    """An interval as people name it, by an instant in UTC as the API writes it."""
    return f"{datetime.fromisoformat(instant):%Y-%m-%dT%H:%M}"
