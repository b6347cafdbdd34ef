"""Laws of the published join-aggregates: each is exact wherever it does not refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from infra.research.published.join_aggregate import METHODS, Arrival, Query, resize, start, step
from infra.research.published.join_aggregate.method import Method

from tidegate.operators.join_aggregate import Measure, Side, Spec, finish, oracle
from tidegate.operators.join_aggregate import start as start_production
from tidegate.operators.join_aggregate import step as step_production
from tidegate.operators.schedule import Schedule

LAWS = settings(max_examples=60, deadline=None)
# Later than any event: the order of arrivals is its own clock, so that ties are told apart by who came first.
FIRST_ARRIVAL_US = 1_000_000
KEYS = st.sampled_from([0, 1, 1, None, (0, 1), (0, None)])

Widths = Sequence[tuple[int, ...]]


def spec_of(query: Query) -> Spec:
    sides = tuple(
        Side(f"w{side}", ("j0",), (f"g{side}",) if side in query.groups else ()) for side in range(len(query.widths_us))
    )
    measured = None if query.value_of is None else f"w{query.value_of}"
    columns = [("j0", pa.string()), *((f"g{side}", pa.int64()) for side in query.groups)]
    columns += [] if measured is None else [("a0", pa.int64())]
    return Spec(sides, (Measure("a0", query.function, measured),), pa.schema(columns))


def rows_of(query: Query, arrivals: Sequence[Arrival]) -> list[dict[str, Any]]:
    """The arrivals as the rows that the production operator and its oracle read."""
    rows = []
    for index, one in enumerate(arrivals):
        null = one.key is None or (isinstance(one.key, tuple) and None in one.key)
        row = {"side": one.side, "event_us": one.event_us, "arrival_us": FIRST_ARRIVAL_US + index}
        row |= {"j0": None if null else repr(one.key), "a0": one.value}
        rows.append(row | {f"g{side}": one.group if side == one.side else None for side in query.groups})
    return rows


def schedule_of(arrivals: Sequence[Arrival], widths: Widths) -> Schedule:
    """A window that ends just after each arrival; what a narrower window has lost does not come back."""
    now_us = np.array([one.event_us for one in arrivals])
    lower = {
        f"w{side}": np.maximum.accumulate(now_us + 1 - np.array(of_side))
        for side, of_side in enumerate(zip(*widths, strict=True))
    }
    return Schedule(now_us + 1, FIRST_ARRIVAL_US + np.arange(len(arrivals)), lower)


def answers_of(query: Query, arrivals: Sequence[Arrival], partials: Sequence[dict[str, Any]]) -> list[Any]:
    """Partial answers as the published algorithms give them: one after every arrival."""

    def finished(row: dict[str, Any]) -> Any:
        if query.function == "count":
            return row["pairs"]
        if query.function == "avg":
            return row["a0_sum"] / row["a0_count"]
        return row[f"a0_{query.function}"]

    none = {} if query.groups else 0 if query.function == "count" else None
    answers: list[Any] = [none] * len(arrivals)
    for row in partials:
        if not query.groups:
            answers[row["window_index"]] = finished(row)
        elif query.having is None or query.having(finished(row)):
            group = tuple(row[f"g{side}"] for side in query.groups)
            answers[row["window_index"]] = {**answers[row["window_index"]], group: finished(row)}
    return answers


def by_definition(query: Query, arrivals: Sequence[Arrival], widths: Widths | None = None) -> list[Any]:
    schedule = schedule_of(arrivals, widths or [query.widths_us] * len(arrivals))
    return answers_of(query, arrivals, oracle.answers(spec_of(query), schedule, rows_of(query, arrivals)))


@st.composite
def streams(draw: st.DrawFn, windows: int, most: int) -> list[Arrival]:
    """Tuples in order of time, with ties, gaps wider than any window, NULL and composite keys, and NULL groups."""
    event_us, arrivals = 0, []
    for _ in range(draw(st.integers(1, most))):
        event_us += draw(st.sampled_from([0, 0, 1, 1, 2, 3, 12]))
        key, group = draw(KEYS), draw(st.sampled_from([0, 1, None]))
        side, value = draw(st.integers(0, windows - 1)), draw(st.integers(-3, 3))
        arrivals.append(Arrival(side, event_us, key, value, group))
    return arrivals


@st.composite
def questions(draw: st.DrawFn, method: type[Method]) -> Query:
    """A query that meets the method's conditions."""
    windows = draw(st.integers(2, 4)) if method.MANY_WINDOWS else 2
    width = st.integers(1, 8)
    widths = (draw(width),) * windows if method.NEEDS_EQUAL_WIDTHS else tuple(draw(width) for _ in range(windows))
    function = draw(st.sampled_from(method.FUNCTIONS))
    value_of = None if function == "count" else draw(st.integers(0, windows - 1))
    groups, having = (), None
    if method.GROUPED:
        groups = draw(st.sampled_from([(0,), (1,), (0, 1)]))
        having = draw(st.sampled_from([None, lambda value: value > 1]))
    return Query(widths, function, value_of, groups, having, buckets=draw(st.integers(1, 3)))


@pytest.mark.parametrize("name", METHODS)
@LAWS
@given(st.data())
def test_after_every_arrival_the_answer_is_the_one_by_definition(name, data):
    query = data.draw(questions(METHODS[name]))
    arrivals = data.draw(streams(len(query.widths_us), 25 if len(query.widths_us) == 2 else 14))
    state = start(name, query)
    assert [step(state, one)[1] for one in arrivals] == by_definition(query, arrivals)


@pytest.mark.parametrize("name", ["IC", "GIC"])
@LAWS
@given(st.data())
def test_ic_stays_exact_through_every_change_of_width(name, data):
    query = data.draw(questions(METHODS[name]))
    state, seen, widths, answers = start(name, query), [], [], []
    for one in data.draw(streams(2, 25)):
        seen.append(one)
        answers.append(step(state, one)[1])
        widths.append(tuple(window.width_us for window in state.windows))
        if data.draw(st.booleans()):
            side, width_us = data.draw(st.integers(0, 1)), data.draw(st.integers(1, 12))
            # To the definition a change is an arrival that joins nothing, seen through the new widths.
            seen.append(Arrival(0, one.event_us, None, 0))
            answers.append(resize(state, side, width_us)[1])
            widths.append(tuple(window.width_us for window in state.windows))
    assert answers == by_definition(query, seen, widths)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("seed", range(3))
def test_the_production_operator_gives_the_same_answers(name, seed):
    random = np.random.default_rng(seed)
    method = METHODS[name]
    windows = 3 if method.MANY_WINDOWS else 2
    widths = (40,) * windows if method.NEEDS_EQUAL_WIDTHS else tuple(random.integers(20, 60, windows).tolist())
    function = method.FUNCTIONS[seed % len(method.FUNCTIONS)]
    query = Query(widths, function, None if function == "count" else 1, (1,) if method.GROUPED else ())
    events_us = np.cumsum(random.integers(0, 4, 300)).tolist()
    arrivals = [
        Arrival(side, event_us, key, value, group)
        for event_us, side, key, value, group in zip(
            events_us, *(random.integers(0, n, 300).tolist() for n in (windows, 5, 100, 3)), strict=True
        )
    ]
    schedule = schedule_of(arrivals, [widths] * len(arrivals))
    batch = pa.Table.from_pylist(rows_of(query, arrivals), schema=spec_of(query).input_schema)
    production, some = step_production(start_production(spec_of(query), schedule), batch)
    _, rest = finish(production)
    partials = pa.concat_tables([some, rest]).to_pylist()
    state = start(name, query)
    assert [step(state, one)[1] for one in arrivals] == answers_of(query, arrivals, partials)
