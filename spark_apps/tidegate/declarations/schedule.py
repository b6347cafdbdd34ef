"""What a schedule needs of pipeline.yml: read here for `tidegate validate` and for Airflow's DAGs alike.

Airflow parses DAG files again and again, so nothing but YAML is imported (sqlglot and pydantic cost half a second), and
only the keys that a schedule needs are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from tidegate.declarations.errors import DeclarationErrors, Mistake
from tidegate.declarations.names import STORES, identifier_refusal
from tidegate.declarations.positions import Report, Source, read_source
from tidegate.declarations.units import (
    UnreadableError,
    read_instant,
    read_positive_seconds,
    show_duration,
    shown,
)
from tidegate.declarations.variables import expand_variables
from tidegate.declarations.yaml_sections import Section, compose

_HOUR_S = 3_600
_DAY_S = 86_400


@dataclass(frozen=True)
class Schedule:
    """When a pipeline runs, and what it has.

    ``paths``: the streams' file patterns, as written; empty of those that come through Spark, which ``landed`` names.
    ``histories``: streams whose past is kept;
    ``grouped_histories``: those of them with aggregates by group. ``queries``: id → text of the file. ``tables``: the
    reference tables. ``uses_objects``: whether it names a place in an object store: files, checkpoints, a path of a
    source of Spark's, a table.
    """

    name: str
    description: str
    owner: str
    start: datetime
    interval: timedelta
    streams: tuple[str, ...]
    paths: tuple[str, ...]
    landed: tuple[str, ...]
    histories: tuple[str, ...]
    grouped_histories: tuple[str, ...]
    queries: dict[str, str]
    tables: tuple[str, ...] = ()
    uses_objects: bool = False


def load_schedule(folder: Path) -> Schedule:
    """The schedule of the pipeline that a folder declares.

    Raises:
        DeclarationErrors: every mistake in what a schedule needs; `tidegate validate` names the others.
    """
    mistakes: list[Mistake] = []
    sources = {file: read_source(file) for file in (folder / "pipeline.yml", *query_files(folder))}
    texts = {file: found for file, found in sources.items() if isinstance(found, Source)}
    mistakes += [found for found in sources.values() if isinstance(found, Mistake)]
    keys: dict[str, Any] = {}
    if folder / "pipeline.yml" in texts:
        report = Report(texts.pop(folder / "pipeline.yml"))
        root = compose(report)
        keys = _schedule_keys(report, root, folder.resolve()) if root else {}
        mistakes += report.mistakes
    if mistakes:
        raise DeclarationErrors(mistakes)
    return Schedule(queries={file.stem: source.text for file, source in texts.items()}, **keys)


def query_files(folder: Path) -> list[Path]:
    """The files of a pipeline's queries, by name."""
    return sorted((folder / "queries").glob("*.sql"))


def read_keys(section: Section, folder: Path) -> dict[str, Any]:
    """The pipeline's ``name``, ``description``, ``owner``, ``start`` and ``interval_s``; None after a mistake.

    ``folder``: absolute; the pipeline bears its name.
    """
    interval_s = section.read("interval", _interval)
    return {
        "name": section.read("name", lambda text: _name(text, folder)),
        "description": (section.read("description", str, "", required=False) or "").strip(),
        "owner": section.read("owner", str.strip),
        "start": section.read("start", lambda text: _start(text, interval_s)),
        "interval_s": interval_s,
    }


def _schedule_keys(report: Report, root: yaml.Node, folder: Path) -> dict[str, Any]:
    section = Section(report, root, "the pipeline")
    keys = read_keys(section, folder)
    streams: dict[str, Section] = {}
    if node := section.node("streams"):
        for name, _, value in Section(report, node, "streams").items():
            streams[name] = Section(report, value, f"stream '{name}'")
    histories = {name: stream.node("history", required=False) for name, stream in streams.items()}
    kept = {name: Section(report, node, f"history of stream '{name}'") for name, node in histories.items() if node}
    interval_s = keys.pop("interval_s")
    tables = section.node("tables", required=False)
    return {
        **keys,
        "interval": timedelta(seconds=interval_s or 0),
        "streams": tuple(streams),
        "paths": tuple(_path(stream) for stream in streams.values()),
        "landed": tuple(name for name, stream in streams.items() if _comes_through_spark(stream)),
        "histories": tuple(kept),
        "grouped_histories": tuple(name for name, section in kept.items() if _has_groups(section)),
        "tables": tuple(name for name, _, _ in Section(report, tables, "tables").items()) if tables else (),
        "uses_objects": any(_is_in_a_store(value) for value in _scalars(root)),
    }


def _scalars(node: yaml.Node) -> Iterator[str]:
    """Every plain value of a document."""
    if isinstance(node, yaml.ScalarNode):
        yield node.value
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        for one in child if isinstance(child, tuple) else (child,):
            yield from _scalars(one)


def _is_in_a_store(text: str) -> bool:
    with suppress(UnreadableError):
        text = expand_variables(text)
    # Spark's own connectors call it s3a.
    return text.strip().partition("://")[0] in (*STORES, "s3a") and "://" in text


def _source(stream: Section) -> Section | None:
    node = stream.node("source", required=False)
    return Section(stream.report, node, f"source of {stream.title}") if node is not None else None


def _path(stream: Section) -> str:
    """The pattern of a stream's files; empty if there is none."""
    source = _source(stream)
    path = (
        stream.read("path", str.strip, "", required=False)
        if source is None
        else source.read("files", str.strip, "", required=False)
    )
    return path or ""


def _comes_through_spark(stream: Section) -> bool:
    source = _source(stream)
    return source is not None and any(kind in source for kind in ("kafka", "spark"))


def _has_groups(history: Section) -> bool:
    node = history.node("group_by", required=False)
    return node is not None and bool(node.value)


def _name(text: str, folder: Path) -> str:
    name = text.strip()
    problem = identifier_refusal(name, "pipeline")
    if problem:
        raise UnreadableError(*problem)
    if name != folder.name:
        raise UnreadableError(f"'{name}' is not the name of the pipeline's folder", f"'{folder.name}'")
    return name


def _interval(text: str) -> int:
    """Airflow's cron expressions have no others."""
    seconds = read_positive_seconds(text)
    minutes = seconds % 60 == 0 and _HOUR_S % seconds == 0
    hours = seconds % _HOUR_S == 0 and _DAY_S % seconds == 0
    if not minutes and not hours:
        expected = "minutes that divide an hour, hours that divide a day, or '1 day'"
        raise UnreadableError(f"{shown(text)} cannot be an interval", expected)
    return seconds


def _start(text: str, interval_s: int | None) -> datetime:
    instant = read_instant(text)
    if interval_s:
        past = (instant - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(seconds=interval_s)
        if past:
            raise UnreadableError(
                f"{shown(text)} is not the start of an interval of {show_duration(interval_s)}",
                f"'{(instant - past).strftime('%Y-%m-%dT%H:%M:%SZ')}'",
            )
    return instant
