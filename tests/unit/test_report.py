"""The report page from synthetic tables: what it says, what it says when there is nothing, and that it is safe."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plotly.offline import get_plotlyjs_version
from tests.live_files import put_rows

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, History, Order, Output, Pipeline, Query, Stream, Window, from_us
from tidegate.declarations.promises import NOT_KNOWN, SENTENCE
from tidegate.declarations.tables import schema
from tidegate.declarations.units import show_percent
from tidegate.report.charts import byte_unit
from tidegate.report.page import PLOTLY_JS
from tidegate.report.report import run
from tidegate.store.warehouse import Warehouse

START = datetime(2013, 2, 8, tzinfo=UTC)
EMPTY = ("accuracy", "slack_plan", "window_plan", "run_metrics", "history_leaves", "quality_results")
LABELS = [f"2013-02-08T{hour:02}" for hour in range(3)]


@pytest.fixture
def pipeline() -> Pipeline:
    stream = Stream(
        name="departures", format="jsonl", path="x", event_time="at", arrival_time=None, id=("flight",), rate=0.01,
        columns=(Column(name="flight", type="string"), Column(name="delay", type="double")), max_early_s=0,
        max_late_s=0, history=History(leaf_s=3600, capacity_tuples=100),
    )  # fmt: skip
    common = {
        "text": "SELECT <script>alert(1)</script>", "windows": (Window(alias="d", stream="departures", range_s=3600),),
        "predicates": {}, "outputs": (Output(name="delay", expression="delay", type="double"),), "every_s": 600,
    }  # fmt: skip
    top = Query(
        id="most_delayed", kind="top_k", description="Which departures are most delayed?\n\nThe late ones.",
        order_by=(Order(slot="o0", expression="delay", descending=True, type="double"),), limit=10, accuracy=0.95,
        **common,
    )  # fmt: skip
    mean = Query(id="mean_delay", kind="aggregate", description="", error=0.02, **common)
    plain = Query(id="plain", kind="aggregate", description="", **common)
    return Pipeline(
        name="flights", folder=Path("."), description="Flights & <b>weather</b>", owner="o", start=START,
        interval_s=3600, tick_s=300, horizon_s=3600, memory_budget_bytes=65536, process_budget_bytes=3 * 2**30,
        streams=(stream,), queries=(top, mean, plain),
    )  # fmt: skip


def _write(warehouse: Path, pipeline: Pipeline, table: str, rows: list[dict]) -> None:
    """Spread the rows over the intervals, one after another."""
    wanted = schema(pipeline, table)
    spread = {x: pa.Table.from_pylist(rows[i :: len(LABELS)], schema=wanted) for i, x in enumerate(LABELS)}
    put_rows(warehouse, pipeline, table, spread)


def _periods(query: str, judged: int, kept: int) -> list[dict]:
    """Days, the last ones missed, and half of today; in the order of the intervals that wrote them."""
    rows = []
    for number in range(judged + 1):
        over, start = number < judged, START + timedelta(days=number - judged)
        met = min(number + over, kept)
        rows.append(
            {"query": query, "promise": "", "period_start": start, "period_end": start + timedelta(days=1),
             "windows": 144 if over else 72, "promised": 0.95, "measured": 0.94 if kept <= number < judged else 0.96,
             "kept": number < kept if over else None, "periods_judged": number + over, "periods_kept": met,
             "met_so_far": met / (number + over), "judged_at": start + timedelta(days=1)}
        )  # fmt: skip
    return rows


@pytest.fixture
def warehouse(tmp_path: Path, pipeline: Pipeline) -> Path:
    ends = [START + timedelta(minutes=10 * i) for i in range(1, 19)]
    hit = [{"query": "most_delayed", "metric": "hit_rate", "value": 1.0, "promised": 0.95, "kept": True}] * 18
    # Two of eighteen windows miss 2 %: 88.8 % is less than 95 %.
    off = [{"query": "mean_delay", "metric": "relative_error", "value": 0.05 if i < 2 else 0.01, "promised": 0.02,
            "kept": i >= 2} for i in range(18)]  # fmt: skip
    _write(
        tmp_path,
        pipeline,
        "accuracy",
        [row | {"window_end": at} for row, at in zip(hit + off, ends + ends, strict=True)]
        + [hit[0] | {"window_end": START - timedelta(days=1), "slack_s": wait_s} for wait_s in (600.0, 1200.0)],
    )
    _write(tmp_path, pipeline, "promise_periods", _periods("most_delayed", 20, 19) + _periods("mean_delay", 20, 18))
    hours = [START + timedelta(hours=i) for i in range(3)]
    # A winner a day, each late by as many minutes as there are days before: 19 of the 20 days want 19 minutes at most.
    days = [START - timedelta(days=number) + timedelta(hours=1) for number in range(1, 21)]
    late = [{"query": "most_delayed", "window_end": at, "event_id": "x", "slack_s": 60.0 * number}
            for number, at in enumerate(days, start=1)]  # fmt: skip
    _write(tmp_path, pipeline, "needed_slack", late)
    rates = [{"stream": "departures", "tick": START + timedelta(minutes=5 * i), "tuples": 10, "tuple_bytes": 100.0,
              "held_tuples": 90, "held_bytes": 9000} for i in range(36)]  # fmt: skip
    _write(tmp_path, pipeline, "stream_rates", rates)
    slacks = [{"query": "most_delayed", "effective_from": at, "slack_s": 3600.0,
               "oracle_slack_s": 3000.0 if i else None,
               "accuracy_target": 0.95, "windows": 6, "method": "quantile"} for i, at in enumerate(hours)]  # fmt: skip
    _write(tmp_path, pipeline, "slack_plan", slacks)
    plans = [{"stream": "departures", "effective_from": at, "support_level": level, "width_s": 3600.0,
              "min_width_s": 1800.0, "max_width_s": 3600.0, "byte_rate": 10.0, "planned_bytes": 36000.0,
              "trigger": "rate"} for at, level in zip(hours, ("A", "B", "infeasible"), strict=True)]  # fmt: skip
    _write(tmp_path, pipeline, "window_plan", plans)
    metrics = [{"app": app, "query": "most_delayed" if app == "top_k" else None, "started_at": at, "seconds": 12.5,
                "rows_in": 100, "rows_late": 3, "peak_state_bytes": 30000 if app == "top_k" else None,
                "memory_budget_bytes": 65536, "peak_process_bytes": 2**30, "process_budget_bytes": 3 * 2**30}
               for app in ("ingest", "top_k") for at in hours]  # fmt: skip
    _write(tmp_path, pipeline, "run_metrics", metrics)
    levels = [{"query": "most_delayed", "effective_from": START + timedelta(minutes=minutes), "support_level": level}
              for minutes, level in ((0, "A"), (90, "B"), (120, "A"))]  # fmt: skip
    _write(tmp_path, pipeline, "query_plan", levels)
    leaves = [{"stream": "departures", "leaf_start": at, "leaf_end": at + timedelta(hours=1), "tuples": 40,
               "sampled": 30, "fraction": 0.75} for at in hours]  # fmt: skip
    _write(tmp_path, pipeline, "history_leaves", leaves)
    results = [{"table": "accuracy", "expectation": "kept", "query": "mean_delay", "severity": "critical",
                "success": False, "promised": 0.02, "measured": 0.05, "detail": "</script><img src=x>"},
               {"table": "window_plan", "expectation": "budget", "severity": "critical", "success": True}]  # fmt: skip
    _write(tmp_path, pipeline, "quality_results", results)
    _write(tmp_path, pipeline, "quarantine", [{"stream": "departures", "reason": "wrong_type", "record": "{}"}] * 4)
    return tmp_path


def test_the_judgement_is_shown_as_the_table_has_it(pipeline: Pipeline, warehouse: Path):
    page = run(pipeline, warehouse).read_text()
    assert "ACCURACY 95 % each day: ✓ kept in 19 of 20 days, at least 95 of 100." in page
    assert "ERROR 2 % each day: ✗ kept in 18 of 20 days, fewer than 95 of 100." in page
    assert "No promise declared." in page
    assert re.search(r'<b class="bad">37 of 40</b>promise periods kept', page)
    assert "Window state never exceeded the budget (3 measurements)" in page
    assert "3 plans, by what the rates let expect: 1 at level A, 1 at level B, 1 below level B." in page
    assert "wrong_type" in page and "1 of 2 expectations met, 1 critical failure." in page
    assert SENTENCE in page and NOT_KNOWN not in page


def test_the_first_table_says_of_each_query_what_was_promised_and_kept(pipeline: Pipeline, warehouse: Path):
    page = run(pipeline, warehouse).read_text()
    table = page[page.index('id="promises"') : page.index('id="query-')]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:]]
    last, now = "2013-02-07: 94.0 % over 144 windows, missed", "2013-02-08: 96.0 % over 72 windows"
    assert rows == [
        ["most_delayed", "✓", "ACCURACY 95 % each day", "19 of 20 days", last, now, "15 min", "19 min",
         "75.0 %"],
        ["mean_delay", "✗", "ERROR 2 % each day", "18 of 20 days", last, now, "0 s", "0 s", ""],
        ["plain", "–", "none", "", "", "", "", "", ""],
    ]  # fmt: skip


def test_what_it_took_is_set_against_the_best_fixed_wait_and_exact_answers(pipeline: Pipeline, warehouse: Path):
    page = run(pipeline, warehouse).read_text()
    # Both promises count alike: (15 min + 0) / 2 against (19 min + 0) / 2.
    assert "Answers waited 7 min 30 s on average over the queries" in page and "only afterwards: 9 min 30 s." in page
    assert re.search(r"<b[^>]*>79 %</b>waited, of the best fixed wait in hindsight", page)
    # An hour's range and an hour's horizon: 24 ticks of 1000 bytes.
    assert "Windows held at most 8.79 KiB of 64 KiB; exact answers, which wait 1 h, would have" in page
    assert "needed 23.4 KiB." in page and re.search(r"<b[^>]*>38 %</b>held, of what exact answers", page)


def test_every_period_is_listed_and_the_open_one_is_no_verdict(pipeline: Pipeline, warehouse: Path):
    page = run(pipeline, warehouse).read_text()
    table = page[page.index('id="periods-mean_delay"') :]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)]
    assert ["2013-02-05", "95.0 %", "96.0 % over 144 windows", "✓ kept"] in rows
    assert ["2013-02-06", "95.0 %", "94.0 % over 144 windows", "✗ missed"] in rows
    assert ["2013-02-08", "95.0 %", "96.0 % over 72 windows", "… so far"] in rows


def test_before_enough_periods_are_judged_the_page_says_what_is_not_known(pipeline: Pipeline, warehouse: Path):
    shutil.rmtree(warehouse / pipeline.name / "promise_periods")
    _write(warehouse, pipeline, "promise_periods", _periods("most_delayed", 3, 2))
    page = run(pipeline, warehouse).read_text()
    assert "ACCURACY 95 % each day: … kept in 2 of 3 days, too few to know." in page
    assert NOT_KNOWN in page and "✓ kept in" not in page
    assert re.search(r'<b class="open">2 of 3</b>promise periods kept', page)


@pytest.mark.parametrize(
    ("method", "wanted_s", "why"),
    [
        ("alike", (1800.0, 21_600.0), "K follows what past windows needed at the same time of the promise period"),
        ("memory", (21_600.0, 21_600.0), "memory does not always hold the windows"),
        ("periods", (1800.0, 1800.0), None),
    ],
)
def test_why_k_goes_up_and_down_is_told(
    pipeline: Pipeline, warehouse: Path, method: str, wanted_s: tuple[float, float], why: str | None
):
    # Half an hour by night, six hours by day; or half an hour always.
    given_s = (1800.0, 21_600.0) if why else (1800.0, 1800.0)
    plans = [
        {"query": "most_delayed", "effective_from": START + timedelta(hours=hour), "accuracy_target": 0.95,
         "slack_s": given_s[hour // 12 % 2], "slack_needed_s": wanted_s[hour // 12 % 2], "windows": 6, "method": method}
        for hour in range(24 * 10)
    ]  # fmt: skip
    _write(warehouse, pipeline, "slack_plan", plans)
    page = run(pipeline, warehouse).read_text()
    said = "In the last 7 days K was between 30 min and 6 h, and changed 13 times by more than half of that. Why: "
    assert (said in page) == (why is not None)
    assert why is None or said + why in page


def test_fields_that_no_column_reads_are_listed_by_stream(pipeline: Pipeline, warehouse: Path):
    assert "Fields ignored" not in run(pipeline, warehouse).read_text()
    seen = [{"stream": "departures", "column": name, "records": records, "first_seen": START + timedelta(hours=hour)}
            for hour, (name, records) in enumerate([("<gate>", 4), ("seat", 9), ("<gate>", 3)])]  # fmt: skip
    _write(warehouse, pipeline, "unknown_columns", seen)
    page = run(pipeline, warehouse).read_text()
    table = page[page.index("Fields ignored") :]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:3]]
    assert rows == [
        ["departures", "seat", "9", "2013-02-08 01:00", LABELS[1]],
        ["departures", "&lt;gate&gt;", "7", "2013-02-08 00:00", LABELS[2]],
    ]


def test_error_by_age_follows_the_last_pass(pipeline: Pipeline, warehouse: Path):
    """Three leaves of 40 tuples, 3 in 4 sampled; the pass merged the first two and kept 1 in 5 of their tuples."""
    passes = [{"stream": "departures", "pass_time": START + timedelta(hours=2), "tuples_before": 120,
               "leaf_start": START, "leaf_end": START + timedelta(hours=2), "fraction": 0.2}]  # fmt: skip
    _write(warehouse, pipeline, "history_passes", passes)
    page = run(pipeline, warehouse).read_text()
    figure = json.loads(re.search(r'data-chart="history-error">(.*?)</script>', page)[1])["data"][0]
    # sqrt((1 - f) / (f n)): sqrt(0.8 / 16) of the merged leaf, two hours old; sqrt(0.25 / 30) of the newest.
    age, error = (np.frombuffer(b64decode(figure[axis]["bdata"]), figure[axis]["dtype"]) for axis in "xy")
    assert age == pytest.approx([0, 2 / 24])
    assert error == pytest.approx([100 * (0.25 / 30) ** 0.5, 100 * 0.05**0.5])


def test_estimates_are_set_against_the_truth_by_age(pipeline: Pipeline, warehouse: Path):
    """Three questions, one a pass: of the newest pass alone, two hours into the last day."""
    asked = {"stream": "departures", "part_start": START, "part_end": START + timedelta(hours=2), "tuples": 40,
             "question": "SELECT SUM(`delay`) AS answer FROM departures WHERE `delay` < 9", "fraction": 0.5,
             "truth": 100.0, "exact": False}  # fmt: skip
    answers = [{"estimate": 1.0, "low": 0.0, "high": 2.0, "holds": False},
               {"estimate": None, "low": None, "high": None, "holds": None},
               {"estimate": 97.0, "low": 90.0, "high": 104.0, "holds": True}]  # fmt: skip
    _write(warehouse, pipeline, "history_accuracy", [asked | answer for answer in answers])
    page = run(pipeline, warehouse).read_text()
    assert (
        "1 of 1 intervals (95 %) contain the true value after the newest pass; check_quality has not checked that yet."
        in page
    )
    table = page[page.index("Measured error of estimates") : page.index("The same by part")]
    (row,) = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)[1:]]
    assert row == ["departures", "1.0", "SUM(delay) where delay &lt; 9", "40", "0.5", "100", "97", "90", "104",
                   "3.0 %", "✓ yes"]  # fmt: skip


def test_tables_of_another_version_are_named_and_the_rest_is_shown(pipeline: Pipeline, warehouse: Path):
    """One partition lacks a column, one file is damaged, one table is not there: how to mend each is said."""
    folder = warehouse / pipeline.name
    (old,) = (folder / "window_plan" / f"interval={LABELS[1]}").glob("*.parquet")
    pq.write_table(pq.ParquetFile(old).read().drop_columns(["trigger", "min_width_s"]), old)
    (torn,) = (folder / "slack_plan" / f"interval={LABELS[2]}").glob("*.parquet")
    torn.write_bytes(torn.read_bytes()[:-8])
    shutil.rmtree(folder / "query_plan")
    page = run(pipeline, warehouse).read_text()
    said = [unescape(text) for text in re.findall(r'<p class="empty">(Table [^<]*To fix it, .*?)</p>', page)]
    left_out = [sentence for sentence in said if "stream_rates" not in sentence]  # which is not there either
    for sentence, (what, where, first, last, stage) in zip(
        left_out,
        (
            (
                "query_plan is not there, although ingest ran",
                "in 3 intervals from 2013-02-08T00 to 2013-02-08T02",
                "00",
                "03",
                "ingest",
            ),
            ("slack_plan has a file that is not Parquet", "in 2013-02-08T02", "02", "03", "calibrate"),
            ("window_plan lacks the columns min_width_s, trigger", "in 2013-02-08T01", "01", "02", "ingest"),
        ),
        strict=True,
    ):
        assert sentence.startswith(f"Table {what} {where};")
        assert f"--warehouse {warehouse} --from 2013-02-08T{first}:00:00Z --to 2013-02-08T{last}:00:00Z" in sentence
        assert f"--stage {stage}" in sentence
    assert "2 plans, by what the rates let expect: 1 at level A, 1 below level B." in page
    assert "✓ kept in 19 of 20 days" in page


def test_the_bundle_draws_what_the_package_writes():
    """After an update of plotly: npm pack plotly.js-basic-dist-min@VERSION, and copy plotly-basic.min.js."""
    assert f"plotly.js (basic - minified) v{get_plotlyjs_version()}" in PLOTLY_JS.read_text()[:200]
    assert PLOTLY_JS.stat().st_size < 1.2e6


def test_the_page_stands_alone_and_escapes_what_users_wrote(pipeline: Pipeline, warehouse: Path):
    page = run(pipeline, warehouse).read_text()
    own = page.replace(page[page.index("<script>") : page.index("</script>", page.index("<script>"))], "")
    assert not re.search(r"""(src|href)=["'](?!#)""", own.replace("&lt;img src=x", ""))
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page
    assert "<b>weather</b>" not in page and "<img src=x>" not in page


def test_the_page_lets_no_script_run_but_its_own(pipeline: Pipeline, warehouse: Path):
    html = run(pipeline, warehouse).read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(scripts) == 2
    named = [b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == named
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe-eval" not in policy


def test_every_chart_has_its_figure_and_its_numbers(pipeline: Pipeline, warehouse: Path):
    page = run(pipeline, warehouse).read_text()
    figures = dict(re.findall(r'<script type="application/json" data-chart="([^"]+)">(.*?)</script>', page))
    assert set(figures) == {
        "periods-most_delayed", "periods-mean_delay", "accuracy-most_delayed", "accuracy-mean_delay",
        "slack-most_delayed", "widths", "planned",
        "measured-peak_state_bytes", "measured-peak_process_bytes", "history-leaves", "history-error", "run-times",
    }  # fmt: skip
    for name, text in figures.items():
        assert json.loads(text)["data"], name
        assert f'id="{name}"' in page
    assert page.count("<details><summary>Numbers") == len(figures)
    assert "2013-02-08 01:00" in page and "50 min" in page


def test_the_same_tables_give_the_same_page(pipeline: Pipeline, warehouse: Path, tmp_path: Path):
    first = run(pipeline, warehouse, tmp_path / "deep" / "er" / "a.html")
    assert first.read_bytes() == run(pipeline, warehouse, tmp_path / "b.html").read_bytes()
    assert [p.name for p in first.parent.iterdir()] == ["a.html"]


@pytest.mark.parametrize("empty", [False, True], ids=["missing", "empty"])
def test_tables_without_rows_are_named(pipeline: Pipeline, tmp_path: Path, empty: bool):
    (tmp_path / "flights").mkdir()
    if empty:
        for table in EMPTY:
            _write(tmp_path, pipeline, table, [])
    page = run(pipeline, tmp_path).read_text()
    for table in (*EMPTY, "promise_periods"):
        assert f"Table {table} has no rows" in page
    assert "No interval has been run yet." in page and "no window is final yet" in page
    assert "data-chart=" not in page and len(page) < 50_000


def test_as_of_gives_yesterdays_page_after_a_run_with_other_data(pipeline: Pipeline, warehouse: Path, tmp_path: Path):
    first = run(pipeline, warehouse, tmp_path / "a.html").read_bytes()
    newest = max(Warehouse(warehouse, pipeline).cut.runs.values())
    _write(warehouse, pipeline, "window_plan", [])
    assert run(pipeline, warehouse, tmp_path / "b.html").read_bytes() != first
    for as_of in (newest.run, from_us(newest.at_us)):
        assert run(pipeline, warehouse, tmp_path / "c.html", as_of).read_bytes() == first


def test_nothing_to_report_and_nowhere_to_write(pipeline: Pipeline, warehouse: Path, tmp_path: Path):
    with pytest.raises(UserError, match="nothing to report"):
        run(pipeline, tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a folder"):
        run(pipeline, warehouse, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the report"):
        run(pipeline, warehouse, tmp_path / "file" / "report.html")


def test_a_percentage_never_rounds_up_to_a_promise_that_was_missed():
    assert [show_percent(share) for share in (0.94999, 0.95, 1.0)] == ["94.9 %", "95.0 %", "100.0 %"]
    assert byte_unit(65536) == ("KiB", 1024.0)
