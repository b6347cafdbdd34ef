"""A package for other dbt projects: the pipeline's answers, marts and promises as sources that somebody else reads.

It names the tables as ``tidegate register`` does and builds nothing. Each source has its columns with types and
meanings, when it was last written, and a test that the table still has these columns: its contract.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline
from tidegate.stages import dbt_project
from tidegate.stages.dbt_project import Declaration, Files, spark_type
from tidegate.store.warehouse import Warehouse

_COMMON = ("accuracy", "promise_periods", "run_metrics")
"""Tables of every pipeline that say how far its answers can be trusted."""
_ALWAYS_FRESH = ("promise_periods", "run_metrics")
"""These have rows of every interval; answers may have none, so a lack of them only warns."""
_MARK = ".tidegate-package"

_CONTRACT = """\
{#- The relation has at least these columns, of these types: one row for each that it lacks or that has another. -#}
{% test contract(model, columns) %}
{%- set there = {} -%}
{%- if execute -%}
    {%- for column in adapter.get_columns_in_relation(model) -%}
        {%- do there.update({column.name | lower: column.dtype | lower}) -%}
    {%- endfor -%}
{%- endif -%}
{%- set wrong = [] -%}
{%- for name, type in columns.items() -%}
    {%- if there.get(name | lower) != type | lower -%}
        {%- do wrong.append(name ~ ' is ' ~ there.get(name | lower, 'not there') ~ ', not ' ~ type) -%}
    {%- endif -%}
{%- endfor -%}
{%- if execute and wrong -%}
{%- for problem in wrong %}
select '{{ problem }}' as problem{% if not loop.last %} union all{% endif %}
{%- endfor %}
{%- else -%}
select 'none' as problem where 1 = 0
{%- endif -%}
{% endtest %}
"""


def write_package(warehouse: Warehouse, target: Path, schema: str | None = None) -> list[str]:
    """Write the package into a folder, in the place of one that was written before; the sources' names.

    ``schema``: as ``tidegate register`` takes it. UserError if the folder holds something else.
    """
    if target.exists() and not target.is_dir():
        raise UserError(f"--out {target} is no folder")
    if target.is_dir() and any(target.iterdir()) and not (target / _MARK).is_file():
        raise UserError(f"--out {target} holds something else than a package of Tidegate's: give another folder")
    tables = _tables(warehouse)
    for name, text in _files(warehouse.pipeline, tables, schema).items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [str(table["name"]) for table in tables]


def _files(pipeline: Pipeline, tables: list[Declaration], schema: str | None) -> Files:
    package = package_name(pipeline)
    catalog, _, schema_name = (schema or pipeline.name).rpartition(".")
    variable = f"{pipeline.name}_schema"
    source: Declaration = {
        "name": pipeline.name,
        "description": dbt_project.literal(pipeline.description or f"The pipeline {pipeline.name}.")
        + "\n\nRead only: Tidegate writes these tables.",
        **({"database": catalog} if catalog else {}),
        "schema": f"{{{{ var('{variable}', '{schema_name}') }}}}",
        "meta": {"owner": pipeline.owner},
        "tables": tables,
    }
    project: Declaration = {
        "name": package,
        "version": "1.0.0",
        "config-version": 2,
        "require-dbt-version": [">=1.10.5", "<2.0.0"],
        "model-paths": ["models"],
        "macro-paths": ["macros"],
        "test-paths": ["tests"],
    }
    return {
        "dbt_project.yml": dbt_project.as_yaml(project),
        "models/sources.yml": dbt_project.as_yaml({"version": 2, "sources": [source]}),
        "models/docs.md": (dbt_project.template_folder() / "models" / "docs.md").read_text(),
        "tests/generic/contract.sql": _CONTRACT,
        "README.md": _readme(pipeline, package, variable, schema_name),
        _MARK: "",
    }


def package_name(pipeline: Pipeline) -> str:
    """What other projects call the package."""
    return f"tidegate_{pipeline.name}"


def _tables(warehouse: Warehouse) -> list[Declaration]:
    """The declarations of the sources: answers, promises, marts that are stored."""
    pipeline = warehouse.pipeline
    declared = {table["name"]: table for table in dbt_project.common_tables()}
    sources: list[Declaration] = []
    for name in warehouse.tables():
        described = dbt_project.declaration(pipeline, name, warehouse.schema(name))
        kind = name.partition("_")[0]
        if described is not None and kind in ("answers", "updates", "truth", "kept", "corrections"):
            sources.append(_source(pipeline, described, _types(warehouse.schema(name))))
        elif name in _COMMON:
            sources.append(_source(pipeline, declared[name], _types(warehouse.schema(name))))
    for file in sorted((dbt_project.template_folder() / "models" / "marts").glob("*.yml")):
        for mart in dbt_project.read_yaml(file)["models"]:
            # A view is no table of the warehouse's.
            if mart.get("config", {}).get("materialized", "table") == "table":
                types = {column["name"]: column["data_type"] for column in mart["columns"]}
                sources.append(_source(pipeline, mart, types))
    return sources


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: spark_type(field.type) for field in schema} | {"interval": "string"}


def _source(pipeline: Pipeline, declared: Declaration, types: dict[str, str]) -> Declaration:
    name = declared["name"]
    about = dbt_project.freshness(pipeline)
    if name not in _ALWAYS_FRESH:
        about["freshness"] = {"warn_after": about["freshness"]["warn_after"], "error_after": None}
    return {
        "name": name,
        "description": declared["description"],
        "config": about,
        "columns": list(_columns(declared["columns"], types)),
        "data_tests": [{"contract": {"name": f"{pipeline.name}_{name}_contract", "arguments": {"columns": types}}}],
    }


def _columns(declared: Iterable[dict[str, Any]], types: dict[str, str]) -> Iterable[Declaration]:
    texts = {column["name"]: column.get("description", "") for column in declared}
    for name, type_ in types.items():
        yield {"name": name, "data_type": type_, "description": texts.get(name, "")}


def _readme(pipeline: Pipeline, package: str, variable: str, schema: str) -> str:
    query = pipeline.queries[0].id if pipeline.queries else "<query>"
    return f"""\
# {package}

Sources for other dbt projects, written by `tidegate dbt-package`; when the pipeline changes, have it written again.

In `packages.yml` of the project that reads them, then `dbt deps`:

```yaml
packages:
  - local: path/to/{package}
```

```sql
select * from {{{{ source('{pipeline.name}', 'answers_{query}') }}}}
```

`tidegate register` gives the tables their names. Under another schema than `{schema}`: `vars: {{{variable}: NAME}}`.
`dbt test --select "source:{pipeline.name}"` compares columns and types with what is declared; `dbt source freshness`
says which tables are behind. The adapter has to read Delta tables (dbt-spark, dbt-databricks).
"""
