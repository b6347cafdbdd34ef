"""The error-to-width map on examples small enough to check by eye, and at the edges."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from infra.benchmarks.error_width.__main__ import DEPARTURES, HOUR
from infra.benchmarks.error_width.errors import Question, errors_over, relative_error, window_ends
from infra.benchmarks.error_width.panes import Panes, departures, panes_of
from infra.benchmarks.error_width.replay import study

from tidegate.operators import accuracy
from tidegate.operators.accuracy import (
    ShareChoice,
    choose_share,
    error_bounds,
    evidence_s,
    least_evidence,
    sample_stride,
    widths_to_try,
)

SHARES = np.array([0.25, 0.5, 1.0])


def test_every_tick_of_a_short_range_is_tried_and_no_share_below_a_24th_of_a_long_one() -> None:
    assert widths_to_try(1).tolist() == [1]
    assert widths_to_try(6).tolist() == [1, 2, 3, 4, 5, 6]
    assert widths_to_try(72)[[0, 1, -2, -1]].tolist() == [3, 4, 69, 72]
    assert widths_to_try(2016)[[0, -1]].tolist() == [84, 2016]
    with pytest.raises(ValueError, match="range_ticks must be at least 1"):
        widths_to_try(0)


@pytest.mark.parametrize(
    ("every_s", "range_s", "stride", "days"),
    [(600, 3600, 3, 14), (600, 6 * 3600, 5, 14), (20, 60, 1, 14), (3600, 24 * 3600, 3, 14), (86400, 7 * 86400, 1, 40)],
)
def test_windows_are_sampled_the_rarer_the_more_they_overlap(
    every_s: float, range_s: float, stride: int, days: int
) -> None:
    assert sample_stride(range_s, every_s) == stride
    assert evidence_s(range_s, every_s) == days * 86400


def test_the_bound_is_the_order_statistic_that_one_more_window_stays_below_in_19_of_20_cases() -> None:
    errors = np.arange(100.0)[:, None]
    assert error_bounds(errors).tolist() == [95.0]  # rank ceil(0.95 · 101) = 96, of errors that begin with 0
    assert error_bounds(errors[:19]).tolist() == [18.0]
    assert error_bounds(errors[:18]).tolist() == [np.inf]
    assert error_bounds(errors[:0]).tolist() == [np.inf]
    assert [least_evidence(rate) for rate in (0.05, 0.1, 0.5, 0.03)] == [19, 9, 1, 33]


def test_a_narrower_width_is_never_called_better_than_a_wider_one() -> None:
    by_luck = np.column_stack([np.zeros(20), np.full(20, 0.3), np.full(20, 0.1)])
    assert error_bounds(by_luck).tolist() == [0.3, 0.3, 0.1]
    assert choose_share(by_luck, SHARES, 0.2) == ShareChoice(1.0, 1.0, 20)
    assert choose_share(by_luck, SHARES, 0.3) == ShareChoice(0.25, 1.0, 20)


def test_an_error_of_exactly_what_is_tolerated_is_tolerated() -> None:
    assert choose_share(np.full((19, 3), 0.1), SHARES, 0.1).share == 0.25


def test_one_window_in_twenty_may_miss_and_coverage_says_how_many_did() -> None:
    errors = np.zeros((39, 3))
    errors[0, :2] = 1.0  # rank 38 of 39: one may miss
    assert choose_share(errors, SHARES, 0.1) == ShareChoice(0.25, 38 / 39, 39)
    errors[1, 0] = 1.0
    assert choose_share(errors, SHARES, 0.1) == ShareChoice(0.5, 38 / 39, 39)


def test_where_even_the_whole_range_does_not_do_it_is_held_and_coverage_says_so() -> None:
    late = np.tile([0.9, 0.6, 0.3], (20, 1))
    late[:5] = 0.0
    assert choose_share(late, SHARES, 0.1) == ShareChoice(1.0, 0.25, 20)


def test_too_little_evidence_chooses_nothing_and_what_is_not_a_number_is_no_success() -> None:
    assert choose_share(np.zeros((18, 3)), SHARES, 0.1) == ShareChoice(None, None, 18)
    assert choose_share(np.zeros((0, 3)), SHARES, 0.1) == ShareChoice(None, None, 0)
    unknown = np.zeros((19, 3))
    unknown[3, 1] = np.nan
    assert choose_share(unknown, SHARES, 0.1).share == 1.0


@pytest.mark.parametrize("shares", [[0.5, 0.25, 1.0], [0.0, 0.5, 1.0], [0.25, 0.5, 0.9], [0.5, 1.0]])
def test_shares_that_contradict_themselves_are_refused(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="shares must|errors must"):
        choose_share(np.zeros((20, 3)), np.array(shares), 0.1)


def test_miss_rates_outside_their_range_are_refused() -> None:
    for rate in (0.0, 1.0, 5.0):
        with pytest.raises(ValueError, match="miss_rate"):
            error_bounds(np.zeros((20, 1)), rate)


def counts_table(values: list[float | None]) -> pa.Table:
    """A window each, of an ungrouped COUNT; None: the window has no row."""
    known = [(end, value) for end, value in enumerate(values) if value is not None]
    return pa.table({"window_end": [end for end, _ in known], "n": pa.array([v for _, v in known], pa.float64())})


def test_windows_without_tuples_are_right_at_any_width_and_what_is_missed_altogether_counts_one() -> None:
    """The promise counts empty windows too, so they are evidence like any other."""
    truth, narrow = counts_table([0.0, 5.0, None, 4.0]), counts_table([0.0, 0.0, None, None])
    assert accuracy.relative_error(narrow, truth, pa.array([0, 1, 2, 3]), [], ["n"]).tolist() == [0, 1, 0, 1]


def test_the_study_measures_errors_as_the_pipeline_does() -> None:
    answers, truths = np.meshgrid([0.0, 3.0, -3.0, 7.5, np.nan], [0.0, 3.0, -2.0, np.nan])
    answer, truth = answers.ravel(), truths.ravel()
    tables = [
        pa.table({"window_end": np.arange(len(values)), "v": pa.array(values, mask=np.isnan(values))})
        for values in (answer, truth)
    ]
    expected = accuracy.relative_error(*tables, pa.array(np.arange(len(answer))), [], ["v"])
    assert relative_error(answer, truth).tolist() == expected.tolist()


@pytest.mark.parametrize("function", ["count", "sum", "avg", "max", "ratio"])
@pytest.mark.parametrize("by_group", [False, True])
def test_the_study_answers_each_window_from_its_tuples(function: str, by_group: bool) -> None:
    rng = np.random.default_rng(4)
    event_s, group = np.sort(rng.integers(0, 60 * 300, 40)), rng.integers(0, 2, 40)
    values = {"x": rng.integers(1, 50, 40).astype(float), "y": rng.integers(1, 50, 40).astype(float)}
    stream = panes_of("s", event_s, group, values)
    columns = {"count": (), "ratio": ("x", "y")}.get(function, ("x",))
    question = Question(function, 12, columns, by_group)  # type: ignore[arg-type]

    def answer(end: int, width: int) -> dict[int, float | None]:
        rows: dict[int, float | None] = {}
        for g in (0, 1) if by_group else (-1,):
            inside = (event_s >= (end - width) * 300) & (event_s < end * 300) & (not by_group or group == g)
            x, y = values["x"][inside], values["y"][inside]
            if by_group and not inside.any():
                continue
            scaled = {"count": len(x) * 12 / width, "sum": x.sum() * 12 / width}
            other = {} if not inside.any() else {"avg": x.mean(), "max": x.max(), "ratio": x.sum() / y.sum()}
            rows[g] = (scaled | other).get(function) if inside.any() or function == "count" else None
        return rows

    def table(width: int, ends: list[int]) -> pa.Table:
        rows = [{"window_end": e, "g": g, "v": v} for e in ends for g, v in answer(e, width).items()]
        return pa.Table.from_pylist(
            rows, pa.schema([("window_end", pa.int64()), ("g", pa.int64()), ("v", pa.float64())])
        )

    ends = [int(end) for end in window_ends(stream, question)]
    assert ends[0] == 12 and len(ends) > 20
    for position, width in enumerate((1, 5, 12)):
        expected = accuracy.relative_error(table(width, ends), table(12, ends), pa.array(ends), ["g"], ["v"])
        np.testing.assert_allclose(errors_over(stream, question, [1, 5, 12])[:, position], expected, rtol=1e-9)


REAL = [
    (Question("count", 3 * HOUR, by_group=True), 0.3),
    (Question("avg", 24 * HOUR, ("dep_delay",)), 0.3),
    (Question("avg", 24 * HOUR, ("distance",)), 0.1),
]


@pytest.fixture(scope="module")
def real() -> Panes:
    return departures()


@pytest.mark.long
@pytest.mark.parametrize(
    ("question", "tolerated"),
    [
        *REAL,
        *(
            pytest.param(question, error, marks=pytest.mark.slow)
            for question, errors in DEPARTURES
            for error in errors
            if question.range_ticks <= 24 * HOUR and (question, error) not in REAL
        ),
    ],
    ids=str,
)
def test_a_year_of_departures_keeps_the_promise_in_every_month_and_holds_little_more_than_hindsight(
    real: Panes, question: Question, tolerated: float
) -> None:
    found = study(real, question, tolerated)
    assert found.learnt.coverage >= 0.95
    assert found.learnt.worst_month >= 0.90
    assert found.learnt.width <= 1.1 * found.hindsight
    assert found.learnt.width <= 1.1 * found.monthly
    assert found.formula is None or found.formula.coverage < 0.9
