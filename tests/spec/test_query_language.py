"""The query language as tables: each query with the model that it means, or with the mistakes that it makes.

The files in ``query_language/`` hold cases parted by ``====``: a title, the query, ``----``, what is expected. Expected
models are written one field a line, as JSON, without fields at their default.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.declarations.models import Column, Query, ReferenceTable
from tidegate.declarations.positions import Report, Source
from tidegate.declarations.query_parser import parse_query
from tidegate.declarations.scope import StreamSchema
from tidegate.values.types import ColumnType

FIXTURES = Path(__file__).parent / "query_language"
TICK_US = 5 * 60 * 1_000_000

DEPARTURES: dict[str, ColumnType] = {
    "flight_id": "string",
    "carrier": "string",
    "flight": "integer",
    "origin": "string",
    "scheduled": "timestamp",
    "departed": "timestamp",
    "dep_delay": "double",
    "cancelled": "boolean",
    "day": "date",
    "error": "double",
}
WEATHER: dict[str, ColumnType] = {
    "weather_id": "string",
    "origin": "string",
    "observed": "timestamp",
    "wind_speed": "double",
    "gust": "double",
    "station": "integer",
}
FARES: dict[str, ColumnType] = {
    "order": "integer",
    "currency": "string",
    "price": "decimal(10,2)",
    "tax": "decimal(5,4)",
    "wei": "decimal(38,18)",
    "share": "decimal(38,38)",
    "end": "decimal(12,0)",
    "from": "string",
}
STREAMS = {
    "departures": StreamSchema("departures", DEPARTURES, "event_time"),
    "weather": StreamSchema("weather", WEATHER, "observed"),
    "fares": StreamSchema("fares", FARES),
}
TABLES = {
    "airports": ReferenceTable(
        name="airports",
        path="/airports.csv",
        format="csv",
        columns=(
            Column(name="code", type="string", nullable=False),
            Column(name="city", type="string"),
            Column(name="elevation", type="integer"),
            Column(name="region", type="integer"),
        ),
        key=("code",),
    ),
    "seats": ReferenceTable(
        name="seats",
        path="/seats.parquet",
        format="parquet",
        columns=(
            Column(name="carrier", type="string", nullable=False),
            Column(name="flight", type="integer", nullable=False),
            Column(name="seats", type="integer"),
            Column(name="since", type="timestamp"),
        ),
        key=("carrier", "flight"),
        valid_from="since",
    ),
    "regions": ReferenceTable(
        name="regions",
        path="/regions",
        format="delta",
        columns=(Column(name="id", type="integer", nullable=False), Column(name="name", type="string")),
        key=("id",),
    ),
}


def cases(name: str) -> list[tuple[str, str, str]]:
    """Title, query and expectation of every case of a fixture file."""
    found = []
    for block in (FIXTURES / name).read_text(encoding="utf-8").split("\n====\n"):
        title, rest = block.strip("\n").split("\n", 1)
        query, expected = rest.split("\n----\n")
        found.append((title.removeprefix("# "), query, expected.strip()))
    return found


def parse(text: str) -> tuple[Query | None, Report]:
    """Parse one query over the streams and tables above."""
    report = Report(Source(Path("query.sql"), text))
    return parse_query("query", report, STREAMS, TICK_US, TABLES), report


def shown(query: Query) -> str:
    """A query as the fixtures write it."""
    fields = query.model_dump(mode="json", exclude_defaults=True, exclude={"id", "text"})
    return "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items() if value)


def mistakes(report: Report) -> str:
    """Mistakes as the fixtures write them: without the file."""
    ordered = sorted(report.mistakes, key=lambda mistake: (mistake.line, mistake.column))
    return "\n".join(str(mistake).removeprefix("query.sql:") for mistake in ordered)


@pytest.mark.parametrize(("title", "text", "expected"), cases("valid.txt"), ids=lambda value: value[:60])
def test_a_valid_query_means_its_model(title: str, text: str, expected: str) -> None:
    query, report = parse(text)
    assert mistakes(report) == ""
    assert query is not None
    assert shown(query) == expected


@pytest.mark.parametrize(("title", "text", "expected"), cases("mistakes.txt"), ids=lambda value: value[:60])
def test_a_mistaken_query_is_told_what_where_and_how(title: str, text: str, expected: str) -> None:
    query, report = parse(text)
    assert query is None
    assert mistakes(report) == expected


def test_the_fixtures_hold_the_cases_that_they_should() -> None:
    assert len(cases("valid.txt")) >= 20
    assert len(cases("mistakes.txt")) >= 100
