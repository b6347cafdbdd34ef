"""What a top-k ranks: the order, the groups, the columns that come along, and the pane."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

TUPLE = (("event_us", pa.int64()), ("event_id", pa.string()), ("arrival_us", pa.int64()))


@dataclass(frozen=True)
class Term:
    """One ORDER BY term in a slot (``o0`` …). NULLs come last in either direction; NaN is the largest number."""

    slot: str
    descending: bool = True


@dataclass(frozen=True)
class Spec:
    """The k first tuples of each window and group, ordered by the terms, then event time, then event id (bytewise).

    Args:
        k: how many.
        order: the terms, the weightiest first.
        columns: Arrow types of the terms' slots and of the payload columns that come along, in order of output.
        pane_us: a divisor of every window's bounds; per pane of event time and group at most k tuples are held.
        alias: the one alias of the query, as in the schedule's ``lower_us``.
        groups: those of the columns by whose values the tuples are grouped; NULL is a value. Without any, all tuples
            are one group.

    >>> spec = Spec(3, (Term("o0"),), pa.schema([("o0", pa.float64()), ("carrier", pa.string())]), 300_000_000, "d")
    >>> spec.payload
    ('carrier',)
    >>> spec.output_schema.names
    ['window_index', 'rank', 'event_us', 'event_id', 'arrival_us', 'o0', 'carrier']
    """

    k: int
    order: tuple[Term, ...]
    columns: pa.Schema
    pane_us: int
    alias: str
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a spec that contradicts itself."""
        if self.k < 1 or self.pane_us < 1:
            raise ValueError(f"Spec: k and pane_us must be positive, not {self.k} and {self.pane_us}")
        missing = [term.slot for term in self.order if term.slot not in self.columns.names]
        if missing or len({term.slot for term in self.order}) < len(self.order):
            raise ValueError(f"Spec: columns {self.columns.names} must hold each order slot once; missing: {missing}")
        reserved = {"window_index", "rank", *(name for name, _ in TUPLE)}
        clash = sorted(reserved & set(self.columns.names))
        if clash or len(set(self.columns.names)) < len(self.columns.names):
            raise ValueError(f"Spec: columns are named twice or like the operator's own: {clash or self.columns.names}")
        strangers = [name for name in self.groups if name not in self.columns.names]
        if strangers or len(set(self.groups)) < len(self.groups):
            raise ValueError(f"Spec: columns {self.columns.names} must hold each group once; missing: {strangers}")

    @property
    def payload(self) -> tuple[str, ...]:
        """The columns that come along without being ranked by."""
        slots = {term.slot for term in self.order}
        return tuple(name for name in self.columns.names if name not in slots)

    @property
    def input_schema(self) -> pa.Schema:
        """What a batch must hold (other columns are ignored, other types are cast)."""
        return pa.schema([*(pa.field(name, kind) for name, kind in TUPLE), *self.columns])

    @property
    def output_schema(self) -> pa.Schema:
        """The answers: one row per window, group and rank (1 is the best)."""
        return pa.schema([pa.field("window_index", pa.int64()), pa.field("rank", pa.int64()), *self.input_schema])

    @cached_property
    def textual(self) -> frozenset[str]:
        """The slots of terms whose values have no place among the numbers."""
        kinds = {term.slot: self.columns.field(term.slot).type for term in self.order}
        plain = (
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_decimal,
            pa.types.is_boolean,
            pa.types.is_temporal,
        )
        return frozenset(slot for slot, kind in kinds.items() if not any(known(kind) for known in plain))

    @property
    def sort_keys(self) -> list[tuple[str, str, str]]:
        """The order within a group, as pyarrow sorts."""
        terms = [(term.slot, "descending" if term.descending else "ascending", "at_end") for term in self.order]
        return [*terms, ("event_us", "ascending", "at_end"), ("event_id", "ascending", "at_end")]
