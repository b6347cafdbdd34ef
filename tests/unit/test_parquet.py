"""Parquet files as they are opened."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.store import parquet


def test_a_small_files_bytes_are_arrows(tmp_path: Path) -> None:
    """Arrow's threads let go of a file late: bytes of Python's would need an interpreter that may be gone by then."""
    path = tmp_path / "small.parquet"
    rows = pa.table({"id": pa.array(range(10_000), pa.int64())})
    pq.write_table(rows, path, compression="none", use_dictionary=False)
    before = pa.total_allocated_bytes()
    file = parquet.opened(str(path))
    assert pa.total_allocated_bytes() - before >= path.stat().st_size
    assert file.read().column("id").to_pylist() == list(range(10_000))
