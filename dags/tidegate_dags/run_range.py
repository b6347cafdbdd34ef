"""What a run is about: its interval or the stretch that was asked for, which stages, and whether to run them at all."""

from __future__ import annotations

import json
import logging
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tidegate_dags.declaration import Declaration, parse_instant

_INSTANT = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?$"
_MIDNIGHT = datetime(1970, 1, 1, tzinfo=UTC)

_log = logging.getLogger(__name__)


class RangeError(AirflowFailException, ValueError):
    """The run was asked for something that cannot be run; asking again would not help, so it is not retried."""


def parameters(declaration: Declaration) -> dict[str, Param]:
    """The form of *Trigger → Single run*; the API checks the same."""
    names = [stage.name for stage in declaration.stages]
    return {
        "from": _instant_parameter("Start of the range to run in one go. Empty: the run's own interval."),
        "to": _instant_parameter("End of that range, exclusive. Empty: the run's own interval."),
        "stages": Param(
            [],
            type="array",
            items={"type": "string", "enum": names},
            examples=names,
            description="Only these stages; the others are skipped. Empty: all.",
        ),
        "dry_run": Param(
            False, type="boolean", description="Run nothing: each task logs the command that it would run."
        ),
        "driver_memory": Param(
            "1g",
            type="string",
            pattern="^[1-9][0-9]*[mg]$",
            description="Heap of a Spark driver that a stage starts, like 1g or 1536m; a Connect server has its own.",
        ),
    }


def _instant_parameter(description: str) -> Param:
    # The format gives the form its calendar; it is checked only where an optional package is installed.
    return Param(None, type=["null", "string"], format="date-time", pattern=_INSTANT, description=description)


def interval_from(params: Any, data_interval_start: datetime | None) -> str:
    """The ``--from`` of a run: the parameter if it was given, else the start of the run's interval."""
    return _bound(params, data_interval_start, given="from")


def interval_to(params: Any, data_interval_end: datetime | None) -> str:
    """The ``--to`` of a run: the parameter if it was given, else the end of the run's interval."""
    return _bound(params, data_interval_end, given="to")


def _bound(params: Any, of_interval: datetime | None, *, given: str) -> str:
    if bool(params["from"]) != bool(params["to"]):
        raise RangeError("`from` and `to` must be given together: trigger the run again with both, or with neither.")
    bound = parse_instant(params[given]) if params[given] else of_interval
    if not bound:
        raise RangeError("This run has no interval: trigger it with a logical date, or with `from` and `to`.")
    return bound.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Gate:
    """Called before a task runs: checks what was asked for, and skips the task where nothing is to be done.

    A skipped task stops nothing after it (trigger rule ``none_failed``) and holds back no later interval.
    """

    def __init__(self, stage: str, declaration: Declaration, *, daily: bool):
        self._stage = stage
        self._interval = declaration.interval
        self._daily = daily

    def __call__(self, context: Any) -> None:
        """Return if the stage has to run."""
        params = context["params"]
        start = parse_instant(interval_from(params, context.get("data_interval_start")))
        end = parse_instant(interval_to(params, context.get("data_interval_end")))
        self._check(start, end)
        span = f"[{start:%Y-%m-%dT%H:%M}, {end:%Y-%m-%dT%H:%M})"
        if params.get("stages") and self._stage not in params["stages"]:
            raise AirflowSkipException(f"Not selected: this run includes {', '.join(params['stages'])} only.")
        if self._daily and end.replace(hour=0, minute=0, second=0, microsecond=0) <= start:
            raise AirflowSkipException(f"No day ends in {span}.")
        if params.get("dry_run"):
            raise AirflowSkipException(
                f"Dry run, nothing was done for {span}. The command would have been: {_command(context)}"
            )
        _log.info("%s: %d interval(s) of arrival time, %s", self._stage, (end - start) / self._interval, span)

    def _check(self, start: datetime, end: datetime) -> None:
        if end <= start:
            raise RangeError(f"`to` ({end:%Y-%m-%dT%H:%M}) must be later than `from` ({start:%Y-%m-%dT%H:%M}).")
        for name, instant in (("from", start), ("to", end)):
            if (instant - _MIDNIGHT) % self._interval != timedelta():
                before = instant - (instant - _MIDNIGHT) % self._interval
                raise RangeError(
                    f"`{name}` ({instant:%Y-%m-%dT%H:%M:%SZ}) is not a boundary of an interval of {self._interval}: "
                    f"the nearest are {before:%Y-%m-%dT%H:%M:%SZ} and {before + self._interval:%Y-%m-%dT%H:%M:%SZ}."
                )


def _command(context: Any) -> str:
    """What the task would run, as it was rendered for this run."""
    task = context["task"]
    if hasattr(task, "bash_command"):
        return str(task.bash_command)
    if hasattr(task, "command"):
        return shlex.join(task.command())
    return json.dumps({name: getattr(task, name, None) for name in task.template_fields}, default=str)
