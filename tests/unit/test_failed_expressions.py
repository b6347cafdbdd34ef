"""Rows on which an expression fails: which they are, and that no way of working counts one of them twice, or not."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators.expressions import Failed, can_fail, checked, evaluate

MOST = 2**63 - 1
ROWS = pa.table(
    {
        "n": pa.array([0, 1, 7, MOST, None], pa.int64()),
        "x": pa.array([0.0, 0.5, 1e300, float("nan"), None], pa.float64()),
        "k": pa.array(["12", "a", "2013-02-30", "", None], pa.string()),
    }
)
# What fails on which rows. A NULL that comes of a NULL is no failure, and neither is one that was asked for.
FAILING = {
    "n + 1": [3], "n * 2": [3], "-n": [], "n DIV (n - 7)": [2], "7 % n": [0], "x / n": [0],
    "CAST(k AS BIGINT)": [1, 2, 3], "CAST(k AS DATE)": [0, 1, 2, 3], "FLOOR(x)": [2], "LN(x)": [0], "1 + NULL": [],
    "9223372036854775807 + 1": [0, 1, 2, 3, 4], "NULLIF(n, 1)": [],
    "x / NULLIF(n, 0)": [0], "x / NULLIF(NULLIF(n, 0), 0)": [], "n IS NULL": [],
    # One that fails within another counts once; whatever is made of its NULL.
    "(n + 1) * 2 - 1": [3], "COALESCE(n + 1, 0)": [3], "n + 1 IS NULL": [3], "GREATEST(n + 1, 5)": [3],
    # What is not looked at does not fail.
    "CASE WHEN n = 0 THEN 0.0 ELSE x / n END": [], "CASE n WHEN 0 THEN 1 WHEN 7 THEN n + 1 END": [],
    "CASE WHEN 1 / n > 0 THEN 1 END": [0], "IF(n > 7, 0, n + 1)": [], "COALESCE(n, 1 DIV 0)": [4],
    "n <> 0 AND 7 DIV n > 1": [], "7 DIV n > 1 AND n <> 0": [0], "n = 0 OR 7 DIV n > 1": [],
    "k = 'a' OR n + 1 > 0": [3],
}  # fmt: skip


@pytest.mark.parametrize(("sql", "failing"), FAILING.items())
def test_a_row_fails_where_something_that_matters_has_no_value(sql: str, failing: list[int]) -> None:
    value, failed = checked(sql, ROWS)
    assert np.flatnonzero(failed).tolist() == failing
    assert repr(value.to_pylist()) == repr(evaluate(sql, ROWS).to_pylist()), "who watches changes nothing"
    assert can_fail(sql) or not failing


@pytest.mark.parametrize("sql", FAILING)
def test_a_row_fails_whatever_other_rows_do(sql: str) -> None:
    alone = [bool(checked(sql, ROWS.slice(row, 1))[1][0]) for row in range(ROWS.num_rows)]
    assert alone == checked(sql, ROWS)[1].tolist()


def test_what_is_filtered_out_fails_no_more_and_a_row_counts_once() -> None:
    failed = Failed(ROWS)
    left = failed.filtered("7 DIV n >= 0")
    assert failed.rows.tolist() == [True, False, False, False, False]
    assert left.column("n").to_pylist() == [1, 7, MOST]
    assert failed.value("n + 1").to_pylist() == [2, 8, None]
    assert failed.value("n * 2").to_pylist() == [2, 14, None]
    assert failed.rows.tolist() == [True, False, False, True, False]


def test_a_condition_cut_in_two_fails_as_one() -> None:
    chance = Random(1)
    rows = pa.table({"n": [chance.choice([0, 1, 7, MOST, None]) for _ in range(200)]})
    together, apart = Failed(rows), Failed(rows)
    together.filtered("n <> 1 AND 7 DIV n < 9 AND n + 1 > 3")
    for part in ("n <> 1", "7 DIV n < 9", "n + 1 > 3"):
        apart.filtered(part)
    assert together.rows.tolist() == [n in (0, MOST) for n in rows.column("n").to_pylist()]
    # A NULL is neither true nor false: what stands behind it is looked at only within one condition.
    assert apart.rows.tolist() == together.rows.tolist()
