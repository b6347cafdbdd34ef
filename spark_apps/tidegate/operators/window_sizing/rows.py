"""What the live controller writes: rows of ``window_plan``, ``query_plan`` and ``stream_rates``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from tidegate.declarations.tables import common_schema
from tidegate.operators.window_sizing.planning import SupportLevel

Trigger = Literal["start", "budget", "query_start", "query_end", "calibration", "rate", "memory", "eviction"]
"""Why a plan was made. ``eviction``: not planned, memory was full and the window had to give way for a tick."""

QueryLevel = Literal["A", "B", "C", "unsupported"]

PLAN_SCHEMA = common_schema("window_plan")
QUERY_PLAN_SCHEMA = common_schema("query_plan")
RATES_SCHEMA = common_schema("stream_rates")


@dataclass(frozen=True)
class PlanRow:
    """One row of ``window_plan``: the plan of one stream from ``effective_from_us`` on.

    Widths are what the stream's window may hold, newest minus oldest event time: a query needs its range and K.
    ``width_s``: that of the plan; 0: nothing, not even what arrives. In a row of trigger ``eviction`` it is what is
    left at that instant; from then on the window grows again, up to ``max_width_s``, until memory is full the next
    time. A window that swings (level C) has slots
    [u + slot_offset_s + k·period_s, … + slot_s], k = 0, 1, …, u the plan's instant, in which nothing is evicted; a
    negative offset says that the first slot was already running at u. The others have None in the last four fields.
    ``planned_bytes``: what is foreseen to be held: width × byte rate, at level B and below of the width that M is
    foreseen to pay for, after an eviction what was held; for windows that swing in addition a part, in proportion to
    their slot × byte rate, of the most bytes that the slots of all take together, so that the rows of one instant add
    up to no more than M.
    """

    stream: str
    effective_from_us: int
    support_level: SupportLevel
    width_s: float
    min_width_s: float
    max_width_s: float
    byte_rate: float
    planned_bytes: float
    trigger: Trigger
    group_id: int | None = None
    slot_offset_s: float | None = None
    slot_s: float | None = None
    period_s: float | None = None

    @property
    def grows_to_s(self) -> float:
        """How wide the window may be under the row."""
        evicted = self.trigger == "eviction" and self.width_s > 0
        return max(self.width_s, self.max_width_s) if evicted else self.width_s


@dataclass(frozen=True)
class QueryPlanRow:
    """One row of ``query_plan``: what one query gets; for answers given in (effective_from, the next row's].

    ``support_level``: A: its windows hold its ranges whole. B: they hold its tolerable widths. C: one window swings,
    and the query answers at the ends of its slots, ``slot_end_us`` + k·``period_s``. unsupported: none of these, or
    not yet, since evicted tuples do not come back. ``tolerable_s``: stream → range − slack width (without K).
    ``extra_answer_us``: one more answer, when the query goes from regular answers to slots (at effective_from itself,
    where all is still held), back (the next tick at which its windows hold its tolerable widths), or to slots that
    end too late for it (the first tick at which they hold enough). It counts if it lies in the row's reign.
    """

    query: str
    effective_from_us: int
    support_level: QueryLevel
    tolerable_s: Mapping[str, float]
    slot_end_us: int | None = None
    period_s: float | None = None
    extra_answer_us: int | None = None


@dataclass(frozen=True)
class RateRow:
    """One row of ``stream_rates``: what happened in the tick before ``tick_us``, and the estimates at it.

    ``tuples``: that arrived. ``held_tuples``, ``held_bytes``: the most that the stream's window held; the bytes of all
    streams never add up to more than M. ``evicted_early``: tuples that had to go although they were planned to stay.
    """

    stream: str
    tick_us: int
    tuples: int
    rate: float
    tuple_bytes: float
    held_tuples: int = 0
    held_bytes: int = 0
    evicted_early: int = 0


def plan_table(rows: Sequence[PlanRow]) -> pa.Table:
    """The rows as table ``window_plan``."""
    return _table(rows, PLAN_SCHEMA)


def query_plan_table(rows: Sequence[QueryPlanRow]) -> pa.Table:
    """The rows as table ``query_plan``."""
    return _table(rows, QUERY_PLAN_SCHEMA)


def rates_table(rows: Sequence[RateRow]) -> pa.Table:
    """The rows as table ``stream_rates``."""
    return _table(rows, RATES_SCHEMA)


_INSTANTS = {"effective_from", "slot_end", "extra_answer", "tick"}


def _table(rows: Sequence[PlanRow] | Sequence[QueryPlanRow] | Sequence[RateRow], schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        values = [getattr(row, f"{field.name}_us" if field.name in _INSTANTS else field.name) for row in rows]
        if pa.types.is_map(field.type):
            values = [list(value.items()) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)
