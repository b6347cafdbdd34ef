"""Laws of accuracy and slack, against loops over plain Python values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.operators.accuracy import (
    Tolerance,
    accuracy_at,
    choose_slack,
    group_errors,
    hit_rate,
    measures,
    needed_slack_on_grid,
    oracle,
    oracle_slack,
    relative_error,
    slack,
    window_errors,
)

LAWS = settings(max_examples=examples(150), deadline=None)
WINNERS = pa.schema([("window_end", pa.int64()), ("event_id", pa.string())])
VALUES = pa.schema(
    [
        ("window_end", pa.int64()),
        ("g0", pa.string()),
        ("g1", pa.int64()),
        ("count", pa.float64()),
        ("total", pa.int64()),
        ("latest", pa.string()),
    ]
)
winners = st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abcd")), max_size=20, unique=True).map(
    lambda rows: [{"window_end": window, "event_id": name} for window, name in rows]
)
values = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([None, "", "x"]),
        st.sampled_from([None, 1]),
        st.sampled_from([None, -2.0, 0.0, 0.5, 3.0]),
        st.sampled_from([None, 0, 4, 5]),
        st.sampled_from([None, "", "q"]),
    ),
    max_size=20,
    unique_by=lambda row: row[:3],
).map(lambda rows: [dict(zip(VALUES.names, row, strict=True)) for row in rows])
needed_slacks = st.lists(st.sampled_from([0.0, 0.0, 0.5, 3.0, 7.000001, 40.0]), min_size=1, max_size=60)
targets = st.sampled_from([0.1, 0.5, 0.8, 0.9, 0.95, 1.0])


@LAWS
@given(winners, winners, st.permutations(range(6)))
def test_hit_rate_equals_the_definition(answers: list[Any], truth: list[Any], windows: list[int]) -> None:
    tables = [pa.Table.from_pylist(rows, schema=WINNERS) for rows in (answers, truth)]
    rates = hit_rate(*tables, pa.array(windows[:4], pa.int64()))
    assert rates.tolist() == oracle.hit_rate(answers, truth, windows[:4])


@LAWS
@given(values, values, st.sampled_from([["g0", "g1"], ["g1", "g0"]]))
def test_relative_error_equals_the_definition(answers: list[Any], truth: list[Any], groups: list[str]) -> None:
    tables = [pa.Table.from_pylist(rows, schema=VALUES) for rows in (answers, truth)]
    columns = ["count", "total", "latest"]
    errors = relative_error(*tables, pa.array([2, 0, 1]), groups, columns)
    expected = oracle.relative_error(answers, truth, [2, 0, 1], groups, columns)
    assert errors.tolist() == pytest.approx(expected, rel=1e-15, abs=1e-12)


@LAWS
@given(st.lists(st.tuples(st.integers(0, 3), values), min_size=1, max_size=4), values, st.sampled_from([0, 16]))
def test_answers_judged_at_once_are_judged_as_each_alone(given: list[Any], truth: list[Any], sparse: int) -> None:
    """Each answer is to a window of its own choice; ``sparse``: rows are found by sorting, or by a table."""
    groups, columns = ["g0", "g1"], ["count", "total", "latest"]
    known = pa.Table.from_pylist(truth, schema=VALUES)
    answers = [
        pa.Table.from_pylist([{**row, "window_end": window} for row in rows if row["window_end"] == 0], schema=VALUES)
        for window, rows in given
    ]
    number = np.repeat(np.arange(len(given)), [answer.num_rows for answer in answers])
    windows = np.array([window for window, _ in given])
    in_window = known.column("window_end").to_numpy()
    with mock.patch.object(measures, "_SPARSE", sparse):
        errors = window_errors(pa.concat_tables(answers), number, known, in_window, windows, groups, columns)
    each = [
        relative_error(answer, known, pa.array([window]), groups, columns)[0]
        for answer, window in zip(answers, windows.tolist(), strict=True)
    ]
    assert errors.tolist() == each


shares = st.sampled_from([Fraction(1), Fraction(99, 100), Fraction(2, 3), Fraction(1, 2), Fraction(1, 10)])
floors = st.sampled_from([{}, {"count": 4.0}, {"total": 8.0}, {"count": 0.25, "total": 4.0}])


@LAWS
@given(
    st.lists(st.tuples(st.integers(0, 3), values), min_size=1, max_size=4),
    values,
    shares,
    floors,
    st.sampled_from([1, 1 << 20]),
)
def test_a_share_of_the_groups_and_floors_are_judged_by_definition(
    given: list[Any], truth: list[Any], share: Fraction, least: dict[str, float], at_once: int
) -> None:
    """``at_once``: how many groups that an answer lacks are looked at at once."""
    groups, columns = ["g0", "g1"], ["count", "total"]
    known = pa.Table.from_pylist(truth, schema=VALUES)
    rows = [[{**row, "window_end": window} for row in rows if row["window_end"] == 0] for window, rows in given]
    answers = pa.Table.from_pylist([row for own in rows for row in own], schema=VALUES)
    number = np.repeat(np.arange(len(given)), [len(own) for own in rows])
    windows = np.array([window for window, _ in given])
    in_window = known.column("window_end").to_numpy()
    with mock.patch.object(measures, "_MISSING_AT_ONCE", at_once):
        errors = window_errors(
            answers, number, known, in_window, windows, groups, columns, Tolerance(float(share), least)
        )
    expected = [
        oracle.relative_error(own, truth, [window], groups, columns, share, least)[0]
        for own, window in zip(rows, windows.tolist(), strict=True)
    ]
    assert errors.tolist() == pytest.approx(expected, rel=1e-15, abs=1e-12)


@LAWS
@given(values, values, shares, floors)
def test_the_errors_of_groups_make_that_of_their_window(
    answers: list[Any], truth: list[Any], share: Fraction, least: dict[str, float]
) -> None:
    tables = [pa.Table.from_pylist(rows, schema=VALUES) for rows in (answers, truth)]
    in_answer, in_window = (table.column("window_end").to_numpy() for table in tables)
    judged = ["g0", "g1"], ["count", "total"], Tolerance(float(share), least)
    errors, of_missing, places = group_errors(tables[0], in_answer, tables[1], in_window, *judged)
    for window in range(4):
        own = sorted([*errors[in_answer == window], *of_missing[in_window[places] == window]])
        rank = math.ceil(share * len(own))
        assert relative_error(*tables, pa.array([window]), *judged)[0] == (own[rank - 1] if own else 0.0)


@LAWS
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=20), targets)
def test_the_slack_of_most_groups_is_the_least_that_does(rows: list[tuple[int, int, int]], target: float) -> None:
    """Groups, needed slacks and weights; the definition tries every slack that any of them needed."""
    group, needed_s, weights = (np.array(column) for column in zip(*rows, strict=True))

    def reached(slack_s: float) -> float:
        shares = []
        for one in set(group.tolist()):
            own = group == one
            shares.append(weights[own & (needed_s <= slack_s)].sum() / weights[own].sum() >= target - 1e-9)
        return sum(shares) / len(shares)

    for within in (0.5, 0.95):
        least = min(slack_s for slack_s in needed_s.tolist() if reached(slack_s) >= within - 1e-9)
        found = slack.least_covering_groups(needed_s.astype(float), group, target, weights.astype(float), within)
        assert found == least
    share = slack.share_of_groups(needed_s <= least, group, target, weights.astype(float))
    assert share == pytest.approx(reached(least))


@LAWS
@given(values)
def test_the_truth_has_no_error(truth: list[Any]) -> None:
    table = pa.Table.from_pylist(truth, schema=VALUES)
    assert not relative_error(table, table, pa.array([0, 1, 2, 3]), ["g0", "g1"], ["count", "total", "latest"]).any()


@LAWS
@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.02, 0.5, math.nan]), min_size=4, max_size=4), max_size=6),
    st.sampled_from([0.0, 0.02, 0.4]),
)
def test_needed_slack_on_a_grid_equals_the_definition(errors: list[list[float]], tolerated: float) -> None:
    grid = [0.0, 60.0, 90.0, 600.0]
    needed = needed_slack_on_grid(np.array(errors, dtype=float).reshape(-1, 4), np.array(grid), tolerated)
    assert needed.tolist() == [oracle.needed_slack_on_grid(row, grid, tolerated) for row in errors]


@LAWS
@given(needed_slacks, targets)
def test_oracle_slack_is_the_least_that_meets_the_target(needed: list[float], target: float) -> None:
    slack_s = oracle_slack(np.array(needed), target)
    assert slack_s == oracle.least_covering(needed, math.ceil(len(needed) * target - 1e-9))
    assert accuracy_at(np.array(needed), slack_s) >= target - 1e-9
    assert slack_s == 0 or accuracy_at(np.array(needed), slack_s - 1) < target


@LAWS
@given(needed_slacks, targets, st.sampled_from([None, 0.5, 0.95]), st.randoms(use_true_random=False))
def test_chosen_slack_is_the_conformal_rank_or_more(
    needed: list[float], target: float, confidence: float | None, random: Any
) -> None:
    choice = choose_slack(np.array(needed), target, confidence=confidence)
    rank = min(len(needed), math.ceil((len(needed) + 1) * target - 1e-9))
    least = oracle.least_covering(needed, rank)
    assert choice.slack_s == least if confidence is None else choice.slack_s >= least
    assert choice.slack_s >= oracle_slack(np.array(needed), target)
    assert choice.slack_s == int(choice.slack_s)
    assert choice.accuracy_expected == accuracy_at(np.array(needed), choice.slack_s)
    random.shuffle(needed)
    assert choose_slack(np.array(needed), target, confidence=confidence) == choice


@LAWS
@given(needed_slacks, targets, st.floats(0.01, 100))
def test_equal_weights_change_nothing(needed: list[float], target: float, weight: float) -> None:
    weights = np.full(len(needed), weight)
    assert (
        choose_slack(np.array(needed), target, weights=weights).slack_s
        == choose_slack(np.array(needed), target).slack_s
    )


@LAWS
@given(needed_slacks)
def test_accuracy_rises_with_slack(needed: list[float]) -> None:
    curve = [accuracy_at(np.array(needed), slack_s) for slack_s in range(45)]
    assert curve == sorted(curve)
    assert curve[-1] == 1
