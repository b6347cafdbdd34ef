"""Which tuples come into view in a block of windows, and which go out of it, and at which window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.operators.join_aggregate.chains import Bounds
from tidegate.operators.join_aggregate.held import Held
from tidegate.operators.join_aggregate.spec import Measure
from tidegate.operators.join_aggregate.tuples import Column, Tuples
from tidegate.operators.schedule import Int64s

Piece = tuple[Tuples, Any, Int64s]


@dataclass(frozen=True, eq=False)
class Flow:
    """Tuples on the move: what the totals need of them, and each one's window in the block.

    Args:
        code, window: int64[n].
        values, nulls: as in ``Tuples``.
        event_us: int64[n]; empty if no extreme is asked for.
        weight, sign: as in ``Tuples``.
    """

    code: Int64s
    window: Int64s
    values: Mapping[Any, Column]
    nulls: Mapping[str, Column]
    event_us: Int64s
    weight: Int64s | None = None
    sign: Int64s | None = None

    @staticmethod
    def of(pieces: Sequence[Piece], measures: Sequence[Measure]) -> Flow:
        """The chosen rows of some parts, one behind the other."""

        def column(of: Callable[[Tuples], Column]) -> Column:
            taken = [of(part)[rows] for part, rows, _ in pieces]
            return taken[0] if len(taken) == 1 else np.concatenate(taken)

        nothing = np.zeros(0, dtype=np.int64)
        if not pieces:
            values: dict[Any, Column] = {m.slot: nothing for m in measures if m.stored}
            return Flow(nothing, nothing, values, {}, nothing)
        values = {
            key: column(lambda part, key=key: part.values[key])  # type: ignore[misc]
            for key in pieces[0][0].values
        }
        nulls = {
            slot: column(lambda part, slot=slot: part.nulls.get(slot, np.zeros(len(part), dtype=bool)))  # type: ignore[misc]
            for slot in dict.fromkeys(slot for part, _, _ in pieces for slot in part.nulls)
        }
        extremes = any(m.extreme is not None for m in measures)
        return Flow(
            column(lambda part: part.code),
            np.concatenate([window for _, _, window in pieces]),
            values,
            nulls,
            column(lambda part: part.event_us) if extremes else nothing,
            None if pieces[0][0].weight is None else column(lambda part: part.weight),  # type: ignore[arg-type,return-value]
            None if pieces[0][0].sign is None else column(lambda part: part.sign),  # type: ignore[arg-type,return-value]
        )


def flows(bounds: Bounds, side: int, held: Held, measures: Sequence[Measure]) -> tuple[Flow, Flow, Flow]:
    """A side's tuples that come into view in the block, those that go out of it, and those that go right behind it.

    **Cost**: O(1) for each tuple of a part that some tuple of comes or goes; one comparison for each other part.
    """
    windows, lower_us = len(bounds), int(bounds.lower_us[side][-1])
    coming: list[Piece] = []
    going: list[Piece] = []
    behind: list[Piece] = []

    def leave(part: Tuples, leaves: Int64s) -> None:
        rows = np.flatnonzero((leaves > 0) & (leaves <= windows))
        at = leaves[rows]
        last = at == windows
        if last.any():
            behind.append((part, rows[last], at[last]))
            rows, at = rows[~last], at[~last]
        if len(rows):
            going.append((part, rows, at))

    for part in held.young:
        if part.earliest_us >= bounds.end_us[-1]:
            continue
        enters = bounds.entered(part)
        fresh = enters < windows
        if part.arrival_us[0] <= bounds.emit_us[0]:
            fresh &= enters >= 0
        if part.earliest_us < lower_us:
            leaves = bounds.left(side, part)
            seen = (enters < leaves) & (enters < windows)
            leave(part, leaves if seen.all() else np.where(seen, leaves, 0))
            fresh &= seen
        rows: Any = slice(None) if fresh.all() else np.flatnonzero(fresh)
        coming.append((part, rows, enters[rows]))
    for part in held.old:
        if part.earliest_us < lower_us:
            leave(part, bounds.left(side, part))
    return Flow.of(coming, measures), Flow.of(going, measures), Flow.of(behind, measures)
