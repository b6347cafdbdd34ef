"""Check quality: judge the tables of an interval, keep the results, build the pages, fail for what is critical.

Works on small per-interval tables with Great Expectations on pandas: no Spark session is started.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from expectations.checkpoint import Checkpoint
from expectations.policy import DEFAULT, Policy
from expectations.results import failures, sentence
from expectations.site import Site

from tidegate.declarations.errors import UserError
from tidegate.engine.context import RunContext
from tidegate.stages.extras import require_stage
from tidegate.stages.launcher import launch
from tidegate.store.intervals import Interval

STAGE = "check_quality"
_KINDS_LISTED = 20
_SAY_EVERY = 12


class QualityError(UserError):
    """Critical expectations failed; the results and the pages are written all the same."""

    exit_status = 1

    def __init__(self, failures: Sequence[tuple[Interval, dict[str, Any]]], page: str):
        self.failures = tuple(failures)
        # The same fault in every interval is one fault: the first of each kind is shown.
        kinds: dict[tuple[str, str], list[str]] = {}
        for interval, row in self.failures:
            text = f"{interval.label}: {sentence(row)}"
            kinds.setdefault((row["expectation"], row["table"]), []).append(text)
        lines = [found[0] + (f" (and {len(found) - 1} more)" if len(found) > 1 else "") for found in kinds.values()]
        if len(lines) > _KINDS_LISTED:
            lines[_KINDS_LISTED:] = [f"and {len(lines) - _KINDS_LISTED} more kinds"]
        count = len(self.failures)
        head = f"{count} critical expectation{'s' if count != 1 else ''} failed, see {page}"
        self._page = page
        super().__init__("\n".join([head, *lines]))

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is sent from one process to another."""
        return QualityError, (self.failures, self._page)


def run(context: RunContext, intervals: Sequence[Interval], policy: Policy = DEFAULT) -> None:
    """Judge every interval; QualityError, after all is written, if any critical expectation failed."""
    require_stage(STAGE)
    site = Site(context.warehouse.local / "_docs" / "quality", context.pipeline)
    schema = context.warehouse.schema("quality_results")
    by_label = {interval.label: interval for interval in intervals}
    judged: dict[str, list[dict[str, Any]]] = {}
    with context.stage(STAGE, intervals) as stage:
        context.progress(f"{STAGE}: loading Great Expectations")
        checkpoint = Checkpoint(context.pipeline, context.warehouse, policy, gathered=site.folder / "gathered")
        for number, result in enumerate(checkpoint.run(intervals), start=1):
            if number == 1:
                site.learn_words(checkpoint.formal)
            interval = result.interval
            rows = judged[interval.label] = result.rows
            stage.commit.put_arrow(
                "quality_results", by_label[interval.label], pa.Table.from_pylist(rows, schema=schema)
            )
            stage.record(by_label[interval.label], rows_out=len(rows))
            site.write_interval(result)
            critical, warnings = len(failures(rows, "critical")), len(failures(rows, "warning"))
            if number == len(intervals) or number % _SAY_EVERY == 0:
                found = f"{interval.label}: {critical} critical, {warnings} warnings"
                context.progress(f"{STAGE}: {found} ({number} of {len(intervals)})")
        site.write_overview(context.warehouse, judged)
    context.progress(f"{STAGE}: see {site.index}")
    broken = [(interval, row) for interval in intervals for row in failures(judged[interval.label], "critical")]
    if broken:
        raise QualityError(broken, str(site.index))


if __name__ == "__main__":
    launch(STAGE)
