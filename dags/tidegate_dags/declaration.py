"""The few lines of a pipeline's declaration that a schedule needs, read with nothing but YAML.

Airflow parses DAG files again and again, so this neither validates nor imports Tidegate (sqlglot and pydantic models
would cost half a second each time): ``tidegate validate`` does, and the stages refuse a broken declaration by file and
line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import yaml

_DURATION = re.compile(r"(\d+)\s*(second|minute|hour|day)s?")


@dataclass(frozen=True)
class DeclaredQuery:
    """One file of ``queries/``: its leading comment and its statement, as written."""

    id: str
    description: str
    sql: str

    @property
    def kind(self) -> Literal["aggregate", "top_k"]:
        """Which stage answers it: LIMIT and QUALIFY are what the language has for top-k alone.

        >>> DeclaredQuery("q", "", "SELECT a FROM s [1 HOUR] ORDER BY a -- no LIMIT").kind
        'aggregate'
        """
        return "top_k" if re.search(r"\b(limit|qualify)\b", _code(self.sql), re.IGNORECASE) else "aggregate"

    @property
    def promise(self) -> str:
        """ERROR or ACCURACY as written, empty if nothing is promised.

        >>> DeclaredQuery("q", "", "SELECT a FROM s [1 HOUR] ERROR 10 % EVERY 1 HOUR").promise
        'ERROR 10 %'
        """
        found = re.search(r"\b(error|accuracy)\s+[\d.]+\s*%", _code(self.sql), re.IGNORECASE)
        return found[0] if found else ""


@dataclass(frozen=True)
class Declaration:
    """What the schedule and its documentation say about a pipeline."""

    folder: Path
    name: str
    description: str
    owner: str
    start: datetime
    interval: timedelta
    streams: tuple[str, ...]
    histories: tuple[str, ...]
    grouped_histories: tuple[str, ...]
    queries: tuple[DeclaredQuery, ...]

    @property
    def cron(self) -> str:
        """The cron expression whose fires are the interval's bounds.

        >>> from dataclasses import replace
        >>> hourly = Declaration(Path("."), "x", "", "", datetime(2013, 1, 1), timedelta(hours=1), (), (), (), ())
        >>> [replace(hourly, interval=timedelta(minutes=length)).cron for length in (60, 15, 1440)]
        ['0 * * * *', '*/15 * * * *', '0 0 * * *']
        """
        minutes, rest_s = divmod(int(self.interval.total_seconds()), 60)
        if rest_s == 0 and 0 < minutes < 60 and 60 % minutes == 0:
            return f"*/{minutes} * * * *"
        hours, rest_min = divmod(minutes, 60)
        if rest_s == 0 and rest_min == 0 and 0 < hours <= 24 and 24 % hours == 0:
            return {1: "0 * * * *", 24: "0 0 * * *"}.get(hours, f"0 */{hours} * * *")
        raise ValueError(
            f"{self.folder}/pipeline.yml: interval {self.interval} cannot be scheduled by Airflow: "
            "expected minutes that divide an hour, hours that divide a day, or 1 day"
        )


def read_declaration(folder: Path) -> Declaration:
    """Read ``pipeline.yml`` and ``queries/*.sql`` of one pipeline's folder."""
    path = folder / "pipeline.yml"
    if not path.is_file():
        raise ValueError(
            f"there is no {path}: build_dag takes the name of a folder in pipelines/ beside the DAG file, or a path"
        )
    declared = yaml.safe_load(path.read_text(encoding="utf-8"))
    missing = [key for key in ("name", "owner", "start", "interval") if key not in (declared or {})]
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} missing; `tidegate validate {folder}` names every mistake")
    histories = {
        name: of["history"] for name, of in (declared.get("streams") or {}).items() if (of or {}).get("history")
    }
    return Declaration(
        folder=folder,
        name=declared["name"],
        description=declared.get("description", ""),
        owner=declared["owner"],
        start=parse_instant(declared["start"]),
        interval=_duration(declared["interval"], path),
        streams=tuple(declared.get("streams") or ()),
        histories=tuple(histories),
        grouped_histories=tuple(name for name, of in histories.items() if of.get("group_by")),
        queries=tuple(_read_query(file) for file in sorted((folder / "queries").glob("*.sql"))),
    )


def parse_instant(value: datetime | str) -> datetime:
    """An instant in UTC, of ISO text or of what YAML made out of it; no zone means UTC."""
    instant = datetime.fromisoformat(str(value))
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def _duration(text: str, path: Path) -> timedelta:
    match = _DURATION.fullmatch(str(text).strip().lower())
    if not match:
        raise ValueError(f"{path}: interval {text!r} is not a duration: expected a number and a unit, like '1 hour'")
    return timedelta(**{match[2] + "s": int(match[1])})


def _code(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql)


def _read_query(path: Path) -> DeclaredQuery:
    lines = path.read_text(encoding="utf-8").strip().splitlines()
    comments = 0
    while comments < len(lines) and lines[comments].startswith("--"):
        comments += 1
    description = "\n".join(line.removeprefix("--").removeprefix(" ") for line in lines[:comments])
    return DeclaredQuery(id=path.stem, description=description.strip(), sql="\n".join(lines[comments:]).strip())
