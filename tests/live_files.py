"""The files of a table as any Delta reader finds them; and a quick way to put rows into a warehouse."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidegate.declarations.models import Pipeline
from tidegate.store.intervals import interval_labelled
from tidegate.store.warehouse import Warehouse


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
