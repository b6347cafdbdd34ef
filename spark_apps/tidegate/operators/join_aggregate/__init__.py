"""Aggregates over the natural join of sliding windows (plain aggregation is the join of one)."""

from tidegate.operators.join_aggregate.cells import Cells
from tidegate.operators.join_aggregate.combining import combined
from tidegate.operators.join_aggregate.operator import advance, blockwise, finish, rebatched, rows_at_once, step
from tidegate.operators.join_aggregate.spec import Measure, Side, Spec
from tidegate.operators.join_aggregate.state import State, start, state_bytes

__all__ = [
    "Cells",
    "Measure",
    "Side",
    "Spec",
    "State",
    "advance",
    "blockwise",
    "combined",
    "finish",
    "rebatched",
    "rows_at_once",
    "start",
    "state_bytes",
    "step",
]
