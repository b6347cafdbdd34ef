"""Which version of each reference table is in effect in an interval: the content of its file when it was first read.

An interval keeps its version however often it is run. A content that is the same as that of the version before is not
written a second time: the interval's row of ``table_versions`` names the interval from which on it is in effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import REFERENCE_SHARE, ReferenceTable
from tidegate.declarations.tables import TABLE_VERSIONS
from tidegate.declarations.units import show_bytes
from tidegate.engine.context import RunContext
from tidegate.sources.reference_files import read_reference, version_of
from tidegate.store.commit import Commit
from tidegate.store.cut import read_file
from tidegate.store.intervals import Interval
from tidegate.store.references import References, versions_of

STAGE = "reference_tables"


def fix_versions(context: RunContext, interval: Interval) -> None:
    """Have an interval keep the tables as they are now; nothing if it has done so before."""
    tables = context.pipeline.tables
    known = {row["table"]: row for row in versions_of(context.warehouse, interval.label)} if tables else {}
    if all(_is_kept(table, known.get(table.name)) for table in tables):
        return
    with context.warehouse.commit(STAGE, [interval]) as commit:
        put_versions(context, commit, [interval])


def put_versions(context: RunContext, commit: Commit, intervals: Sequence[Interval]) -> References:
    """Write ``table_versions`` and ``reference_<table>`` of consecutive intervals; the versions in effect in them."""
    warehouse, tables = context.warehouse, context.pipeline.tables
    if not tables:
        return References()
    in_effect = _before(context, intervals[0])
    contents: dict[str, tuple[pa.Table, str]] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for interval in intervals:
        known = {row["table"]: row for row in versions_of(warehouse, interval.label)}
        for table in tables:
            row = known.get(table.name)
            if row is None or not _is_kept(table, row):
                if table.name not in contents:
                    content = read_reference(table)
                    contents[table.name] = content, version_of(content)
                    _check_size(context, contents)
                row = _put(context, commit, interval, table, contents[table.name], in_effect.get(table.name))
            in_effect[table.name] = row
        rows[interval.label] = [in_effect[table.name] for table in tables]
        data = pa.Table.from_pylist(rows[interval.label], schema=warehouse.schema(TABLE_VERSIONS))
        commit.put_arrow(TABLE_VERSIONS, interval, data)
    return References.by_rows(warehouse, rows, lambda name, label: commit.files(name, [label]))


def columns_text(table: ReferenceTable) -> str:
    """What is declared of a table's rows: another declaration reads an interval's version anew."""
    columns = ", ".join(f"{column.name} {column.type}" for column in table.columns)
    validity = f", valid from {table.valid_from} to {table.valid_to}" if table.valid_from else ""
    return f"{columns}; key {', '.join(table.key)}{validity}"


def _is_kept(table: ReferenceTable, row: Mapping[str, Any] | None) -> bool:
    return row is not None and row["columns"] == columns_text(table)


def _before(context: RunContext, interval: Interval) -> dict[str, dict[str, Any]]:
    """Table → the row of the newest interval before."""
    labels = [label for label in context.warehouse.labels(TABLE_VERSIONS) if label < interval.label]
    return {row["table"]: row for row in versions_of(context.warehouse, labels[-1])} if labels else {}


def _put(
    context: RunContext,
    commit: Commit,
    interval: Interval,
    table: ReferenceTable,
    content: tuple[pa.Table, str],
    before: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Write the rows of a table into an interval's partition, unless they are in effect already; its version's row."""
    (rows, version), name = content, f"reference_{table.name}"
    schema = context.warehouse.schema(name)
    there = [read_file(path, schema) for path in context.warehouse.files(name, [interval.label])]
    # What another declaration's version has here stays: other intervals may refer to it.
    kept = pa.concat_tables([schema.empty_table(), *there])
    if before is not None and (before["version"], before["columns"]) == (version, columns_text(table)):
        commit.put_arrow(name, interval, kept)
        return dict(before)
    count = rows.num_rows
    said = [pa.array([version] * count, pa.string()), pa.array([interval.start] * count, schema.field(1).type)]
    fresh = pa.table([*said, *rows.columns], schema=schema)
    others = [part for part in there if version not in part.column("table_version").to_pylist()]
    commit.put_arrow(name, interval, pa.concat_tables([*others, fresh]))
    context.progress(f"ingest: {table.name}: {count} rows, version {version} in effect from {interval.label} on")
    earlier = [label for label in context.warehouse.labels("source_files") if label < interval.label]
    if before is None and earlier:
        context.progress(
            f"ingest: {table.name}: tuples of the intervals up to {earlier[-1]} meet no row of it, for these were "
            "ingested before the table was declared; run their ingest again to have them meet it as it is now"
        )
    return {
        "table": table.name,
        "version": version,
        "in_effect_from": interval.start,
        "columns": columns_text(table),
        "rows": count,
        "bytes": rows.nbytes,
    }


def _check_size(context: RunContext, contents: Mapping[str, tuple[pa.Table, str]]) -> None:
    """UserError if the tables that have been read take too much memory."""
    size = sum(rows.nbytes for rows, _ in contents.values())
    most = context.pipeline.process_budget_bytes // REFERENCE_SHARE
    if size > most:
        raise UserError(
            f"the reference tables take {show_bytes(size)} of memory, more than an eighth of the process budget "
            f"({show_bytes(most)}): fewer rows or columns, or a larger process_budget"
        )
