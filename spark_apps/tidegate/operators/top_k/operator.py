"""Top-k over sliding windows of an out-of-order stream, from candidates per pane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.arrivals import held_bytes, int64s, received
from tidegate.operators.schedule import NEVER_US, Int64s, Schedule
from tidegate.operators.top_k.spec import Spec

BEFORE_ALL_US = -NEVER_US


@dataclass(frozen=True, eq=False)
class State:
    """The candidates: the k best tuples so far of each pane that a window still to answer may cover, best first.

    ``next_window``: index of the next window to answer. ``answered_us``: (emit_us, window_end_us) of the last one
    answered. ``last_arrival_us``: no tuple that arrives before it is still to come. ``peak_bytes``: the most that was
    held at any answer. ``open_end``: whether windows may be added behind the schedule's last (see ``start``).
    """

    spec: Spec
    schedule: Schedule
    candidates: pa.Table
    next_window: int = 0
    answered_us: tuple[int, int] = (BEFORE_ALL_US, BEFORE_ALL_US)
    last_arrival_us: int = BEFORE_ALL_US
    peak_bytes: int = 0
    open_end: bool = False


def start(spec: Spec, schedule: Schedule, open_end: bool = False) -> State:
    """The state before any tuple has been seen.

    Args:
        spec: what to answer.
        schedule: the windows to answer.
        open_end: whether later windows may be added when the state is loaded again: then what they can need is held
            beyond the schedule's last window. They must not start before any window of this schedule does, nor be
            answered before an arrival that the state has seen.

    Raises:
        ValueError: the schedule lacks the alias' bounds, or bounds are not multiples of the pane.
    """
    _check_panes(spec, schedule)
    return State(spec, schedule, spec.input_schema.empty_table(), open_end=open_end)


def step(state: State, batch: pa.RecordBatch | pa.Table) -> tuple[State, pa.Table]:
    """Absorb a batch and answer every window that no later tuple can still reach.

    **Idea.** Windows are unions of panes of event time, and tuples are taken in as they arrive. A tuple that is not
    among the k best of its pane by now never is again, so it can be in no answer from now on. A window's answer is
    the k best of the candidates in it; as many windows may wait for their slack at once as there are.

    Args:
        state: from ``start``, ``step`` or ``state_from_tables``.
        batch: rows of ``spec.input_schema`` in ascending order of ``arrival_us``, across batches too; the effective
            arrival time, max(arrival, event). No NaN among the scores.

    Returns:
        The new state, and the answers (``spec.output_schema``) of every window whose ``emit_us`` lies before the last
        arrival seen: a tuple that arrives at ``emit_us`` still belongs, so only then is the window complete. Rows
        ascend by window_index, then rank (1 is the best). A window of fewer than k tuples has fewer rows.

    Raises:
        ValueError: rows out of order, or a missing column.

    **Cost.** Space O(k · panes in the windows and slack). Per answered window O(c log c) time for the c candidates
    and newly arrived tuples.

    **Guarantee.** Exact, whatever the order of arrival, the slack and the division into batches.

    >>> from tidegate.operators.top_k import Spec, Term
    >>> spec = Spec(1, (Term("o0"),), pa.schema([("o0", pa.float64())]), pane_us=10, alias="d")
    >>> schedule = Schedule.from_ticks(np.array([10, 20]), 5, {"d": 20})
    >>> times = {"event_us": [3, 12, 9], "arrival_us": [3, 12, 16]}
    >>> batch = pa.table({**times, "event_id": list("abc"), "o0": [1.0, 2.0, 9.0]})
    >>> state, early = step(start(spec, schedule), batch)
    >>> state, late = finish(state)  # c came too late for the first window, not for the second
    >>> pa.concat_tables([early, late]).select(["window_index", "rank", "event_id"]).to_pylist()
    [{'window_index': 0, 'rank': 1, 'event_id': 'a'}, {'window_index': 1, 'rank': 1, 'event_id': 'c'}]

    **Source.** papers/04 (modified MinTopK), with one set of candidates per pane in place of the pointers per window.
    """
    spec, schedule = state.spec, state.schedule
    table = received(batch, spec.input_schema, state.last_arrival_us)
    if table.num_rows == 0:
        return state, spec.output_schema.empty_table()
    last_arrival_us = int(table.column("arrival_us")[-1].as_py())
    complete = int(np.searchsorted(schedule.emit_us, last_arrival_us, side="left"))
    return _answer_up_to(replace(state, last_arrival_us=last_arrival_us), table, complete)


def advance(state: State, until_us: int) -> tuple[State, pa.Table]:
    """Answer the windows whose ``emit_us`` lies before ``until_us``: no tuple arrives before it any more.

    Live mode calls it as the clock goes, so that windows are answered without waiting for the next tuple: with now,
    or with now + 1 if no tuple that arrives now is still on its way. Later tuples must not arrive before ``until_us``.
    """
    until_us = max(until_us, state.last_arrival_us)
    complete = int(np.searchsorted(state.schedule.emit_us, until_us, side="left"))
    nothing = state.spec.input_schema.empty_table()
    return _answer_up_to(replace(state, last_arrival_us=until_us), nothing, complete)


def finish(state: State) -> tuple[State, pa.Table]:
    """Answer all windows that are left: no tuple will come any more."""
    return advance(state, NEVER_US)


def state_bytes(state: State) -> int:
    """Bytes of the candidates held now."""
    return held_bytes(state.candidates)


def merge(parts: Iterable[pa.Table], spec: Spec) -> pa.Table:
    """The answers over all tuples, from the answers over disjoint parts of them (hash partitions).

    Args:
        parts: tables of ``spec.output_schema``; window_index must mean the same in all.
        spec: of the query.

    Returns:
        One table of the same schema, ascending by window_index and rank.
    """
    both = pa.concat_tables([spec.output_schema.empty_table(), *(part.cast(spec.output_schema) for part in parts)])
    keys = [("window_index", "ascending", "at_end"), *spec.sort_keys]
    both = both.combine_chunks().take(pc.sort_indices(both.combine_chunks(), sort_keys=keys))
    rank = _rank_within(int64s(both.column("window_index"))) + 1
    both = both.set_column(1, spec.output_schema.field("rank"), pa.array(rank))
    return both.filter(pa.array(rank <= spec.k)).combine_chunks()


def _check_panes(spec: Spec, schedule: Schedule) -> None:
    if spec.alias not in schedule.lower_us:
        raise ValueError(f"schedule has no lower bounds for alias {spec.alias!r}; it has {schedule.aliases}")
    for name, bounds in (("end", schedule.window_end_us), ("lower bound", schedule.lower_us[spec.alias])):
        if (bounds % spec.pane_us).any():
            raise ValueError(f"every {name} of a window must be a multiple of the pane of {spec.pane_us} µs")


def _answer_up_to(state: State, fresh: pa.Table, complete: int) -> tuple[State, pa.Table]:
    """Answer the windows ``state.next_window`` … ``complete`` − 1, taking in fresh tuples as each one needs them."""
    spec, schedule = state.spec, state.schedule
    lower_us, needed_from_us = schedule.lower_us[spec.alias], schedule.needed_from_us(spec.alias)
    if state.open_end:
        needed_from_us[-1] = lower_us.max(initial=BEFORE_ALL_US)
    arrival_us, taken = int64s(fresh.column("arrival_us")), 0
    candidates, peak_bytes, answers = state.candidates, state.peak_bytes, []
    next_window = max(complete, state.next_window)
    for window in range(state.next_window, next_window):
        upto = int(np.searchsorted(arrival_us, schedule.emit_us[window], side="right"))
        candidates = best_of_panes(spec, candidates, fresh.slice(taken, upto - taken), int(needed_from_us[window]))
        taken = upto
        peak_bytes = max(peak_bytes, held_bytes(candidates))
        event_us = int64s(candidates.column("event_us"))
        inside = np.flatnonzero((event_us >= lower_us[window]) & (event_us < schedule.window_end_us[window]))[: spec.k]
        best = candidates.take(pa.array(inside))
        best = best.add_column(0, "rank", pa.array(np.arange(1, len(inside) + 1)))
        answers.append(best.add_column(0, "window_index", pa.array(np.full(len(inside), window, dtype=np.int64))))
    answered_us = state.answered_us
    if next_window > state.next_window:
        answered_us = (int(schedule.emit_us[next_window - 1]), int(schedule.window_end_us[next_window - 1]))
    candidates = best_of_panes(spec, candidates, fresh.slice(taken), int(needed_from_us[next_window]))
    advanced = replace(
        state, candidates=candidates, next_window=next_window, answered_us=answered_us, peak_bytes=peak_bytes
    )
    return advanced, pa.concat_tables([spec.output_schema.empty_table(), *answers]).combine_chunks()


def best_of_panes(spec: Spec, held: pa.Table, more: pa.Table, from_us: int) -> pa.Table:
    """The k best per pane of what is held and what has come, from the first pane still needed on; best first."""
    both = held
    if more.num_rows:
        both = pa.concat_tables([held, more]).combine_chunks()
        both = both.take(pc.sort_indices(both, sort_keys=spec.sort_keys))
    event_us = int64s(both.column("event_us"))
    keep = event_us >= from_us
    if more.num_rows:
        pane = event_us // spec.pane_us
        order = np.argsort(pane, kind="stable")
        rank = np.empty(len(pane), dtype=np.int64)
        rank[order] = _rank_within(pane[order])
        keep &= rank < spec.k
    return both if keep.all() else both.filter(pa.array(keep)).combine_chunks()


def _rank_within(groups: Int64s) -> Int64s:
    """Position of each row within its run of equal values, from 0."""
    begins = np.ones(len(groups), dtype=bool)
    begins[1:] = groups[1:] != groups[:-1]
    starts = np.flatnonzero(begins)
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))
