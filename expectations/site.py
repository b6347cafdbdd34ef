"""The pages of Data Docs: an overview, and one page an interval. They need no network.

Great Expectations' renderers put each expectation and what was observed into words; the page around them is ours, for
theirs loads fifteen scripts, styles and images from the internet, and lists failed rows by data frame positions.

    <folder>/index.html            what is broken, the promises, every interval at a glance
    <folder>/hours/<label>.html    all expectations of one interval
    <folder>/trends.html           each period against its promise, K against oracle, bytes against M
    <folder>/weeks/<week>.html     a week in a few sentences
    <folder>/summary.json          the same for programs: the promises, what is broken
    <folder>/assets/quality.css
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from expectations.checkpoint import IntervalResult, SuiteResult
from expectations.columns import Tables
from expectations.policy import SEVERITIES
from expectations.results import Row, failures, number
from expectations.suites import SUITES
from expectations.trends import TRENDS, trends, week_of, weeks
from tidegate.declarations.interval_labels import label_start
from tidegate.declarations.models import Pipeline
from tidegate.declarations.promises import HEADINGS, SENTENCE, Line, explained, lines
from tidegate.declarations.promises import Row as Judged
from tidegate.declarations.units import show_percent
from tidegate.store.gathered import Gathered

_HERE = Path(__file__).parent
_VIEWS = _HERE / "views"
_PAGE = "interval.html.j2"
_OVERVIEW = "overview.html.j2"
# The overview tells of the newest intervals; older pages stay where they are.
_INTERVALS_SHOWN = 336
_BROKEN_SHOWN = 200
_MARKS = {"critical": "✖", "warning": "▲", "info": "●", "ok": "✔"}
_ORDER = ("critical", "warning", "info", "ok")


def status(rows: Iterable[Row]) -> str:
    """The worst that happened: critical, warning, info (a failure without weight) or ok."""
    failed = {row["severity"] for row in rows if not row["success"]}
    return next((severity for severity in _ORDER if severity in failed), "ok")


class Site:
    """The site of one pipeline in a folder of its own."""

    def __init__(self, folder: Path, pipeline: Pipeline):
        self.folder = folder
        self.pipeline = pipeline
        self._env = jinja2.Environment(loader=jinja2.FileSystemLoader(_VIEWS), autoescape=True, trim_blocks=True)
        self._env.globals |= {"mark": _MARKS, "show": _shown, "when": _when}
        self._words: dict[str, Markup] = {}
        gathered = folder / "gathered"
        self._told_of = Gathered(gathered / "quality_results.parquet", " ".join(_IN_TRENDS.to_pylist()), _told_of)
        self._periods = Gathered(gathered / "promise_periods.parquet")

    @property
    def index(self) -> Path:
        """The page to open."""
        return self.folder / "index.html"

    def page(self, label: str) -> Path:
        """The page of one interval."""
        return self.folder / "hours" / f"{label}.html"

    def learn_words(self, formal: Mapping[str, Any]) -> None:
        """Have Great Expectations put its expectations into words: rule → its result."""
        self._words = _words(formal)

    def write_interval(self, result: IntervalResult) -> None:
        """Write (or replace) the page of one interval."""
        rows, interval = result.rows, result.interval
        html = self._env.get_template(_PAGE).render(
            title=f"{self.pipeline.name}: data quality, {_when(interval.label)}",
            pipeline=self.pipeline,
            interval=interval,
            status=status(rows),
            broken=_broken(rows),
            sections=[self._section(suite) for suite in result.suites],
        )
        _replace(self.page(interval.label), html)

    def write_overview(self, tables: Tables, fresh: Mapping[str, list[Row]]) -> None:
        """Write the overview from ``quality_results`` and the rows just made, which are not published yet.

        Args:
            tables: where the results of other intervals are read.
            fresh: label → rows.
        """
        _copy_assets(self.folder / "assets")
        newest = sorted({*tables.labels("quality_results"), *fresh})[-_INTERVALS_SHOWN:]
        by_label: dict[str, list[Row]] = {label: list(fresh.get(label, ())) for label in newest}
        others = [label for label in newest if label not in fresh]
        for row in self._told_of.read(tables, "quality_results", others).to_pylist():
            by_label[row.pop("interval")].append(row)
        told = tables.labels("promise_periods")[-_INTERVALS_SHOWN:]
        self._write_overview(by_label, self._periods.read(tables, "promise_periods", told).to_pylist())

    def _section(self, result: SuiteResult) -> dict[str, Any]:
        """One suite on the page of an interval: its expectations, the failed ones first."""
        rows = [row for outcome in result.outcomes for row in outcome.rows]
        ordered = sorted(result.outcomes, key=lambda outcome: _ORDER.index(outcome.state))
        return {"suite": result.suite, "status": status(rows), "outcomes": ordered, "words": self._words}

    def _write_overview(self, by_label: dict[str, list[Row]], periods: list[Judged]) -> None:
        labels = sorted(by_label, reverse=True)
        broken = [{"label": label, **row} for label in labels for row in _broken(by_label[label])]
        newest = by_label[labels[0]] if labels else []
        of_weeks, promises = weeks(by_label, periods), lines(self.pipeline, periods)
        html = self._env.get_template(_OVERVIEW).render(
            title=f"{self.pipeline.name}: data quality",
            pipeline=self.pipeline,
            weeks=of_weeks,
            suites=SUITES,
            newest=labels[0] if labels else None,
            status=status(newest),
            tally=Counter(status(rows) for rows in by_label.values()),
            judged=len(labels),
            promises=promises,
            headings=HEADINGS,
            explained=explained(promises),
            broken=broken[:_BROKEN_SHOWN],
            more=max(len(broken) - _BROKEN_SHOWN, 0),
            hours=[_hour(label, by_label[label]) for label in labels],
        )
        _replace(self.index, html)
        if labels:
            self._write_trends(by_label, periods)
            for week in of_weeks:
                # The oldest week may have begun before the intervals that are looked at: its page is whole already.
                page = self.folder / "weeks" / f"{week.name}.html"
                if week.name != week_of(labels[-1]) or len(labels) < _INTERVALS_SHOWN or not page.exists():
                    template = self._env.get_template("week.html.j2")
                    title = f"{self.pipeline.name}: week {week.name}"
                    _replace(page, template.render(title=title, pipeline=self.pipeline, week=week, explained=SENTENCE))
            _replace(
                self.folder / "summary.json", json.dumps(_summary(labels, status(newest), promises, broken), indent=1)
            )

    def _write_trends(self, by_label: Mapping[str, list[Row]], periods: list[Judged]) -> None:
        html = self._env.get_template("trends.html.j2").render(
            title=f"{self.pipeline.name}: trends of data quality",
            pipeline=self.pipeline,
            trends=trends(by_label, periods),
            judged=len(by_label),
            first=min(by_label),
            last=max(by_label),
        )
        _replace(self.folder / "trends.html", html)


def _told_of(rows: pa.Table) -> pa.Table:
    """Those of the rows of ``quality_results`` that the overview tells of: nearly all are of what is in order."""
    failed = pc.fill_null(pc.invert(rows["success"]), True)
    return rows.filter(pc.or_(failed, pc.is_in(rows["expectation"], _IN_TRENDS)))


def _broken(rows: list[Row]) -> list[Row]:
    """What a reader should look at: critical failures, then warnings."""
    return failures(rows, "critical") + failures(rows, "warning")


def _when(label: str) -> str:
    return f"{label_start(label):%Y-%m-%d %H:%M}"


def _shown(row: Row, value: float | None) -> str:
    """A promised or measured value as people read it: shares in per cent, the rest plain."""
    if value is None:
        return ""
    shares = ("promise_", "window_hit_rate", "window_relative_error", "quarantine_share")
    return show_percent(value) if row["expectation"].startswith(shares) else number(value)


def _hour(label: str, rows: list[Row]) -> dict[str, Any]:
    """One line of the table of intervals: the status of each suite."""
    by_suite: dict[str, list[Row]] = {suite.name: [] for suite in SUITES}
    # Nearly all rows are of what is in order.
    for row in rows:
        if not row["success"]:
            by_suite[suite_of(row["expectation"])].append(row)
    cells = []
    for name, failed in by_suite.items():
        state = status(failed)
        cells.append({"suite": name, "status": state, "count": len(failures(failed, state))})
    return {"label": label, "status": status(rows), "cells": cells}


def _summary(labels: Sequence[str], state: str, promises: Sequence[Line], broken: Sequence[Row]) -> dict[str, Any]:
    """What other programs (the Tidegate page in Airflow, alerts) tell of the pipeline without reading tables."""
    keys = ("severity", "table", "expectation", "query", "promised", "measured", "detail")
    listed = [{"interval": row["label"], **{key: row[key] for key in keys}} for row in broken[:_BROKEN_SHOWN]]
    return {
        "newest": labels[0],
        "status": state,
        "judged": len(labels),
        "headings": HEADINGS,
        "promises": [{"query": line.query, "tone": line.tone, "cells": line.cells} for line in promises],
        "explained": explained(promises),
        "broken": listed,
    }


def suite_of(rule: str) -> str:
    """The suite of a rule, by the rule's place in the list of severities."""
    return _RULE_SUITES[rule]


def _rule_suites() -> dict[str, str]:
    prefixes = {
        "file": "arrivals", "event": "arrivals", "quarantine": "arrivals", "column": "arrivals",
        "rows": "completeness", "partitions": "completeness", "stages": "completeness", "windows": "completeness",
        "answer": "answers", "truth": "accuracy", "accuracy": "accuracy", "window": "accuracy",
        "promise": "promises", "slack": "promises", "plan": "plans", "history": "history",
        "metrics": "run_metrics", "state": "run_metrics", "process": "run_metrics", "server": "run_metrics",
    }  # fmt: skip
    return {rule: prefixes[rule.partition("_")[0]] for rule in SEVERITIES}


_RULE_SUITES = _rule_suites()
_IN_TRENDS = pa.array(sorted({rule for rules in TRENDS.values() for rule in rules}), pa.string())


def _words(formal: Mapping[str, Any]) -> dict[str, Markup]:
    """Rule → the expectation as Great Expectations' renderers say it."""
    from great_expectations.render.renderer.content_block import ValidationResultsTableContentBlockRenderer
    from great_expectations.render.view import DefaultJinjaPageView

    view, words = DefaultJinjaPageView(), {}
    for rule, result in formal.items():
        config = result.expectation_config
        # A description would be said in place of what is checked.
        description, config.description = config.description, None
        table: Any = ValidationResultsTableContentBlockRenderer.render([result], include_column_name=True)
        config.description = description
        cell = table.to_json_dict()["table"][0][1]
        first = cell[0] if isinstance(cell, list) else cell
        words[rule] = Markup(view.render_string_template(first["string_template"]))
    return words


def _copy_assets(target: Path) -> None:
    for source in sorted((_HERE / "assets").rglob("*")):
        if source.is_file():
            copy = target / source.relative_to(_HERE / "assets")
            if not copy.exists() or copy.stat().st_size != source.stat().st_size:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)


def _replace(path: Path, text: str) -> None:
    """Write a page so that a reader meets the old one or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
