"""Aggregates over the natural join of sliding windows (plain aggregation is the join of one)."""

from tidegate.operators.join_aggregate.operator import State, advance, finish, start, state_bytes, step
from tidegate.operators.join_aggregate.spec import Measure, Side, Spec

__all__ = ["Measure", "Side", "Spec", "State", "advance", "finish", "start", "state_bytes", "step"]
