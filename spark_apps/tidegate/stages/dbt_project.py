"""A pipeline's own copy of the dbt project: the project that is installed plus what the pipeline declares.

The copy gains sources, staging models and wide marts for the tables that the pipeline's streams and queries name, and
two variables from which the common models build their unions. Nothing in it depends on the run: equal declarations
give equal files, so dbt parses only what changed, and the docs page is made anew only when it would differ.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Query, ReferenceTable, Stream
from tidegate.declarations.names import CORRECTED
from tidegate.declarations.tables import GROUPS_ACCURACY, TABLE_VERSIONS
from tidegate.store.warehouse import Warehouse

SOURCE = "warehouse"
# The folder dbt/ of the repository, installed as a package of data.
_TEMPLATE = "tidegate_dbt"
_SOURCES = "models/staging/_sources.yml"
_HOPELESS_INTERVALS = 24
_BUILDERS = ("tidegate", "dbt-core", "dbt-spark", "pyspark", "duckdb")
_NOT_COPIED = {"target", "logs", "README.md", "__pycache__"}

# Columns whose meaning models/docs.md says once for all models.
_SHARED = {
    "interval",
    "query",
    "window_start",
    "window_end",
    "emitted_at",
    "rank",
    "width_s",
    "range_s",
    "coverage",
    "support_level",
    "slack_s",
    "accuracy_expected",
    "event_id",
    "event_time",
    "arrival_time",
    "leaf_start",
    "leaf_end",
    "fraction",
    "stream",
}
_OWN = {
    "tuples": "All tuples that entered the leaf in the interval.",
    "sampled": "Those of them that were sampled.",
    "u": "The tuple's priority in [0, 1), from a hash of stream, id and seed; never changes.",
    "weight": "How many tuples the sampled one stands for: 1/fraction.",
}
_UPDATES = {
    "revision": "Number of the answer within its window: 0 is the early one, 1 the promised one.",
    "kind": "early, update or final.",
    "deleted": "Whether the row is in the answer no more; only its keys are told then.",
}
_VERSION = "The name of the version: equal for equal contents."
_IN_EFFECT_FROM = "Start of the interval from which on the version is in effect; UTC."
_LEAF_AGGREGATES = {
    "count": "Values of `{}` that are not null.",
    "sum": "Sum of `{}`.",
    "min": "Least `{}`.",
    "max": "Greatest `{}`.",
    "sum_squares": "Sum of the squares of `{}`.",
    "min_time": "Event time of the first least `{}`.",
    "max_time": "Event time of the first greatest `{}`.",
}

Files = dict[str, str]
Declaration = dict[str, Any]


def render_project(warehouse: Warehouse, target: Path) -> str:
    """Write the pipeline's dbt project into ``target``; returns a fingerprint of its content, and of what builds it.

    Files that would not change are left alone, files that no longer belong are removed.
    """
    files = _template_files() | _generated_files(warehouse)
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_file() and str(path.relative_to(target)) not in files:
            path.unlink()
    digest = hashlib.sha256(" ".join(f"{name} {version(name)}" for name in _BUILDERS).encode())
    for name, text in sorted(files.items()):
        digest.update(f"{name}\0{text}\0".encode())
        path = target / name
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return digest.hexdigest()


def template_folder() -> Path:
    """The dbt project that is installed, or the one that ``TIDEGATE_DBT_PROJECT`` names."""
    installed = importlib.util.find_spec(_TEMPLATE)
    folders = installed.submodule_search_locations if installed else None
    folder = Path(os.environ.get("TIDEGATE_DBT_PROJECT") or next(iter(folders or [_TEMPLATE])))
    if not (folder / "dbt_project.yml").is_file():
        raise UserError(
            f"no dbt project in {folder}: set TIDEGATE_DBT_PROJECT to the folder that holds dbt_project.yml"
        )
    return folder


def spark_type(arrow: pa.DataType) -> str:
    """The Spark SQL name of an Arrow type of the tables' contract."""
    if pa.types.is_map(arrow):
        return f"map<{spark_type(arrow.key_type)},{spark_type(arrow.item_type)}>"
    if pa.types.is_timestamp(arrow):
        return "timestamp"
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    return {
        pa.string(): "string",
        pa.int64(): "bigint",
        pa.float64(): "double",
        pa.bool_(): "boolean",
        pa.date32(): "date",
    }[arrow]


def _template_files() -> Files:
    folder = template_folder()
    paths = [p for p in folder.rglob("*") if p.is_file() and not _NOT_COPIED & set(p.relative_to(folder).parts)]
    return {str(p.relative_to(folder)): p.read_text() for p in paths}


def _generated_files(warehouse: Warehouse) -> Files:
    pipeline = warehouse.pipeline
    project = read_yaml(template_folder() / "dbt_project.yml")
    project["vars"] = {
        "queries": [_query_variable(query) for query in pipeline.queries],
        "streams": [_stream_variable(stream) for stream in pipeline.streams],
        "horizon_s": float(pipeline.horizon_s),
    }
    files = {"dbt_project.yml": as_yaml(project)}
    sources: list[Declaration] = []
    for table in warehouse.tables():
        told = declaration(pipeline, table, warehouse.schema(table))
        if told is None:
            continue
        names = [column["name"] for column in told["columns"]]
        sources.append({**told, "columns": [_without_tests(column) for column in told["columns"]]})
        sources[-1].pop("data_tests", None)
        if table.startswith("events_"):
            sources[-1]["config"] = freshness(pipeline)
        files |= _model("staging", f"stg_{table}", told, names, f"source('{SOURCE}', '{table}')")
        if table.startswith("history_samples_"):
            files[f"models/staging/stg_{table}.sql"] = _samples_in_force(table, names)
    for query in pipeline.queries:
        table = f"answers_{query.id}"
        told = _answers_mart(query, warehouse.schema(table))
        names = [column["name"] for column in told["columns"]]
        files |= _model("marts", table, told, names, f"ref('stg_{_answers_in_marts(query)}')")
        if query.emits_updates:
            files |= _latest_mart(query, warehouse.schema(f"updates_{query.id}"))
    about = "The tables that the pipeline's own streams and queries name."
    source = {"name": SOURCE, "schema": SOURCE, "description": about, "tables": sources}
    return files | _merged_sources(source, freshness(pipeline))


def _merged_sources(own: Declaration, freshness: Declaration) -> Files:
    """A source may be declared once only: the pipeline's tables join those of the installed project."""
    declared = read_yaml(template_folder() / _SOURCES)
    common = declared["sources"][0]
    next(table for table in common["tables"] if table["name"] == "run_metrics")["config"] = freshness
    common["tables"] = [*common["tables"], *own["tables"]]
    return {_SOURCES: as_yaml(declared)}


def common_tables() -> list[Declaration]:
    """The declarations of the tables that every pipeline has, as sources of the project that is installed."""
    tables: list[Declaration] = read_yaml(template_folder() / _SOURCES)["sources"][0]["tables"]
    return tables


def _query_variable(query: Query) -> Declaration:
    """What the templates know of a query; ``lag_s`` only where its windows are final later than the horizon says."""
    return {
        **({"lag_s": query.lag_s} if query.lag_s else {}),
        "id": query.id,
        "columns": [output.name for output in query.outputs],
        "top_k": query.kind == "top_k",
        "ranked": query.is_ranked,
        "answers": _answers_in_marts(query),
        "windows": [{"alias": w.alias, "stream": w.stream, "range_s": float(w.range_s)} for w in query.windows],
    }


def _answers_in_marts(query: Query) -> str:
    """The table that the marts take the query's answers from."""
    return f"{'kept' if query.on_miss == 'omit' else 'answers'}_{query.id}"


def _stream_variable(stream: Stream) -> Declaration:
    return {
        "name": stream.name,
        "numeric_columns": list(stream.numeric_columns),
        "history": stream.history is not None,
    }


def _model(layer: str, name: str, told: Declaration, columns: Iterable[str], relation: str) -> Files:
    """The SQL and the yml of a model that selects the columns of another relation as they are."""
    selected = ",\n".join(f"    `{column}`" for column in columns)
    model = {**told, "name": name}
    if layer == "marts":
        # The table of the same name in the warehouse holds the same rows as plain Parquet: no second copy.
        model["config"] = {"materialized": "view", "contract": {"enforced": False}}
    return {
        f"models/{layer}/{name}.sql": f"select\n{selected}\nfrom {{{{ {relation} }}}}\n",
        f"models/{layer}/{name}.yml": as_yaml({"models": [model]}),
    }


def declaration(pipeline: Pipeline, table: str, schema: pa.Schema) -> Declaration | None:
    """Description, columns and tests of a table that the pipeline's declarations name; None for a common table."""
    if table in ("history_leaves", "history_groups"):
        return _leaves(pipeline, table, schema)
    if table == GROUPS_ACCURACY:
        return _groups_accuracy(schema)
    if table.startswith("history_samples_"):
        return _samples(pipeline.stream(table.removeprefix("history_samples_")), table, schema)
    if table == TABLE_VERSIONS:
        return _versions(schema)
    kind, _, name = table.partition("_")
    if kind == "reference":
        return _reference(next(t for t in pipeline.tables if t.name == name), table, schema)
    if kind == "updates":
        return _updates(pipeline.query(name), table, schema)
    if kind == "corrections":
        return _corrections(pipeline.query(name), table, schema)
    if kind == "events":
        return _events(pipeline.stream(name), table, schema)
    if kind in ("answers", "truth", "kept"):
        query = next((q for q in pipeline.queries if q.id == name), None)
        return None if query is None else _answers(query, kind, table, schema)
    return None


def _reference(reference: ReferenceTable, table: str, schema: pa.Schema) -> Declaration:
    about = (
        f"The versions of the reference table `{reference.name}`, each in the interval from which it is in effect. "
        f"Which one is in effect in an interval is in `{TABLE_VERSIONS}`."
    )
    texts = {
        c.name: c.description or f"As the table `{reference.name}` declares it ({c.type})." for c in reference.columns
    }
    texts |= {"table_version": _VERSION, "in_effect_from": _IN_EFFECT_FROM}
    keys = [*reference.key, *([reference.valid_from] if reference.valid_from else [])]
    return {
        "name": table,
        "description": _text(about, reference.description, grain="one row per version and row of the table."),
        "columns": _columns(schema, texts),
        "data_tests": [_grain("interval", "table_version", *keys, nullable=keys[len(reference.key) :])],
    }


def _versions(schema: pa.Schema) -> Declaration:
    about = "Which version of each reference table tuples meet that arrived in the interval."
    texts = {
        "table": "The reference table.",
        "version": _VERSION,
        "in_effect_from": f"{_IN_EFFECT_FROM} Its rows are in that interval's partition of `reference_<table>`.",
        "columns": "What was declared of its columns and key.",
        "rows": "How many rows it has.",
        "bytes": "What they take in memory.",
    }
    return {
        "name": TABLE_VERSIONS,
        "description": _text(about, grain="one row per interval and reference table."),
        "columns": _columns(schema, texts),
        "data_tests": [_grain("interval", "table")],
    }


def _events(stream: Stream, table: str, schema: pa.Schema) -> Declaration:
    about = f"The accepted tuples of stream `{stream.name}`, in the interval in which they arrived."
    return {
        "name": table,
        "description": _text(about, stream.description, grain="one row per accepted tuple."),
        "columns": _columns(schema, {c.name: _declared(stream, c.name) for c in stream.columns}),
        "data_tests": [_grain("interval", "event_id")],
    }


def freshness(pipeline: Pipeline) -> Declaration:
    """Of a table with rows in every interval: the newest one ended at most an interval ago, or something is late."""
    minutes = math.ceil(pipeline.interval_s / 60)
    limits = {"warn_after": 2 * minutes, "error_after": _HOPELESS_INTERVALS * minutes}
    return {
        "loaded_at_field": "to_timestamp(rpad(replace(`interval`, 'T', ''), 16, '0'), 'yyyy-MM-ddHHmmss')",
        "freshness": {name: {"count": count, "period": "minute"} for name, count in limits.items()},
    }


def _samples(stream: Stream, table: str, schema: pa.Schema) -> Declaration:
    about = (
        f"The sampled history of stream `{stream.name}`, in the interval in which the tuples entered history. "
        "The model has the leaf, the fraction and the weight in force; the files have those at entry."
    )
    return {
        "name": table,
        "description": _text(about, stream.description, grain="one row per sampled tuple."),
        "columns": _columns(schema, {c.name: _declared(stream, c.name) for c in stream.columns}),
        "data_tests": [
            _grain("interval", "event_id"),
            _holds(f"{table}_are_below_their_fraction", "u >= 0 and u < fraction and fraction <= 1"),
        ],
    }


def _samples_in_force(table: str, columns: Sequence[str]) -> str:
    """The SQL of the model over the samples: leaf, fraction and weight are those of the leaves, as passes left them."""
    stream = table.removeprefix("history_samples_")
    own = {"leaf_start": "leaves.`leaf_start`", "fraction": "leaves.`fraction`"}
    own["weight"] = "{{ share('1D', 'leaves.`fraction`') }} as `weight`"
    found = ",\n".join(f"        {own.get(column, f'samples.`{column}`')}" for column in columns)
    selected = ",\n".join(f"    `{column}`" for column in columns)
    return (
        f"with in_force as (\n    select\n{found}\n"
        f"    from {{{{ source('{SOURCE}', '{table}') }}}} as samples\n"
        "    inner join {{ ref('stg_history_leaves') }} as leaves\n"
        f"        on leaves.`stream` = '{stream}'\n"
        "        and leaves.`interval` = samples.`interval`\n"
        "        and samples.`event_time` >= leaves.`leaf_start`\n"
        "        and samples.`event_time` < leaves.`leaf_end`\n"
        "        and samples.`u` < leaves.`fraction`\n"
        f")\n\nselect\n{selected}\nfrom in_force\n"
    )


def _leaves(pipeline: Pipeline, table: str, schema: pa.Schema) -> Declaration:
    grouped = table == "history_groups"
    texts = {
        f"{column}_{name}": text.format(column)
        + (" Over all tuples of the group." if grouped else " Over all tuples of the leaf, sampled or not;")
        + ("" if grouped else " null for streams without it.")
        for stream in pipeline.streams
        for column in stream.numeric_columns
        for name, text in _LEAF_AGGREGATES.items()
    }
    texts["group_column"] = "The column whose values have aggregates of their own."
    texts["group_value"] = "The value, as text."
    about = (
        "The leaves of every stream's history: exact aggregates over all tuples that entered in the interval"
        + (", for every value of the declared group columns. " if grouped else ". ")
        + "Rows of one leaf in several intervals (late tuples) add up."
    )
    grain = "one row per interval, stream, leaf" + (", group column and value." if grouped else ".")
    keys = ["interval", "stream", "leaf_start", *(["group_column", "group_value"] if grouped else [])]
    return {
        "name": table,
        "description": _text(about, grain=grain.replace("stream, leaf.", "stream and leaf.")),
        "columns": _columns(schema, texts),
        "data_tests": [_grain(*keys, nullable=["group_value"] if grouped else [])],
    }


def _groups_accuracy(schema: pa.Schema) -> Declaration:
    about = (
        "How good each group of an answer was, judged against the truth once its window was final, of queries that "
        "promise FOR a share OF GROUPS, with OR … IN, or FOR EACH. Of a group that says nothing any more the newest "
        "last_event is old."
    )
    texts = {
        "group_key": "The group, as a JSON object of the answer's group columns, or those of FOR EACH.",
        "metric": "relative_error, or hit_rate with FOR EACH.",
        "value": "The largest relative error of the group's figures, or the share of its true best that was named.",
        "tuples": "How many tuples the group has in the window in truth; of a join, joined ones.",
        "last_event": "Event time of the last of them; null without any.",
    }
    return {
        "name": GROUPS_ACCURACY,
        "description": _text(about, grain="one row per query, window and group."),
        "columns": _columns(schema, texts),
        "data_tests": [
            _grain("query", "window_end", "group_key"),
            _holds("accuracy_groups_value_within_bounds", "value >= 0 and (metric <> 'hit_rate' or value <= 1)"),
        ],
    }


def _answers(query: Query, kind: str, table: str, schema: pa.Schema) -> Declaration:
    about = {
        "answers": f"The answers of query `{query.id}`, in the interval in which they were emitted.",
        "kept": f"Of the answers of query `{query.id}` those that kept its promise, in the interval in which that was "
        "known.",
        "truth": f"The exact answers of query `{query.id}`, in the interval in which their windows became final.",
    }[kind]
    grain, tests = _answer_grain(query)
    return {
        "name": table,
        "description": _text(about, query.description, _asked(query), grain=grain),
        "columns": _columns(schema, _output_texts(query)),
        "data_tests": tests,
    }


def _corrections(query: Query, table: str, schema: pa.Schema) -> Declaration:
    about = f"What query `{query.id}` answered beside its promise, and what is true, in the interval that knew it."
    texts = {"known_at": "When the truth was known: the window's end and the horizon; UTC."}
    texts |= {name: text for name, text in _output_texts(query).items() if name in query.answer_keys}
    of = ("`{}` as it was answered.", "`{}` as it is.", "True less answered `{}`.")
    texts |= {n.format(c): t.format(c) for c in query.corrected for n, t in zip(CORRECTED, of, strict=True)}
    keys = [name for name in query.answer_keys if name != "rank"]
    return {
        "name": table,
        "description": _text(about, _asked(query), grain="one row per window end and row of the answer."),
        "columns": _columns(schema, texts),
        "data_tests": [_grain("window_end", *query.answer_keys, nullable=keys)],
    }


def _updates(query: Query, table: str, schema: pa.Schema) -> Declaration:
    about = (
        f"Of query `{query.id}` what early answers, updates and final answers have otherwise than the answer of the "
        "window before them, in the interval in which they were emitted."
    )
    keys = ["window_end", "revision", *query.answer_keys]
    nullable = [name for name in query.answer_keys if name != "rank"]
    return {
        "name": table,
        "description": _text(
            about, _asked(query), grain="one row per window end, revision and row that changed or left."
        ),
        "columns": _columns(schema, _output_texts(query) | _UPDATES),
        "data_tests": [_grain(*keys, nullable=nullable)],
    }


def _latest_mart(query: Query, schema: pa.Schema) -> Files:
    """The SQL and the yml of the mart with the newest revision of each row of the query's answers."""
    about = (
        f"**What is the answer to query `{query.id}`, as far as is known now?** The newest revision of each row of the "
        "answers and their updates, without the rows that have left."
    )
    names = [name for name in schema.names if name != "deleted"]
    fields = pa.schema([schema.field(name) for name in names])
    texts = _output_texts(query) | _UPDATES | {"kind": "answer: the promised one; else as in the updates."}
    model = {
        "name": f"latest_{query.id}",
        "description": _text(about, _asked(query), grain="one row per window end and row of the answer."),
        "config": {
            "materialized": "view",
            "contract": {"enforced": False},
            "meta": {"latest_of": query.id, "keys": ["window_end", *query.answer_keys]},
        },
        "columns": _columns(fields, texts),
    }
    return {
        f"models/marts/latest_{query.id}.sql": _latest_sql(query, names),
        f"models/marts/latest_{query.id}.yml": as_yaml({"models": [model]}),
    }


def _latest_sql(query: Query, names: Sequence[str]) -> str:
    """The newest revision of each row of a query's answers, which are revision 1."""
    of_answers = {"revision": "cast(1 as bigint) as `revision`", "kind": "'answer' as `kind`"}
    names = [*names, "interval"]
    answers = ",\n".join(f"    {of_answers.get(name, f'`{name}`')}" for name in names)
    updates = ",\n".join(f"    `{name}`" for name in names)
    keys = ", ".join(f"`{name}`" for name in ("window_end", *query.answer_keys))
    selected = ",\n".join(f"    `{name}`" for name in names)
    return (
        "with revisions as (\n"
        f"select\n{answers},\n    false as `deleted`\nfrom {{{{ ref('stg_answers_{query.id}') }}}}\n"
        f"union all\nselect\n{updates},\n    `deleted`\nfrom {{{{ ref('stg_updates_{query.id}') }}}}\n"
        "),\n\nnewest_first as (\n"
        f"select *, row_number() over (partition by {keys} order by `revision` desc) as _age\nfrom revisions\n"
        f")\n\nselect\n{selected}\nfrom newest_first\nwhere _age = 1 and not `deleted`\n"
    )


def _answers_mart(query: Query, schema: pa.Schema) -> Declaration:
    where = f"The same rows are plain Parquet in the warehouse's table `answers_{query.id}`."
    if query.on_miss == "omit":
        where = f"Those that kept the promise, once that is known; `warehouse.answers_{query.id}` has all, at once."
    about = query.description or f"The answers of query `{query.id}`."
    grain, _ = _answer_grain(query)
    return {
        "description": _text(about, _asked(query), where, grain=grain),
        "columns": _columns(schema, _output_texts(query)),
    }


def _asked(query: Query) -> str:
    return f"What was asked:\n\n```sql\n{query.text.strip()}\n```"


def _answer_grain(query: Query) -> tuple[str, list[Declaration]]:
    if query.kind == "top_k":
        within = query.group_outputs
        per = f", group ({', '.join(within)})" if within else ""
        return f"one row per window end{per} and rank.", [_grain("window_end", *query.row_keys, nullable=within)]
    shown = query.group_outputs
    if query.sessions is not None:
        per = f" and group ({', '.join(shown)})" if shown else ""
        return f"one row per session{per}.", [_grain("window_end", "window_start", *shown, nullable=shown)]
    if query.ranks_groups:
        keys = [*query.within, "rank"]
        per = f", {', '.join(query.within)}" if query.within else ""
        return f"one row per window end{per} and rank.", [_grain("window_end", *keys, nullable=query.within)]
    if not shown:
        return "one row per window end.", [_grain("window_end")]
    return f"one row per window end and group ({', '.join(shown)}).", [_grain("window_end", *shown, nullable=shown)]


def _output_texts(query: Query) -> dict[str, str]:
    return {
        o.name: f"As the query selects it: `{o.expression}`."
        if query.kind == "top_k"
        else _output_text(query, o.expression)
        for o in query.outputs
    }


def _output_text(query: Query, expression: str) -> str:
    """What an output of an aggregate query is, said in the query's own terms instead of slots."""
    for group in query.group_by:
        if expression.strip("`") == group.slot:
            return f"The group: `{group.words}`."
    for aggregate in query.aggregates:
        if expression.strip("`") == aggregate.slot:
            of = "*" if aggregate.expression is None else aggregate.expression
            scaled = " Scaled by 1/coverage." if aggregate.called.scaled else ""
            return f"`{aggregate.words(of)}` over the window.{scaled}"
    return "Computed from the query's aggregates and groups."


def _columns(schema: pa.Schema, texts: dict[str, str]) -> list[Declaration]:
    fields = [*((field.name, spark_type(field.type)) for field in schema), ("interval", "string")]
    return [{"name": n, "data_type": t, "description": _column_text(n, texts)} for n, t in fields]


def _column_text(name: str, texts: dict[str, str]) -> str:
    if name in texts:
        return literal(texts[name])
    return f"{{{{ doc('{name}') }}}}" if name in _SHARED else _OWN[name]


def _declared(stream: Stream, name: str) -> str:
    column = stream.column(name)
    return column.description or f"As the stream `{stream.name}` declares it ({column.type})."


def _text(*paragraphs: str, grain: str) -> str:
    return "\n\n".join([*(literal(p.strip()) for p in paragraphs if p.strip()), f"Grain: {grain}"])


def literal(text: str) -> str:
    """A user's text, safe from Jinja, which dbt renders descriptions with: each brace that opens is written by Jinja.

    >>> literal("{% endraw %} {{ x }} {y}")
    "{{ '{' }}% endraw %} {{ '{' }}{ x }} {y}"
    """
    return re.sub(r"\{(?=[{%#])", "{{ '{' }}", text)


def _grain(*columns: str, nullable: Iterable[str] = ()) -> Declaration:
    arguments: Declaration = {"columns": list(columns)}
    if nullable:
        arguments["nullable"] = list(nullable)
    return {"grain": {"arguments": arguments}}


def _holds(name: str, condition: str) -> Declaration:
    return {"row_holds": {"name": name, "arguments": {"condition": condition}}}


def _without_tests(column: Declaration) -> Declaration:
    return {key: value for key, value in column.items() if key != "data_tests"}


def as_yaml(content: Declaration) -> str:
    """A file's text."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(content, Dumper=dumper, sort_keys=False, width=118, allow_unicode=True))


def read_yaml(path: Path) -> Any:
    """A file's content."""
    return yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
