"""Whether two engines gave the same answers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from infra.benchmarks.rivals.measuring import NotExactError

EXACT_BELOW = 2.0**53


def checksum(path: Path) -> tuple[str, int]:
    """SHA-256 over (window_end, count, sum) of all windows that are not empty, in order; and how many these are.

    **Rule**: window ends in µs, counts and sums as int64. Values are whole numbers and all sums below 2^53, so every
    sum of doubles is exact in any order; a sum that is no whole number is an error, not rounded. Whether an engine
    leaves empty joins out or writes 0 and NULL makes no difference.
    """
    table = pq.read_table(path)
    table = table.filter(pc.greater(table["count"], 0)).sort_by("window_end")
    ends = table["window_end"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    counts = table["count"].cast(pa.float64()).to_numpy()
    sums = table["sum"].cast(pa.float64()).to_numpy(zero_copy_only=False)
    for name, column in (("count", counts), ("sum", sums)):
        if not (np.isfinite(column) & (column == np.rint(column)) & (np.abs(column) < EXACT_BELOW)).all():
            raise NotExactError(f"a {name} is no whole number below 2^53")
    if (np.diff(ends) <= 0).any():
        raise NotExactError("a window is answered twice")
    rows = np.column_stack([ends, counts.astype(np.int64), sums.astype(np.int64)])
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest(), len(rows)
