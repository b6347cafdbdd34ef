"""Derived streams as tables: files, and the model that the query over them means, or the mistakes that they make.

The cases are in ``derived_streams/``, parted by ``====``: a title, files that begin with a comment of their path,
``----``, what is expected, as in ``query_language/``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.spec.test_query_language import STREAMS, TABLES, TICK_US, shown

from tidegate.declarations.derived_streams import MAX_EXPRESSION, DerivedStreams
from tidegate.declarations.models import Query
from tidegate.declarations.positions import Report, Source
from tidegate.declarations.query_parser import parse_query
from tidegate.declarations.scope import StreamSchema

FIXTURES = Path(__file__).parent / "derived_streams"
SCHEMAS = STREAMS | {"departures": replace(STREAMS["departures"], event_time="departed")}


def cases(name: str) -> list[tuple[str, str, str]]:
    """Title, files and expectation of every case of a fixture file."""
    blocks = []
    for block in (FIXTURES / name).read_text(encoding="utf-8").split("\n====\n"):
        title, rest = block.strip("\n").split("\n", 1)
        files, expected = rest.split("\n----\n")
        blocks.append((title.removeprefix("# "), files, expected.strip()))
    return blocks


def read(folder: Path, files: str) -> tuple[Query | None, DerivedStreams, list[str]]:
    """The query of some files, the derived streams, and all mistakes."""
    texts: dict[str, str] = {}
    for part in re.split(r"^(?=-- (?:streams|queries)/\w+\.sql$)", files, flags=re.MULTILINE)[1:]:
        path = folder / part.splitlines()[0].removeprefix("-- ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(part.split("\n", 1)[1])
        texts[path.name] = path.read_text()
    derived = DerivedStreams(dict(SCHEMAS), TABLES)
    derived.read(folder)
    query, mistakes = None, list(derived.mistakes)
    if "query.sql" in texts:
        report = Report(Source(folder / "queries" / "query.sql", texts["query.sql"]))
        query = parse_query("query", report, derived.schemas, TICK_US, TABLES)
        mistakes += report.mistakes
    return query, derived, [str(mistake).removeprefix(f"{folder}/") for mistake in mistakes]


@pytest.mark.parametrize(("title", "files", "expected"), cases("valid.txt"), ids=lambda value: value[:60])
def test_a_query_over_a_derived_stream_means_one_over_the_declared_stream(
    title: str, files: str, expected: str, tmp_path: Path
) -> None:
    query, _, mistakes = read(tmp_path, files)
    assert mistakes == []
    assert query is not None
    assert shown(query) == expected


@pytest.mark.parametrize(("title", "files", "expected"), cases("mistakes.txt"), ids=lambda value: value[:60])
def test_a_mistake_is_placed_in_the_file_that_makes_it(title: str, files: str, expected: str, tmp_path: Path) -> None:
    query, _, mistakes = read(tmp_path, files)
    assert query is None
    assert "\n".join(mistakes) == expected


def test_what_derived_streams_stand_for_may_not_grow_without_end(tmp_path: Path) -> None:
    """Each level doubles the expression; the level that makes it too long is named."""
    files = "-- streams/s0.sql\nSELECT dep_delay + 1 AS x FROM departures\n"
    files += "".join(f"-- streams/s{n}.sql\nSELECT x + x AS x FROM s{n - 1}\n" for n in range(1, 30))
    _, derived, mistakes = read(tmp_path, files)
    assert len(mistakes) == 1
    assert f"at most {MAX_EXPRESSION} characters" in mistakes[0]
    assert all(len(column.expression) <= MAX_EXPRESSION for stream in derived.streams for column in stream.columns)


def test_a_union_of_unions_has_no_more_branches_than_sixteen(tmp_path: Path) -> None:
    """Each level doubles them; the level that makes them too many is named."""
    files = "-- streams/s0.sql\nSELECT origin FROM departures UNION ALL SELECT origin FROM weather\n"
    files += "".join(
        f"-- streams/s{n}.sql\nSELECT origin FROM s{n - 1} UNION ALL SELECT origin FROM s{n - 1}\n" for n in range(1, 9)
    )
    _, derived, mistakes = read(tmp_path, files)
    assert mistakes == [
        "streams/s4.sql:1:1: the union has 32 branches, those of unions that it reads among them; expected at most 16"
    ]
    assert [len(stream.branches) for stream in derived.streams] == [2, 4, 8, 16]
    identities = [branch.id for branch in derived.streams[-1].branches]
    assert len(set(identities)) == 16, "each branch's tuples are told apart"


def test_no_column_of_a_union_is_called_as_the_id_of_its_tuples(tmp_path: Path) -> None:
    """Of a stream by itself it is that stream's; of a union it says of which SELECT the tuple is."""
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "u.sql").write_text("SELECT event_id, v FROM a UNION ALL SELECT event_id, v FROM a")
    derived = DerivedStreams({"a": StreamSchema("a", {"event_id": "integer", "v": "double"}, "at")})
    derived.read(tmp_path)
    (mistake,) = derived.mistakes
    assert "the id of a union's tuple says of which SELECT it is, so that no column is named 'event_id'" in str(mistake)
    (tmp_path / "streams" / "u.sql").write_text(
        "SELECT event_id AS number, v FROM a UNION ALL SELECT event_id, v FROM a"
    )
    derived = DerivedStreams({"a": StreamSchema("a", {"event_id": "integer", "v": "double"}, "at")})
    derived.read(tmp_path)
    assert not derived.mistakes
    assert [c.expression for c in derived.streams[0].branches[1].columns] == ["TRY_CAST(event_id AS BIGINT)", "v"]


def test_times_of_a_union_are_each_tuples_own(tmp_path: Path) -> None:
    files = (
        "-- streams/u.sql\nSELECT departed AS began, origin FROM departures UNION ALL SELECT {}, origin FROM weather\n"
    )
    assert read(tmp_path, files.format("observed"))[1].schemas["u"].event_time == "began"
    assert read(tmp_path, files.format("CAST('2013-01-01' AS TIMESTAMP)"))[1].schemas["u"].event_time == "event_time"


def test_a_derived_stream_says_what_it_stands_for(tmp_path: Path) -> None:
    files = "-- streams/low.sql\n-- Little delay.\nSELECT dep_delay AS d FROM departures WHERE dep_delay < 9\n"
    files += "-- streams/lower.sql\nSELECT d * 60 AS s FROM low WHERE d < 1\n"
    _, derived, mistakes = read(tmp_path, files)
    assert mistakes == []
    low, lower = derived.streams
    assert (low.name, low.description, low.reads, low.stream) == ("low", "Little delay.", "departures", "departures")
    assert (lower.name, lower.reads, lower.stream) == ("lower", "low", "departures")
    assert lower.predicate == "dep_delay < 9 AND dep_delay < 1"
    assert [(c.name, c.type, c.expression) for c in lower.columns] == [("s", "double", "dep_delay * 60")]


def test_the_fixtures_hold_the_cases_that_they_should() -> None:
    assert len(cases("valid.txt")) >= 4
    assert len(cases("mistakes.txt")) >= 30
