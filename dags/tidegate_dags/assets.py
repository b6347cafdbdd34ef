"""Airflow's assets: every table of the warehouse, so that the lineage from stream to mart shows in the UI.

What a stage reads and writes is said once, in its documentation (stages.py): the names in backticks are the tables.
Every event of an asset says which interval it is about; a DAG that is scheduled on one must not keep state, because
Airflow merges events.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import Asset

from tidegate_dags.declaration import Declaration
from tidegate_dags.run_range import interval_from, interval_to
from tidegate_dags.stages import STAGES, Stage


def inlets(stage: Stage, declaration: Declaration) -> list[Asset]:
    """The tables that a stage reads, and its streams' files."""
    if stage.name == "ingest":
        files = [
            Asset(
                name=f"{declaration.name}.files_{stream}",
                uri=f"tidegate://{declaration.name}/files/{stream}",
                group="file",
            )
            for stream in declaration.streams
        ]
        return files + _tables(stage.reads, stage, declaration)
    if stage.always or not _named(stage.reads):  # reads "every table"
        return [asset for other in STAGES for asset in _tables(other.writes, other, declaration)]
    return _tables(stage.reads, stage, declaration)


def outlets(stage: Stage, declaration: Declaration, home: Path) -> list[Asset]:
    """The tables that a stage writes; for ``publish`` the marts, and one asset that stands for all of them."""
    if stage.name != "publish":
        return _tables(stage.writes, stage, declaration)
    name = declaration.name
    marts = sorted(path.stem for path in (home / "dbt" / "models" / "marts").glob("*.sql"))
    models = Asset(name=f"{name}_models", uri=f"tidegate://{name}/models")
    return [
        models,
        *(Asset(name=f"{name}.{mart}", uri=f"tidegate://{name}/marts/{mart}", group="mart") for mart in marts),
    ]


def say_interval(context: Any, result: Any = None) -> None:
    """After a task: note on every asset's event which stretch it is about."""
    extra = {
        "from": interval_from(context["params"], context.get("data_interval_start")),
        "to": interval_to(context["params"], context.get("data_interval_end")),
    }
    for asset in context["task"].outlets:
        context["outlet_events"][asset].extra.update(extra)


def _named(text: str) -> list[str]:
    return re.findall(r"`([a-z_<>]+)`", text)


def _tables(text: str, stage: Stage, declaration: Declaration) -> list[Asset]:
    names = [name for pattern in _named(text) for name in _expanded(pattern, stage, declaration)]
    return [
        Asset(name=f"{declaration.name}.{name}", uri=f"tidegate://{declaration.name}/tables/{name}", group="table")
        for name in dict.fromkeys(names)
    ]


def _expanded(pattern: str, stage: Stage, declaration: Declaration) -> Sequence[str]:
    """``events_<stream>`` → one name a stream; histories, their groups and answers only where there are any."""
    if pattern.startswith("history_samples"):
        return [pattern.replace("<stream>", stream) for stream in declaration.histories]
    if pattern == "history_groups":
        return [pattern] if declaration.grouped_histories else []
    if "<stream>" in pattern:
        return [pattern.replace("<stream>", stream) for stream in declaration.streams]
    if "<query>" in pattern:
        queries = declaration.queries
        if stage.answers:
            queries = tuple(query for query in queries if query.kind == stage.answers)
        return [pattern.replace("<query>", query.id) for query in queries]
    return [pattern]
