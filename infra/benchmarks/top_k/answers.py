"""Whether two engines gave the same answers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from infra.benchmarks.rivals.measuring import NotExactError


def checksum(path: Path) -> tuple[str, int]:
    """SHA-256 over (window_end, event_id, score) of all answers, in order; and how many windows these are of.

    **Rule**: window ends in µs and ids as int64, scores bit by bit; by window, the best first, then by id. Ranks
    are not looked at, since they follow from the scores.
    """
    parts = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    table = pa.concat_tables([pq.ParquetFile(part).read(["window_end", "event_id", "score"]) for part in parts])
    ends = table["window_end"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    ids, scores = table["event_id"].cast(pa.int64()).to_numpy(), table["score"].cast(pa.float64()).to_numpy()
    order = np.lexsort((ids, -scores, ends))
    rows = np.column_stack([ends, ids, scores.view(np.int64)])[order]
    if len(rows) and (np.diff(rows[:, :2], axis=0) == 0).all(axis=1).any():
        raise NotExactError("a tuple is twice in a window's answer")
    return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest(), len(np.unique(ends))
