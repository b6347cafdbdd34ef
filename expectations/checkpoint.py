"""Runs every suite on intervals with Great Expectations."""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from expectations.columns import Tables
from expectations.policy import DEFAULT, Policy
from expectations.results import Outcome, Row, outcomes
from expectations.suites import SUITES
from expectations.suites.suite import Suite
from expectations.tables import Cached, Cases, Interval
from tidegate.declarations.models import Pipeline

_INTERVALS_AT_ONCE = 96
_SORTED_BY = ("table", "expectation", "query", "window_end", "detail")
# What Great Expectations is asked of every expectation, and then of those that failed: to list rows, it computes four
# times as many metrics.
_WHETHER = {"result_format": "BOOLEAN_ONLY"}
_WHICH_ROWS = {
    "result_format": "COMPLETE",
    "unexpected_index_column_names": ["interval", "table", "query", "window_end", "subject"],
}


@dataclass(frozen=True)
class SuiteResult:
    """What became of one suite's expectations in one interval."""

    suite: Suite
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class IntervalResult:
    """All suites' results of one interval."""

    interval: Interval
    suites: tuple[SuiteResult, ...]

    @cached_property
    def rows(self) -> list[Row]:
        """The rows for ``quality_results``, in the order in which they are stored."""
        rows = [row for suite in self.suites for outcome in suite.outcomes for row in outcome.rows]
        return sorted(rows, key=lambda row: tuple(str(row[key] or "") for key in _SORTED_BY))


@dataclass
class Checkpoint:
    """The suites, ready to run on one interval after another.

    Every expectation judges rows one by one (or rows of one interval among themselves), so the rows of many intervals
    are judged in one pass and the outcomes are told apart afterwards: the result is that of as many passes.

    The data context is ephemeral: suites are code, results are rows of a table and pages of a site, so there is
    nothing that a project folder would have to remember.

    **Cost**: importing Great Expectations 5 to 9 CPU seconds, once a process; then 5 to 15 ms an expectation and pass,
    twice as much for one that fails, whatever the number of rows up to some ten thousand; to read the tables, a third
    of a millisecond a file.

    ``gathered``: this machine's folder for what is read of all intervals, once each; None: read anew in every pass.
    ``formal``: rule → Great Expectations' own result of the expectation in the last pass, for its words.
    """

    pipeline: Pipeline
    tables: Tables
    policy: Policy = DEFAULT
    suites: tuple[Suite, ...] = SUITES
    gathered: Path | None = None
    formal: dict[str, Any] = field(default_factory=dict)

    def run(self, intervals: Sequence[Interval]) -> Iterator[IntervalResult]:
        """Judge intervals, one result after another, in their order."""
        cached = Cached(self.tables, self.gathered)
        for first in range(0, len(intervals), _INTERVALS_AT_ONCE):
            cases = Cases(self.pipeline, tuple(intervals[first : first + _INTERVALS_AT_ONCE]), cached)
            for part in cases.in_parts():
                cached.ahead = part.labels
                judged = [(suite, self._judge(suite, part)) for suite in self.suites]
                for interval in part.intervals:
                    found = tuple(SuiteResult(suite, by_label[interval.label]) for suite, by_label in judged)
                    yield IntervalResult(interval, found)

    def _judge(self, suite: Suite, cases: Cases) -> dict[str, tuple[Outcome, ...]]:
        """Label → the outcomes of one suite."""
        frame = suite.frame(cases, self.policy).to_pandas()
        engine, _ = _loaded()
        batch = _batches(suite.name).get_batch({"dataframe": frame})

        def validated(made: list[Any], form: dict[str, Any]) -> dict[str, Any]:
            found = batch.validate(engine.ExpectationSuite(name=suite.name, expectations=made), result_format=form)
            return {result.expectation_config.meta["rule"]: result for result in found.results}

        made = suite.expectations(engine.expectations, self.pipeline, self.policy)
        results = validated(made, _WHETHER)
        if broken := [expectation for expectation in made if not results[expectation.meta["rule"]].success]:
            results |= validated(broken, _WHICH_ROWS)
        self.formal |= results
        by_label: dict[str, list[Outcome]] = {label: [] for label in cases.labels}
        for result in results.values():
            for label, outcome in outcomes(suite.name, frame, result, cases.labels, self.policy).items():
                by_label[label].append(outcome)
        return {label: tuple(found) for label, found in by_label.items()}


@lru_cache(1)
def _loaded() -> tuple[Any, Any]:
    """Great Expectations, and its source of frames in this process."""
    # Before the import: it reads the variable then, and would otherwise call home.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults

    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False), analytics_enabled=False
    )
    context = gx.get_context(mode="ephemeral", project_config=config)
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    source = context.data_sources.add_pandas("tidegate")
    # What has been loaded stays: to go over its 400 000 objects takes each full collection of garbage 0.2 s.
    gc.freeze()
    # Else what it has loaded is not released when the process ends, and nanobind calls it a leak.
    atexit.register(gc.unfreeze)
    return gx, source


@lru_cache(None)
def _batches(suite: str) -> Any:
    """Great Expectations' definition of a suite's frames; making one takes it some ten milliseconds."""
    _, source = _loaded()
    return source.add_dataframe_asset(suite).add_batch_definition_whole_dataframe("intervals")
