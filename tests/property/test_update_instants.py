"""Which further answers of which windows instants of a range bring, however a stretch of time is cut into ranges."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.queries.plans import Emissions
from tidegate.queries.updates import revisions

S, TICK, RANGE, HORIZON = 1_000_000, 5_000_000, 20_000_000, 60_000_000


@dataclass(frozen=True)
class Plans:
    """Windows that are promised and those that may have early answers; a stream holds the last so much."""

    promised: dict[int, int]
    early: frozenset[int]
    width_us: int
    pipeline = SimpleNamespace(horizon_s=HORIZON // S)

    def emissions(self, query, slacks, start_us, end_us):
        pairs = sorted((emit, end) for end, emit in self.promised.items() if start_us <= emit < end_us)
        emit, end = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in range(2))
        return Emissions(end, emit, np.zeros(len(pairs), np.int64))

    def early_ends_us(self, query, slacks, start_us, end_us):
        return np.array(sorted(end for end in self.early if start_us <= end < end_us), dtype=np.int64)

    def window_from_us(self, window, t_us):
        return t_us - self.width_us


def query_of(early: bool, every_s: float | None) -> SimpleNamespace:
    window = SimpleNamespace(alias="w", stream="s", range_s=RANGE / S, calendar=None)
    return SimpleNamespace(id="q", emit_early=early, emit_every_s=every_s, windows=(window,), ranged=(window,))


def naive(plans: Plans, early: bool, every_s: float | None, first_us: int) -> set[tuple[int, int, int, int, int, bool]]:
    """End, revision, when it is given, what is known, the lower bound, whether it is final."""
    rows = set()
    early_ends = {end for end in plans.early if early and end >= first_us and plans.promised.get(end) != end}
    for end in early_ends:
        rows.add((end, 0, end, end, max(end - RANGE, end - plans.width_us), False))
    for end, emit in plans.promised.items():
        if emit < first_us:
            continue
        lower = min(max(end - RANGE, emit - plans.width_us), end)
        if end in early_ends:
            rows.add((end, 1, emit, emit, lower, False))
        if every_s is not None:
            number, at = 2, emit + round(every_s * S)
            while at < end + HORIZON:
                rows.add((end, number, at, at, lower, False))
                number, at = number + 1, at + round(every_s * S)
            rows.add((end, number, max(emit, end + HORIZON), end + HORIZON, end - RANGE, True))
    return rows


@given(
    st.dictionaries(st.integers(0, 30), st.integers(0, 14), max_size=8),
    st.sets(st.integers(0, 30), max_size=8),
    st.booleans(),
    st.sampled_from([None, 5.0, 15.0, 60.0, 90.0]),
    st.integers(0, 12),
    st.lists(st.integers(1, 49), max_size=4, unique=True),
    st.sampled_from([RANGE * 3 // 4, RANGE * 2]),
)
@settings(max_examples=examples(300), deadline=None)
def test_ranges_bring_each_answer_once_with_the_one_before(waits, early_ticks, early, every_s, first, cuts, width_us):
    promised = {end * TICK: (end + wait) * TICK for end, wait in waits.items()}
    plans, first_us = Plans(promised, frozenset(end * TICK for end in early_ticks), width_us), first * TICK
    bounds = [first_us, *sorted(cut * TICK for cut in cuts if cut > first), 60 * TICK]
    brought = []
    for start_us, end_us in zip(bounds, bounds[1:], strict=False):
        found = revisions(query_of(early, every_s), plans, None, start_us, end_us, first_us)
        columns = (found.window_end_us, found.revision, found.emit_us, found.known_us, found.lower_us["w"], found.final)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        pairs = [row[:2] for row in rows]
        assert pairs == sorted(set(pairs))
        for number, row in enumerate(rows):
            if found.wanted[number]:
                assert start_us <= row[2] < end_us
                brought.append(row)
                assert row[1] == 0 or pairs[number - 1] == (row[0], row[1] - 1) or row[:2] == (row[0], 0)
            else:
                assert pairs[number + 1] == (row[0], row[1] + 1) and found.wanted[number + 1]
        assert np.allclose(found.share, (found.window_end_us - found.lower_us["w"]) / RANGE)
        of_schedule = [(row[3], row[0]) for row in rows if not row[5]]
        assert len(set(of_schedule)) == len(of_schedule)
    assert sorted(brought) == sorted(naive(plans, early, every_s, first_us))
