"""Airflow's assets: every table of the warehouse, so that the lineage from stream to mart shows in the UI.

What a stage reads and writes is said once, in its documentation (stages.py): the names in backticks are the tables.
Every event of a table carries the partition that was written, by the label that its folder has. A DAG that is to run
for each of them is scheduled by ``PartitionedAssetTimetable``; one that only wants to know that something is new, by
the asset ``<pipeline>_models``, whose events have no partition (Airflow merges them, so it must not keep state).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import time
from typing import Any

from airflow.sdk import Asset

from tidegate.declarations.interval_labels import interval_label
from tidegate.declarations.stages import Stage
from tidegate_dags.declaration import Declaration, parse_instant
from tidegate_dags.places import installed, is_uri, warehouse
from tidegate_dags.run_range import interval_from, interval_to

MOST_PARTITIONS = 100


def inlets(stage: Stage, declaration: Declaration) -> list[Asset]:
    """The tables that a stage reads, its streams' files, and what streams come from."""
    if stage.name == "ingest":
        files = [
            Asset(
                name=f"{declaration.name}.files_{stream}",
                uri=_files(path) if is_uri(path) else f"tidegate://{declaration.name}/files/{stream}",
                group="file",
            )
            for stream, path in zip(declaration.streams, declaration.paths, strict=True)
            if stream not in declaration.landed
        ]
        return files + _tables(stage.reads, stage, declaration)
    if stage.landed:
        return [
            Asset(
                name=f"{declaration.name}.source_{stream}",
                uri=f"tidegate://{declaration.name}/sources/{stream}",
                group="stream",
            )
            for stream in declaration.landed
        ]
    if stage.always or not _named(stage.reads):  # reads "every table"
        return [asset for other in declaration.stages for asset in _tables(other.writes, other, declaration)]
    return _tables(stage.reads, stage, declaration)


def outlets(stage: Stage, declaration: Declaration) -> list[Asset]:
    """The tables that a stage writes; for ``publish`` the marts, and one asset that stands for all of them."""
    if stage.name != "publish":
        return _tables(stage.writes, stage, declaration)
    name = declaration.name
    marts = sorted(path.stem for path in (installed("tidegate_dbt") / "models" / "marts").glob("*.sql"))
    return [
        _models(name),
        *(Asset(name=f"{name}.{mart}", uri=_uri(name, f"marts/{mart}"), group="mart") for mart in marts),
    ]


class SayPartitions:
    """Called after a task: notes on every asset's event which stretch it is about, and which partitions were written.

    A run of a long stretch writes more partitions than anyone wants events of (each asset has one a partition): beyond
    ``MOST_PARTITIONS`` there is one event, with the stretch alone. So there is with ``partitions`` False: what lands
    belongs to no interval yet.
    """

    def __init__(self, declaration: Declaration, *, daily: bool, partitions: bool = True):
        self._declaration = declaration
        self._daily = daily
        self._partitions = partitions

    def __call__(self, context: Any, result: Any = None) -> None:
        """Note it."""
        start = interval_from(context["params"], context.get("data_interval_start"))
        end = interval_to(context["params"], context.get("data_interval_end"))
        labels = self._labels(start, end)
        for asset in context["task"].outlets:
            event = context["outlet_events"][asset]
            event.extra.update({"from": start, "to": end})
            if self._partitions and asset != _models(self._declaration.name) and len(labels) <= MOST_PARTITIONS:
                event.add_partitions(labels)

    def _labels(self, start: str, end: str) -> list[str]:
        """Labels of the intervals; of a daily stage, of those that end a day."""
        length, at, until = self._declaration.interval, parse_instant(start), parse_instant(end)
        intervals = (at + n * length for n in range((until - at) // length))
        return [interval_label(i, length) for i in intervals if not self._daily or (i + length).time() == time()]


def _models(name: str) -> Asset:
    return Asset(name=f"{name}_models", uri=f"tidegate://{name}/models")


def _uri(pipeline: str, table: str, kind: str = "") -> str:
    """Where a table is, in an object store; a local path is nobody else's: there it is a name."""
    return f"{warehouse()}/{pipeline}/{table}" if is_uri(warehouse()) else f"tidegate://{pipeline}/{kind}{table}"


def _files(path: str) -> str:
    """The folder that a stream's files are in, as far as its name does not change."""
    return re.split(r"[^/]*[%*?\[]", path, maxsplit=1)[0].rstrip("/")


def _named(text: str) -> list[str]:
    return re.findall(r"`([a-z_<>]+)`", text)


def _tables(text: str, stage: Stage, declaration: Declaration) -> list[Asset]:
    names = [name for pattern in _named(text) for name in _expanded(pattern, stage, declaration)]
    return [
        Asset(name=f"{declaration.name}.{name}", uri=_uri(declaration.name, name, "tables/"), group="table")
        for name in dict.fromkeys(names)
    ]


def _expanded(pattern: str, stage: Stage, declaration: Declaration) -> Sequence[str]:
    """``events_<stream>`` → one name a stream; what not all have only where there is any."""
    if pattern == "landed_<stream>":
        return [pattern.replace("<stream>", stream) for stream in declaration.landed]
    if pattern in ("landings", "watermarks"):
        return [pattern] if declaration.landed else []
    if pattern == "reference_<table>":
        return [pattern.replace("<table>", table) for table in declaration.tables]
    if pattern == "table_versions":
        return [pattern] if declaration.tables else []
    if pattern.startswith("history_samples"):
        return [pattern.replace("<stream>", stream) for stream in declaration.histories]
    if pattern == "history_groups":
        return [pattern] if declaration.grouped_histories else []
    if pattern == "accuracy_groups":
        return [pattern] if any(query.promises_by_group for query in declaration.queries) else []
    if "<stream>" in pattern:
        return [pattern.replace("<stream>", stream) for stream in declaration.streams]
    if "<query>" in pattern:
        queries = declaration.queries
        if stage.answers:
            queries = tuple(query for query in queries if query.kind == stage.answers)
        if pattern == "updates_<query>":
            queries = tuple(query for query in queries if query.emits_updates)
        if wanted := {"kept_<query>": "omit", "corrections_<query>": "correct"}.get(pattern):
            queries = tuple(query for query in queries if query.on_miss == wanted)
        return [pattern.replace("<query>", query.id) for query in queries]
    return [pattern]
