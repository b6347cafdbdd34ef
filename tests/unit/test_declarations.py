"""Loading a pipeline's folder: what it becomes, hostile files, and no text that yields anything but these two ends."""

from __future__ import annotations

import doctest
import os
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.declarations import load_pipeline, names, positions, units
from tidegate.declarations.errors import DeclarationErrors
from tidegate.declarations.explain import describe
from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.positions import MAX_FILE_BYTES, Report, Source
from tidegate.declarations.query_parser import parse_query
from tidegate.declarations.scope import StreamSchema
from tidegate.operators.expressions import evaluate, truth
from tidegate.sources.files import expected_files, matches_several

HOUR = timedelta(hours=1)
SPEC = Path(__file__).parents[1] / "spec"
GOOD = (SPEC / "pipeline_file" / "pipeline.yml").read_text(encoding="utf-8")
ORDER = (SPEC / "pipeline_file" / "flights" / "order.avsc").read_bytes()
COUNT = "SELECT COUNT(*) FROM departures [1 HOUR]"
STREAMS = {
    "departures": StreamSchema(
        "departures",
        {"carrier": "string", "flight": "integer", "dep_delay": "double", "at": "timestamp", "gone": "boolean"},
    ),
    "weather": StreamSchema("weather", {"carrier": "string", "gust": "double"}),
}


@pytest.fixture(autouse=True)
def _no_landing_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_LANDING", raising=False)


def written(folder: Path, pipeline: str | bytes = GOOD, **queries: str | bytes) -> Path:
    """A pipeline's folder named ``flights``."""
    root = folder / "flights"
    (root / "queries").mkdir(parents=True, exist_ok=True)
    files: dict[str, str | bytes] = {"pipeline.yml": pipeline, "order.avsc": ORDER}
    files |= {f"queries/{name}.sql": text for name, text in (queries or {"count": COUNT}).items()}
    for name, text in files.items():
        (root / name).write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return root


def mistakes(folder: Path) -> list[str]:
    """The mistakes of a folder that does not load, without the folder's name."""
    with pytest.raises(DeclarationErrors) as caught:
        load_pipeline(folder)
    return [str(mistake).replace(f"{folder}/", "") for mistake in caught.value.mistakes]


def parse(text: str) -> tuple[Query | None, Report]:
    report = Report(Source(Path("query.sql"), text))
    return parse_query("query", report, STREAMS, 300_000_000), report


def test_a_folder_becomes_a_pipeline(tmp_path: Path) -> None:
    pipeline = load_pipeline(written(tmp_path))
    assert (pipeline.interval_s, pipeline.tick_s, pipeline.horizon_s) == (3600, 300, 21600)
    assert (pipeline.memory_budget_bytes, pipeline.process_budget_bytes) == (65536, 3 << 30)
    assert (pipeline.initial_slack_s, pipeline.rate_change, pipeline.partitions) == (3600, 0.5, 2)
    assert pipeline.promise_period_s == 86400
    assert pipeline.start.isoformat() == "2013-01-01T00:00:00+00:00"
    departures, weather, *_ = pipeline.streams
    assert departures.path == f"{tmp_path.resolve()}/flights/landing/departures/%Y-%m-%dT%H.jsonl"
    assert departures.rate == 40 / 3600
    assert (departures.max_early_s, departures.max_late_s, departures.max_width_s) == (3600, 172800, 10800)
    assert departures.history is not None and departures.history.min_fraction == 0.001
    assert departures.column("carrier").nullable is False
    assert departures.numeric_columns == ("flight", "dep_delay")
    assert (weather.arrival_time, weather.max_early_s, weather.max_late_s) == (None, 0, pipeline.horizon_s)
    assert [query.id for query in pipeline.queries] == ["count"]


def test_a_column_named_landed_is_the_column(tmp_path: Path) -> None:
    text = GOOD.replace("observed: timestamp", "observed: timestamp, landed: timestamp")
    assert load_pipeline(written(tmp_path, text)).stream("weather").arrival_time == "landed"


def test_variables_are_expanded_and_absolute_paths_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_LANDING", "/data/in")
    assert load_pipeline(written(tmp_path)).stream("departures").path == "/data/in/departures/%Y-%m-%dT%H.jsonl"


@pytest.mark.parametrize("variant", [GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD, GOOD + "# é 💥\n"])
def test_line_ends_and_byte_order_marks_change_nothing(tmp_path: Path, variant: str) -> None:
    expected = load_pipeline(written(tmp_path))
    assert (
        load_pipeline(written(tmp_path, variant, count="\ufeff" + COUNT.replace(" ", "\r\n\t"))).streams
        == expected.streams
    )


def test_mistakes_of_all_files_are_told_at_once_in_order(tmp_path: Path) -> None:
    text = GOOD.replace("tick: 5 minutes", "tick: 5").replace("id: weather_id", "id: wether_id")
    folder = written(tmp_path, text, one="SELECT COUNT(* FROM x", two="SELECT dep_dely FROM departures [1 HOUR]")
    assert [mistake.split(": ")[0] for mistake in mistakes(folder)] == [
        "pipeline.yml:6:7",
        "pipeline.yml:39:9",
        "queries/one.sql:1:16",
        "queries/two.sql:1:8",
    ]


def test_a_query_on_a_broken_stream_is_not_blamed_for_it(tmp_path: Path) -> None:
    folder = written(
        tmp_path, GOOD.replace("dep_delay: double", "dep_delay: number"), a=COUNT.replace("*", "dep_delay")
    )
    assert [mistake.split(":")[0] for mistake in mistakes(folder)] == ["pipeline.yml"]


def test_there_must_be_a_folder_a_file_and_a_query(tmp_path: Path) -> None:
    assert "the folder does not exist" in mistakes(tmp_path / "nowhere")[0]
    (tmp_path / "empty").mkdir()
    told = mistakes(tmp_path / "empty")
    assert told[0].startswith("pipeline.yml:1:1: cannot be read: No such file")
    assert told[1].startswith("queries:1:1: the pipeline has no queries")


def test_a_query_is_named_by_its_file(tmp_path: Path) -> None:
    folder = written(tmp_path)
    os.rename(folder / "queries" / "count.sql", folder / "queries" / "Most-Delayed.sql")
    assert mistakes(folder)[0].startswith("queries/Most-Delayed.sql:1:1: 'Most-Delayed' cannot name a query")
    os.rename(folder / "queries" / "Most-Delayed.sql", folder / "queries" / "corrected.sql")
    assert mistakes(folder)[0].startswith(
        "queries/corrected.sql:1:1: the mart answers_corrected is that of all queries"
    )


# Nine times nine times nine … values.
BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in pairwise("abcdefgh")
)


@pytest.mark.parametrize(
    ("pipeline", "told"),
    [
        (b"", "1:1: the file is empty"),
        (b"# nothing\n", "1:1: the file is empty"),
        (b"- a\n", "1:1: the pipeline is not a mapping"),
        (b"---\na: 1\n---\nb: 2\n", "3:1: not valid YAML: expected a single document"),
        (b"[" * 2000, "1:21: not valid YAML: nested more than 20 levels deep"),
        (b"{a: " * 2000, "1:81: not valid YAML: nested more than 20 levels deep"),
        (b"a: &a [*a]\n", "1:8: not valid YAML: found undefined alias 'a'"),
        (b"\xff\xfen\x00", "1:1: byte 0xff is not UTF-8"),
        (GOOD.encode() + b"x: \xe9\n", "105:4: byte 0xe9 is not UTF-8"),
        (GOOD.encode() + b"\0", "105:1: a NUL character"),
        (GOOD.replace("operations", "\x07").encode(), "3:8: not valid YAML: control characters"),
        (b"x" * (MAX_FILE_BYTES + 1), "1:1: the file is larger than 1024 KiB"),
        (b"x" * 100_000, "1:1: the pipeline is not a mapping"),
        (GOOD.replace("name: flights", "name: !!python/object/apply:os.abort []").encode(), "1:7: 'name'"),
        (GOOD.replace("operations", '"\\x07"').encode(), "3:8: 'owner' in the pipeline: '\\x07' has a character"),
        (GOOD.replace("operations", '"\\ud800"').encode(), "3:11: not valid YAML: while parsing a quoted scalar"),
        (BOMB.encode(), "6:8: not valid YAML: more than 100000 values, aliases written out"),
        (b"a: [" + b"1," * 200_000 + b"]\n", "1:199999: not valid YAML: more than 100000 values"),
    ],
    ids=range(18),
)
def test_a_hostile_pipeline_file_is_refused(tmp_path: Path, pipeline: bytes, told: str) -> None:
    assert mistakes(written(tmp_path, pipeline))[0].startswith(f"pipeline.yml:{told}")


def test_of_many_mistakes_the_first_hundred_are_shown(tmp_path: Path) -> None:
    """And no more names are compared with known ones than a reader could use."""
    keys = "".join(f"descriptio{i}: x\n" for i in range(10_000))
    types = "".join(f"      c{i}: strin\n" for i in range(5_000))
    text = GOOD.replace("    columns:\n", f"    columns:\n{types}", 1) + keys
    with pytest.raises(DeclarationErrors) as raised:
        load_pipeline(written(tmp_path, text))
    assert len(raised.value.mistakes) == 15_000
    *shown, more, total = str(raised.value).splitlines()
    assert (len(shown), more, total) == (100, "and 14900 more", "15000 mistakes found")
    assert "column 'c0': 'strin' is not a known value" in shown[0]
    assert sum(bool(mistake.nearest) for mistake in raised.value.mistakes) <= 5_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "1:1: the file contains no query"),
        (";;", "1:1: the file contains no query"),
        ("-- only a comment\n", "1:1: the file contains no query"),
        ("x" * 100_000, "1:1: a query cannot begin with"),
        ("(" * 9_000, "1:1: a query cannot begin with '('"),
        (f"{COUNT} WHERE {'(' * 500}gone{')' * 500}", "1:64: the expression is nested too deeply"),
        (f"{COUNT} WHERE {'NOT ' * 5000}gone", "1:1: the query is nested too deeply"),
        (f"{COUNT} WHERE flight > {'+'.join('1' * 4000)}", "1:1: the query is nested too deeply"),
        (f"{COUNT} WHERE flight IN ({','.join('1' * 9000)})", "1:10044: the query is too long"),
        (f"{COUNT} WHERE carrier = 'a", "1:58: ' is not closed"),
        (f"{COUNT} /* all", "1:42: a comment is not closed"),
        ("SELECT COUNT(*) FROM départs [1 HOUR]", "1:22: unknown stream 'départs'"),
        ("SELECT\tCOUNT(*)\r\n\tFROM\tdepartures\t[1 HUOR]\r\n", "2:19: unknown unit 'HUOR'"),
        (f"{COUNT} WHERE flight = 1{'0' * 5000}", "1:57: the number is too large"),
        (f"SELECT COUNT(*) FROM departures [{'9' * 5000} HOURS]", "1:34: '999"),
        (
            f"SELECT {', '.join(f'flight AS c{i}' for i in range(300))} FROM departures [1 HOUR]",
            "1:3098: the answer has",
        ),
    ],
    ids=range(16),
)
def test_a_hostile_query_is_refused_in_time(text: str, told: str) -> None:
    started = time.process_time()
    query, report = parse(text)
    assert query is None
    assert str(report.mistakes[0]).startswith(f"query.sql:{told}")
    assert time.process_time() - started < 10


def test_positions_count_characters_not_bytes() -> None:
    line = f"{COUNT} WHERE carrier = 'é💥' AND flihgt > 1"
    _, report = parse(f"-- é💥\n{line}")
    column = line.index("flihgt") + 1
    assert str(report.mistakes[0]) == f"query.sql:2:{column}: unknown column 'flihgt'; did you mean 'flight'?"


def test_streams_that_come_through_spark_are_told_without_a_value_of_an_option(tmp_path: Path) -> None:
    told = describe(load_pipeline(written(tmp_path)))
    assert "username" not in told and "/clicks" not in told
    orders = told[told.index("Stream orders") : told.index("Stream clicks")]
    assert orders.startswith(
        """Stream orders
  source         avro, the topic shop.orders of Kafka at ${KAFKA_SERVERS}, schema order.avsc; \
kafka.security.protocol, kafka.sasl.jaas.config, maxOffsetsPerTrigger
  checkpoint     s3a://checkpoints/orders
  id             order_id
  event time     sent
  arrival time   Kafka's timestamp
"""
    )
    assert "  no record      a warning\n" in orders
    assert "trace     string     from $headers.trace.id\n" in orders
    assert "  source         Spark's text, jsonl; path, maxFilesPerTrigger\n" in told[told.index("Stream clicks") :]


def test_a_pipeline_is_told_in_plain_text(tmp_path: Path) -> None:
    join = (
        "-- Strong wind.\nSELECT d.origin, COUNT(*) FROM departures [1 HOUR] d, weather [90 MINUTES] w "
        "WHERE d.origin = w.origin AND w.gust > 20 GROUP BY d.origin HAVING COUNT(*) > 5 ERROR 2% EVERY 10 MINUTES"
    )
    top = (
        "SELECT carrier FROM departures [1 HOUR] ORDER BY dep_delay DESC LIMIT 3 DURATION ['2013-01-01', '2013-02-01')"
    )
    told = describe(load_pipeline(written(tmp_path, wind=join, top=top)))
    assert told.endswith(
        """
Query top
  kind     top-k
  windows  departures  last 1 hour of departures
  best     3 by dep_delay descending
  answer   carrier  string  carrier
  promise  none
  every    5 minutes
  active   from 2013-01-01 00:00 to before 2013-02-01 00:00 UTC

Query wind: Strong wind.
  kind        join-aggregate
  windows     d  last 1 hour of departures
              w  last 90 minutes of weather
  where       w: gust > 20
  joined on   d.origin = w.origin
  groups      g0 = d.origin
  aggregates  a0 = COUNT(*)
  having      a0 > 5
  answer      origin  string   g0
              count   integer  a0
  promise     an error of at most 2%; on a miss: a warning
  every       10 minutes
  active      always
"""
    )
    assert "  arrival time   when its file landed\n" in told


@pytest.mark.parametrize("module", [units, names, positions], ids=lambda module: module.__name__)
def test_the_examples_run(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


WORDS = r"""
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN END AS ON JOIN LEFT
UNION WITH DISTINCT ERROR ACCURACY EVERY DURATION RANGE MINUTES HOUR 2% 95% 5 10 0.5 1e9 -1 'AA' NULL TRUE departures
weather d w carrier flight dep_delay at gone gust COUNT(*) SUM( AVG( MAX( CAST( HOUR( RAND( ( ) [ ] , ; . * + - / % =
<> < >= || :: ? @ $ # ` ' " -- /* */ \ {{ é 💥
"""
FRAGMENTS = [
    *WORDS.split(),
    "\u2028",
    "\t",
    "\r\n",
    "[60 MINUTES]",
    "['2013-01-01', '2013-02-01')",
    "INTERVAL 5 MINUTES",
    "ORDER BY dep_delay DESC LIMIT 3",
    COUNT,
]


@settings(max_examples=examples(120), deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=25),
    st.sampled_from(["", f"{COUNT} WHERE ", "SELECT flight FROM departures [1 HOUR] ORDER BY ", "SELECT "]),
    st.sampled_from(["", " FROM departures [1 HOUR] d, weather [1 HOUR] w WHERE d.carrier = w.carrier", " LIMIT 2"]),
)
def test_any_text_is_a_query_or_mistakes(parts: list[str], prefix: str, suffix: str) -> None:
    query, report = parse(prefix + " ".join(parts) + suffix)
    assert isinstance(query, Query) != bool(report.mistakes)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_any_pipeline_file_is_a_pipeline_or_mistakes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = GOOD.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(["drop", "cut", "append", "repeat", "value"]))
        text = data.draw(
            st.text(max_size=8) | st.sampled_from(["{", "[", "&a", "*a", "- x", ": ", "#", "'", "${", "nan"])
        )
        line = lines[at]
        cut = data.draw(st.integers(0, len(line)))
        lines[at] = {
            "drop": "",
            "cut": line[:cut] + text + line[cut + 1 :],
            "append": line + text,
            "repeat": line + "\n" + line,
            "value": line.split(":")[0] + ": " + text,
        }[change]
    folder = written(tmp_path_factory.mktemp("fuzz"), "\n".join(lines))
    try:
        assert isinstance(load_pipeline(folder), Pipeline)
    except DeclarationErrors as error:
        assert error.mistakes


def test_an_id_named_as_tidegates_own_but_for_letter_case_is_refused(tmp_path: Path) -> None:
    root = written(tmp_path, GOOD.replace("flight_id", "Event_Id"))
    (found,) = mistakes(root)
    assert found.endswith(
        "column 'Event_Id' would clash with the column 'event_id' of the stream's table; "
        "expected 'event_id', or another name, such as 'departures_event_id'"
    )


def test_a_number_declared_as_event_id_is_a_number_to_queries(tmp_path: Path) -> None:
    """It is stored as text, where '999' is more than '1460'."""
    text = GOOD.replace("id: flight_id", "id: event_id").replace("flight_id: string", "event_id: integer")
    root = written(tmp_path, text, newest="SELECT MAX(event_id) FROM departures [1 HOUR] WHERE event_id > 5")
    (query,) = load_pipeline(root).queries
    rows = pa.table({"event_id": ["999", "1460", "4"]})
    assert query.aggregates[0].type == "integer"
    assert evaluate(query.aggregates[0].expression or "", rows).to_pylist() == [999, 1460, 4]
    assert truth(query.predicates["departures"], rows).tolist() == [True, True, False]


@pytest.mark.parametrize("parent", ["plain", "Größe und Maß", "100%H of it", "[x] {y} *"])
def test_a_relative_path_starts_at_the_pipelines_folder_wherever_one_stands(
    parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / parent)
    landed = folder / "landing" / "departures" / "2013-02-08T10.jsonl"
    landed.parent.mkdir(parents=True)
    landed.write_text("{}\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for stand, named in ((elsewhere, folder), (folder, Path(".")), (tmp_path, Path(parent) / "flights")):
        monkeypatch.chdir(stand)
        pipeline = load_pipeline(named)
        at = datetime(2013, 2, 8, 9, tzinfo=UTC)
        found = list(expected_files(pipeline.stream("departures"), at, at + 3 * HOUR))
        assert [[file.path for file in hour.files] for hour in found] == [[], [landed], []]
        assert not matches_several(pipeline.stream("departures").path)


def test_a_path_without_directives_finds_every_file_of_an_odd_folder(tmp_path: Path) -> None:
    text = GOOD.replace("/departures/%Y-%m-%dT%H.jsonl", "/departures/*.jsonl")
    folder = written(tmp_path / "100%H of [x]", text)
    (folder / "landing" / "departures").mkdir(parents=True)
    landed = folder / "landing" / "departures" / "any name.jsonl"
    landed.write_text("{}\n")
    pipeline = load_pipeline(folder)
    at = datetime(2013, 2, 8, 9, tzinfo=UTC)
    found = list(expected_files(pipeline.stream("departures"), at, at + HOUR))
    assert [(hour.period_start_us, [file.path for file in hour.files]) for hour in found] == [(None, [landed])]
