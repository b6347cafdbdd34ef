"""Which Spark jobs a stage ran: read from the event logs of the Spark Connect server, which outlive it.

Spark's UI lists jobs, and cannot be asked for those of a stage. A stage's jobs bear tags (``pipeline:…``, ``stage:…``,
``interval:…``), and the server writes every job, with its tags, into its event log, a line of JSON an event.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MOST_JOBS = 500
_TAG = "_Tag_"


@dataclass(frozen=True)
class Job:
    """One job. ``server``: Spark's id of the application, the server, that ran it. ``number``: within that.

    ``seconds`` is None while it runs, and for ever if the server died meanwhile. ``server_ended``: whether that has.
    """

    server: str
    number: int
    tags: dict[str, str]
    tasks: int
    submitted_at: datetime
    seconds: float | None = None
    succeeded: bool | None = None
    server_ended: bool = True


def events() -> Path | None:
    """The folder of the event logs: TIDEGATE_SPARK_EVENTS; None if the environment names none."""
    named = os.environ.get("TIDEGATE_SPARK_EVENTS")
    return Path(named) if named else None


def jobs(folder: Path, **tags: str) -> list[Job]:
    """The newest jobs that bear all of these tags, newest first.

    Cost: reads the logs from the newest on, until there are ``MOST_JOBS``; some hundred megabytes a second.
    """
    newest: list[Job] = []
    logs = sorted(folder.glob("eventlog_v2_*"), key=_newest, reverse=True)
    for place, log in enumerate(logs):
        of_log = [job for job in _read(log) if all(job.tags.get(name) == value for name, value in tags.items())]
        # One server at a time writes here: any but the newest has died, if it did not end.
        ended = place > 0 or not any(log.glob("appstatus_*.inprogress"))
        newest += [replace(job, server_ended=ended) for job in of_log]
        if len(newest) >= MOST_JOBS:
            break
    return sorted(newest, key=lambda job: job.submitted_at, reverse=True)[:MOST_JOBS]


def _newest(log: Path) -> float:
    return max((file.stat().st_mtime for file in log.iterdir()), default=0.0)


def _read(log: Path) -> list[Job]:
    """All jobs of one server."""
    server = log.name.removeprefix("eventlog_v2_")
    started: dict[int, Job] = {}
    files = sorted(log.glob("events_*"), key=lambda file: int(file.name.split("_")[1]))
    for event in (event for file in files for event in _events(file)):
        number = event["Job ID"]
        if event["Event"] == "SparkListenerJobStart":
            started[number] = _started(server, event)
        elif number in started:
            seconds = event["Completion Time"] / 1000 - started[number].submitted_at.timestamp()
            succeeded = event["Job Result"]["Result"] == "JobSucceeded"
            started[number] = replace(started[number], seconds=seconds, succeeded=succeeded)
    return list(started.values())


def _events(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            # The event's name comes first; most events are of tasks, which nobody asks for here.
            if line.startswith(('{"Event":"SparkListenerJobStart"', '{"Event":"SparkListenerJobEnd"')):
                try:
                    yield json.loads(line)
                except ValueError:  # the last line of a server that is writing it, or was killed
                    return


def _started(server: str, event: dict[str, Any]) -> Job:
    words = (event.get("Properties") or {}).get("spark.job.tags", "").split(",")
    tags = [word.rpartition(_TAG)[2] for word in words if _TAG in word] or [word for word in words if ":" in word]
    return Job(
        server=server,
        number=event["Job ID"],
        tags={name: value for name, _, value in (tag.partition(":") for tag in tags)},
        tasks=sum(stage["Number of Tasks"] for stage in event["Stage Infos"]),
        submitted_at=datetime.fromtimestamp(event["Submission Time"] / 1000, UTC),
    )
