"""The files of a table as any Delta reader finds them; and a quick way to put rows into a warehouse."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidegate.declarations.models import Column, Pipeline, Stream
from tidegate.store.intervals import interval_labelled
from tidegate.store.warehouse import Warehouse


def a_pipeline() -> Pipeline:
    """One stream, no query, an interval of an hour."""
    stream = Stream(
        name="s",
        format="jsonl",
        path="x",
        columns=(Column(name="id", type="string"), Column(name="t", type="timestamp")),
        event_time="t",
        arrival_time="t",
        id=("id",),
        rate=1.0,
        max_early_s=0,
        max_late_s=3600,
    )
    return Pipeline(
        name="p",
        folder=Path("."),
        owner="o",
        start=datetime(2013, 1, 1, tzinfo=UTC),
        interval_s=3600,
        tick_s=300,
        horizon_s=3600,
        memory_budget_bytes=1000,
        process_budget_bytes=1000,
        streams=(stream,),
        queries=(),
    )


def live_files(table: Path) -> dict[str, list[Path]]:
    """Label → the partition's files, by name; none if there is no such table."""
    found: dict[str, list[Path]] = defaultdict(list)
    if DeltaTable.is_deltatable(str(table)):
        for name in sorted(pa.table(DeltaTable(str(table)).get_add_actions())["path"].to_pylist()):
            label, slash, _ = name.partition("/")
            found[label.removeprefix("interval=") if slash else ""].append(table / name)
    return dict(sorted(found.items()))


def live_rows(table: Path) -> pa.Table:
    """All rows of a table, with ``interval``; partition by partition, file by file."""
    parts = [
        rows.append_column("interval", pa.array([label] * rows.num_rows, pa.string()))
        for label, files in live_files(table).items()
        for rows in map(pq.ParquetFile.read, map(pq.ParquetFile, files))
    ]
    return pa.concat_tables(parts, promote_options="default")


def put_rows(root: Path, pipeline: Pipeline, table: str, rows: Mapping[str, pa.Table], stage: str = "test") -> None:
    """Replace partitions, named by their labels, in one commit."""
    warehouse = Warehouse(root, pipeline)
    with warehouse.commit(stage, [interval_labelled(pipeline, label) for label in rows]) as commit:
        for label, own in rows.items():
            interval = interval_labelled(pipeline, label)
            if table == "run_metrics":
                commit.put_file(table, interval, stage, own)
            else:
                commit.put_arrow(table, interval, own)


def contents(pipeline: Pipeline, root: Path, without: Collection[str] = ()) -> dict[tuple[str, str], list[str]]:
    """(table, partition) → its rows in the order in which they are stored, as text that tells every bit apart.

    ``without``: tables that are left out, such as those that say how long something took.
    """
    warehouse = Warehouse(root, pipeline)
    return {
        (table, label): [repr(row) for row in warehouse.read_arrow(table, [label]).to_pylist()]
        for table in warehouse.tables()
        if table not in without
        for label in warehouse.labels(table)
    }
