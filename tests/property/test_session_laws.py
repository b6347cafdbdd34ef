"""Laws of sessions: they are those of the definition, however time is cut and whatever else is read."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.operators.sessions import Answered, Spec, Tuples
from tidegate.operators.sessions.oracle import answers, sessions

Row = tuple[int, int, int]


@st.composite
def streams(draw: st.DrawFn) -> tuple[Spec, list[Row], list[int]]:
    """A spec, tuples, and the wait in effect from each multiple of 16 on."""
    gap_us = draw(st.integers(1, 6))
    spec = Spec(gap_us, gap_us * draw(st.integers(1, 4)) + draw(st.integers(0, 3)))
    late = st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 30))
    # Dense, so that sessions last longer than they may; and sparse.
    steps = draw(st.lists(st.sampled_from([0, 1, 1, 2, gap_us - 1, gap_us, gap_us + 1, 3 * gap_us]), max_size=30))
    rows, event_us = [], draw(st.integers(0, 20))
    for step in steps:
        event_us += step
        rows.append((draw(st.integers(-1, 1)), event_us, event_us + draw(late)))
    waits_us = draw(st.lists(st.integers(0, 12), min_size=1, max_size=20))
    return spec, draw(st.permutations(rows)), waits_us


def wait_us(waits_us: list[int], end_us: Any) -> Any:
    return np.array(waits_us)[np.minimum(np.asarray(end_us) // 16, len(waits_us) - 1)]


Found = tuple[Tuples, Answered]


def answered(spec: Spec, rows: list[Row], waits_us: list[int], from_us: int, until_us: int) -> Found:
    key, event_us, arrival_us = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    end_us = event_us + spec.gap_us
    emit_us = (end_us + wait_us(waits_us, end_us)).astype(np.int64)
    tuples = Tuples.of(spec, key, event_us, arrival_us)
    return tuples, tuples.answered(emit_us, from_us, until_us)


def told(both: Found, rows: list[Row]) -> list[tuple[Any, ...]]:
    """Sessions as the oracle tells them, their tuples by what they are."""
    result, (tuples, found) = [], both
    session, of = tuples.tuples(found)
    for number in range(len(found)):
        own = sorted(rows[i] for i in of[session == number].tolist())
        times = (times[number].item() for times in (found.start_us, found.end_us, found.emit_us))
        result.append((own[0][0], *times, own))
    return sorted(result)


def expected(spec: Spec, rows: list[Row], waits_us: list[int], from_us: int, until_us: int) -> list[tuple[Any, ...]]:
    found = answers(spec, rows, lambda end_us: int(wait_us(waits_us, end_us)), from_us, until_us)
    return sorted((*session, sorted(rows[i] for i in own)) for *session, own in found)


@settings(max_examples=examples(600))
@given(streams())
def test_sessions_are_those_of_the_definition(stream: tuple[Spec, list[Row], list[int]]) -> None:
    spec, rows, waits_us = stream
    assert told(answered(spec, rows, waits_us, 0, 1000), rows) == expected(spec, rows, waits_us, 0, 1000)


@settings(max_examples=examples(300))
@given(streams(), st.lists(st.integers(0, 200), max_size=4))
def test_a_part_of_time_has_the_same_sessions_from_the_tuples_that_it_needs(
    stream: tuple[Spec, list[Row], list[int]], cuts: list[int]
) -> None:
    spec, rows, waits_us = stream
    bounds = [0, *sorted(cuts), 1000]
    parts: list[tuple[Any, ...]] = []
    for first, last in zip(bounds, bounds[1:], strict=False):
        earliest_us = first - max(waits_us) - spec.gap_us - spec.reach_us
        near = [row for row in rows if row[1] >= earliest_us and row[2] < last]
        parts += told(answered(spec, near, waits_us, first, last), near)
    assert sorted(parts) == told(answered(spec, rows, waits_us, 0, 1000), rows)


@settings(max_examples=examples(300))
@given(streams())
def test_whatever_is_known_at_once_is_cut_into_sessions_that_do_not_overlap(
    stream: tuple[Spec, list[Row], list[int]],
) -> None:
    spec, rows, _ = stream
    on_time = [(key, event, event) for key, event, _ in rows]
    tuples, found = answered(spec, on_time, [0], 0, 1000)
    assert sorted(tuples.tuples(found)[1].tolist()) == list(range(len(rows)))
    assert ((found.end_us - spec.gap_us - found.start_us) < 2 * spec.longest_us).all()
    of_keys = {key: sessions(spec, [row[1] for row in rows if row[0] == key]) for key, *_ in rows}
    assert len(found) == sum(map(len, of_keys.values()))


@settings(max_examples=examples(300))
@given(streams())
def test_no_more_tuples_are_kept_than_there_are_at_an_instant(stream: tuple[Spec, list[Row], list[int]]) -> None:
    spec, rows, waits_us = stream
    tuples, found = answered(spec, rows, waits_us, 0, 1000)
    until = dict[int, int]()
    for session, row in zip(*(column.tolist() for column in tuples.tuples(found)), strict=True):
        until[row] = max(until.get(row, 0), int(found.emit_us[session]))
    most = max((sum(rows[i][2] <= at <= end for i, end in until.items()) for at in range(300)), default=0)
    assert tuples.most(found) == most
