"""Join-aggregates over sliding windows, answered from running totals per key."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from tidegate.operators.arrivals import int64s, received
from tidegate.operators.join_aggregate.answers import answer_rows, joined_all
from tidegate.operators.join_aggregate.chains import Bounds, blocks, next_bounds
from tidegate.operators.join_aggregate.histories import Histories
from tidegate.operators.join_aggregate.ledger import bytes_by_window
from tidegate.operators.join_aggregate.pairs import joined_by_pairs
from tidegate.operators.join_aggregate.running import Member, Orders, Running, through_block
from tidegate.operators.join_aggregate.state import Plan, State, absorbed, codes_given, with_few_codes
from tidegate.operators.join_aggregate.tuples import side_slots
from tidegate.operators.schedule import NEVER_US, Int64s

# Tuples that are worked on at once: enough that a block's fixed costs vanish, few enough for the processor's cache.
BLOCK_ROWS = 1 << 17
# Blocks are larger where there are more codes than so many for each tuple: a block goes over all of them.
CODES_PER_ROW = 2
# A block answers no more windows than could have so many rows, or as many as it has tuples, unless these are few.
ANSWER_ROWS = 1 << 20
LEAST_WINDOWS = 4


def step(state: State, batch: pa.RecordBatch | pa.Table) -> tuple[State, pa.Table]:
    """Absorb a batch and answer every window that no later tuple can still reach.

    **Idea.** Along a chain of windows a tuple is seen from one window to another. Per side and code (join key and
    groups) its numbers are added to a running total where it comes into view and subtracted where it goes, for a
    block of windows at once: sorted by code and window, the changes run up to histories of totals. The sides'
    histories are joined key by key, which is work only where one of them changes: counts multiply, a sum multiplies
    with the other sides' counts, an extreme stays what it is. A class that no later side has is summed away before
    the next join, so that chains and stars need no more than the totals per key; the join's result is never formed.
    But where two sides make no more pairs than there are tuples in view, as on the number of an order, the pairs are
    counted themselves (``pairs``), which takes half the time.

    Args:
        state: from ``start`` or ``step``.
        batch: rows of ``spec.input_schema`` in ascending order of ``arrival_us``, across batches too; the effective
            arrival time, max(arrival, event). Columns that a row's side does not own are ignored.

    Returns:
        The new state, and the partial answers (``spec.output_schema``) of every window whose ``emit_us`` lies before
        the last arrival seen: a tuple that arrives at ``emit_us`` still belongs, so only then is the window complete.
        Rows ascend by window_index, then group (NULL group last). Groups without pairs are not among them.
        ``<slot>_count``: pairs in which the slot's value is not NULL (COUNT(*): all pairs); ``_sum``, ``_min`` and
        ``_max`` are NULL where that is 0, and a sum of integers that does not fit into 64 bits is NULL. Partials of
        disjoint hash partitions of a class that all sides share are put together by ``combined``.

    Raises:
        ValueError: rows out of order, a missing column, a side that is not declared.
        OverflowError: more than 2^63 pairs.

    **Cost.** Time O(1) amortised per tuple and combination of the sides' codes that it changes, however wide the
    windows and however many: for COUNT, SUM and AVG two changes per tuple; MIN and MAX times the logarithm of the
    windows in a block. Each call that answers, and each block of about ``BLOCK_ROWS`` tuples in it, also costs
    O(codes held), so that small batches are dearer (``rebatched`` puts them together). Where ends or lower bounds
    move back (the slack falls) a window's tuples are taken in once more, by a second chain. Space O(tuples in the
    windows, slack and block), plus the answers; independent of the number of joined pairs or the interval.

    **Guarantee.** Exact: sums of doubles are kept without rounding and rounded once, to the nearest double, so that
    the same tuples give the same bytes in any order of arrival and any division into batches, with the state saved
    and loaded in between or not. Hash partitions that answer ``in_parts`` give them too, once ``combined``.

    >>> from tidegate.operators.join_aggregate import Measure, Side, Spec, start
    >>> from tidegate.operators.schedule import Schedule
    >>> spec = Spec((Side("d", groups=("g0",)),), (Measure("a0", "count"),), pa.schema([("g0", pa.string())]))
    >>> schedule = Schedule.from_ticks(np.array([10, 20]), 5, {"d": 10})
    >>> batch = pa.table({"side": [0, 0, 0], "event_us": [3, 12, 9], "arrival_us": [3, 12, 15], "g0": list("xyx")})
    >>> state, answers = step(start(spec, schedule), batch)
    >>> answers.num_rows  # a tuple could still arrive at 15
    0
    >>> state, answers = finish(state)
    >>> answers.select(["window_index", "g0", "pairs"]).to_pylist()
    [{'window_index': 0, 'g0': 'x', 'pairs': 2}, {'window_index': 1, 'g0': 'y', 'pairs': 1}]

    **Source.** papers/02, "Beyond the paper" (factorised totals); the papers' own IC and TC keep tuples and counters.
    """
    return _at_once(state, blockwise(state, batch))


def blockwise(state: State, batch: pa.RecordBatch | pa.Table | None) -> Iterator[tuple[State, pa.Table]]:
    """What ``step`` gives, or without a batch ``finish``, block by block: a state and the answers since the one before.

    **Memory**: the answers of a block, ``ANSWER_ROWS`` or half as many as there are codes, or of ``LEAST_WINDOWS``.
    """
    if batch is None:
        yield from _blocks(state, _nothing(state), NEVER_US)
        return
    table = received(batch, state.plan.spec.input_schema, state.last_arrival_us)
    if table.num_rows:
        yield from _blocks(state, table, int(table.column("arrival_us")[-1].as_py()))


def advance(state: State, until_us: int) -> tuple[State, pa.Table]:
    """Answer the windows whose ``emit_us`` lies before ``until_us``: no tuple arrives before it any more.

    Live mode calls it as the clock goes, so that windows are answered without waiting for the next tuple: with now,
    or with now + 1 if no tuple that arrives now is still on its way. Later tuples must not arrive before ``until_us``.

    **Cost**: that of ``step`` without tuples; nothing if no window is due.
    """
    return _at_once(state, _blocks(state, _nothing(state), max(until_us, state.last_arrival_us)))


def finish(state: State) -> tuple[State, pa.Table]:
    """Answer all windows that are left: no tuple will come any more."""
    return advance(state, NEVER_US)


def rebatched(batches: Iterable[pa.RecordBatch | pa.Table], rows: Callable[[], int]) -> Iterator[pa.Table]:
    """Put batches together until they have as many rows as are wanted by then: small ones cost more in ``step``.

    >>> batch = pa.record_batch({"x": [1, 2]})
    >>> [table.num_rows for table in rebatched([batch] * 5, lambda: 4)]
    [4, 4, 2]
    """
    waiting: list[pa.Table] = []
    waiting_rows = 0
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch)
        waiting_rows += batch.num_rows
        if waiting_rows >= rows():
            yield pa.concat_tables(waiting)
            waiting, waiting_rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def rows_at_once(state: State) -> int:
    """How many tuples a batch should have, so that going over all codes held, as each one does, costs them little."""
    return max(BLOCK_ROWS, codes_given(state) // CODES_PER_ROW)


def windows_at_once(state: State) -> int:
    """How many windows may be answered at once: their rows are held until they have been taken."""
    spec, books = state.plan.spec, state.books
    keys = math.prod(max(1, len(books[key])) for key in spec.group_keys.values())
    most = all_combinations = 1
    for side, own in enumerate(spec.sides):
        combinations = max(1, state.combinations[side_slots(spec, side)].count(books))
        most *= min(combinations, math.prod(max(1, len(books[slot])) for slot in own.groups))
        all_combinations *= combinations
    rows = all_combinations if spec.listed_slots else min(keys * most, all_combinations)
    return max(LEAST_WINDOWS, max(ANSWER_ROWS, codes_given(state) // CODES_PER_ROW) // rows)


def _nothing(state: State) -> pa.Table:
    return state.plan.spec.input_schema.empty_table()


def _at_once(state: State, blocks: Iterable[tuple[State, pa.Table]]) -> tuple[State, pa.Table]:
    answers = [state.plan.spec.output_schema.empty_table()]
    for reached, rows in blocks:
        state = reached
        answers.append(rows)
    return state, pa.concat_tables(answers).combine_chunks()


def _blocks(state: State, table: pa.Table, last_arrival_us: int) -> Iterator[tuple[State, pa.Table]]:
    """Take the rows in and answer every window before the last arrival, block by block."""
    schedule = state.plan.schedule
    complete = int(np.searchsorted(schedule.emit_us, last_arrival_us, side="left"))
    arrival_us, taken = int64s(table.column("arrival_us")), 0
    for upto, window in blocks(arrival_us, schedule, state.next_window, complete, rows_at_once(state)):
        fuller, taken = absorbed(state, table.slice(taken, upto - taken)), upto
        for state, rows in answered_in_turns(fuller, window):
            yield state, rows
    state = with_few_codes(replace(absorbed(state, table.slice(taken)), last_arrival_us=last_arrival_us))
    yield state, state.plan.spec.output_schema.empty_table()


def answered_in_turns(state: State, complete: int) -> Iterator[tuple[State, pa.Table]]:
    """``answered_up_to``, but no more than ``windows_at_once`` at a time."""
    while state.next_window < complete:
        state, rows = answered_up_to(state, min(state.next_window + windows_at_once(state), complete))
        yield state, rows


def answered_up_to(state: State, complete: int) -> tuple[State, pa.Table]:
    """Answer the windows ``state.next_window`` … ``complete`` − 1 from the tuples held."""
    plan, block = state.plan, np.arange(state.next_window, complete)
    orders = {
        measure.slot: state.books[measure.slot].ranks()
        for measure in plan.spec.aggregates
        if (measure.extreme is not None or measure.slot in plan.spec.ordered_slots) and measure.slot in state.books
    }
    totals, answers = dict(state.totals), []
    for chain in np.unique(plan.chain_of[block]).tolist():
        windows = block[plan.chain_of[block] == chain]
        before, known = totals.get(chain, (None, None))
        bounds = _bounds(plan, windows, None if known is None else before)
        after, rows = _through_chain(state, bounds, known, orders)
        totals[chain] = (int(windows[-1]), after)
        answers.append(rows)
    rows = pa.concat_tables(answers)
    if len(answers) > 1:
        rows = rows.take(np.argsort(rows.column("window_index").to_numpy(), kind="stable"))
    totals = {chain: item for chain, item in totals.items() if plan.following[item[0]] < len(plan.schedule)}
    emit_us, end_us = plan.schedule.emit_us, plan.schedule.window_end_us
    last, sides, bytes_at = [item[0] for item in totals.values()], [], np.zeros(len(block), dtype=np.int64)
    for side, (held, needed_from_us) in enumerate(zip(state.sides, plan.needed_from_us, strict=True)):
        combinations = state.combinations[side_slots(plan.spec, side)]
        # Where there is but one chain, no window needs a tuple that it does not see any more.
        same = np.array_equal(bounds.lower_us[side][:-1], needed_from_us[block])
        left = partial(bounds.left, side) if same else None
        bytes_at += bytes_by_window(
            plan.spec, side, held, state.books, combinations, emit_us[block], needed_from_us[block], left
        )
        if last:
            held = held.aged(int(emit_us[last].min()), int(end_us[last].min()))
        sides.append(held.without_before(int(needed_from_us[complete])))
    answered = replace(
        state,
        sides=tuple(sides),
        totals=totals,
        next_window=complete,
        peak_bytes=max(state.peak_bytes, int(bytes_at.max())),
    )
    return with_few_codes(answered), rows


def _bounds(plan: Plan, windows: Int64s, before: int | None) -> Bounds:
    behind = int(plan.following[windows[-1]])
    aliases = [side.alias for side in plan.spec.sides]
    return next_bounds(plan.schedule, aliases, windows, before, behind if behind < len(plan.schedule) else None)


def _through_chain(
    state: State, bounds: Bounds, known: tuple[Running, ...] | None, orders: Orders
) -> tuple[tuple[Running, ...] | None, pa.Table]:
    """Answer some windows of a chain; ``known`` are the totals before them, None for a new chain.

    So are those behind them, and a chain whose totals are not known goes on as a new one.
    """
    spec = state.plan.spec
    if known is None:
        pairs = joined_by_pairs(spec, state.sides, bounds, state.books, state.combinations, orders)
        if pairs is not None:
            return None, answer_rows(spec, pairs, bounds.index, state.books, orders)
    relations: list[list[Histories]] = []
    after: dict[int, Running] = {}
    families: dict[tuple[str, ...], list[int]] = {}
    for side in range(len(spec.sides)):
        families.setdefault(side_slots(spec, side), []).append(side)
    for slots, members in families.items():
        codes = state.combinations[slots].count(state.books)
        keys = state.combinations[slots].slot_codes(np.arange(codes))
        of_family = []
        for side in members:
            held = state.sides[side]
            if known is None:  # to a new chain all tuples are new
                held = held.anew(int(bounds.lower_us[side][0]))
            base = Running() if known is None else known[side]
            of_family.append(Member(side, held, spec.measures_of(spec.sides[side].alias), base))
        histories, running = through_block(of_family, bounds, keys, codes, orders)
        after |= dict(zip(members, running, strict=True))
        relations.append(histories)
    joined = joined_all(spec, relations, state.books)
    return tuple(after[side] for side in range(len(spec.sides))), answer_rows(
        spec, joined, bounds.index, state.books, orders
    )
