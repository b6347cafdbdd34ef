"""What a tuple takes in memory in the operators that hold it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.expressions import evaluate, truth


@dataclass(frozen=True)
class Held:
    """What one alias of one query holds of a tuple of its stream, in Arrow's layout, as the operators account for it.

    Args:
        fixed_bytes: fixed widths, an offset per string, a bit of validity per value.
        texts: SQL of the strings, whose octets are added.
        condition: SQL of what a tuple must satisfy to be held; None: nothing.
    """

    fixed_bytes: int
    texts: tuple[str, ...]
    condition: str | None


def tuple_bytes(held: Sequence[Held], rows: pa.Table) -> npt.NDArray[np.int64]:
    """int64[n]: bytes that each tuple takes in all the operators together.

    >>> rows = pa.table({"k": ["a", "bcd", None]})
    >>> tuple_bytes([Held(8, ("k",), None), Held(100, (), "k = 'a'")], rows).tolist()
    [109, 11, 8]
    """
    total = np.zeros(rows.num_rows, np.int64)
    if not rows.num_rows:
        return total
    for one in held:
        own = np.full(rows.num_rows, one.fixed_bytes, np.int64)
        for sql in one.texts:
            lengths = pc.fill_null(pc.binary_length(evaluate(sql, rows, pa.string())), 0)
            own += np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
        total += own if one.condition is None else np.where(truth(one.condition, rows), own, 0)
    return total
