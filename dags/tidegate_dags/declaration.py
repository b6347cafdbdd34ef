"""What a DAG needs of a pipeline's declaration.

Airflow parses DAG files again and again, so of Tidegate only ``declarations.schedule`` and ``declarations.stages`` are
imported, which need nothing but YAML, and queries are not parsed: ``tidegate validate`` does that, and the stages
refuse a broken declaration by file and line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from tidegate.declarations.schedule import load_schedule
from tidegate.declarations.stages import Stage, stages_of

_NO_CODE = re.compile(r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.DOTALL)
# A name in backticks is blank here.
_NAME = r"(?:(?!(?:or|for|on|every|duration|priority|emit)\b)\w+)?"
_FOR = (
    rf"(?:\s*\b(?:or\s+[\d.]+\s+in\b\s*{_NAME}|for\s+[\d.]+\s*%\s*of\s+groups\b"
    rf"|for\s+each\b\s*{_NAME}(?:\s*,\s*{_NAME})*))*"
)
_PROMISE = re.compile(
    rf"\b(error|accuracy)\b\s*\+?[\d.]+\s*%{_FOR}\s*(?=;|$|(?:every|duration|priority|emit|on)\b)", re.IGNORECASE
)

# A call of one of tidegate.aggregates, by any of its names. It costs too much to import here; tests/dags compares them.
_AGGREGATE = re.compile(
    r"\b(any_value|approx_count_distinct|approx_distinct|approx_percentile|approx_quantile|arg_?max|arg_?min|avg|"
    r"booland_agg|bool_and|boolor_agg|bool_or|count|count_?if|first|first_value|last|last_value|logical_and|logical_or|"
    r"max|max_by|median|min|min_by|percentile|percentile_approx|percentile_cont|quantile|stddev|stddev_pop|stddev_samp|"
    r"stdev|sum|variance|variance_pop|variance_samp|var_pop|var_samp)\s*\(",
    re.IGNORECASE,
)
_EMIT = re.compile(r"\bemit\s+(early|every)\b", re.IGNORECASE)
_ON_MISS = re.compile(rf"%{_FOR}\s*on\s+miss\s+(\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class DeclaredQuery:
    """One file of ``queries/``: its leading comment and its statement, as written."""

    id: str
    description: str
    sql: str

    @property
    def kind(self) -> Literal["aggregate", "top_k"]:
        """Which stage answers it: with LIMIT or QUALIFY, and no aggregate, it is the best tuples; else aggregates.

        >>> DeclaredQuery("q", "", "SELECT MAX(a) FROM s [1 HOUR] WHERE b = 'LIMIT' -- no LIMIT").kind
        'aggregate'
        >>> DeclaredQuery("q", "", "SELECT b FROM s [1 HOUR] GROUP BY b ORDER BY SUM(a) DESC LIMIT 3").kind
        'aggregate'
        """
        code = _code(self.sql)
        ranked = re.search(r"\b(limit|qualify)\b", code, re.IGNORECASE)
        return "top_k" if ranked and not _AGGREGATE.search(code) else "aggregate"

    @property
    def promise(self) -> str:
        """ERROR or ACCURACY as written, empty if nothing is promised.

        >>> DeclaredQuery("q", "", "SELECT a FROM s [1 HOUR] ERROR 10 % EVERY 1 HOUR").promise
        'ERROR 10 %'
        >>> DeclaredQuery("q", "", "SELECT a FROM s ERROR 2% OR 50 IN a FOR 99% OF GROUPS ON MISS FAIL").promise
        'ERROR 2% OR 50 IN a FOR 99% OF GROUPS'
        """
        found = _PROMISE.search(_code(self.sql))
        return found[0].strip() if found else ""

    @property
    def promises_by_group(self) -> bool:
        """Whether its promise tells groups apart.

        >>> DeclaredQuery("q", "", "SELECT a FROM s ERROR 2% FOR 99% OF GROUPS").promises_by_group
        True
        """
        return re.search(r"%\s*(or|for)\b", self.promise, re.IGNORECASE) is not None

    @property
    def on_miss(self) -> str:
        """What comes of a miss, in small letters.

        >>> DeclaredQuery("q", "", "SELECT a FROM s [1 HOUR] ERROR 10 % ON MISS Correct EVERY 1 HOUR").on_miss
        'correct'
        >>> DeclaredQuery("q", "", "SELECT a FROM s … ACCURACY 90% FOR EACH a, b ON MISS FAIL").on_miss
        'fail'
        """
        found = _ON_MISS.search(_code(self.sql))
        return found[1].lower() if found else "warn"

    @property
    def emits_updates(self) -> bool:
        """Whether its windows have more answers than the promised one.

        >>> DeclaredQuery("q", "", "SELECT a FROM s [1 HOUR] ERROR 10 % EVERY 1 HOUR EMIT EARLY").emits_updates
        True
        """
        return _EMIT.search(_code(self.sql)) is not None


@dataclass(frozen=True)
class Declaration:
    """What the schedule and its documentation say about a pipeline.

    ``paths``: the streams' file patterns, empty of those that come through Spark, which ``landed`` names.
    ``uses_objects``: whether it names a place in an object store.
    """

    folder: Path
    name: str
    description: str
    owner: str
    start: datetime
    interval: timedelta
    streams: tuple[str, ...]
    paths: tuple[str, ...]
    histories: tuple[str, ...]
    grouped_histories: tuple[str, ...]
    queries: tuple[DeclaredQuery, ...]
    landed: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    uses_objects: bool = False

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that the pipeline has."""
        return stages_of(landed=bool(self.landed))

    @property
    def cron(self) -> str:
        """The cron expression whose fires are the interval's bounds.

        >>> from dataclasses import replace
        >>> hourly = Declaration(Path("."), "x", "", "", datetime(2013, 1, 1), timedelta(hours=1), (), (), (), (), ())
        >>> [replace(hourly, interval=timedelta(minutes=length)).cron for length in (60, 15, 1440)]
        ['0 * * * *', '*/15 * * * *', '0 0 * * *']
        """
        minutes = self.interval // timedelta(minutes=1)
        if minutes < 60:
            return f"*/{minutes} * * * *"
        return {60: "0 * * * *", 1440: "0 0 * * *"}.get(minutes, f"0 */{minutes // 60} * * *")


def read_declaration(folder: Path) -> Declaration:
    """Read ``pipeline.yml`` and ``queries/*.sql`` of one pipeline's folder."""
    path = folder / "pipeline.yml"
    if not path.is_file():
        raise ValueError(
            f"there is no {path}: build_dag takes the name of a folder in pipelines/ beside the DAG file, or a path"
        )
    schedule = load_schedule(folder)
    return Declaration(
        folder=folder,
        name=schedule.name,
        description=schedule.description,
        owner=schedule.owner,
        start=schedule.start,
        interval=schedule.interval,
        streams=schedule.streams,
        paths=schedule.paths,
        landed=schedule.landed,
        tables=schedule.tables,
        uses_objects=schedule.uses_objects,
        histories=schedule.histories,
        grouped_histories=schedule.grouped_histories,
        queries=tuple(_query(name, text) for name, text in schedule.queries.items()),
    )


def parse_instant(value: datetime | str) -> datetime:
    """An instant in UTC, of ISO text or of what YAML made out of it; no zone means UTC."""
    instant = datetime.fromisoformat(str(value))
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def _code(sql: str) -> str:
    return _NO_CODE.sub(" ", sql)


def _query(name: str, text: str) -> DeclaredQuery:
    lines = text.strip().splitlines()
    comments = 0
    while comments < len(lines) and lines[comments].startswith("--"):
        comments += 1
    description = "\n".join(line.removeprefix("--").removeprefix(" ") for line in lines[:comments])
    return DeclaredQuery(id=name, description=description.strip(), sql="\n".join(lines[comments:]).strip())
