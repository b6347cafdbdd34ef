"""Mutated declarations and queries: what ``tidegate validate`` accepts, no consumer refuses, and nothing takes long.

Consumers are Airflow (its DagBag, in a process of its own, and the scheduler's form of the DAG), ``tidegate explain``,
the engine (each query answers hostile tuples), Spark (its analysis of the queries' expressions) and dbt (its parser, of
what the accepted pipelines declare, in projects of many). Spark and dbt are given what is alike but once: it is their
time that a campaign takes.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from tests.dbt.parsing import parse
from tests.spark.test_expressions import KINDS, VALUES, Expressions
from tests.spec.test_query_language import DEPARTURES, WEATHER, cases

from tidegate.cli.memory_ladder import needs, render
from tidegate.cli.query_work import query_work
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import MOST_SHOWN, DeclarationErrors, UserError
from tidegate.declarations.explain import describe
from tidegate.declarations.models import Pipeline, Query, Stream
from tidegate.declarations.schedule import load_schedule
from tidegate.declarations.tables import schema
from tidegate.operators.schedule import Schedule
from tidegate.queries.questions import Answering, Question
from tidegate.queries.scan import EventFiles
from tidegate.stages.dbt_project import render_project, spark_type
from tidegate.store.warehouse import Warehouse

MOST_S = 1.0
TOGETHER = 500
END_US = 1_700_000_100_000_000 // 86_400_000_000 * 86_400_000_000


def _columns(columns: dict[str, str]) -> str:
    return "".join(f"      {name}: {kind}\n" for name, kind in columns.items())


HEAD = """\
name: NAME
description: What is asked of flights
owner: operations
start: 2013-01-01T00:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 6 hours
memory_budget: 64 MiB
process_budget: 3 GiB
initial_slack: 1 hour
promise_period: 1 day
rate_change: 50%
partitions: 2
streams:
"""
STREAMS = {
    "departures": f"""\
  departures:
    description: Departures as they happen
    format: jsonl
    path: landing/departures/%Y-%m-%dT%H*.jsonl
    columns:
{_columns(DEPARTURES)}    id: flight_id
    event_time: scheduled
    arrival_time: departed
    rate: 40 per hour
    max_early: 1 hour
    max_late: 2 days
    max_width: 3 hours
    missing_file: warn
""",
    "weather": f"""\
  weather:
    format: parquet
    path: /landing/weather/*.parquet
    columns:
{_columns(WEATHER)}    id: weather_id
    event_time: observed
    arrival_time: landed
    rate: 3 per hour
""",
    "odds": f"""\
  odds:
    format: csv
    path: landing/odds.csv
    columns:
      no: {{type: integer, nullable: false, description: What counts}}
      at: timestamp
{_columns(KINDS)}    id: no
    event_time: at
    arrival_time: at
    rate: 1 per minute
""",
}
HISTORIES = {
    "departures": """\
    history: {leaf: 1 hour, capacity: 2000, max_fraction: 90%, min_fraction: 0.1%, merge_leaves: 6, seed: 7}
""",
    "weather": """\
    history:
      leaf: 30 minutes
      capacity: 500
      law: inverse_age
      reserve: 20%
      bands: 4
      group_by: [origin, station]
""",
}
# What is none of the query's words, and what may stand between them.
TRAPS = [
    "SELECT COUNT(*) FROM departures [1 HOUR] /* LIMIT 5 */",
    "SELECT COUNT(*) FROM departures [1 HOUR] WHERE carrier = 'it\\'s -- the LIMIT: ERROR 3%' -- LIMIT",
    "SELECT COUNT(*) FROM departures [1 HOUR] WHERE error % 5 = 2 AND error + 5 % 3 = 1 ERROR +.5% EVERY 1 HOUR",
    "SELECT carrier FROM departures [1 HOUR] WHERE carrier <> '--' ORDER BY `error` LIMIT 5 ACCURACY /* 9% */ 95\n%;",
    '-- {{ x }}\nSELECT COUNT(*) AS n FROM departures [1 HOUR] WHERE carrier = "LIMIT \\" 1" ERROR -- 7%\n5%',
]
QUERIES = [*TRAPS, *(query for _, query, _ in cases("valid.txt"))]
HERE = Path(__file__).parent
ODD_VALUES = [*(HERE / "odd_values.txt").read_text().splitlines(), "", "\u202e", "\ufeff"]
ODD_WORDS = [*(HERE / "odd_words.txt").read_text().splitlines(), "--LIMIT\n", "\u00a0", "\ufeff", "\x0b"]


def declaration(chance: Random, number: int) -> tuple[str, list[str]]:
    """pipeline.yml and the queries of a declaration, mutated here and there; its names are its own."""
    queries = [query(chance) for _ in range(chance.choice([1, 1, 2]))]
    text = HEAD.replace("NAME", f"p{number}")
    for name, stream in STREAMS.items():
        if any(name in one for one in queries) or chance.randrange(6) == 0:
            text += stream + chance.choice([HISTORIES.get(name, ""), "", ""])
    lines = text.splitlines()
    for _ in range(chance.choice([0, 0, 1, 1, 1, 2])):
        mutate_line(chance, lines)
    text = "\n".join(lines) + "\n"
    if chance.randrange(12) == 0:
        text = mutate_text(chance, text)
    # Streams bear the declaration's number, so that many pipelines fit into one dbt project.
    own = re.compile(r"\b(departures|weather|odds)\b")
    return own.sub(rf"\1_{number}", text), [own.sub(rf"\1_{number}", one) for one in queries]


def mutate_line(chance: Random, lines: list[str]) -> None:
    """One line gets another value or key, comes twice, goes, moves, or stands elsewhere."""
    at = chance.randrange(len(lines))
    key, colon, value = lines[at].partition(": ")
    other = lines[chance.randrange(len(lines))]
    odd = chance.choice(ODD_VALUES)
    how = chance.choice([*["value"] * 8, "other", "key", "twice", "gone", "swap", "indent", "part", "block"])
    if how == "value" and colon:
        lines[at] = f"{key}: {odd}"
    elif how == "other" and colon:
        lines[at] = f"{key}: {other.partition(': ')[2]}"
    elif how == "key":
        lines[at] = f"{re.sub(r'[^ ].*', '', lines[at])}{chance.choice([odd, other.strip().split(':')[0]])}: {value}"
    elif how == "twice":
        lines.insert(at, other)
    elif how == "gone":
        del lines[at]
    elif how == "swap":
        to = lines.index(other)
        lines[at], lines[to] = lines[to], lines[at]
    elif how == "indent":
        lines[at] = chance.choice([" ", "  ", "\t", "- "]) + lines[at]
    elif how == "part" and value:
        words = value.split(" ")
        words[chance.randrange(len(words))] = odd
        lines[at] = f"{key}: {' '.join(words)}"
    elif how == "block" and colon:
        lines[at] = f"{key}: {chance.choice(['|', '>'])}\n        {value}\n        {odd}"


def mutate_text(chance: Random, text: str) -> str:
    """Some characters put in, changed or lost."""
    at = chance.randrange(len(text))
    odd = chance.choice([*"\x00\x07\t\r\n:-[]{}&*!|>'\"%@`#,? é\u2028\ufeff", "🚀", "<<: *a\n", "---\n", "...\n"])
    return text[:at] + odd + text[at + chance.choice([0, 0, 1, 5, 60]) :]


def query(chance: Random) -> str:
    """A query of the whole language, often mutated."""
    text = chance.choice([lambda: chance.choice(QUERIES), lambda: expression_query(chance)])()
    if chance.randrange(2):
        return text
    words = re.findall(r"'[^']*'|\w+|\s+|.", text, re.DOTALL)
    for _ in range(chance.choice([1, 1, 1, 2])):
        at = chance.randrange(len(words))
        odd = chance.choice([*ODD_WORDS, *re.findall(r"\w+|\S", chance.choice(QUERIES))])
        how = chance.choice(["put", "change", "change", "lose", "twice", "swap"])
        to = chance.randrange(len(words))
        if how == "swap":
            words[at], words[to] = words[to], words[at]
        else:
            words[at] = {"put": f"{words[at]} {odd} ", "change": odd, "lose": "", "twice": words[at] * 2}[how]
    return "".join(words)


def expression_query(chance: Random) -> str:
    """A query with expressions of all kinds."""
    made = Expressions(chance.randrange(2**30))
    depth = chance.randrange(1, 4)
    where = chance.choice(["", f" WHERE {made.of('boolean', depth)}"])
    if chance.randrange(3) == 0:
        key = made.of(chance.choice(list(VALUES)), depth)
        return f"SELECT no, {key} AS v FROM odds [1 HOUR]{where} ORDER BY {key} DESC LIMIT 3"
    number = made.of(chance.choice(["integer", "double"]), depth)
    extreme = made.of(chance.choice(list(VALUES)), depth)
    group = chance.choice(["", "k", "b", "d", "i"])
    shown = f"{group}, " if group else ""
    text = f"SELECT {shown}SUM({number}) AS a, MAX({extreme}) AS z, COUNT({extreme}) AS n FROM odds [1 HOUR]{where}"
    return text + (f" GROUP BY {group}" if group else "")


# The check


def attack(seed: int, folder: Path, count: int = 5000) -> tuple[int, list[str]]:
    """Judge ``count`` declarations of a seed in an empty folder; how many, and what is wrong with them."""
    chance = Random(f"declarations {seed}")
    accepted: list[Pipeline] = []
    faults: list[str] = []
    for number in range(count):
        home = folder / "dags" / "pipelines" / f"p{number}"
        write(home, *declaration(chance, number))
        taken_s, pipeline = timed(home, faults)
        if taken_s > MOST_S:
            # Python may have collected the campaign's own garbage meanwhile.
            gc.collect()
            taken_s = timed(home, [])[0]
        if taken_s > MOST_S:
            faults.append(f"{home.name}: took {taken_s:.1f} s")
        if pipeline is not None:
            accepted.append(pipeline)
    for pipeline in accepted:
        for consumer in (scheduled, explained, answered):
            tried(consumer, pipeline, faults)
    faults += analysed_by_spark(accepted)
    faults += loaded_by_airflow(folder / "dags", accepted)
    faults += parsed_by_dbt(folder, accepted)
    return count, [f"seed {seed}, {fault}" for fault in faults]


def write(home: Path, text: str, queries: list[str]) -> None:
    """Write a declaration's folder."""
    (home / "queries").mkdir(parents=True)
    (home / "pipeline.yml").write_text(text, encoding="utf-8", newline="")
    for i, one in enumerate(queries):
        (home / "queries" / f"q{home.name[1:]}_{i}.sql").write_text(one, encoding="utf-8", newline="")


def timed(home: Path, faults: list[str]) -> tuple[float, Pipeline | None]:
    """Processor seconds that ``validated`` takes, and what it finds."""
    before = time.process_time()
    pipeline = validated(home, faults)
    return time.process_time() - before, pipeline


def validated(home: Path, faults: list[str]) -> Pipeline | None:
    """The pipeline, None if it is refused: then every mistake must have its place."""
    try:
        return load_pipeline(home)
    except DeclarationErrors as error:
        told = str(error).splitlines()
        if not error.mistakes or len(told) > MOST_SHOWN + 2 or not all(m.line and m.column for m in error.mistakes):
            faults.append(f"{home.name}: {error}")
    except Exception:
        faults.append(f"{home.name}: {traceback.format_exc()}")
    return None


def tried(consumer: Callable[[Pipeline], None], pipeline: Pipeline, faults: list[str]) -> None:
    """Note what a consumer says against an accepted pipeline."""
    try:
        consumer(pipeline)
    except Exception:
        faults.append(f"{pipeline.name}: {consumer.__name__}: {traceback.format_exc()}")


def scheduled(pipeline: Pipeline) -> None:
    """The schedule's reader reads the same."""
    schedule = load_schedule(pipeline.folder)
    assert (schedule.name, schedule.description, schedule.owner) == (
        pipeline.name, pipeline.description, pipeline.owner
    )  # fmt: skip
    assert (schedule.start, schedule.interval.total_seconds()) == (pipeline.start, pipeline.interval_s)
    assert schedule.streams == tuple(s.name for s in pipeline.streams)
    assert schedule.histories == tuple(s.name for s in pipeline.streams if s.history)
    assert schedule.grouped_histories == tuple(s.name for s in pipeline.streams if s.history and s.history.group_by)
    assert list(schedule.queries) == [query.id for query in pipeline.queries]


def explained(pipeline: Pipeline) -> None:
    """``tidegate explain``; that the memory does not suffice is an answer too."""
    with suppress(UserError):
        assert all((describe(pipeline), query_work(pipeline), render(needs(pipeline))))


def answered(pipeline: Pipeline) -> None:
    """Every query answers hostile tuples."""
    files = {stream.name: hostile(pipeline, stream.name) for stream in pipeline.streams}
    for one in pipeline.queries:
        table = Answering(question(pipeline, one, files)).table()
        assert set(table.column_names) >= {output.name for output in one.outputs}


def analysed_by_spark(accepted: Sequence[Pipeline]) -> list[str]:
    """What Spark says against what is computed from tuples: it resolves it, and finds its types in order."""
    asked: dict[str, dict[str, str]] = defaultdict(dict)
    for pipeline in accepted:
        for stream in pipeline.streams:
            columns = schema(pipeline, f"events_{stream.name}")
            own = asked[", ".join(f"`{c.name}` {spark_type(c.type)}" for c in columns)]
            for one in pipeline.queries:
                own |= {sql: f"{one.id}: {sql}" for name, sql in expressions(one) if name == stream.name}
    spark = SparkSession.builder.master("local[1]").getOrCreate()
    return [
        f"Spark: {fault}"
        for columns, found in asked.items()
        for fault in unresolved(spark.createDataFrame([], columns), list(found.items()))
    ]


def unresolved(tuples: DataFrame, asked: Sequence[tuple[str, str]]) -> list[str]:
    """What Spark says against (SQL, what it is): of all in one query, and if that is refused, of halves."""
    try:
        tuples.selectExpr(*(f"{sql} AS v{i}" for i, (sql, _) in enumerate(asked)))
        return []
    except Exception as error:
        half = len(asked) // 2
        parts = [*unresolved(tuples, asked[:half]), *unresolved(tuples, asked[half:])] if half else []
        return parts or [f"{', '.join(what for _, what in asked[:3])}: {error}"]


def expressions(one: Query) -> Iterator[tuple[str, str]]:
    """(stream, SQL) of a query's expressions over tuples."""
    streams = {window.alias: window.stream for window in one.windows}
    yield from ((streams[alias], sql) for alias, sql in one.predicates.items())
    yield from ((streams[a.alias], a.expression) for a in one.aggregates if a.alias and a.expression)
    if one.kind == "top_k":
        yield from ((one.windows[0].stream, o.expression) for o in (*one.outputs, *one.order_by))


def question(pipeline: Pipeline, one: Query, files: dict[str, EventFiles]) -> Question:
    """Three windows of a query."""
    tick_us = pipeline.tick_s * 1_000_000
    ends = END_US // tick_us * tick_us + tick_us * np.arange(3, dtype=np.int64)
    lowers = {window.alias: ends - int(window.range_s * 1_000_000) for window in one.windows}
    return Question(one, Schedule(ends, ends, lowers), np.ones(3), files, tick_us)


def hostile(pipeline: Pipeline, stream: str) -> EventFiles:
    """Tuples of the largest, least and oddest values."""
    wanted = schema(pipeline, f"events_{stream}")
    chance, rows = Random(stream), 24
    columns = {field.name: pa.array(values(chance, field, rows), field.type) for field in wanted}
    times = pa.array(sorted(END_US - chance.randrange(3_600_000_000) for _ in range(rows))).cast(
        pa.timestamp("us", "UTC")
    )
    columns |= {"event_time": times, "arrival_time": times, "event_id": pa.array([f"{i}" for i in range(rows)])}
    path = pipeline.folder / f"{stream}.parquet"
    pq.write_table(pa.table(columns, schema=wanted), path)
    return EventFiles((str(path),), wanted)


_KIND = {"string": "string", "int64": "integer", "double": "double", "bool": "boolean", "date32[day]": "date"}


def values(chance: Random, field: pa.Field, rows: int) -> list[Any]:
    """Values that an accepted record may have."""
    known = VALUES[_KIND.get(str(field.type), "timestamp")]
    finite = [value for value in known if not isinstance(value, float) or abs(value) < float("inf")]
    return [chance.choice(finite) for _ in range(rows)]


def loaded_by_airflow(dags: Path, accepted: list[Pipeline]) -> list[str]:
    """What Airflow says against the accepted pipelines' DAGs."""
    for pipeline in accepted:
        (dags / f"{pipeline.name}.py").write_text(
            f'"""airflow"""\nfrom tidegate_dags import build_dag\ndag = build_dag("{pipeline.name}")\n'
        )
    (dags / ".airflowignore").write_text("pipelines/\n")
    program = [sys.executable, "-m", "tests.attacks.dag_bag", str(dags)]
    home = {"AIRFLOW_HOME": str(dags.parent / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, **home}, check=False)
    if done.returncode:
        return [f"Airflow: {done.stderr[-3000:]}"]
    found = json.loads(done.stdout.splitlines()[-1])
    found["errors"] |= {p.name: "there is no DAG" for p in accepted if p.name not in found["queries"]}
    faults = [f"Airflow: {Path(name).stem}: {text}" for name, text in found["errors"].items()]
    for pipeline in accepted:
        wanted = {q.id: ["top_k" if q.kind == "top_k" else "aggregate", q.promised] for q in pipeline.queries}
        read = found["queries"].get(pipeline.name, wanted)
        if read != wanted:
            faults.append(f"Airflow: {pipeline.name}: {read} instead of {wanted}")
    return faults


def parsed_by_dbt(folder: Path, accepted: Sequence[Pipeline]) -> list[str]:
    """What dbt says against the accepted pipelines' streams and queries: those of many as one pipeline's."""
    if not accepted:
        return []
    declared = {alike(pipeline, one): one for pipeline in accepted for one in (*pipeline.streams, *pipeline.queries)}
    projects: list[dict[str, Stream | Query]] = []
    for one in declared.values():
        name = f"stream {one.name}" if isinstance(one, Stream) else f"query {one.id}"
        room = next((own for own in projects if name not in own and len(own) < TOGETHER), None)
        if room is None:
            projects.append(room := {})
        room[name] = one
    # How fresh tables have to be depends on the interval: each project has another.
    heads = itertools.cycle({pipeline.interval_s: pipeline for pipeline in accepted}.values())
    return [
        f"dbt: {fault}"
        for number, (head, own) in enumerate(zip(heads, projects, strict=False))
        for fault in unparsed(folder / "dbt" / f"{number}", head, list(own.items()))
    ]


def unparsed(home: Path, head: Pipeline, declared: Sequence[tuple[str, Stream | Query]]) -> list[str]:
    """What dbt says against a project of streams and queries; if it refuses them, against halves."""
    streams = tuple(one for _, one in declared if isinstance(one, Stream))
    queries = tuple(one for _, one in declared if isinstance(one, Query))
    pipeline = head.model_copy(update={"streams": streams, "queries": queries})
    render_project(Warehouse(home / "warehouse", pipeline), home / "project")
    try:
        parse(home / "project", home / "scratch")
        return []
    except (AssertionError, BaseExceptionGroup) as error:
        half = len(declared) // 2
        parts = (
            [*unparsed(home / "0", head, declared[:half]), *unparsed(home / "1", head, declared[half:])] if half else []
        )
        return parts or [f"{', '.join(name for name, _ in declared[:3])}: {error}"]


def alike(pipeline: Pipeline, one: Stream | Query) -> str:
    """What is declared, but for the number that the pipeline's names bear."""
    return re.sub(rf"(?<=[_qp]){pipeline.name[1:]}(?=_|\b)", "", repr(one))
