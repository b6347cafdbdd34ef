"""The parts of the reference that the code itself says: keys, tables, commands, and the query language by its cases.

A page under ``docs/`` names a part where it belongs, ``<!-- generated: tables -->``; `infra.docs.hooks` puts it there
when the site is built, so it cannot be out of date. To read one without the site::

    python -m infra.docs.reference tables
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tidegate import cli
from tidegate.aggregates import AGGREGATES
from tidegate.declarations import load_pipeline
from tidegate.declarations.csv_section import CSV_KEYS
from tidegate.declarations.models import CsvDialect, Stream
from tidegate.declarations.pipeline_file import PIPELINE_KEYS, RETENTION_KEYS, PipelineFile, read_pipeline_file
from tidegate.declarations.positions import Report, Source
from tidegate.declarations.source_section import KAFKA_KEYS, SOURCE_KEYS, SPARK_KEYS
from tidegate.declarations.stream_section import COLUMN_KEYS, HISTORY_KEYS, STREAM_KEYS
from tidegate.declarations.table_section import TABLE_KEYS
from tidegate.declarations.tables import schema, tables
from tidegate.declarations.units import show_bytes, show_duration
from tidegate.operators.history.estimating import estimating
from tidegate.stages.dbt_project import render_project
from tidegate.store.warehouse import Warehouse

# Keys whose need or default the declaration without them does not show.
_SAID = {
    "path": ("yes, or `source`", ""),
    "source": ("yes, or `path`", ""),
    "files": ("one of the three", ""),
    "kafka": ("one of the three", ""),
    "spark": ("one of the three", ""),
    "schema": ("", "none"),
    "registry": ("", "none"),
    "checkpoint": ("", "in the warehouse"),
    "retention": ("", "none"),
    "landed": ("", "for ever"),
    "csv": ("", "none"),
    "tables": ("", "none"),
    "valid_from": ("with `valid_to`", "none"),
    "valid_to": ("", "none"),
    "from": ("", "the column's name"),
    "nulls": ("", "a cell without content"),
}
ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "dags" / "pipelines" / "flights"
SPEC = ROOT / "tests" / "spec"
MARKER = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)


def pipeline_keys() -> str:
    """Every key of pipeline.yml: whether it is needed, else its default, and what it says."""
    declared = SPEC / "pipeline_file" / "pipeline.yml"
    full = yaml.load(declared.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    sections = (
        ("The pipeline", PIPELINE_KEYS, ()),
        ("A stream: `streams.<name>`", STREAM_KEYS, ("streams", "departures")),
        ("A source: `streams.<name>.source`", SOURCE_KEYS, ("streams", "departures", "source")),
        ("A topic of Kafka: `streams.<name>.source.kafka`", KAFKA_KEYS, ("streams", "orders", "source", "kafka")),
        ("A source of Spark: `streams.<name>.source.spark`", SPARK_KEYS, ("streams", "clicks", "source", "spark")),
        ("CSV files: `streams.<name>.csv`", CSV_KEYS, ("streams", "departures", "csv")),
        ("A column: `streams.<name>.columns.<name>`", COLUMN_KEYS, ("streams", "departures", "columns", "carrier")),
        ("History: `streams.<name>.history`", HISTORY_KEYS, ("streams", "departures", "history")),
        ("A reference table: `tables.<name>`", TABLE_KEYS, ("tables", "airports")),
        ("How long rows stay: `retention`", RETENTION_KEYS, ("retention",)),
    )
    found = []
    for title, keys, at in sections:
        rows = [(f"`{key}`", *_need(full, at, key), text) for key, text in keys.items()]
        found.append(f"## {title}\n\n{_table(('key', 'needed', 'default', 'meaning'), rows)}")
    return "\n\n".join(found)


def _need(full: dict[str, Any], at: Sequence[str], key: str) -> tuple[str, str]:
    """Whether a key is needed, and its default: found by reading the declaration without it."""
    if (at[:1], key) == (("tables",), "path"):
        return "yes", ""
    if key in _SAID:
        return _SAID[key]
    if at[-1:] == ("csv",):
        return "", _default(key, getattr(CsvDialect(), key))
    declaration = yaml.load(yaml.safe_dump(full), Loader=yaml.BaseLoader)
    section = declaration
    for step in at:
        section = section[step]
    section.pop(key, None)
    read, mistakes = _read(declaration)
    if any(mistake.startswith(f"key '{key}' is missing") for mistake in mistakes):
        return "yes", ""
    if mistakes:
        raise ValueError(f"without '{key}': {mistakes}")
    if at[:1] == ("tables",):
        return "", _default(key, dict(read.tables[at[1]] or ())[key])
    stream: Stream = next(stream for stream in read.streams if stream.name == (at[1] if at[1:] else "departures"))
    holder: dict[str, Any] = dict(stream) if at else read.values
    if "source" in at:
        holder = dict(stream.source or ())
    elif "history" in at:
        holder = dict(stream.history or ())
    elif "columns" in at:
        holder = dict(stream.column(at[-1]))
    name = next(name for name in holder if re.fullmatch(rf"{key}(_s|_bytes|_tuples)?", name))
    if key == "max_late" and stream.max_late_s == read.values["horizon_s"]:
        return "", "the horizon"
    return "", _default(name, holder[name])


def _read(declaration: dict[str, Any]) -> tuple[PipelineFile, list[str]]:
    folder = SPEC / "pipeline_file" / declaration.get("name", "flights")
    report = Report(Source(folder / "pipeline.yml", yaml.safe_dump(declaration, sort_keys=False)))
    return read_pipeline_file(report, folder), [mistake.message for mistake in report.mistakes]


def _default(name: str, value: Any) -> str:
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if name.endswith("_s"):
        return f"`{show_duration(value)}`"
    if name.endswith("_bytes"):
        return f"`{show_bytes(value)}`"
    return f"`{value * 100:.6g}%`" if isinstance(value, float) else f"`{value}`"


def table_columns() -> str:
    """Every table and column that the stages write, by the example of the flights."""
    pipeline = load_pipeline(FLIGHTS)
    documented = _documented_tables()
    found, shown = [], set()
    for name in tables(pipeline):
        title = _pattern(name)
        if title in shown:
            continue
        shown.add(title)
        about = documented[name]
        texts = {column["name"]: column["description"] for column in about["columns"]}
        fields = [(field.name, str(field.type)) for field in schema(pipeline, name)]
        rows = [(f"`{column}`", f"`{type_}`", _flat(texts[column])) for column, type_ in fields]
        example = "" if title == name else f"\n\nHere the flights' `{name}`."
        description = about["description"].replace("\n\nGrain: one", "\n\nOne").partition("\n\nWhat was asked")
        grain = re.search(r"Grain: (.*)", about["description"])
        text = description[0] + (f"\n\nO{grain[1][1:]}" if description[1] and grain else "")
        found.append(f"## `{title}`\n\n{text}{example}\n\n{_table(('column', 'type', 'meaning'), rows)}")
    return "\n\n".join(found)


def _pattern(table: str) -> str:
    for prefix, what in (
        ("events", "stream"),
        ("answers", "query"),
        ("truth", "query"),
        ("updates", "query"),
        ("kept", "query"),
        ("corrections", "query"),
        ("history_samples", "stream"),
    ):
        if table.startswith(f"{prefix}_"):
            return f"{prefix}_<{what}>"
    return table


def _documented_tables() -> dict[str, dict[str, Any]]:
    """Table → its description and its columns', as the pipeline's dbt project has them."""
    with tempfile.TemporaryDirectory() as folder:
        render_project(Warehouse(Path(folder) / "warehouse", load_pipeline(FLIGHTS)), Path(folder) / "project")
        models = Path(folder) / "project" / "models"
        texts = dict(re.findall(r"{% docs (\w+) %}\n(.*?)\n{% enddocs %}", (models / "docs.md").read_text(), re.DOTALL))
        sources = (models / "staging" / "_sources.yml").read_text()
    sources = sources.replace("{% raw %}", "").replace("{% endraw %}", "")
    found = {table["name"]: table for table in yaml.safe_load(sources)["sources"][0]["tables"]}
    for table in found.values():
        for column in table["columns"]:
            column["description"] = re.sub(
                r"{{ doc\('(\w+)'\) }}", lambda match: texts[match[1]], column["description"]
            )
    return found


def commands() -> str:
    """Every command of ``tidegate``: what it does, its arguments, examples."""
    found = []
    for name, command in _commands().items():
        usage = " ".join(command.format_usage().removeprefix("usage: ").split())
        rows = [
            (_argument(action), _flat((action.help or "").replace("%%", "%")))
            for action in command._actions
            if not isinstance(action, argparse._HelpAction)
        ]
        example, _, _ = (command.epilog or "").partition("\n\nexit status")
        lines = example.removeprefix("example:\n").removeprefix("examples:\n").splitlines()
        shown = "\n".join(line.removeprefix("  ") for line in lines)
        found.append(
            f"## `tidegate {name}`\n\n{command.description}\n\n```text\n{usage}\n```\n\n"
            f"{_table(('argument', 'meaning'), rows)}\n\n```bash\n{shown}\n```"
        )
    status = cli.EXIT_CODES.partition("exit status:")[2].strip("\n")
    return "\n\n".join([*found, f"## Exit status\n\n```text\n{status}\n```"])


def _commands() -> dict[str, argparse.ArgumentParser]:
    actions = cli._parser()._actions
    return dict(next(action for action in actions if isinstance(action, argparse._SubParsersAction)).choices)


def _argument(action: argparse.Action) -> str:
    value = action.metavar or ("" if action.nargs == 0 else "{" + ",".join(map(str, action.choices or ())) + "}")
    if not action.option_strings:
        return f"`{value}`"
    return f"`{action.option_strings[-1]} {value}`" if value else f"`{action.option_strings[-1]}`"


def aggregates() -> str:
    """The aggregates, as their classes say."""
    rows = []
    for function in AGGREGATES.values():
        about = (type(function).__doc__ or "").split("\n\n")[0].replace("\n", " ")
        scaled = "/ coverage" if function.scaled else "as held"
        exact = "exact of whole leaves, else " if function.estimated and estimating(function.name).in_leaves else ""
        history = f"{exact}estimated" if function.estimated else "where every tuple is kept"
        history += "; of a column of `group_by` from leaves" if function.counts_values else ""
        rows.append((" ".join(f"`{shape}`" for shape in function.shapes), _escaped(about), scaled, history))
    return _table(("aggregate", "what it is", "of a narrow window", "of history"), rows)


def query_examples() -> str:
    """Queries that are accepted: the cases of tests/spec/query_language/valid.txt."""
    return "\n\n".join(f"**{title}**\n\n```sql\n{query}\n```" for title, query, _ in _cases("query_language/valid.txt"))


def query_refusals() -> str:
    """Queries that are refused, with the message: the cases of tests/spec/query_language/mistakes.txt."""
    rows = [(_code(query), _escaped(message)) for _, query, message in _cases("query_language/mistakes.txt")]
    return _table(("query", "line:column: message"), rows)


def derived_examples() -> str:
    """Derived streams that are accepted: the cases of tests/spec/derived_streams/valid.txt."""
    return "\n\n".join(f"**{title}**\n\n```sql\n{text}\n```" for title, text, _ in _cases("derived_streams/valid.txt"))


def derived_refusals() -> str:
    """Derived streams that are refused: the cases of tests/spec/derived_streams/mistakes.txt."""
    rows = [(_code(text), _escaped(message)) for _, text, message in _cases("derived_streams/mistakes.txt")]
    return _table(("files", "file:line:column: message"), rows)


def answer_examples() -> str:
    """What a query answers: the cases of tests/spec/answers/cases.yml."""
    found = []
    for case in yaml.safe_load((SPEC / "answers" / "cases.yml").read_text(encoding="utf-8")):
        texts = [f"-- streams/{name}.sql\n{sql.strip()}\n" for name, sql in case.get("streams", {}).items()]
        texts += [f"-- the query\n{case['sql'].strip()}" if texts else case["sql"].strip()]
        sql = "\n".join(texts)
        parts = [f"### {case['name'][0].upper()}{case['name'][1:]}", f"```sql\n{sql}\n```"]
        tuples = [
            (f"`{stream}`", *(_value(value) for value in row))
            for key in ("a", "also_a", "b", "c")
            for stream in (key[-1],)
            for row in case.get(key, ())
        ]
        if "kinds" in case:
            rows = [(str(60 * hour), *map(_value, row)) for hour, version in case["kinds"].items() for row in version]
            parts.append(_table(("`kinds`, in effect from", "k", "kind", "since"), rows))
        columns = ("stream", "id", "event", "arrival", "k", "v")[: max(map(len, tuples), default=0)]
        parts.append(_table(columns, [(*row, *[""] * (len(columns) - len(row))) for row in tuples]))
        windows = "; ".join(
            f"window end {end}, answered at {at}, held from {held} on" for end, at, held in _windows(case["windows"])
        )
        answers = " · ".join(f"({', '.join(_value(v) for v in row)})" for row in case["expect"]) or "no row"
        parts.append(f"{windows[0].upper()}{windows[1:]}.\n\nAnswer: {answers}")
        found.append("\n\n".join(parts))
    return "\n\n".join(found)


def _windows(declared: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, Any, Any]]:
    for window in declared:
        end, at, held = window[:3]
        yield end, at, ", ".join(f"{k} {v}" for k, v in held.items()) if isinstance(held, dict) else held


def _value(value: Any) -> str:
    return "NULL" if value is None else _escaped(str(value))


def _cases(name: str) -> list[tuple[str, str, str]]:
    """Title, text and expectation of every case of a file of cases."""
    found = []
    for block in (SPEC / name).read_text(encoding="utf-8").split("\n====\n"):
        title, rest = block.strip("\n").split("\n", 1)
        text, expected = rest.split("\n----\n")
        found.append((title.removeprefix("# "), text, expected.strip()))
    return found


def _flat(text: str) -> str:
    """Text for one cell of a table."""
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat[:1].upper() + flat[1:]


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, in a cell."""
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_|>\[\]])", r"\\\1", text).replace("\n", "<br>")


def _code(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;").replace("*", "&#42;")
    escaped = escaped.replace("`", "&#96;").replace("_", "&#95;").replace("[", "&#91;").replace("\\", "&#92;")
    return f"<code>{escaped}</code>".replace("\n", "<br>")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


PARTS: dict[str, Callable[[], str]] = {
    "pipeline-keys": pipeline_keys,
    "tables": table_columns,
    "commands": commands,
    "aggregates": aggregates,
    "query-examples": query_examples,
    "query-refusals": query_refusals,
    "derived-examples": derived_examples,
    "derived-refusals": derived_refusals,
    "answer-examples": answer_examples,
}


def with_generated(markdown: str) -> str:
    """A page with its generated parts in place; KeyError for a part that does not exist."""
    return MARKER.sub(lambda match: PARTS[match[1]](), markdown)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("part", choices=PARTS)
    print(PARTS[arguments.parse_args().part](), file=sys.stdout)
