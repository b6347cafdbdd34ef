"""pipeline.yml → everything of a `Pipeline` except its queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.declarations.models import ReferenceTable, Stream
from tidegate.declarations.positions import Report
from tidegate.declarations.schedule import read_keys
from tidegate.declarations.scope import StreamSchema
from tidegate.declarations.stream_section import Clock, read_streams
from tidegate.declarations.table_section import read_tables
from tidegate.declarations.units import (
    SECOND_US,
    UnreadableError,
    read_bytes,
    read_fraction,
    read_integer,
    read_positive_seconds,
    read_seconds,
    show_bytes,
    show_duration,
    shown,
)
from tidegate.declarations.yaml_sections import Section, compose

DAY_S = 86_400
# Key → what it says, for the reference (infra/docs/reference.py).
PIPELINE_KEYS = {
    "name": "The name of the pipeline's folder.",
    "description": "What the pipeline is about.",
    "owner": "Who answers for it; the owner of the tasks in Airflow.",
    "start": "Start of the first interval that Airflow schedules, UTC.",
    "interval": "Length of the intervals of arrival time: one run and one partition each. Minutes that divide an "
    "hour, hours that divide a day, or a day.",
    "tick": "How often rates are measured and plans may change; every EVERY and range is a multiple of it. Divides the "
    "interval.",
    "horizon": "Allowed lateness: a window is final, and its truth is computed, this long after its end. A multiple of "
    "the interval.",
    "memory_budget": "What all windows together may hold.",
    "process_budget": "What the JVM and its Python workers may take, measured as a whole.",
    "initial_slack": "The least that answers with a promise wait until two periods are known. At most the horizon.",
    "promise_period": "ERROR and ACCURACY are to be kept in 95 of 100 such periods. A multiple of the interval.",
    "rate_change": "The relative change of a stream's rate that leads to a new plan.",
    "partitions": "Into how many slices a query's work is cut at most; fewer where more would not pay. 1 to 10000.",
    "retention": "Kind of table → how long its rows stay; without it they stay for ever.",
    "streams": "Name → stream; at least one.",
    "tables": "Name → reference table.",
}
RETENTION_KEYS = {
    "landed": "Rows of `landed_<stream>`, since they landed. An interval whose records are gone cannot be run again.",
}


@dataclass(frozen=True)
class PipelineFile:
    """What could be read of pipeline.yml.

    ``values`` are the fields of a `Pipeline` but its streams and queries; some are None if there were mistakes.
    ``schemas`` is None if the streams could not be read at all, so that queries are checked for their syntax alone;
    of ``tables`` those are None that could not be read.
    """

    values: dict[str, Any] = field(default_factory=dict)
    streams: tuple[Stream, ...] = ()
    schemas: dict[str, StreamSchema] | None = None
    tick_us: int | None = None
    tables: dict[str, ReferenceTable | None] = field(default_factory=dict)


def read_pipeline_file(report: Report, folder: Path) -> PipelineFile:
    """Read pipeline.yml of the (absolute) folder; everything wrong goes into the report."""
    root = compose(report)
    if root is None:
        return PipelineFile()
    before = len(report.mistakes)
    section = Section(report, root, "the pipeline", PIPELINE_KEYS)
    if len(report.mistakes) > before and not any(True for _ in section.items()):
        return PipelineFile()
    read = section.read
    keys = read_keys(section, folder)
    interval_s = keys["interval_s"]
    tick_s = read("tick", read_positive_seconds)
    horizon_s = read("horizon", read_positive_seconds)
    values: dict[str, Any] = {
        **keys,
        "tick_s": tick_s,
        "horizon_s": horizon_s,
        "memory_budget_bytes": read("memory_budget", read_bytes),
        "process_budget_bytes": read("process_budget", read_bytes),
        "initial_slack_s": read("initial_slack", read_seconds, 0, required=False),
        "promise_period_s": read("promise_period", read_positive_seconds, DAY_S, required=False),
        "rate_change": read("rate_change", _rate_change, 0.5, required=False),
        "partitions": read("partitions", lambda text: read_integer(text, 1, 10_000), 10_000, required=False),
    }
    _check_together(report, section, values)
    clock = Clock(interval_s, tick_s, horizon_s)
    tick_us = tick_s * SECOND_US if tick_s else None
    values["retention_s"] = _retention(report, section)
    streams_node = section.node("streams")
    if streams_node is None:
        return PipelineFile(values, tick_us=tick_us, tables=_tables(report, section, folder, ()))
    streams, schemas = read_streams(report, streams_node, folder, clock)
    if values["retention_s"] and len(report.mistakes) == before and all(stream.source is None for stream in streams):
        message = "'retention' in the pipeline is of tables that it does not have: no stream comes through Spark"
        report.add(section.value_offset("retention"), message, "a stream with source: {kafka: …} or {spark: …}")
    return PipelineFile(values, streams, schemas or None, tick_us, _tables(report, section, folder, tuple(schemas)))


def _tables(
    report: Report, section: Section, folder: Path, streams: tuple[str, ...]
) -> dict[str, ReferenceTable | None]:
    node = section.node("tables", required=False)
    return {} if node is None else read_tables(report, node, folder, streams)


def _retention(report: Report, section: Section) -> dict[str, int]:
    """Kind of table → seconds."""
    node = section.node("retention", required=False)
    if node is None:
        return {}
    kinds = Section(report, node, "retention in the pipeline", RETENTION_KEYS)
    read = {kind: kinds.read(kind, read_positive_seconds, required=False) for kind, _, _ in kinds.items()}
    return {kind: seconds for kind, seconds in read.items() if seconds is not None}


def _check_together(report: Report, section: Section, values: dict[str, Any]) -> None:
    """Rules between keys."""

    def mistake(key: str, message: str, expected: str) -> None:
        report.add(section.value_offset(key), f"'{key}' in the pipeline: {message}", expected)

    interval_s, tick_s, horizon_s = values["interval_s"], values["tick_s"], values["horizon_s"]
    slack_s, memory, process = (values[k] for k in ("initial_slack_s", "memory_budget_bytes", "process_budget_bytes"))
    period_s = values["promise_period_s"]
    if interval_s and tick_s and interval_s % tick_s:
        mistake(
            "tick", f"{show_duration(tick_s)} does not divide the interval", f"a divisor of {show_duration(interval_s)}"
        )
    if interval_s and horizon_s and horizon_s % interval_s:
        message = f"{show_duration(horizon_s)} is not a multiple of the interval"
        mistake("horizon", message, f"a multiple of {show_duration(interval_s)}")
    if slack_s and horizon_s and slack_s > horizon_s:
        message = f"{show_duration(slack_s)} is longer than the horizon, after which answers are final"
        mistake("initial_slack", message, f"at most {show_duration(horizon_s)}")
    if interval_s and period_s and period_s % interval_s:
        message = (
            f"{show_duration(period_s)} is not a multiple of the interval (the slack K is chosen at interval ends)"
        )
        mistake("promise_period", message, f"a multiple of {show_duration(interval_s)}")
    if memory and process and process < memory:
        message = f"{show_bytes(process)} is less than the memory budget of the windows, which it includes"
        mistake("process_budget", message, f"more than {show_bytes(memory)}")


def _rate_change(text: str) -> float:
    fraction = read_fraction(text)
    if not 0 < fraction <= 10:
        raise UnreadableError(f"{shown(text)} is out of range", "more than 0% and at most 1000%")
    return fraction
