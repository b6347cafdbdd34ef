"""What came in: files, accepted tuples, refused records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from expectations.policy import Policy
from expectations.suites.suite import Rules, Suite
from expectations.tables import SUBJECT, Case, Cases, joined, shaped
from tidegate.declarations.models import Pipeline, Stream
from tidegate.declarations.positions import nearest_name

_KEYS = ["event_id", "event_time", "arrival_time"]
_FRAME = pa.schema(
    [
        *SUBJECT,
        ("missing_error", pa.int64()),
        ("missing_warning", pa.int64()),
        ("empty", pa.int64()),
        ("other_than_read", pa.int64()),
        ("null_keys", pa.int64()),
        ("repeated_ids", pa.int64()),
        ("outside_interval", pa.int64()),
        ("quarantine_share", pa.float64()),
        ("new_column_records", pa.int64()),
        ("tuples_without_value", pa.int64()),
    ]
)


def frame(cases: Cases, policy: Policy) -> pa.Table:
    """One row a source file, a stream, a declared column, and a column that is not declared."""
    return joined([part for case in cases for part in _arrivals(case)], _FRAME)


def _arrivals(case: Case) -> list[pa.Table]:
    files, quarantine = case.read("source_files"), case.read("quarantine", ["stream"])
    parts = [_unknown_columns(case)]
    for stream in case.pipeline.streams:
        parts += [_files(case, stream, files), _tuples(case, stream, quarantine), _columns(case, stream)]
    return parts


def _files(case: Case, stream: Stream, files: pa.Table) -> pa.Table:
    own = files.filter(pc.equal(files["stream"], stream.name))
    if own.num_rows == 0 and "%H" in stream.path and case.pipeline.interval_s % 3600 == 0:
        # The expected set is named: an hourly file of which nothing is said is missing.
        columns: dict[str, object] = {"path": pa.array([stream.path]), "status": pa.array(["missing"])}
        own = shaped(columns, files.schema, 1)
    missing = pc.cast(pc.equal(own["status"], "missing"), pa.int64())
    return shaped(
        {
            "interval": case.interval.label,
            "table": "source_files",
            "subject": pc.binary_join_element_wise(stream.name, pc.coalesce(own["path"], ""), " "),
            "missing_error": missing if stream.missing_file == "error" else None,
            "missing_warning": missing if stream.missing_file == "warn" else None,
            "empty": pc.cast(pc.equal(own["status"], "empty"), pa.int64()),
            "other_than_read": pc.cast(pc.is_in(own["status"], pa.array(["unreadable", "changed"])), pa.int64()),
        },
        _FRAME,
        own.num_rows,
    )


def _tuples(case: Case, stream: Stream, quarantine: pa.Table) -> pa.Table:
    rows = case.read(f"events_{stream.name}", _KEYS)
    arrival = rows["arrival_time"]
    outside = pc.or_(pc.less(arrival, case.interval.start), pc.greater_equal(arrival, case.interval.end))
    refused = pc.sum(pc.equal(quarantine["stream"], stream.name)).as_py() or 0
    records = rows.num_rows + refused
    return shaped(
        {
            "interval": case.interval.label,
            "table": f"events_{stream.name}",
            "subject": stream.name,
            "null_keys": sum(rows[name].null_count for name in _KEYS),
            "repeated_ids": rows.num_rows - len(pc.unique(rows["event_id"])),
            "outside_interval": pc.sum(outside).as_py() or 0,
            "quarantine_share": refused / records if records else None,
        },
        _FRAME,
        1,
    )


def _unknown_columns(case: Case) -> pa.Table:
    """Names that no column is read from and no interval before had, with their records, or a row of 0."""
    rows, before = case.read("unknown_columns"), case.before("unknown_columns")
    records = {(row["stream"], row["column"]): row["records"] for row in rows.to_pylist()}
    last = case.cached.part("unknown_columns", before[-1]) if records and before else rows.slice(0, 0)
    new = sorted(case.cached.unknown_columns.new(case.interval.label, records.keys(), last))
    return shaped(
        {
            "interval": case.interval.label,
            "table": "unknown_columns",
            "subject": pa.array([" ".join(name) for name in new] or [""], pa.string()),
            "new_column_records": pa.array([records[name] for name in new] or [0], pa.int64()),
        },
        _FRAME,
        max(len(new), 1),
    )


def _columns(case: Case, stream: Stream) -> pa.Table:
    """Each declared column that has had no value yet, with the interval's tuples; if there is none, a row of 0."""
    table, label = f"events_{stream.name}", case.interval.label
    tuples = case.cached.tables.rows(table, label)
    declared = [column.name for column in stream.columns]
    empty = case.cached.empty_columns.so_far(table, label, case.before(table), declared) if tuples else []
    names = [f"{stream.name} {name}{_like(case, stream, name)}" for name in empty] or [stream.name]
    return shaped(
        {
            "interval": label,
            "table": table,
            "subject": pa.array(names, pa.string()),
            "tuples_without_value": (tuples if empty else 0) if tuples else None,
        },
        _FRAME,
        len(names),
    )


def _like(case: Case, stream: Stream, name: str) -> str:
    """Of a column without a value the name in its stream's records that is most like it, in words."""
    rows = case.read("unknown_columns")
    near = nearest_name(name, rows.filter(pc.equal(rows["stream"], stream.name))["column"].to_pylist())
    return f"; its records have {near}" if near else ""


def expectations(gxe: Any, pipeline: Pipeline, policy: Policy) -> list[Any]:
    """The expectations on ``frame``."""
    rules = Rules(gxe, policy)
    rules.at_most(
        "file_missing_error", "no file of a stream that declares missing_file: error is missing", "missing_error", 0
    )
    rules.at_most(
        "file_missing_warning", "no file of a stream that declares missing_file: warn is missing", "missing_warning", 0
    )
    rules.at_most("file_empty", "no file is empty", "empty", 0)
    says = "every file could be read, and has not changed since"
    rules.at_most("file_as_read", says, "other_than_read", 0)
    rules.at_most("event_keys_known", "event_id, event_time and arrival_time are never null", "null_keys", 0)
    rules.at_most("event_ids_unique", "no event_id occurs twice", "repeated_ids", 0)
    rules.at_most("event_arrived_in_interval", "every tuple arrived within the interval", "outside_interval", 0)
    share = policy.quarantine_share
    rules.at_most("quarantine_share", f"at most {share:.2%} of the records are refused", "quarantine_share", share)
    says = "no record has a column that is not declared and that no interval before had"
    rules.at_most("column_declared", says, "new_column_records", 0)
    says = "every declared column has had a value, in this interval or in one before"
    rules.at_most("column_has_values", says, "tuples_without_value", 0)
    return rules.made


SUITE = Suite("arrivals", "files, accepted tuples and refused records", frame, expectations)
