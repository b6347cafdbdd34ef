"""Somebody else's dbt project reads answers and promises by the package that is generated for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.cli import main
from tidegate.declarations import load_pipeline
from tidegate.engine.delta_spark import delta_settings
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.spark
Tables = Callable[[], Warehouse]
MODEL = """
select country, count(*) as answers, max(window_end) as newest
from {{ source('shop', 'answers_revenue') }}
group by country
"""
PROMISES = "select query, count(*) as periods from {{ source('shop', 'promise_periods') }} group by query"


@pytest.fixture
def package(shop: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "tidegate_shop"
    assert main(["dbt-package", str(shop), "--out", str(folder)]) == 0
    return folder


def a_project(folder: Path, package: Path, metastore: Path) -> Path:
    """A project of its own that names the package, and a session of Spark with the catalog."""
    session = delta_settings() | {
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={metastore / 'metastore_db'}",
        "spark.sql.warehouse.dir": str(metastore / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.master": "local[2]",
    }
    target = {"type": "spark", "method": "session", "host": "none", "schema": "analytics", "threads": 1}
    files: Mapping[str, Any] = {
        "dbt_project.yml": {"name": "analytics", "version": "1.0.0", "config-version": 2, "profile": "analytics"},
        "profiles.yml": {"analytics": {"target": "t", "outputs": {"t": target | {"server_side_parameters": session}}}},
        "packages.yml": {"packages": [{"local": str(package)}]},
        "models/by_country.sql": MODEL,
        "models/promises.sql": PROMISES,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return folder


def dbt(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("dbt")), *words, "--profiles-dir", str(project)]
    environment = os.environ | {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    environment.pop("TIDEGATE_DBT_PROJECT", None)
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def results(project: Path, file: str = "run_results.json") -> dict[str, str]:
    """What dbt says of each node that it ran."""
    told = json.loads((project / "target" / file).read_text())["results"]
    return {one["unique_id"].split(".", 2)[2]: one["status"] for one in told}


@pytest.mark.slow
def test_another_project_builds_on_it(tables: Tables, delta_jars: None, shop: Path, package: Path, tmp_path: Path):
    warehouse, metastore = tables(), tmp_path / "metastore"
    words = ["register", str(shop), "--warehouse", str(warehouse.root), "--metastore", str(metastore)]
    subprocess.run([sys.executable, "-m", "tidegate.cli", *words], check=True)
    project = a_project(tmp_path / "analytics", package, metastore)
    assert (done := dbt(project, "deps")).returncode == 0, done.stdout
    done = dbt(project, "build", "--select", "by_country", "promises", "shop_answers_revenue_contract")
    assert done.returncode == 0, done.stdout
    assert set(results(project).values()) == {"success", "pass"}
    done = dbt(project, "source", "freshness", "--select", "source:shop.promise_periods")
    assert (done.returncode, results(project, "sources.json")) == (1, {"shop.promise_periods": "error"}), done.stdout
    # The table is not what the package says any more.
    file = project / "dbt_packages" / "tidegate_shop" / "models" / "sources.yml"
    declared = yaml.safe_load(file.read_text())
    (table,) = (one for one in declared["sources"][0]["tables"] if one["name"] == "answers_revenue")
    table["data_tests"][0]["contract"]["arguments"]["columns"] |= {"orders": "string", "margin": "double"}
    file.unlink()
    file.write_text(yaml.safe_dump(declared))
    done = dbt(project, "test", "--select", "shop_answers_revenue_contract")
    assert done.returncode == 1
    assert "Got 2 results" in done.stdout


def test_the_package_declares_every_answer_and_mart_with_types_meanings_and_freshness(package: Path, shop: Path):
    (source,) = yaml.safe_load((package / "models" / "sources.yml").read_text())["sources"]
    tables = {table["name"]: table for table in source["tables"]}
    pipeline = load_pipeline(shop)
    assert {f"answers_{query.id}" for query in pipeline.queries} < tables.keys()
    assert {"promise_periods", "promises", "answers", "accuracy_by_hour", "run_metrics"} < tables.keys()
    assert "answers_corrected" not in tables
    for table in tables.values():
        assert table["description"]
        assert all(column["data_type"] and column["description"] for column in table["columns"]), table["name"]
        assert table["config"]["freshness"]["warn_after"] == {"count": 120, "period": "minute"}
        (contract,) = table["data_tests"]
        assert contract["contract"]["arguments"]["columns"] == {c["name"]: c["data_type"] for c in table["columns"]}


def test_it_is_written_again_in_its_own_place_alone(package: Path, shop: Path, tmp_path: Path, capsys):
    assert main(["dbt-package", str(shop), "--out", str(package), "--schema", "main.sales"]) == 0
    (source,) = yaml.safe_load((package / "models" / "sources.yml").read_text())["sources"]
    assert (source["database"], source["schema"]) == ("main", "{{ var('shop_schema', 'sales') }}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    assert main(["dbt-package", str(shop), "--out", str(tmp_path / "other")]) == 2
    assert "holds something else" in capsys.readouterr().err
