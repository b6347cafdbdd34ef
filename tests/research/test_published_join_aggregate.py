"""The published join-aggregates: what each refuses, what it touches, and where the print would be wrong."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
from infra.research.published.join_aggregate import METHODS, Arrival, Query, catalogue, costs, resize, start, step
from infra.research.published.join_aggregate import query as query_module
from infra.research.published.join_aggregate.counters import TcCount
from infra.research.published.join_aggregate.method import Method

NAMED_IN_THE_PAPER = {"PC", "IC", "TC-COUNT", "TC-MAX", "GPC", "GIC", "GTC", "MPC", "MTC"}
CORRECTED = {"TC-COUNT", "TC-MAX", "GTC", "MTC"}


def query_for(name: str, widths_us: tuple[int, ...] = (10, 10), **fields: Any) -> Query:
    extreme = METHODS[name].FUNCTIONS == ("max", "min")
    of_method = {"function": "max", "value_of": 1} if extreme else {}
    return Query(widths_us, **{**of_method, "groups": (0,) if METHODS[name].GROUPED else (), **fields})


def random_arrivals(count: int, keys: int, seed: int = 0) -> list[Arrival]:
    random = np.random.default_rng(seed)
    columns = (random.integers(0, n, count).tolist() for n in (2, keys, 50))
    events_us = np.cumsum(random.integers(0, 3, count)).tolist()
    return [Arrival(side, t, key, value) for t, side, key, value in zip(events_us, *columns, strict=True)]


def answers(state: Method, arrivals: list[Arrival]) -> list[Any]:
    return [step(state, one)[1] for one in arrivals]


@pytest.mark.parametrize("module", [catalogue, costs, query_module])
def test_the_examples_run(module):
    results = doctest.testmod(module)
    assert results.attempted > 0 and results.failed == 0


def test_every_algorithm_of_the_paper_can_be_chosen_and_the_corrected_ones_beside():
    assert set(METHODS) == NAMED_IN_THE_PAPER | {f"{name}-UNEQUAL" for name in CORRECTED}


def test_an_unknown_name_is_refused_with_the_nearest_known():
    with pytest.raises(ValueError, match="did you mean TC-COUNT"):
        start("tc_count", Query((1, 1)))


@pytest.mark.parametrize("name", sorted(CORRECTED))
def test_unequal_widths_are_refused_by_tc_as_published_and_taken_as_corrected(name):
    with pytest.raises(ValueError, match=f"{name} is right only if all windows have the same width.*{name}-UNEQUAL"):
        start(name, query_for(name, (10, 20)))
    start(f"{name}-UNEQUAL", query_for(name, (10, 20)))


def test_unequal_widths_would_make_tc_wrong():
    """A pair charged to the older tuple outlives the newer one, whose window is shorter."""

    class Unrefused(TcCount):
        NEEDS_EQUAL_WIDTHS = False

    arrivals = [Arrival(0, 0, "x"), Arrival(1, 1, "x"), Arrival(0, 5, "y")]  # at 5, B's tuple of 1 has left (3, 5]
    query = Query((10, 2))
    assert answers(start("TC-COUNT-UNEQUAL", query), arrivals) == [0, 1, 0]
    assert answers(Unrefused(query), arrivals) == [0, 1, 1]


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"IC", "GIC"}))
def test_changing_widths_are_refused_by_all_but_ic_and_gic(name):
    with pytest.raises(ValueError, match="right only while widths stay as they are.*IC and GIC"):
        resize(start(name, query_for(name)), 0, 5)


def test_a_window_or_a_width_that_cannot_be_is_refused():
    state = start("IC", Query((10, 10)))
    for refused in (lambda: resize(state, 2, 5), lambda: resize(state, 0, 0), lambda: step(state, Arrival(2, 0, "x"))):
        with pytest.raises(ValueError, match="no window|a width is at least 1"):
            refused()
    for widths_us in ((), (10, 0)):
        with pytest.raises(ValueError, match="width of at least 1"):
            Query(widths_us)


@pytest.mark.parametrize("name", METHODS)
def test_a_tuple_out_of_order_is_refused(name):
    state, _ = step(start(name, query_for(name)), Arrival(0, 5, "x", 1))
    step(state, Arrival(1, 5, "x", 1))  # a tie is in order
    with pytest.raises(ValueError, match="in order of event time"):
        step(state, Arrival(1, 4, "x", 1))


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"PC", "TC-MAX", "TC-MAX-UNEQUAL"}))
def test_extremes_are_refused_by_what_cannot_take_them_back(name):
    with pytest.raises(ValueError, match="not MAX"):
        start(name, query_for(name, function="max", value_of=0))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_too_many_or_too_few_windows_are_refused(name):
    with pytest.raises(ValueError, match="joins two windows"):
        start(name, query_for(name, (10,), **({"value_of": 0} if "MAX" in name else {}), groups=()))
    if not METHODS[name].MANY_WINDOWS:
        with pytest.raises(ValueError, match="joins two windows: 3"):
            start(name, query_for(name, (10, 10, 10)))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_group_by_belongs_to_the_methods_with_g(name):
    with pytest.raises(ValueError, match="GROUP BY"):
        start(name, query_for(name, groups=() if METHODS[name].GROUPED else (0,)))


def test_doubles_are_refused_in_sums_and_taken_in_extremes():
    for name in ("PC", "IC", "TC-COUNT"):
        with pytest.raises(ValueError, match="SUM is of integers, not 0.5.*drifts"):
            step(start(name, Query((10, 10), "sum", 0)), Arrival(0, 0, "x", 0.5))
    for name in ("PC", "TC-MAX"):
        assert answers(start(name, Query((10, 10), "max", 0)), [Arrival(0, 0, "x", 0.5), Arrival(1, 0, "x")])[-1] == 0.5


@pytest.mark.parametrize("name", ["PC", "IC", "TC-MAX"])
def test_a_null_to_aggregate_is_refused(name):
    function = "max" if name == "TC-MAX" else "sum"
    with pytest.raises(ValueError, match="no NULL"):
        step(start(name, Query((10, 10), function, 1)), Arrival(1, 0, "x", None))


@pytest.mark.parametrize("fields", [{"value_of": 0}, {"function": "sum", "value_of": 2}, {"groups": (2,)}])
def test_a_query_that_contradicts_itself_is_refused(fields):
    with pytest.raises(ValueError, match="Query"):
        Query((10, 10), **fields)
    with pytest.raises(ValueError, match="HAVING without"):
        Query((10, 10), having=lambda count: count > 1)


def test_tc_max_starts_from_none_and_not_from_0():
    arrivals = [Arrival(1, 0, "x", -5), Arrival(0, 1, "x"), Arrival(0, 20, "y")]
    assert answers(start("TC-MAX", Query((10, 10), "max", 1)), arrivals) == [None, -5, None]


def test_gtc_counts_one_older_tuple_into_the_groups_of_its_newer_matches():
    arrivals = [Arrival(0, 0, "x"), Arrival(1, 1, "x", group="g"), Arrival(1, 2, "x", group="h")]
    assert answers(start("GTC", Query((10, 10), groups=(1,))), arrivals)[-1] == {("g",): 1, ("h",): 1}


def test_having_leaves_out_groups_and_empty_groups_are_not_emitted():
    arrivals = [Arrival(0, 0, 1, group="g"), Arrival(1, 1, 1), Arrival(1, 2, 1), Arrival(0, 30, 2, group="h")]
    for name in ("GPC", "GIC", "GTC"):
        assert answers(start(name, Query((10, 10), groups=(0,))), arrivals) == [{}, {("g",): 1}, {("g",): 2}, {}]
        having = start(name, Query((10, 10), groups=(0,), having=lambda count: count > 1))
        assert answers(having, arrivals) == [{}, {}, {("g",): 2}, {}]


@pytest.mark.parametrize(("name", "per_tuple"), [("IC", 1), ("TC-COUNT", 2)])
def test_without_expiry_and_with_one_bucket_touched_is_the_papers_cost(name, per_tuple):
    arrivals = random_arrivals(200, keys=3)
    state, held, cost = start(name, Query((10_000, 10_000), buckets=1)), [0, 0], 0.0
    for one in arrivals:
        state, _ = step(state, one)
        held[one.side] += 1
        alpha, beta = held[one.side], held[1 - one.side]
        if name == "IC":
            cost += costs.ic_accesses(alpha, beta, 1, 0, 0)
        else:
            cost += costs.tc_accesses(alpha, beta, 1)
    assert state.touched.total - state.touched.written == cost
    assert state.touched.written == len(arrivals)
    assert state.touched.scanned + state.touched.summed == per_tuple * sum(range(1, len(arrivals) + 1))


def test_with_expiry_ic_touches_what_eq_3_says_with_the_sizes_it_meets():
    """With one bucket a probe meets the whole window, so every term of eq. 3 is known, not only its mean."""
    state, cost = start("IC", Query((40, 25), buckets=1)), 0.0
    for one in random_arrivals(300, keys=3):
        before = [len(window) for window in state.windows]
        before[one.side] += 1
        state, _ = step(state, one)
        after = [len(window) for window in state.windows]
        gone = [was - now for was, now in zip(before, after, strict=True)]
        joins = after[1 - one.side] + gone[0] * after[1] + gone[1] * after[0]
        cost += sum(before) + joins + gone[0] * gone[1]
    assert state.touched.total - state.touched.written == cost


def test_mtc_probes_the_window_with_the_fewest_tuples_first():
    arrivals = [Arrival(2, 0, "y"), *(Arrival(1, 0, "x") for _ in range(5))]
    state = start("MTC", Query((10, 10, 10), buckets=1))
    answers(state, arrivals)
    before = state.touched.probed
    step(state, Arrival(0, 1, "x"))
    assert state.touched.probed - before == 1  # no match among one, so the five are not looked at


def test_the_list_of_groups_is_searched_from_its_head():
    arrivals = [Arrival(0, 0, key, group=key) for key in "abc"]
    state = start("GIC", Query((10, 10), groups=(0,)))
    answers(state, [*arrivals, *(Arrival(1, 1, key) for key in "abc")])
    before = state.touched.listed
    step(state, Arrival(1, 2, "c"))
    assert state.touched.listed - before == 3 + 3  # a, b and c passed; then the whole list is the answer


def test_published_bytes_are_the_papers():
    arrivals = [Arrival(0, 0, "x"), Arrival(0, 1, "x"), Arrival(1, 1, "x"), Arrival(1, 2, "y")]
    held = {}
    for name in ("PC", "IC", "TC-COUNT"):
        state = start(name, Query((10, 10)))
        answers(state, arrivals)
        held[name] = state.published_bytes
    assert held == {"IC": 4 * 18, "TC-COUNT": 4 * (18 + 4), "PC": 4 * 18 + 2 * 4}


@pytest.mark.parametrize("name", METHODS)
def test_when_all_has_left_as_much_is_held_as_by_a_new_one(name):
    used, new = start(name, query_for(name)), start(name, query_for(name))
    answers(used, random_arrivals(500, keys=3))
    for event_us in (10_000, 20_000):
        alone = [step(state, Arrival(0, event_us, "x", 1))[1] for state in (used, new)]
        assert alone[0] == alone[1]
    assert used.published_bytes == new.published_bytes
