"""The stage: results kept, pages built, critical failures raised after both."""

from __future__ import annotations

import io
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidegate.declarations.promises import SENTENCE
from tidegate.engine.context import RunContext
from tidegate.stages.check_quality import QualityError, run
from tidegate.store.intervals import Interval
from tidegate.store.warehouse import Warehouse

from .good_warehouse import Row, intervals, replace_rows, to_table
from .test_suites import HOUR, every, first, of, read


def check(warehouse: Warehouse, hours: Sequence[Interval]) -> str:
    """Run the stage; what it said."""
    said = io.StringIO()
    with RunContext(warehouse.pipeline, warehouse.root, output=said) as context:
        run(context, hours)
    return said.getvalue()


def results(warehouse: Warehouse) -> list[Row]:
    """All of quality_results, whoever wrote them."""
    warehouse.refresh()
    return warehouse.read_arrow("quality_results").to_pylist()


def site(warehouse: Warehouse) -> Path:
    """The folder of the pages."""
    return warehouse.folder / "_docs" / "quality"


def test_results_are_the_same_again_and_however_the_range_is_cut(spoilt: Warehouse) -> None:
    hours = intervals(spoilt.pipeline)[-2:]
    check(spoilt, hours)
    once = results(spoilt)
    check(spoilt, hours)
    assert results(spoilt) == once
    for hour in hours:
        check(spoilt, [hour])
    assert results(spoilt) == once
    assert {row["interval"] for row in once} == {hour.label for hour in hours}


def test_critical_failure_is_raised_after_results_and_pages_are_written(spoilt: Warehouse) -> None:
    rows = read(spoilt, "answers_total")
    rows[0]["width_s"] = [("d", 7200.0)]
    replace_rows(spoilt, "answers_total", HOUR, rows)
    with pytest.raises(QualityError) as error:
        check(spoilt, intervals(spoilt.pipeline)[-1:])
    for part in ("answers_total", "total", "2013-02-08T06:30:00Z", "measured 7200 s", "promised at most 3600 s"):
        assert part in str(error.value)
    # As it comes from another process.
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert any(not row["success"] for row in results(spoilt))
    assert "answer_width_within_range" in (site(spoilt) / "hours" / f"{HOUR}.html").read_text()
    assert spoilt.read_arrow("run_metrics", [HOUR], ["app"])["app"].to_pylist().count("check_quality") == 1


def test_broken_promise_is_shown_and_does_not_fail_the_stage(spoilt: Warehouse) -> None:
    rows = read(spoilt, "promise_periods")
    of("query", "total", first(measured=0.846, kept=False, periods_kept=24))(rows)
    replace_rows(spoilt, "promise_periods", HOUR, rows)
    assert "0 critical, 1 warnings" in check(spoilt, intervals(spoilt.pipeline)[-1:])
    overview = (site(spoilt) / "index.html").read_text()
    assert "total: ERROR 0.1, hour 2013-02-08 05:00: 84.6 % over 6 windows" in overview
    assert "2013-02-08 05:00: 84.6 % over 6 windows, missed" in overview and SENTENCE in overview


def test_hour_in_which_nothing_arrived_is_in_order(spoilt: Warehouse) -> None:
    hour = intervals(spoilt.pipeline)[0]
    for table in spoilt.tables():
        if table not in ("quality_results", "history_passes", "history_accuracy", "run_metrics", "source_files"):
            replace_rows(spoilt, table, hour.label, [])
    metrics = [dict(row, rows_in=0, rows_out=0) for row in read(spoilt, "run_metrics", hour.label)]
    with spoilt.commit("test", [hour]) as commit:
        for app in {row["app"] for row in metrics}:
            own = to_table(spoilt, "run_metrics", [row for row in metrics if row["app"] == app])
            commit.put_file("run_metrics", hour, app, own)
    check(spoilt, [hour])
    assert [row["detail"] for row in results(spoilt) if not row["success"]] == []


def test_pages_fetch_nothing_from_elsewhere(spoilt: Warehouse) -> None:
    check(spoilt, intervals(spoilt.pipeline)[-2:])
    pages = sorted(site(spoilt).rglob("*.html"))
    assert {page.name for page in pages} == {
        "2013-02-08T06.html", "2013-02-08T07.html", "index.html", "trends.html", "2013-W06.html",
    }  # fmt: skip
    for page in pages:
        html = page.read_text()
        assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?\s*(?:https?:)?//[^"')\s]*""", html)
        for link in re.findall(r"""(?:src|href)="([^"#]+)["#]""", html):
            assert link.startswith("data:") or (page.parent / link).exists(), f"{page.name} refers to {link}"
    for asset in (site(spoilt) / "assets").rglob("*"):
        assert b"//" not in asset.read_bytes().replace(b"*/", b"").replace(b"/*", b"")


def test_a_broken_promise_is_told_for_the_week_and_for_programs(spoilt: Warehouse) -> None:
    rows = read(spoilt, "promise_periods")
    of("query", "total", first(measured=0.846, kept=False))(rows)
    of("query", "total", every(periods_kept=25, met_so_far=25 / 26))(rows)
    replace_rows(spoilt, "promise_periods", HOUR, rows)
    check(spoilt, intervals(spoilt.pipeline)[-2:])
    summary = json.loads((site(spoilt) / "summary.json").read_text())
    assert summary["newest"] == HOUR and summary["status"] == "warning" and summary["judged"] == 2
    (total,) = [one for one in summary["promises"] if one["query"] == "total"]
    assert total["tone"] == "good" and total["cells"] == [
        "total", "✓", "ERROR 10 % each hour", "25 of 26 hours", "2013-02-08 05:00: 84.6 % over 6 windows, missed",
        "2013-02-08 06:00: no window is final yet",
    ]  # fmt: skip
    assert summary["explained"] == SENTENCE
    assert [row["query"] for row in summary["broken"]] == ["total"] and summary["broken"][0]["interval"] == HOUR
    week = (site(spoilt) / "weeks" / "2013-W06.html").read_text()
    assert "2 intervals were judged: 1 in order, 1 with a warning, 0 with critical failures." in week
    assert "5 of 6" in week and "2013-02-08 05:00: 84.6 % over 6 windows" in week and SENTENCE in week
    trends = (site(spoilt) / "trends.html").read_text()
    assert (
        "Accuracy of each period against the promise" in trends
        and "84.6 %" in trends
        and "Bytes held against M" in trends
    )


def test_pages_are_named_for_pipeline_and_hour(spoilt: Warehouse) -> None:
    check(spoilt, intervals(spoilt.pipeline)[-1:])
    assert "<title>harbour: data quality</title>" in (site(spoilt) / "index.html").read_text()
    page = (site(spoilt) / "hours" / f"{HOUR}.html").read_text()
    assert "<title>harbour: data quality, 2013-02-08 07:00</title>" in page


def test_importing_the_stage_does_not_import_great_expectations() -> None:
    code = "import sys, tidegate.stages.check_quality; sys.exit('great_expectations' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
