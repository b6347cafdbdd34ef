"""The dbt project as text: it parses without a warning, and says what every model and column is. No Spark needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from dbt.artifacts.resources.types import NodeType
from dbt.contracts.graph.manifest import Manifest
from tests.dbt.parsing import parse
from tests.dbt.sensors import sensors

from tidegate.stages.dbt_project import render_project, spark_type, template_folder
from tidegate.declarations.tables import tables
from tidegate.store.warehouse import Warehouse


def test_the_repositorys_project_parses_by_itself(tmp_path: Path) -> None:
    models = [n for n in parse(template_folder(), tmp_path).nodes.values() if n.resource_type == NodeType.Model]
    assert {"answers", "accuracy_by_hour", "history_estimates"} <= {model.name for model in models}


def test_every_table_of_the_warehouse_has_a_source_and_a_staging_model(manifest: Manifest) -> None:
    expected = set(tables(sensors()))
    assert {source.name for source in manifest.sources.values()} == expected
    assert {f"stg_{table}" for table in expected} <= {node.name for node in manifest.nodes.values()}


def test_sources_have_the_columns_of_the_tables_contract(manifest: Manifest, warehouse: Warehouse) -> None:
    for source in manifest.sources.values():
        assert list(source.columns) == [*warehouse.schema(source.name).names, "interval"], source.name


def test_every_model_and_column_is_described_with_its_grain(manifest: Manifest) -> None:
    models = [node for node in manifest.nodes.values() if node.resource_type == NodeType.Model]
    assert len(models) > 40
    for described in [*models, *manifest.sources.values()]:
        assert described.description, described.name
        for column in described.columns.values():
            assert column.description, f"{described.name}.{column.name}"
    for described in [*models, *(s for s in manifest.sources.values())]:
        assert "Grain: one row per" in described.description.replace("\n", " "), described.name


def test_documented_columns_are_the_selected_ones(manifest: Manifest) -> None:
    """Marts have contracts that dbt enforces; the rest is compared here by the last column list of the SQL."""
    for node in manifest.nodes.values():
        if node.resource_type == NodeType.Model and node.name.startswith("stg_"):
            selected = re.findall(r"^    (?:coalesce\(.*\) as )?`(\w+)`,?$", node.raw_code, flags=re.MULTILINE)
            assert selected == list(node.columns), node.name


def test_every_mart_is_in_a_test_of_its_grain_and_in_an_exposure_or_wide(manifest: Manifest) -> None:
    marts = {n.name for n in manifest.nodes.values() if n.resource_type == NodeType.Model and "marts" in n.fqn}
    built = {mart for mart in marts if not mart.startswith("answers_")}
    graded = {
        manifest.nodes[parent].name
        for test in manifest.nodes.values()
        if test.resource_type == NodeType.Test and test.name.startswith("grain_")
        for parent in test.depends_on.nodes
    }
    exposed = {p.split(".")[-1] for e in manifest.exposures.values() for p in e.depends_on.nodes}
    assert built <= graded
    assert built == exposed
    assert marts - built == {"answers_corrected", *(f"answers_{query.id}" for query in sensors().queries)}


def test_every_built_mart_has_an_enforced_contract(manifest: Manifest) -> None:
    for node in manifest.nodes.values():
        built = node.resource_type == NodeType.Model and node.config.materialized == "table"
        if built and node.fqn[1] == "marts":
            assert node.contract.enforced, node.name
            assert all(column.data_type for column in node.columns.values()), node.name


@pytest.mark.parametrize("prefix", ["answers_", "stg_answers_", "stg_truth_"])
def test_what_a_query_writes_is_documented_from_its_sql_file(manifest: Manifest, prefix: str) -> None:
    for query in sensors().queries:
        model = manifest.nodes[f"model.tidegate.{prefix}{query.id}"]
        assert query.description.strip() in model.description
        assert query.text in model.description
        assert {output.name for output in query.outputs} <= set(model.columns)
    level = manifest.nodes[f"model.tidegate.{prefix}levels_by_sensor"].columns["level"]
    assert level.description == "`AVG(level)` over the window."


def test_declared_descriptions_reach_the_columns(manifest: Manifest) -> None:
    events = manifest.nodes["model.tidegate.stg_events_readings"]
    assert events.columns["level"].description == "Water level, cm."
    assert "What the sensors read. {{ not jinja }} {% endraw %}{{ 1 / 0 }}{# {% raw %} {{{ #}" in events.description


def test_rendering_again_changes_no_file(warehouse: Warehouse, project: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in project.rglob("*")}
    fingerprint = render_project(warehouse, project)
    assert {path: path.stat().st_mtime_ns for path in project.rglob("*")} == before
    (project / "models" / "marts" / "of_a_query_that_is_gone.sql").write_text("select 1")
    assert render_project(warehouse, project) == fingerprint
    assert {path: path.stat().st_mtime_ns for path in project.rglob("*") if path.is_file()} == {
        path: time for path, time in before.items() if path.is_file()
    }


def test_one_macro_a_file_each_with_a_comment() -> None:
    for path in [
        *(template_folder() / "macros").glob("*.sql"),
        *(template_folder() / "tests" / "generic").glob("*.sql"),
    ]:
        text = path.read_text()
        assert re.findall(r"{%-? (?:macro|test) (\w+)\(", text) == [path.stem]
        assert text.startswith("{#"), path.name


def test_every_macro_is_tested_by_itself() -> None:
    folder = template_folder()
    kinds = {"macros": folder / "macros", "generic tests": folder / "tests" / "generic"}
    tested = {path.stem.removeprefix("macro_") for path in (folder / "tests" / "macros").glob("*.sql")}
    # This one reads files by path; it is run there against a plain recalculation.
    tested |= set(re.findall(r"history_estimate", (Path(__file__).parent / "test_publish.py").read_text()))
    for kind, where in kinds.items():
        assert {path.stem for path in where.glob("*.sql")} <= tested, kind


def test_every_model_has_its_own_yml() -> None:
    for path in (template_folder() / "models").rglob("*.sql"):
        declared = yaml.safe_load(path.with_suffix(".yml").read_text())["models"]
        assert [model["name"] for model in declared] == [path.stem]


def test_spark_types_cover_the_contract(warehouse: Warehouse) -> None:
    types = {spark_type(field.type) for table in warehouse.tables() for field in warehouse.schema(table)}
    assert types == {"string", "bigint", "double", "boolean", "timestamp", "date", "map<string,double>"}
