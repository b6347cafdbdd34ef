"""Nothing lost, nothing late: every record, partition, stage and window that was due is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from expectations.policy import Policy
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Case, Cases
from expectations.windows import always_answers, due_windows
from tidegate.declarations.models import Pipeline, Query, from_us
from tidegate.store import parquet

_COUNTS = ("records", "partitions", "stages", "windows")
_FRAME = pa.schema(
    [
        *SUBJECT,
        *((f"{what}_{side}", pa.int64()) for what in _COUNTS for side in ("due", "found")),
        ("windows_early_or_late", pa.int64()),
    ]
)
# Tables without a partition in every interval, or judged before they are written.
_NOT_DUE = ("history_passes", "history_accuracy", "quality_results")
# Tables of ingest that older versions did not write; these wrote `source_files` without this column.
_ADDED, _COLUMN_SINCE = ("unknown_columns",), "since"


def frame(cases: Cases, policy: Policy) -> pa.Table:
    """Pairs of what was due and what is there."""
    rows: list[dict[str, object]] = []
    for case in cases:
        found = (*_records(case), *_partitions(case), *_stages(case), *_windows(case))
        rows += [{"interval": case.interval.label, **row} for row in found]
    return pa.Table.from_pylist(rows, schema=_FRAME)


def _records(case: Case) -> Iterator[dict[str, object]]:
    metrics = case.read("run_metrics", ["app", "rows_in", "rows_out", "rows_quarantined"])
    own = metrics.filter(pc.equal(metrics["app"], "ingest"))
    read, out, refused = (pc.sum(own[c]).as_py() or 0 for c in ("rows_in", "rows_out", "rows_quarantined"))
    accepted = sum(case.read(f"events_{s.name}", []).num_rows for s in case.pipeline.streams)
    quarantined = case.read("quarantine", []).num_rows
    for table, subject, due, found in (
        ("run_metrics", "records read = tuples accepted + records refused", read, accepted + quarantined),
        ("events", "tuples that ingest counted = tuples in the tables", out, accepted),
        ("quarantine", "records that ingest refused = records in quarantine", refused, quarantined),
    ):
        yield {"table": table, "subject": subject, "records_due": due, "records_found": found}


def _partitions(case: Case) -> Iterator[dict[str, object]]:
    for table in case.cached.tables.tables():
        is_there = case.has(table)
        if table not in _NOT_DUE and (is_there or table not in _ADDED or not _is_older(case)):
            yield {"table": table, "subject": table, "partitions_due": 1, "partitions_found": int(is_there)}


def _is_older(case: Case) -> bool:
    """Whether a version ingested the interval that did not know the tables that were added."""
    files = case.cached.tables.files("source_files", [case.interval.label])
    return any(_COLUMN_SINCE not in parquet.footer(path).schema.to_arrow_schema().names for path in files)


def _stages(case: Case) -> Iterator[dict[str, object]]:
    kinds = {q.kind for q in case.pipeline.queries}
    due = ["ingest"]
    due += ["join_aggregate"] if kinds & {"aggregate", "join_aggregate"} else []
    due += ["top_k"] if "top_k" in kinds else []
    due += ["sample_history"] if any(s.history for s in case.pipeline.streams) else []
    due += ["calibrate"]
    found = set(case.read("run_metrics", ["app"])["app"].to_pylist())
    for stage in due:
        yield {"table": "run_metrics", "subject": stage, "stages_due": 1, "stages_found": int(stage in found)}


def _windows(case: Case) -> Iterator[dict[str, object]]:
    for query in case.pipeline.queries:
        if query.sessions is not None:
            continue  # which there are, tuples say: that each is emitted, or final, in the interval is checked there
        answers, truth, allowed = due_windows(case, query)
        # With a bound a window that is not held whole has no answer.
        yield _row(case, query, f"answers_{query.id}", answers if query.is_narrowed else frozenset(), answers)
        yield _row(case, query, f"truth_{query.id}", truth, allowed)


def _row(case: Case, query: Query, table: str, due: frozenset[int], allowed: frozenset[int]) -> dict[str, object]:
    ends = set(pc.unique(case.read(table, ["window_end"])["window_end"].cast(pa.int64())).to_pylist()) - {None}
    # Where a window may have no rows at all, only those that should not be there can be told.
    required = due if always_answers(query) else frozenset()
    missing, strange = sorted(required - ends), sorted(ends - allowed)
    first = (missing or strange or [None])[0]
    return {
        "table": table,
        "query": query.id,
        "subject": query.id,
        "window_end": None if first is None else f"{from_us(first):%Y-%m-%dT%H:%M:%SZ}",
        "windows_due": len(required),
        "windows_found": len(required & ends),
        "windows_early_or_late": len(strange),
    }


def expectations(gxe: Any, pipeline: Pipeline, policy: Policy) -> list[Any]:
    """The expectations on ``frame``."""
    rules = Rules(gxe, policy)
    rules.equal("rows_accounted", "no record is lost: rows in = out + quarantined", "records_found", "records_due")
    rules.equal("partitions_written", "every table has its partition", "partitions_found", "partitions_due")
    rules.equal("stages_measured", "every stage left its run metrics", "stages_found", "stages_due")
    rules.equal("windows_answered", "every window that was due has been answered", "windows_found", "windows_due")
    rules.at_most("windows_in_turn", "no window that was not due has been answered", "windows_early_or_late", 0)
    return rules.made


SUITE = Suite("completeness", "every record accounted for, every due window answered", frame, expectations)
