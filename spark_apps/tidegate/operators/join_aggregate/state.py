"""What a join-aggregate knows between two batches, and how it is saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from tidegate.operators.join_aggregate.chains import cut
from tidegate.operators.join_aggregate.codebook import Codebook
from tidegate.operators.join_aggregate.combinations import Combinations
from tidegate.operators.join_aggregate.held import Held, renamed, without_the_late
from tidegate.operators.join_aggregate.ledger import bytes_held
from tidegate.operators.join_aggregate.running import Running
from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.join_aggregate.tuples import (
    AllCombinations,
    Books,
    decoded,
    encoded,
    held_schema,
    side_slots,
)
from tidegate.operators.schedule import NEVER_US, Int64s, Schedule
from tidegate.values.ordered import orders_as_integers

BEFORE_ALL_US = -NEVER_US
# Codes without tuples are given back once there are so many more codes than tuples or codes at the last renaming.
SPARE_CODES = 1 << 12


@dataclass(frozen=True, eq=False)
class Plan:
    """What follows from the query and its schedule alone.

    ``chain_of``: per window the chain that it belongs to. ``following``: per window the next one of its chain, or
    their number. ``needed_from_us``, ``spans_us``: per side, from ``Schedule``.
    """

    spec: Spec
    schedule: Schedule
    chain_of: Int64s
    following: Int64s
    needed_from_us: tuple[Int64s, ...]
    spans_us: tuple[tuple[Int64s, Int64s], ...]

    @staticmethod
    def of(spec: Spec, schedule: Schedule) -> Plan:
        """The plan of a query.

        Raises:
            ValueError: the schedule lacks the bounds of an alias.
        """
        aliases = [side.alias for side in spec.sides]
        missing = [alias for alias in aliases if alias not in schedule.lower_us]
        if missing:
            raise ValueError(f"schedule has no lower bounds for aliases {missing}; it has {schedule.aliases}")
        chain_of = cut(schedule, aliases)
        following = np.full(len(schedule), len(schedule), dtype=np.int64)
        order = np.argsort(chain_of, kind="stable")
        same = chain_of[order[1:]] == chain_of[order[:-1]]
        following[order[:-1][same]] = order[1:][same]
        needed_from_us = tuple(schedule.needed_from_us(alias) for alias in aliases)
        spans_us = tuple(schedule.spans_us(alias) for alias in aliases)
        return Plan(spec, schedule, chain_of, following, needed_from_us, spans_us)


@dataclass(frozen=True, eq=False)
class State:
    """The tuples that the windows still to answer can need, and the totals of those that the last window has seen.

    ``sides``: per side its tuples, with codes for their values; what the codes mean is in ``books`` and
    ``combinations``. ``totals``: chain of windows → (the last one that it answered, per side the totals then, or None
    if pairs were counted without); they follow from the tuples. ``next_window``: index of the next window to answer.
    ``last_arrival_us``: no tuple that arrives before it is still to come. ``peak_bytes``: the most that the tuples
    needed took before any answer. ``codes_kept``: how many codes there were when they were last renamed.
    """

    plan: Plan
    sides: tuple[Held, ...]
    books: Books
    combinations: AllCombinations
    totals: Mapping[int, tuple[int, tuple[Running, ...] | None]] = field(default_factory=dict)
    next_window: int = 0
    last_arrival_us: int = BEFORE_ALL_US
    peak_bytes: int = 0
    codes_kept: int = 0

    @property
    def held(self) -> tuple[pa.Table, ...]:
        """Per side the tuples that a window can still need, in order of arrival, as rows of ``held_schema``."""
        spec, tables = self.plan.spec, []
        for side, held in enumerate(self.sides):
            tuples = held.needed(int(self.plan.needed_from_us[side][self.next_window]))
            tables.append(
                held_schema(spec, side).empty_table()
                if tuples is None
                else decoded(spec, side, tuples, self.books, self.combinations[side_slots(spec, side)])
            )
        return tuple(tables)


def start(spec: Spec, schedule: Schedule) -> State:
    """The state before any tuple has been seen.

    Args:
        spec: what to answer.
        schedule: the windows to answer.

    Raises:
        ValueError: the schedule lacks the bounds of an alias.
    """
    all_slots = [side_slots(spec, side) for side in range(len(spec.sides))]
    coded = [slot for slots in all_slots for slot in slots]
    for measure in spec.aggregates:
        if measure.extreme is not None and not orders_as_integers(spec.columns.field(measure.slot).type):
            coded.append(measure.slot)
    books = {slot: Codebook.empty(spec.columns.field(slot).type) for slot in coded}
    combinations = {slots: Combinations.empty(slots) for slots in all_slots}
    return State(Plan.of(spec, schedule), tuple(Held() for _ in spec.sides), books, combinations)


def state_bytes(state: State) -> int:
    """Bytes of the tuples that windows still to answer can need now."""
    spec, total = state.plan.spec, 0
    for side, held in enumerate(state.sides):
        tuples = held.needed(int(state.plan.needed_from_us[side][state.next_window]))
        if tuples is not None:
            total += bytes_held(spec, side, tuples, state.books, state.combinations[side_slots(spec, side)])
    return total


def absorbed(state: State, table: pa.Table) -> State:
    """The state with more tuples, in order of arrival, but for those that come too late for any window."""
    if table.num_rows == 0:
        return state
    plan, first = state.plan, state.next_window
    books, combinations, parts = encoded(plan.spec, table, state.books, state.combinations)
    sides = tuple(
        held.with_fresh(without_the_late(part, plan.schedule.emit_us[first:], needed_from_us[first:], spans_us))
        for held, part, needed_from_us, spans_us in zip(
            state.sides, parts, plan.needed_from_us, plan.spans_us, strict=True
        )
    )
    return replace(state, books=books, combinations=combinations, sides=sides)


def with_few_codes(state: State) -> State:
    """The state without the codes that no tuple has, if they have become many."""
    if codes_given(state) <= 2 * state.codes_kept + sum(map(len, state.sides)) // 8 + SPARE_CODES:
        return state
    slots = [side_slots(state.plan.spec, side) for side in range(len(state.sides))]
    sides, books, combinations, code_of, value_of = renamed(state.sides, slots, state.books, state.combinations)
    counts = [combinations[own].count(books) for own in slots]

    def moved(running: tuple[Running, ...]) -> tuple[Running, ...]:
        return tuple(r.renamed(new, count, value_of) for r, new, count in zip(running, code_of, counts, strict=True))

    totals = {
        chain: (last, None if running is None else moved(running)) for chain, (last, running) in state.totals.items()
    }
    fewer = replace(state, sides=tuple(sides), books=books, combinations=combinations, totals=totals)
    return replace(fewer, codes_kept=codes_given(fewer))


def codes_given(state: State) -> int:
    """How many values and combinations have a code."""
    return sum(map(len, state.books.values())) + sum(len(b) for c in state.combinations.values() for b in c.books)
