"""One number for one promise: whatever shows a promise shows the rows of ``promise_periods``, after a real run."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.command import run_pipeline
from tests.live_files import live_files

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.declarations.promises import NOT_KNOWN, SENTENCE, Line, lines, newest_of_each
from tidegate.declarations.units import show_percent
from tidegate.report import report
from tidegate.store.warehouse import Warehouse

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
HOUR = timedelta(hours=1)
START, END = datetime(2026, 1, 5, 8, tzinfo=UTC), datetime(2026, 1, 5, 14, tzinfo=UTC)
AIRFLOWS_PAGE = """
from airflow.api_fastapi.core_api.security import get_user
from starlette.testclient import TestClient
from tidegate_dags.plugins.pipeline_pages import app
app.dependency_overrides[get_user] = lambda: None
print(TestClient(app).get("/shop/").text)
"""


@dataclass(frozen=True)
class Run:
    """The shop after a run of all stages, with periods of an hour."""

    pipeline: Pipeline
    warehouse: Warehouse

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.warehouse.read_arrow(table).to_pylist()

    def lines(self) -> list[Line]:
        return lines(self.pipeline, self.rows("promise_periods"))

    def page(self, name: str) -> str:
        return html.unescape((self.warehouse.folder / "_docs" / name).read_text())


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("stand") / "shop"
    subprocess.run([sys.executable, "-m", "tidegate.cli", "init", str(folder), "--example", "shop"], check=True)
    declared = folder / "pipeline.yml"
    text = declared.read_text()
    assert "promise_period: 1 day " in text
    declared.write_text(text.replace("promise_period: 1 day ", "promise_period: 1 hour "))
    root = folder / "warehouse"
    run_pipeline(folder, root, f"{START:%Y-%m-%dT%H}", f"{END:%Y-%m-%dT%H}")
    pipeline = load_pipeline(folder)
    report.run(pipeline, root)
    return Run(pipeline, Warehouse(root, pipeline))


def test_the_table_holds_what_plain_fractions_find(shop: Run) -> None:
    """Hours of final windows: those that end up to an hour (the horizon) before the end of the run."""
    windows: dict[tuple[str, datetime], list[float]] = defaultdict(list)
    for row in shop.rows("accuracy"):
        windows[row["query"], row["window_end"].replace(minute=0)].append(row["value"])
    judged = {(row["query"], row["period_start"]): row for row in newest_of_each(shop.rows("promise_periods"))}
    promised = [query for query in shop.pipeline.queries if query.promised is not None]
    assert {query.error is None for query in promised} == {True, False}, "both kinds of promises are there"
    for query in promised:
        own = sorted(start for name, start in windows if name == query.id)
        assert own[-1] == END - 2 * HOUR, "the newest whole hour"
        for start in own:
            row, values = judged[query.id, start], windows[query.id, start]
            within = values if query.error is None else [value <= query.error for value in values]
            mean = sum(Fraction(value).limit_denominator(1000) for value in within) / len(values)
            assert row["windows"] == len(values)
            assert row["measured"] == round(float(mean), 12)
            assert row["promised"] == (0.95 if query.error is not None else query.accuracy)
            assert row["kept"] is (mean >= Fraction(row["promised"]).limit_denominator(1000))
        open_ = judged[query.id, END - HOUR]
        assert (open_["kept"], open_["windows"], open_["judged_at"]) == (None, 0, END)


def test_every_page_shows_these_numbers_and_no_others(shop: Run, tmp_path: Path) -> None:
    told = shop.lines()
    assert len(told) == sum(query.promised is not None for query in shop.pipeline.queries) == 4
    assert all(line.judged >= 4 and line.tone == "open" for line in told)
    counts = {(str(line.kept), str(line.judged)) for line in told}
    pages = {"report": shop.page("report.html"), "Data Docs": shop.page("quality/index.html")}
    pages["Airflow"] = html.unescape(airflows_page(shop, tmp_path))
    pages["account"] = account(shop)
    for name, text in pages.items():
        flat = re.sub(r"\s+", " ", text)
        assert SENTENCE in flat, name
        assert NOT_KNOWN in flat, name
        for line in told:
            for cell in line.cells:
                assert cell in flat, (name, cell)
        assert set(re.findall(r"(\d+) of (\d+) hours", flat)) == counts, name
    for line in told:
        assert line.sentence in pages["report"]


def test_the_marts_hold_the_rows_of_the_table(shop: Run) -> None:
    names = [name for name in shop.warehouse.schema("promise_periods").names if name != "interval"]
    files = [str(file) for own in live_files(shop.warehouse.folder / "marts" / "promises").values() for file in own]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        read = f"read_parquet({files}, hive_partitioning = true, hive_types_autocast = false)"
        found = connection.execute(f"SELECT {', '.join(names)}, state FROM {read}").fetchall()
        wrong = connection.execute(f"SELECT count(*) FROM {read} WHERE kept <> (measured >= promised)").fetchone()
    states = {True: "kept", False: "missed", None: "open"}
    expected = [(*(row[name] for name in names), states[row["kept"]]) for row in shop.rows("promise_periods")]
    grain = [names.index(name) for name in ("query", "period_start", "judged_at")]
    ordered, wanted = (sorted(rows, key=lambda row: [row[at] for at in grain]) for rows in (found, expected))
    assert ordered == wanted
    assert wrong == (0,), "SQL that compares the two numbers finds what the judge has found"


def test_findings_trends_and_weeks_are_of_these_rows(shop: Run) -> None:
    judged = [row for row in newest_of_each(shop.rows("promise_periods")) if row["kept"] is not None]
    missed = {(row["interval"], row["query"], row["measured"]) for row in judged if not row["kept"]}
    found = [row for row in shop.rows("quality_results") if row["expectation"] == "promise_kept"]
    assert {(row["interval"], row["query"], row["measured"]) for row in found if not row["success"]} == missed
    week, trends = shop.page("quality/weeks/2026-W02.html"), shop.page("quality/trends.html")
    for line in shop.lines():
        assert f"{line.kept} of {line.judged}</td>" in week
        last = next(row for row in reversed(judged) if row["query"] == line.query)
        assert f'{line.query} <span class="soft">now {show_percent(last["measured"])},' in trends


def airflows_page(shop: Run, home: Path) -> str:
    """The page that the plugin serves, as a process of Airflow's would make it."""
    environment = {**os.environ, "AIRFLOW_HOME": str(home), "TIDEGATE_WAREHOUSE": str(shop.warehouse.root)}
    done = subprocess.run(
        [sys.executable, "-c", AIRFLOWS_PAGE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads((shop.warehouse.folder / "_docs" / "quality" / "summary.json").read_text())
    assert summary["newest"] in done.stdout
    return done.stdout


def account(shop: Run) -> str:
    """What the demo prints at its end."""
    command = [sys.executable, "-m", "infra.demo.account", str(shop.pipeline.folder), "--no-check"]
    span = ["--warehouse", str(shop.warehouse.root), "--from", START.isoformat(), "--to", END.isoformat()]
    done = subprocess.run([*command, *span], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
