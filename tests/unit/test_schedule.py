"""The schedule of answers: its order, its bounds, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidegate.operators.schedule import NEVER_US, Schedule, ticks_between


def test_ticks_are_multiples_since_1970_in_a_half_open_range() -> None:
    assert ticks_between(10, 20, 5).tolist() == [10, 15]
    assert ticks_between(11, 21, 5).tolist() == [15, 20]
    assert ticks_between(-7, 1, 5).tolist() == [-5, 0]
    assert ticks_between(11, 14, 5).tolist() == []


def test_answers_are_ordered_by_their_instant_when_the_slack_falls() -> None:
    schedule = Schedule.from_ticks(np.array([10, 20, 30]), np.array([25, 5, 5]), {"a": 10})
    assert schedule.emit_us.tolist() == [25, 35, 35]
    assert schedule.window_end_us.tolist() == [20, 10, 30]
    assert schedule.lower_us["a"].tolist() == [10, 0, 20]


def test_a_window_is_as_wide_as_its_range_or_what_the_stream_holds() -> None:
    lower = {"a": np.array([0, 15, 40])}
    schedule = Schedule.from_ticks(np.array([10, 20, 30]), 0, {"a": 10, "b": 20}, lower)
    assert schedule.lower_us["a"].tolist() == [0, 15, 30]
    assert schedule.width_us("a").tolist() == [10, 5, 0]
    assert schedule.width_us("b").tolist() == [20, 20, 20]
    assert schedule.aliases == ("a", "b")


def test_what_later_windows_need_is_the_least_of_their_bounds() -> None:
    schedule = Schedule(np.array([10, 20, 30]), np.array([10, 20, 40]), {"a": np.array([5, 2, 25])})
    assert schedule.needed_from_us("a").tolist() == [2, 2, 25, NEVER_US]


def test_a_window_that_holds_nothing_needs_no_tuple_of_its_end() -> None:
    schedule = Schedule(np.array([10, 20, 30]), np.array([10, 20, 30]), {"a": np.array([10, 20, 25])})
    assert schedule.needed_from_us("a").tolist() == [25, 25, 25, NEVER_US]


def test_between_spans_lies_what_no_window_holds() -> None:
    ends, emits = np.array([10, 20, 30, 25, 60, 61]), np.array([10, 20, 30, 40, 60, 61])
    schedule = Schedule(ends, emits, {"a": np.array([0, 20, 22, 15, 55, 60])})
    begin_us, end_us = schedule.spans_us("a")
    assert (begin_us.tolist(), end_us.tolist()) == ([0, 15, 55], [10, 30, 61])
    assert [len(spans) for spans in schedule.slice(20, 21).spans_us("a")] == [0, 0]


def test_slice_takes_the_answers_of_a_half_open_interval() -> None:
    schedule = Schedule.from_ticks(np.arange(0, 50, 10), 5, {"a": 10})
    part = schedule.slice(15, 35)
    assert part.emit_us.tolist() == [15, 25]
    assert part.lower_us["a"].tolist() == [0, 10]
    assert len(schedule.slice(100, 50)) == 0


@pytest.mark.parametrize(
    ("ends", "emits", "lowers", "message"),
    [
        ([10, 20], [30, 25], {"a": [0, 0]}, "ascend"),
        ([20, 10], [30, 30], {"a": [0, 0]}, "ascend"),
        ([10, 10], [30, 30], {"a": [0, 0]}, "each pair once"),
        ([10, 20], [9, 25], {"a": [0, 0]}, "answered before its end"),
        ([10, 20], [10, 20], {"a": [0, 21]}, "starts after its end"),
        ([10, 20], [10, 20], {"a": [0]}, r"lower_us\['a'\] must be int64\[2\]"),
        ([10, 20], [10, 20], {}, "no alias"),
    ],
)
def test_contradictions_are_refused(ends: Any, emits: Any, lowers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(np.array(ends), np.array(emits), {alias: np.array(lower) for alias, lower in lowers.items()})
