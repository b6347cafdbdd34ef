"""Aggregates over the natural join of sliding windows (plain aggregation is the join of one)."""

from tidegate.operators.join_aggregate.combining import combined
from tidegate.operators.join_aggregate.operator import advance, finish, rebatched, step
from tidegate.operators.join_aggregate.saving import merged, split, state_from_tables, state_tables
from tidegate.operators.join_aggregate.spec import Measure, Side, Spec
from tidegate.operators.join_aggregate.state import State, start, state_bytes

__all__ = [
    "Measure",
    "Side",
    "Spec",
    "State",
    "advance",
    "combined",
    "finish",
    "merged",
    "rebatched",
    "split",
    "start",
    "state_bytes",
    "state_from_tables",
    "state_tables",
    "step",
]
