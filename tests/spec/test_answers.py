"""The examples of answers/cases.yml, each on the pure operators and from files, in slices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tidegate.aggregates.accumulators import Partial
from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Branch, Lookup, Pipeline, Query, to_us
from tidegate.declarations.tables import schema
from tidegate.operators import join_aggregate, top_k
from tidegate.operators.expressions import evaluate
from tidegate.operators.schedule import Schedule
from tidegate.queries.questions import Answering, Question, aggregate_spec, top_k_spec
from tidegate.queries.scan import EventFiles
from tidegate.store.references import References, Version
from tidegate.values.types import arrow_type

CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "answers" / "cases.yml").read_text())
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
STREAM = """
    format: jsonl
    path: /nowhere/%Y-%m-%dT%H.jsonl
    columns: {id: string, happened: timestamp, came: timestamp, k: string, v: double,
      n: integer, b: boolean, d: "decimal(38,2)"}
    id: id
    event_time: happened
    arrival_time: came
    rate: 1 per minute
"""
PIPELINE = f"""
name: spec
owner: tests
start: 2026-01-01T00:00:00Z
interval: 1 hour
tick: 1 minute
horizon: 1 hour
memory_budget: 1 MiB
process_budget: 1 GiB
streams:
  a:{STREAM}
  b:{STREAM}
"""
TABLES = """
tables:
  kinds:
    path: /nowhere/kinds.csv
    format: csv
    columns: {k: string, kind: string, since: timestamp}
    key: k
    valid_from: since
"""


def us(minutes: float) -> int:
    return to_us(MIDNIGHT + timedelta(minutes=minutes))


@pytest.fixture(params=CASES, ids=lambda case: case["name"])
def case(request) -> dict[str, Any]:
    return request.param


@pytest.fixture
def pipeline(case, tmp_path) -> Pipeline:
    folder = tmp_path / "spec"
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE + (TABLES if "kinds" in case else ""))
    (folder / "queries" / "q.sql").write_text(case["sql"])
    for name, sql in case.get("streams", {}).items():
        (folder / "streams").mkdir(exist_ok=True)
        (folder / "streams" / f"{name}.sql").write_text(sql)
    return load_pipeline(folder)


@pytest.fixture
def schedule(case, pipeline) -> Schedule:
    windows = case["windows"]
    query = pipeline.query("q")
    starts = {w.alias: [start for _, _, start in windows] for w in query.windows}
    starts |= {w.alias: case["starts_b"] for w in query.windows if w.stream == "b" and "starts_b" in case}
    order = sorted(range(len(windows)), key=lambda i: (windows[i][1], windows[i][0]))
    ends, emits = ([us(windows[i][column]) for i in order] for column in (0, 1))
    lowers = {alias: np.array([us(s[i]) for i in order], dtype=np.int64) for alias, s in starts.items()}
    return Schedule(np.array(ends, dtype=np.int64), np.array(emits, dtype=np.int64), lowers)


def coverage(query: Query, schedule: Schedule) -> np.ndarray:
    held = np.ones(len(schedule))
    for window in query.windows:
        held = held * (schedule.width_us(window.alias) / (window.range_s * 1e6))
    return held


def tuples(case, stream: str, pipeline: Pipeline) -> pa.Table:
    rows = case.get(stream, []) + case.get(f"also_{stream}", [])
    fields = [
        {
            "event_id": id_,
            "event_time": MIDNIGHT + timedelta(minutes=event),
            "arrival_time": MIDNIGHT + timedelta(minutes=arrival),
            "id": id_,
            "happened": MIDNIGHT + timedelta(minutes=event),
            "came": MIDNIGHT + timedelta(minutes=arrival),
            "k": k,
            "v": None if v is None else float(v),
            "n": v if isinstance(v, int) else None,
            "b": None if v is None else v > 0,
            "d": None if v is None else Decimal(v),
        }
        for id_, event, arrival, k, v in rows
    ]
    return pa.Table.from_pylist(fields, schema=schema(pipeline, f"events_{stream}"))


def sorted_rows(rows: list[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=lambda row: [(value is None, str(value)) for value in row])


def kinds(case, arrival: datetime) -> list[dict[str, Any]]:
    """The rows of the version that is in effect when a tuple arrives."""
    version = (arrival - MIDNIGHT) // timedelta(hours=1)
    return [
        {"k": k, "kind": kind, "since": None if since is None else MIDNIGHT + timedelta(minutes=since)}
        for k, kind, since in case["kinds"].get(version, [])
    ]


def references(case, pipeline: Pipeline, folder: Path) -> References:
    """The versions in files, as the warehouse has them."""
    if "kinds" not in case:
        return References()
    versions = {}
    for hour in case["kinds"]:
        named = {"table_version": f"v{hour}", "in_effect_from": MIDNIGHT + timedelta(hours=hour)}
        rows = [named | row for row in kinds(case, named["in_effect_from"])]
        path = folder / f"kinds-{hour}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema(pipeline, "reference_kinds")), path)
        versions[us(60 * hour)] = Version(f"v{hour}", (str(path),))
    return References({"kinds": pipeline.tables[0]}, {"kinds": versions}, us(60) - us(0))


def of_union(source: Branch, row: dict[str, Any], stream: pa.Schema) -> dict[str, Any]:
    """A tuple of a branch as one of the union."""
    identity = {"event_id": f"{source.id[1:3]}{row['event_id']}"}
    identity |= {name: row[name] for name in ("event_time", "arrival_time")}
    row = {name: row[name] for name in stream.names}
    return identity | {c.name: of_row(c.expression, row, c.type, stream) for c in source.columns}


def looked_up(stream: pa.Schema, lookups: Sequence[Lookup]) -> pa.Schema:
    """A stream's columns, and those of the table that is looked up."""
    return pa.schema([*stream, *((f"kinds[k].{name}", pa.string()) for _ in lookups for name in ("k", "kind"))])


def with_kind(case, lookups: Sequence[Lookup], row: dict[str, Any]) -> dict[str, Any]:
    """A tuple, with what is looked up for it: its own key's row, the last that began by its event time."""
    own = [
        one
        for one in (kinds(case, row["arrival_time"]) if lookups else [])
        if one["k"] == row["k"] and (one["since"] is None or one["since"] <= row["event_time"])
    ]
    last = max(own, key=lambda one: one["since"] or MIDNIGHT - timedelta(days=1), default={})
    names = {name: lookup.name_of(name) for lookup in lookups for name in ("k", "kind", "since")}
    return row | {stored: last.get(name) for name, stored in names.items()}


def in_files(folder: Path, rows: pa.Table, looked_up_in: References) -> EventFiles:
    """The tuples in files of two, in order of arrival, as the warehouse has them one an interval."""
    rows = rows.sort_by("arrival_time")
    paths = []
    for first in range(0, len(rows), 2):
        paths.append(str(folder / f"{rows.schema.names[0]}-{len(list(folder.iterdir()))}.parquet"))
        pq.write_table(rows.slice(first, 2), paths[-1])
    return EventFiles(tuple(paths), rows.schema, references=looked_up_in)


@pytest.mark.parametrize("slices", [1, 2, 7])
def test_from_files_in_slices(case, pipeline, schedule, slices, tmp_path):
    query = pipeline.query("q")
    (tmp_path / "events").mkdir()
    there = references(case, pipeline, tmp_path)
    files = {s.name: in_files(tmp_path / "events", tuples(case, s.name, pipeline), there) for s in pipeline.streams}
    ends = {i: window[0] for i, window in enumerate(sorted(case["windows"], key=lambda w: (w[1], w[0])))}
    found, held, failed = [], coverage(query, schedule), 0
    for rows in filter(len, np.array_split(np.arange(len(schedule)), slices)):
        lowers = {alias: lower[rows] for alias, lower in schedule.lower_us.items()}
        part = Schedule(schedule.window_end_us[rows], schedule.emit_us[rows], lowers)
        answering = Answering(Question(query, part, held[rows], files, us(1) - us(0)))
        answered = answering.table().to_pylist()
        failed += int(answering.failed.sum())
        found += [[ends[rows[r["_window_index"]]], *(r[o.name] for o in query.outputs)] for r in answered]
    assert sorted_rows(found) == sorted_rows(case["expect"])
    assert failed == case.get("failed", 0)
    if query.kind == "top_k":
        assert found == case["expect"], "in the order of groups and ranks"


def test_on_the_pure_operators(case, pipeline, schedule):
    """The operators give partials; the few lines here turn them into values as the definition says."""
    query = pipeline.query("q")
    if query.kind == "top_k":
        found = pure_top_k(case, pipeline, query, schedule)
        assert found == case["expect"]
    else:
        assert sorted_rows(pure_aggregate(case, pipeline, query, schedule)) == sorted_rows(case["expect"])


def arrivals(case, pipeline: Pipeline, query: Query) -> list[tuple[int, int, int, dict[str, Any]]]:
    """(side, event, arrival, row) in order of arrival, each side's predicates applied."""
    found = []
    for side, window, source in ((n, w, source) for n, w in enumerate(query.windows) for source in w.sources):
        for row in tuples(case, source.stream, pipeline).to_pylist():
            row = with_kind(case, source.lookups, row)
            if source.predicate and not matches(source.predicate, row):
                continue
            if source.columns:
                row = of_union(source, row, looked_up(schema(pipeline, f"events_{source.stream}"), source.lookups))
            if window.alias in query.predicates and not matches(query.predicates[window.alias], row):
                continue
            event_us = to_us(row["event_time"])
            found.append((side, event_us, max(event_us, to_us(row["arrival_time"])), row))
    return sorted(found, key=lambda item: item[2])


def matches(predicate: str, row: dict[str, Any]) -> bool:
    """The predicates of the cases: one comparison of v with a number, or that there is a row."""
    if predicate == "`kinds[k].k` IS NOT NULL":
        return row["kinds[k].k"] is not None
    name, operator, number = predicate.split()
    assert name.strip("`") == "v" and operator in "<>"
    return row["v"] is not None and (row["v"] < float(number) if operator == "<" else row["v"] > float(number))


def pure_aggregate(case, pipeline: Pipeline, query: Query, schedule: Schedule) -> list[list[Any]]:
    spec = aggregate_spec(query)
    rows = []
    for side, event_us, arrival_us, row in arrivals(case, pipeline, query):
        window, alias = query.windows[side], query.windows[side].alias
        if window.branches:
            stream = pa.schema([(c.name, arrow_type(c.type)) for c in window.branches[0].columns])
        else:
            stream = looked_up(schema(pipeline, f"events_{window.stream}"), window.lookups)
        row = {name: row[name] for name in stream.names}
        values: dict[str, Any] = {"side": side, "event_us": event_us, "arrival_us": arrival_us}
        for join in query.join_classes:
            values[join.slot] = of_row(join.sql(alias)[0], row, join.type, stream)
        for group in query.group_by:
            values[group.slot] = of_row(group.sql, row, group.type, stream) if group.alias == alias else None
        for a in query.aggregates:
            if a.alias is not None:
                kind = a.measured if a.called.valued else None
                value = of_row(a.expression, row, kind, stream) if a.alias == alias else None
                by = of_row(a.by, row, a.by_type, stream) if a.by and a.alias == alias else None
                values[a.slot] = held_of(a, value, by) if a.called.valued else (value is not None or None)
        rows.append(values)
    state = join_aggregate.start(spec, schedule)
    state, one = join_aggregate.step(state, pa.Table.from_pylist(rows, schema=spec.input_schema))
    state, other = join_aggregate.finish(state)
    partials = pa.concat_tables([one, other]).to_pylist()
    if not query.group_by:
        answered = {p["window_index"] for p in partials}
        partials += [{"window_index": i} for i in range(len(schedule)) if i not in answered]
    held = coverage(query, schedule)
    found = []
    for partial in partials:
        index = partial["window_index"]
        slots = {g.slot: partial.get(g.slot) for g in query.group_by}
        slots |= {a.slot: valued(a, spec.output_schema, partial, held[index]) for a in query.aggregates}
        if query.having is not None:
            assert query.having.startswith("a0 >= "), "the cases know this form alone"
            if slots["a0"] < float(query.having.removeprefix("a0 >= ")):
                continue
        end = next(w[0] for w in case["windows"] if us(w[0]) == schedule.window_end_us[index])
        found.append([end, *(of_slots(o, slots) for o in query.outputs)])
    return found


def held_of(aggregate, value: Any, by: Any) -> Any:
    """What the operator is given of one value."""
    values, chosen = pa.array([value], arrow_type(aggregate.measured)), pa.array([by], arrow_type(aggregate.by_type))
    return aggregate.called.held(values, chosen, aggregate.parameters)[0].as_py()


def of_row(sql: str, row: dict[str, Any], kind: str | None, stream: pa.Schema) -> Any:
    """What an expression gives of one tuple."""
    return evaluate(sql, pa.Table.from_pylist([row], stream), arrow_type(kind) if kind else None)[0].as_py()


def valued(aggregate, schema_of_partials: pa.Schema, partial: dict[str, Any], held: float) -> Any:
    """The aggregate's own last step, on a row by itself."""
    rows = pa.Table.from_pylist([partial], schema=schema_of_partials)
    found = aggregate.called.finish(
        Partial(aggregate.slot, rows, pa.array([held]), arrow_type(aggregate.type), aggregate.parameters)
    )
    return found[0].as_py()


def of_slots(output, slots: dict[str, Any]) -> Any:
    """What an output gives of the slots' values."""
    if output.expression in slots:
        return slots[output.expression]
    return evaluate(output.expression, pa.Table.from_pylist([slots]), arrow_type(output.type))[0].as_py()


def shown(expression: str, row: dict[str, Any]) -> Any:
    """The expressions of the cases: columns, the length of one, and another one's double."""
    computed = {"CAST(LENGTH(k) AS BIGINT)": lambda: len(row["k"]), "(v * 2)": lambda: row["v"] * 2}
    computed["(CAST(LENGTH(k) AS BIGINT))"] = computed["CAST(LENGTH(k) AS BIGINT)"]
    return computed[expression]() if expression in computed else row[expression.strip("`")]


def pure_top_k(case, pipeline: Pipeline, query: Query, schedule: Schedule) -> list[list[Any]]:
    spec = top_k_spec(query, us(1) - us(0))
    rows = [
        {
            "event_us": event_us,
            "arrival_us": arrival_us,
            "event_id": row["event_id"],
            **{o.slot: shown(o.expression, row) for o in query.order_by},
            **{f"p{i}": shown(o.expression, row) for i, o in enumerate(query.outputs)},
        }
        for _, event_us, arrival_us, row in arrivals(case, pipeline, query)
    ]
    state = top_k.start(spec, schedule)
    columns = pa.schema([spec.output_schema.field(name) for name in rows[0]])
    state, one = top_k.step(state, pa.Table.from_pylist(rows, schema=columns))
    state, other = top_k.finish(state)
    found = []
    for row in pa.concat_tables([one, other]).to_pylist():
        end = next(w[0] for w in case["windows"] if us(w[0]) == schedule.window_end_us[row["window_index"]])
        found.append([end, *(row[f"p{i}"] for i in range(len(query.outputs)))])
    return found
