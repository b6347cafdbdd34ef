"""How far a saved operator has come, as a table of one row; and what states must share to be put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

POSITION = pa.schema(
    [
        ("answered_emit_us", pa.int64()),
        ("answered_end_us", pa.int64()),
        ("last_arrival_us", pa.int64()),
        ("peak_bytes", pa.int64()),
        ("open_end", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Position:
    """Up to which window all is answered, which arrival was the last, the peak, and whether windows may be added."""

    answered_emit_us: int
    answered_end_us: int
    last_arrival_us: int
    peak_bytes: int
    open_end: bool

    @property
    def answered_us(self) -> tuple[int, int]:
        """(emit_us, window_end_us) of the last window answered."""
        return self.answered_emit_us, self.answered_end_us

    def as_table(self) -> pa.Table:
        """One row of ``POSITION``."""
        return pa.Table.from_pylist([asdict(self)], schema=POSITION)


def position_of(tables: Mapping[str, pa.Table], names: Sequence[str]) -> Position:
    """The position among a state's saved tables; ValueError if one of the ``names`` is missing."""
    missing = [name for name in names if name not in tables]
    if missing:
        raise ValueError(f"a saved state has the tables {names}; {missing} are missing")
    (row,) = tables["position"].to_pylist()
    return Position(**row)


def together(positions: Sequence[Position]) -> Position:
    """The position of the states put together, with the sum of their peaks.

    Raises:
        ValueError: there are none, or they have answered different windows.
    """
    if not positions:
        raise ValueError("no states to merge")
    found = sorted({position.answered_us for position in positions})
    if len(found) > 1:
        raise ValueError(f"states to merge have answered up to different (emit_us, window_end_us): {found}")
    return Position(
        *found[0],
        last_arrival_us=max(position.last_arrival_us for position in positions),
        peak_bytes=sum(position.peak_bytes for position in positions),
        open_end=any(position.open_end for position in positions),
    )


def even_shares(total: int, count: int) -> list[int]:
    """A whole divided evenly, the first with what is left.

    >>> even_shares(11, 3)
    [5, 3, 3]
    """
    share = total // count
    return [total - share * (count - 1), *[share] * (count - 1)]
