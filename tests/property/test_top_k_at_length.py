"""The production operator on seeded streams of 10^5 tuples, against every window sorted as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators.schedule import Schedule
from tidegate.operators.top_k import Spec, Term, finish, sifted, start, step

ROWS = 100_000
PANE_US = 1_000
PANES = 400


@dataclass(frozen=True)
class Case:
    """A stream in order of arrival, with NaN where the score is NULL, and what is asked of it."""

    spec: Spec
    schedule: Schedule
    event_us: np.ndarray
    arrival_us: np.ndarray
    score: np.ndarray
    group: np.ndarray
    batch_rows: int

    @property
    def table(self) -> pa.Table:
        ids = np.char.mod("%06d", np.arange(len(self.score)))
        columns = {"event_us": self.event_us, "arrival_us": self.arrival_us, "event_id": ids, "g": self.group}
        columns["o0"] = pa.array(self.score, pa.float64(), from_pandas=True)
        return pa.table({name: pa.array(columns[name]) for name in self.spec.input_schema.names})


def case_of(seed: int) -> Case:
    """k, slides, widths, slacks, delays, ties, groups and batches, each drawn anew."""
    rng = np.random.default_rng(seed)
    event_us = rng.integers(0, PANES * PANE_US, ROWS)
    score = rng.exponential(100.0, ROWS)
    if rng.random() < 0.5:
        score = np.floor(score / 20)  # ties
    delay = [
        lambda: np.zeros(ROWS),
        lambda: rng.exponential(rng.choice([0.2, 5, 50]) * PANE_US, ROWS),
        lambda: (rng.pareto(1.2, ROWS) + 1) * PANE_US,
        lambda: score * PANE_US / 4,  # the best are the last to report
    ][rng.integers(4)]()
    score[rng.random(ROWS) < 0.01] = np.nan
    arrival_us = event_us + delay.astype(np.int64)
    order = np.argsort(arrival_us, kind="stable")
    ends = np.arange(0, PANES + 40, rng.choice([1, 3, 10])) * PANE_US
    range_us = int(rng.choice([1, 7, 60, 300])) * PANE_US
    # Widths that shrink and grow, bounds that never fall; slacks that rise, and fall by more than a slide.
    lower = np.maximum.accumulate(ends - rng.integers(0, 2 * range_us // PANE_US + 1, len(ends)) * PANE_US)
    slack_us = np.repeat(rng.choice([0, 300, 4_000, 90_000], len(ends)), 7)[: len(ends)]
    schedule = Schedule.from_ticks(ends, slack_us, {"s": range_us}, {"s": lower} if rng.random() < 0.5 else None)
    groups = int(rng.choice([1, 1, 5, 200]))
    columns = pa.schema([("o0", pa.float64()), ("g", pa.int64())])
    k, descending = int(rng.choice([1, 5, 40])), bool(rng.random() < 0.7)
    spec = Spec(k, (Term("o0", descending),), columns, PANE_US, "s", ("g",) if groups > 1 else ())
    group = rng.integers(0, groups, ROWS)
    batch_rows = int(rng.choice([3_000, 30_000, ROWS]))
    return Case(spec, schedule, event_us[order], arrival_us[order], score[order], group[order], batch_rows)


def answered(case: Case, sift: bool) -> list[tuple[int, int, int]]:
    """(window, rank, tuple) as the operator has them."""
    state, parts, table = start(case.spec, case.schedule), [], case.table
    for begin in range(0, ROWS, case.batch_rows):
        batch = table.slice(begin, case.batch_rows)
        state, part = step(state, sifted(case.spec, batch) if sift else batch)
        parts.append(part)
    table = pa.concat_tables([*parts, finish(state)[1]])
    ids = table.column("event_id").cast(pa.int64()).to_pylist()
    return list(zip(table.column("window_index").to_pylist(), table.column("rank").to_pylist(), ids, strict=True))


def brute_force(case: Case) -> list[tuple[int, int, int]]:
    """The same by definition: of each window and group, all tuples sorted, NULL last, then by event time and id."""
    sign = -1 if case.spec.order[0].descending else 1
    merit = np.where(np.isnan(case.score), np.inf, sign * case.score)
    group = case.group if case.spec.groups else np.zeros(ROWS, dtype=np.int64)
    # One sort of everything; a window's tuples are in this order too.
    order = np.lexsort((np.arange(ROWS), case.event_us, merit, group))
    event_us, arrival_us, group = case.event_us[order], case.arrival_us[order], group[order]
    found = []
    for window in range(len(case.schedule)):
        begin_us, end_us = case.schedule.lower_us["s"][window], case.schedule.window_end_us[window]
        inside = (event_us >= begin_us) & (event_us < end_us) & (arrival_us <= case.schedule.emit_us[window])
        places = np.flatnonzero(inside)
        rank = np.arange(len(places)) - np.searchsorted(group[places], group[places]) + 1
        best = rank <= case.spec.k
        found += [(window, int(r), int(i)) for r, i in zip(rank[best], order[places[best]], strict=True)]
    return found


def check(seed: int) -> None:
    case = case_of(seed)
    expected = brute_force(case)
    assert len(expected) > 30
    assert answered(case, sift=False) == expected
    # What is left of each batch, whatever the schedule, gives the same.
    assert answered(case, sift=True) == expected


@pytest.mark.parametrize("seed", [0, 1])
def test_answers_of_long_streams_equal_brute_force(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_answers_of_a_hundred_long_streams_equal_brute_force() -> None:
    for seed in range(2, 102):
        check(seed)
