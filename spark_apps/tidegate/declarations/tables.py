"""The tables that a pipeline's stages write: names, columns and types, in one place.

These are the contract with analysts, tests and other engines: names and meaning stay. Every table has one partition
per interval, ``interval=<start>``; the column ``interval`` is part of the path, not of the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.declarations.models import Pipeline, Query, ReferenceTable, Stream
from tidegate.declarations.names import CORRECTED, CORRECTION_COLUMNS
from tidegate.values.types import TIMESTAMP, arrow_type, is_number

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

WIDTHS = pa.map_(pa.string(), pa.float64())

STREAM_KEYS = ("event_id", "event_time", "arrival_time")
LEAF_AGGREGATES: tuple[tuple[str, pa.DataType], ...] = (
    ("count", pa.int64()),
    ("sum", pa.float64()),
    ("min", pa.float64()),
    ("max", pa.float64()),
    ("sum_squares", pa.float64()),
    ("min_time", TIMESTAMP),
    ("max_time", TIMESTAMP),
)

_COMMON: dict[str, list[tuple[str, pa.DataType]]] = {
    "quarantine": [
        ("stream", pa.string()),
        ("arrival_time", TIMESTAMP),
        ("reason", pa.string()),
        ("column", pa.string()),
        ("record", pa.string()),
        ("source", pa.string()),
        ("position", pa.int64()),
    ],
    "unknown_columns": [
        ("stream", pa.string()),
        ("column", pa.string()),
        ("records", pa.int64()),
        ("first_seen", TIMESTAMP),
    ],
    "source_files": [
        ("stream", pa.string()),
        ("path", pa.string()),
        ("status", pa.string()),
        ("bytes", pa.int64()),
        ("modified", TIMESTAMP),
        ("rows", pa.int64()),
        ("since", TIMESTAMP),
        ("since_bytes", pa.int64()),
        ("first_arrival", TIMESTAMP),
        ("last_arrival", TIMESTAMP),
    ],
    "stream_rates": [
        ("stream", pa.string()),
        ("tick", TIMESTAMP),
        ("tuples", pa.int64()),
        ("rate", pa.float64()),
        ("tuple_bytes", pa.float64()),
        ("held_tuples", pa.int64()),
        ("held_bytes", pa.int64()),
        ("evicted_early", pa.int64()),
    ],
    "window_plan": [
        ("stream", pa.string()),
        ("effective_from", TIMESTAMP),
        ("support_level", pa.string()),
        ("width_s", pa.float64()),
        ("min_width_s", pa.float64()),
        ("max_width_s", pa.float64()),
        ("byte_rate", pa.float64()),
        ("planned_bytes", pa.float64()),
        ("group_id", pa.int64()),
        ("slot_offset_s", pa.float64()),
        ("slot_s", pa.float64()),
        ("period_s", pa.float64()),
        ("trigger", pa.string()),
    ],
    "query_plan": [
        ("query", pa.string()),
        ("effective_from", TIMESTAMP),
        ("support_level", pa.string()),
        ("tolerable_s", WIDTHS),
        ("slot_end", TIMESTAMP),
        ("period_s", pa.float64()),
        ("extra_answer", TIMESTAMP),
    ],
    "accuracy": [
        ("query", pa.string()),
        ("window_end", TIMESTAMP),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("promised", pa.float64()),
        ("kept", pa.bool_()),
        ("slack_s", pa.float64()),
        ("width_s", WIDTHS),
        ("group_key", pa.string()),
    ],
    "promise_periods": [
        ("query", pa.string()),
        ("promise", pa.string()),
        ("period_start", TIMESTAMP),
        ("period_end", TIMESTAMP),
        ("windows", pa.int64()),
        ("promised", pa.float64()),
        ("measured", pa.float64()),
        ("kept", pa.bool_()),
        ("periods_judged", pa.int64()),
        ("periods_kept", pa.int64()),
        ("met_so_far", pa.float64()),
        ("judged_at", TIMESTAMP),
    ],
    "slack_plan": [
        ("query", pa.string()),
        ("effective_from", TIMESTAMP),
        ("slack_s", pa.float64()),
        ("accuracy_target", pa.float64()),
        ("accuracy_expected", pa.float64()),
        ("oracle_slack_s", pa.float64()),
        ("windows", pa.int64()),
        ("method", pa.string()),
        ("slack_needed_s", pa.float64()),
        ("bytes_needed", pa.float64()),
        ("accuracy_by_share", WIDTHS),
        ("accuracy_by_wait", WIDTHS),
    ],
    "needed_slack": [
        ("query", pa.string()),
        ("window_end", TIMESTAMP),
        ("event_id", pa.string()),
        ("slack_s", pa.float64()),
        ("share", pa.float64()),
        ("group_key", pa.string()),
        ("has_rows", pa.bool_()),
    ],
    "error_width_plan": [
        ("query", pa.string()),
        ("stream", pa.string()),
        ("effective_from", TIMESTAMP),
        ("tolerated_error", pa.float64()),
        ("slack_width_s", pa.float64()),
        ("coverage", pa.float64()),
    ],
    "width_errors": [
        ("query", pa.string()),
        ("window_end", TIMESTAMP),
        ("share", pa.float64()),
        ("error", pa.float64()),
    ],
    "history_passes": [
        ("stream", pa.string()),
        ("pass_time", TIMESTAMP),
        ("tuples_before", pa.int64()),
        ("leaf_start", TIMESTAMP),
        ("leaf_end", TIMESTAMP),
        ("fraction", pa.float64()),
    ],
    "history_accuracy": [
        ("stream", pa.string()),
        ("part_start", TIMESTAMP),
        ("part_end", TIMESTAMP),
        ("question", pa.string()),
        ("tuples", pa.int64()),
        ("fraction", pa.float64()),
        ("truth", pa.float64()),
        ("estimate", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("exact", pa.bool_()),
        ("holds", pa.bool_()),
    ],
    "run_metrics": [
        ("app", pa.string()),
        ("query", pa.string()),
        ("started_at", TIMESTAMP),
        ("seconds", pa.float64()),
        ("rows_in", pa.int64()),
        ("rows_out", pa.int64()),
        ("rows_late", pa.int64()),
        ("rows_quarantined", pa.int64()),
        ("rows_failed", pa.int64()),
        ("rows_landed_late", pa.int64()),
        ("peak_state_bytes", pa.int64()),
        ("memory_budget_bytes", pa.int64()),
        ("peak_process_bytes", pa.int64()),
        ("process_budget_bytes", pa.int64()),
        ("kind", pa.string()),
    ],
    "quality_results": [
        ("table", pa.string()),
        ("expectation", pa.string()),
        ("query", pa.string()),
        ("severity", pa.string()),
        ("success", pa.bool_()),
        ("promised", pa.float64()),
        ("measured", pa.float64()),
        ("detail", pa.string()),
        ("window_end", TIMESTAMP),
    ],
}

TABLE_VERSIONS = "table_versions"
"""Which version of each reference table is in effect in an interval: a row each."""
_TABLE_VERSIONS: list[tuple[str, pa.DataType]] = [
    ("table", pa.string()),
    ("version", pa.string()),
    ("in_effect_from", TIMESTAMP),
    ("columns", pa.string()),
    ("rows", pa.int64()),
    ("bytes", pa.int64()),
]

CLIENT, WORKER, JVM = "client", "worker", "jvm"
"""Kinds of rows of run_metrics. In those of an older version it is NULL: a client's."""

_LATER = {
    "accuracy": ("group_key",),
    "slack_plan": ("slack_needed_s", "bytes_needed", "accuracy_by_share", "accuracy_by_wait"),
    "needed_slack": ("share", "group_key", "has_rows"),
    "quarantine": ("source", "position"),
    "source_files": ("since", "since_bytes", "first_arrival", "last_arrival"),
    "run_metrics": ("kind", "rows_landed_late"),
}
"""Columns that files of older versions lack: NULL there, as everywhere where nothing is known."""


GROUPS_ACCURACY = "accuracy_groups"
"""Of pipelines in which a promise tells groups apart."""
_GROUPS_ACCURACY = pa.schema(
    [
        ("query", pa.string()),
        ("window_end", TIMESTAMP),
        ("group_key", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("tuples", pa.int64()),
        ("last_event", TIMESTAMP),
    ]
)


def common_schema(table: str) -> pa.Schema:
    """The Arrow schema of a table that is alike in all pipelines; KeyError for any other."""
    return pa.schema(_COMMON[table])


def instants(microseconds: npt.NDArray[np.int64]) -> pa.Array:
    """Microseconds since 1970 as tables have instants."""
    return pa.array(microseconds, pa.int64()).cast(pa.timestamp("us")).cast(TIMESTAMP)


def required_columns(table: str) -> frozenset[str]:
    """What every file of a table must have: of one that is alike in all pipelines, whatever no version has added."""
    return frozenset(name for name, _ in _COMMON.get(table, ())) - frozenset(_LATER.get(table, ()))


def schema(pipeline: Pipeline, table: str) -> pa.Schema:
    """The Arrow schema of a table of this pipeline, without ``interval``; KeyError for an unknown table."""
    if table in _COMMON:
        return common_schema(table)
    if table in ("history_leaves", "history_groups"):
        return _leaves_schema(pipeline, grouped=table == "history_groups")
    if table == GROUPS_ACCURACY:
        return _GROUPS_ACCURACY
    if table == TABLE_VERSIONS:
        return pa.schema(_TABLE_VERSIONS)
    if is_reference(table):
        name = table.removeprefix("reference_")
        return _reference_schema(next(t for t in pipeline.tables if t.name == name))
    prefix, _, name = table.partition("_")
    if prefix == "events":
        return event_schema(pipeline.stream(name))
    if prefix == "answers":
        return _answers_schema(pipeline.query(name))
    if prefix == "updates":
        return _updates_schema(pipeline.query(name))
    if prefix == "kept":
        return _answers_schema(pipeline.query(name))
    if prefix == "corrections":
        return _corrections_schema(pipeline.query(name))
    if prefix == "truth":
        return _truth_schema(pipeline.query(name))
    if table.startswith("history_samples_"):
        stream = pipeline.stream(table.removeprefix("history_samples_"))
        own = [("leaf_start", TIMESTAMP), ("u", pa.float64()), ("fraction", pa.float64()), ("weight", pa.float64())]
        return pa.schema([*own, *event_schema(stream)])
    raise KeyError(table)


def tables(pipeline: Pipeline) -> tuple[str, ...]:
    """Names of all tables of this pipeline, in the order in which the stages write them."""
    with_history = [s.name for s in pipeline.streams if s.history is not None]
    return (
        *(f"events_{s.name}" for s in pipeline.streams),
        *(f"reference_{t.name}" for t in pipeline.tables),
        *((TABLE_VERSIONS,) if pipeline.tables else ()),
        *_COMMON,
        *(f"answers_{q.id}" for q in pipeline.queries),
        *(f"updates_{q.id}" for q in pipeline.queries if q.emits_updates),
        *(f"truth_{q.id}" for q in pipeline.queries),
        *(f"kept_{q.id}" for q in pipeline.queries if q.on_miss == "omit"),
        *(f"corrections_{q.id}" for q in pipeline.queries if q.on_miss == "correct"),
        *((GROUPS_ACCURACY,) if promises_by_group(pipeline) else ()),
        *(("history_leaves",) if with_history else ()),
        *(("history_groups",) if has_groups(pipeline) else ()),
        *(f"history_samples_{name}" for name in with_history),
    )


def is_reference(table: str) -> bool:
    """Whether a table holds versions of a reference table."""
    return table.startswith("reference_")


def reference_rows_schema(table: ReferenceTable) -> pa.Schema:
    """The columns that a reference table declares."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])


def _reference_schema(table: ReferenceTable) -> pa.Schema:
    return pa.schema([("table_version", pa.string()), ("in_effect_from", TIMESTAMP), *reference_rows_schema(table)])


def tables_of(query: Query) -> tuple[str, ...]:
    """Names of the tables with a query's own columns."""
    return tuple(f"{kind}_{query.id}" for kind in ("answers", "updates", "truth", "kept", "corrections"))


def event_schema(stream: Stream) -> pa.Schema:
    """The columns of a stream's accepted tuples."""
    keys = [("event_id", pa.string()), ("event_time", TIMESTAMP), ("arrival_time", TIMESTAMP)]
    declared = [(c.name, arrow_type(c.type)) for c in stream.columns if c.name not in STREAM_KEYS]
    return pa.schema([*keys, *declared])


def _output_fields(query: Query) -> list[tuple[str, pa.DataType]]:
    return [(o.name, arrow_type(o.type)) for o in query.outputs]


def _answers_schema(query: Query) -> pa.Schema:
    start = [("window_start", TIMESTAMP)] if query.shows_window_start else []
    times = [*start, ("window_end", TIMESTAMP), ("emitted_at", TIMESTAMP)]
    fields = [*times, *_top_k_fields(query), *_output_fields(query)]
    return pa.schema(
        [
            *fields,
            ("width_s", WIDTHS),
            ("range_s", WIDTHS),
            ("coverage", pa.float64()),
            ("support_level", pa.string()),
            ("slack_s", pa.float64()),
            ("accuracy_expected", pa.float64()),
        ]
    )


def _updates_schema(query: Query) -> pa.Schema:
    start = [("window_start", TIMESTAMP)] if query.shows_window_start else []
    keys = [("window_end", TIMESTAMP), ("revision", pa.int64()), ("kind", pa.string()), ("emitted_at", TIMESTAMP)]
    about = [("coverage", pa.float64()), ("accuracy_expected", pa.float64()), ("deleted", pa.bool_())]
    return pa.schema([*start, *keys, *_top_k_fields(query), *_output_fields(query), *about])


def _truth_schema(query: Query) -> pa.Schema:
    start = [("window_start", TIMESTAMP)] if query.sessions is not None else []
    return pa.schema([*start, ("window_end", TIMESTAMP), *_top_k_fields(query), *_output_fields(query)])


def _corrections_schema(query: Query) -> pa.Schema:
    """What was answered, what is true and the difference, of every column that is no key; numbers alone have one."""
    keys = [(f.name, f.type) for f in _truth_schema(query) if f.name in query.answer_keys]
    fields: list[tuple[str, pa.DataType]] = [*((name, TIMESTAMP) for name in CORRECTION_COLUMNS), *keys]
    for name, kind in query.corrected.items():
        answered, true, difference = (pattern.format(name) for pattern in CORRECTED)
        fields += [(answered, arrow_type(kind)), (true, arrow_type(kind))]
        fields += [(difference, pa.float64())] if is_number(kind) else []
    return pa.schema(fields)


def _top_k_fields(query: Query) -> list[tuple[str, pa.DataType]]:
    if query.kind != "top_k":
        return [("rank", pa.int64())] if query.ranks_groups else []
    selected = {o.name for o in query.outputs}
    return [("rank", pa.int64()), *([] if "event_id" in selected else [("event_id", pa.string())])]


def promises_by_group(pipeline: Pipeline) -> bool:
    """Whether any query's promise tells groups apart."""
    return any(query.promises_by_group for query in pipeline.queries)


def has_groups(pipeline: Pipeline) -> bool:
    """Whether any stream's history keeps aggregates by group."""
    return any(s.history is not None and s.history.group_by for s in pipeline.streams)


def _leaves_schema(pipeline: Pipeline, grouped: bool) -> pa.Schema:
    kept = [s for s in pipeline.streams if s.history is not None and (s.history.group_by or not grouped)]
    numeric: dict[str, str] = {}
    for column in (c for s in kept for c in s.numeric_columns):
        # Tables do not tell case apart: streams whose columns differ by it share them, as the first one spells them.
        numeric.setdefault(column.lower(), column)
    fields: list[tuple[str, pa.DataType]] = [
        ("stream", pa.string()),
        ("leaf_start", TIMESTAMP),
        ("leaf_end", TIMESTAMP),
        *((("group_column", pa.string()), ("group_value", pa.string())) if grouped else ()),
        ("tuples", pa.int64()),
        *(() if grouped else (("sampled", pa.int64()), ("fraction", pa.float64()))),
    ]
    return pa.schema([*fields, *((f"{c}_{name}", type_) for c in numeric.values() for name, type_ in LEAF_AGGREGATES)])
