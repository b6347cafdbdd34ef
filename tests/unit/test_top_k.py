"""The top-k on examples small enough to check by eye, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators.schedule import Schedule
from tidegate.operators.top_k import (
    Spec,
    Term,
    finish,
    merge,
    start,
    state_bytes,
    step,
)

DELAYED = Spec(2, (Term("o0"),), pa.schema([("o0", pa.float64()), ("carrier", pa.string())]), pane_us=10, alias="d")


def departure(event_id: str, at: int, delay: float | None, arrival: int | None = None) -> dict[str, Any]:
    return {"event_id": event_id, "event_us": at, "arrival_us": arrival or at, "o0": delay, "carrier": "AA"}


def ids(spec: Spec, schedule: Schedule, rows: list[Any]) -> dict[int, list[str]]:
    state, early = step(start(spec, schedule), pa.Table.from_pylist(rows, schema=spec.input_schema))
    _, late = finish(state)
    winners: dict[int, list[str]] = {}
    for row in pa.concat_tables([early, late]).to_pylist():
        winners.setdefault(row["window_index"], []).append(row["event_id"])
        assert row["rank"] == len(winners[row["window_index"]])
    return winners


def test_ties_go_to_the_earlier_event_then_to_the_smaller_id_and_nulls_come_last() -> None:
    spec = Spec(9, (Term("o0"),), DELAYED.columns, 10, "d")
    rows = [
        departure("null", 1, None),
        departure("late", 5, 7.0),
        departure("é", 3, 7.0),
        departure("b", 3, 7.0),
        departure("B", 3, 7.0),
        departure("best", 9, 8.0),
    ]
    rows.sort(key=lambda row: row["arrival_us"])
    schedule = Schedule.from_ticks(np.array([10]), 0, {"d": 10})
    assert ids(spec, schedule, rows) == {0: ["best", "B", "b", "é", "late", "null"]}
    ascending = Spec(9, (Term("o0", descending=False),), DELAYED.columns, 10, "d")
    assert ids(ascending, schedule, rows) == {0: ["B", "b", "é", "late", "best", "null"]}


def test_a_late_tuple_misses_the_window_that_was_answered_and_counts_in_the_next() -> None:
    schedule = Schedule.from_ticks(np.array([10, 20]), 5, {"d": 20})
    rows = [departure("a", 1, 1.0), departure("on time", 2, 5.0, arrival=15), departure("late", 3, 9.0, arrival=16)]
    assert ids(DELAYED, schedule, rows) == {0: ["on time", "a"], 1: ["late", "on time"]}


def test_an_earlier_window_waits_longer_when_the_slack_falls() -> None:
    schedule = Schedule.from_ticks(np.array([10, 20]), np.array([30, 0]), {"d": 10})
    rows = [departure("a", 1, 1.0), departure("c", 12, 3.0), departure("b", 2, 2.0, arrival=35)]
    assert schedule.window_end_us.tolist() == [20, 10]
    assert ids(DELAYED, schedule, rows) == {0: ["c"], 1: ["b", "a"]}


def test_at_most_k_tuples_are_held_per_open_pane() -> None:
    schedule = Schedule.from_ticks(np.arange(0, 10_000, 10), 20, {"d": 50})
    times = np.arange(10_000)
    batch = pa.table(
        {
            "event_us": times,
            "arrival_us": times,
            "event_id": [f"{t:06}" for t in times],
            "o0": np.sin(times),
            "carrier": ["AA"] * len(times),
        }
    )
    row_bytes = 8 + (4 + 6) + 8 + 8 + (4 + 2)
    state = start(DELAYED, schedule)
    for begin in range(0, len(times), 7):
        state, _ = step(state, batch.slice(begin, 7))
        assert state.candidates.num_rows <= 2 * 8
    state, _ = finish(state)
    assert state.peak_bytes <= 16 * row_bytes + 5 * 2
    assert state_bytes(state) == 0


def test_no_order_terms_rank_by_event_time() -> None:
    spec = Spec(1, (), pa.schema([]), 10, "d")
    rows = [{"event_id": "b", "event_us": 2, "arrival_us": 2}, {"event_id": "a", "event_us": 1, "arrival_us": 3}]
    assert ids(spec, Schedule.from_ticks(np.array([10]), 0, {"d": 10}), rows) == {0: ["a"]}


def test_merge_of_nothing_is_empty() -> None:
    assert merge([], DELAYED).schema == DELAYED.output_schema
    assert merge([], DELAYED).num_rows == 0


def test_bounds_off_the_pane_are_refused() -> None:
    with pytest.raises(ValueError, match="every end of a window must be a multiple of the pane"):
        start(DELAYED, Schedule.from_ticks(np.array([15]), 0, {"d": 15}))
    with pytest.raises(ValueError, match="every lower bound of a window must be a multiple of the pane"):
        start(DELAYED, Schedule.from_ticks(np.array([20]), 0, {"d": 15}))
    with pytest.raises(ValueError, match="no lower bounds for alias 'd'"):
        start(DELAYED, Schedule.from_ticks(np.array([20]), 0, {"x": 10}))


@pytest.mark.parametrize(
    ("k", "columns", "message"),
    [
        (0, [("o0", pa.int64())], "must be positive"),
        (1, [("x", pa.int64())], "missing: \\['o0'\\]"),
        (1, [("o0", pa.int64()), ("event_id", pa.string())], "event_id"),
    ],
)
def test_contradictory_specs_are_refused(k: int, columns: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spec(k, (Term("o0"),), pa.schema(columns), 10, "d")
