"""What a person does in the Airflow UI, done by a real browser: log in, backfill six hours, read what came of them.

Needs Debian's ``chromium`` (or another one named by TIDEGATE_CHROMIUM) and the Python package ``playwright``, whose own
browsers are not used.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from airflow_stack import PROJECT, TemporaryStack
from playwright.sync_api import sync_playwright
from pyarrow import dataset
from tests.live_files import live_files
from tests.tools import tool

from tidegate.declarations import load_pipeline
from tidegate.declarations.promises import SENTENCE, lines
from tidegate.stages.run import STAGES

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# The horizon is six hours: by the last of the six intervals the windows of the two hours before them are judged.
FROM, TO = ("2013/02/08", "04:00"), ("2013/02/08", "09:00")
LABELS = [f"2013-02-08T{hour:02}" for hour in range(4, 10)]
BEFORE = "2013-02-08T02:00Z"
MOST_S = 2400


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryStack]:
    """An Airflow whose warehouse knows the two hours before."""
    stack = TemporaryStack(state=tmp_path_factory.mktemp("state"), port=18180)
    stack.landing.mkdir()
    environment = {**os.environ, "TIDEGATE_LANDING": str(stack.landing)}
    pipeline = str(PROJECT / "dags" / "pipelines" / "flights")
    land = [
        "-m",
        "tidegate.examples.land_flights",
        "--landing",
        str(stack.landing),
        "--from",
        BEFORE,
        "--to",
        "2013-02-08T10:00Z",
    ]
    earlier = ["-m", "tidegate.cli", "run", pipeline, "--warehouse", str(stack.warehouse), "--from", BEFORE,
               "--to", "2013-02-08T04:00Z"]  # fmt: skip
    # The models are built by the intervals that Airflow runs.
    earlier += [word for stage in STAGES if stage != "publish" for word in ("--stage", stage)]
    for words in (land, earlier):
        done = subprocess.run(
            [sys.executable, *words], cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with stack.running():
        yield stack


@pytest.fixture(scope="module")
def url(stack: TemporaryStack) -> str:
    return stack.command("url").stdout.strip()


@pytest.fixture(scope="module")
def page(stack: TemporaryStack, url: str) -> Iterator[Any]:
    """A page of a browser that is logged in and reaches nothing but this Airflow."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1400, "height": 1000}).new_page()
        page.set_default_timeout(30_000)
        page.foreign = []
        page.on(
            "request",
            lambda sent: None if sent.url.startswith((url, "data:", "blob:")) else page.foreign.append(sent.url),
        )
        page.goto(url)
        page.get_by_role("textbox", name="Username").fill("admin")
        page.locator("input[type=password]").fill(stack.command("password").stdout.strip())
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{url}/")
        yield page
        if pictures := os.environ.get("TIDEGATE_PICTURES"):
            page.screenshot(path=os.path.join(pictures, "last.png"))
        browser.close()


def _picture(page: Any, name: str) -> None:
    """Kept to be looked at, in the folder TIDEGATE_PICTURES."""
    if pictures := os.environ.get("TIDEGATE_PICTURES"):
        page.screenshot(path=os.path.join(pictures, f"{name}.png"))


def _choose(page: Any, instant: tuple[str, str]) -> None:
    page.get_by_text("Select date and time").first.click()
    page.get_by_placeholder("YYYY/MM/DD").fill(instant[0])
    page.get_by_placeholder("HH:mm").fill(instant[1])
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")


@pytest.mark.timeout(3000)
def test_six_intervals_by_one_form(stack: TemporaryStack, url: str, page: Any) -> None:
    """Trigger → Backfill, first and last hour, Run: all six runs succeed and every stage wrote its partitions."""
    page.goto(f"{url}/dags/flights")
    page.get_by_role("button", name="Trigger").first.click()
    page.get_by_text("Backfill", exact=True).last.click()
    _choose(page, FROM)
    _choose(page, TO)
    # "Missing Runs" alone is refused: Airflow wants to know what to do with runs that others wait for.
    page.get_by_text("Missing and Errored Runs").click()
    assert page.get_by_role("checkbox", name=re.compile("Unpause")).is_checked()
    page.get_by_text(re.compile(f"{len(LABELS)} runs")).wait_for()
    _picture(page, "backfill")
    page.get_by_role("button", name=re.compile("Run Backfill")).click()
    api = page.context.request
    states: list[str] = []
    for _ in range(MOST_S // 5):
        page.wait_for_timeout(5000)
        token = json.loads((stack.state / "airflow" / "passwords.json").read_text())["admin"]
        access = api.post(f"{url}/auth/token", data={"username": "admin", "password": token}).json()["access_token"]
        runs = api.get(f"{url}/api/v2/dags/flights/dagRuns", headers={"Authorization": f"Bearer {access}"}).json()
        states = [run["state"] for run in runs["dag_runs"]]
        if len(states) == len(LABELS) and set(states) <= {"success", "failed"}:
            break
    assert states == ["success"] * len(LABELS)
    page.goto(f"{url}/dags/flights")
    page.wait_for_timeout(2000)
    _picture(page, "grid")
    folder = stack.warehouse / "flights"
    for table in ("events_departures", "answers_most_delayed", "accuracy", "quality_results"):
        assert set(LABELS) <= live_files(folder / table).keys(), table


def _rows(stack: TemporaryStack, table: str) -> list[dict[str, Any]]:
    """All rows of a table."""
    rows = dataset.dataset(stack.warehouse / "flights" / table, partitioning="hive").to_table()
    return rows.to_pylist()


@pytest.mark.timeout(120)
def test_the_tidegate_page_shows_the_promises(stack: TemporaryStack, url: str, page: Any) -> None:
    """Inside the UI: the newest interval, each promise as it was judged last, links to the pages."""
    page.goto(f"{url}/plugin/tidegate_pages")
    inside = page.frame_locator("iframe")
    inside.get_by_role("heading", name="flights").wait_for()
    text = inside.locator("body").inner_text()
    _picture(page, "tidegate")
    assert LABELS[-1] in text
    summary = json.loads((stack.warehouse / "flights" / "_docs" / "quality" / "summary.json").read_text())
    assert [one["query"] for one in summary["promises"]]
    for one in summary["promises"]:
        assert all(cell in text for cell in one["cells"])
    assert SENTENCE in text
    for name in ("Report", "Data Docs", "Trends", "dbt docs"):
        assert inside.get_by_role("link", name=name).count() == 1


@pytest.mark.timeout(120)
def test_the_report_shows_what_the_tables_say(stack: TemporaryStack, url: str, page: Any) -> None:
    """The figures of the page are those of the tables, and its charts are drawn."""
    page.goto(f"{url}/tidegate/flights/report")
    page.locator(".js-plotly-plot").first.wait_for()
    told = lines(load_pipeline(PROJECT / "dags" / "pipelines" / "flights"), _rows(stack, "promise_periods"))
    sentence = next(line.sentence for line in told if line.query == "most_delayed")
    assert sentence in page.locator("#query-most_delayed").inner_text()
    charts = page.locator(".chart").count()
    assert charts >= 15 and page.locator(".chart .main-svg").count() >= charts
    _picture(page, "report")


@pytest.mark.timeout(120)
def test_data_docs_lead_from_the_overview_to_an_hour(stack: TemporaryStack, url: str, page: Any) -> None:
    page.goto(f"{url}/tidegate/flights/quality")
    assert "Data quality of flights" in page.locator("h1").inner_text()
    page.get_by_role("link", name=LABELS[-1].replace("T", " ") + ":00").first.click()
    page.wait_for_url(re.compile(LABELS[-1]))
    assert "promises" in page.locator("nav").inner_text()
    _picture(page, "hour")


@pytest.mark.timeout(120)
def test_dbt_docs_know_the_marts(stack: TemporaryStack, url: str, page: Any) -> None:
    page.goto(f"{url}/tidegate/flights/models#!/model/model.tidegate.accuracy_by_hour")
    page.get_by_text("One row per").first.wait_for()
    assert "accuracy_by_hour" in page.locator("body").inner_text()
    _picture(page, "dbt")


@pytest.mark.timeout(60)
def test_assets_lead_from_files_to_marts(url: str, page: Any) -> None:
    page.goto(f"{url}/assets")
    page.get_by_text("flights.files_departures").wait_for()
    assert page.get_by_text("flights.events_departures").count() == 1
    _picture(page, "assets")


def test_no_page_needed_a_network(page: Any) -> None:
    """Whatever the pages asked for came from this Airflow."""
    assert page.foreign == []
