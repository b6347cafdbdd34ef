"""Decimals where they are ranked, dealt to parts, compared and shown."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tidegate.cli.newest_answers import table
from tidegate.declarations.names import refusal
from tidegate.declarations.tables import WIDTHS
from tidegate.operators.expressions import evaluate, truth
from tidegate.operators.schedule import Schedule
from tidegate.operators.top_k import Spec, Term, finish, start, step
from tidegate.queries.scan import _parts
from tidegate.sql.relations import duckdb_type
from tidegate.stages.dbt_project import spark_type

MOST, SECOND, THIRD = (Decimal("9" * 37 + last) for last in "987")
NEGATIVE = MOST.copy_negate()  # − rounds to 28 digits
LEAST = Decimal("1e-38")
WIDE = pa.decimal128(38, 0)


@pytest.mark.parametrize("descending", [True, False])
def test_decimals_that_are_one_double_are_ranked_exactly(descending: bool) -> None:
    """Negative ones and NULL among them."""
    values = [MOST, SECOND, NEGATIVE, None, Decimal(0), SECOND.copy_negate(), THIRD, Decimal(1)]
    spec = Spec(8, (Term("o0", descending),), pa.schema([("o0", WIDE)]), 10, "d")
    schedule = Schedule.from_ticks(np.array([10]), 0, {"d": 10})
    times = list(range(len(values)))
    batch = pa.table(
        {"event_us": times, "arrival_us": times, "event_id": list("abcdefgh"), "o0": pa.array(values, WIDE)}
    )
    state, early = step(start(spec, schedule), batch)
    ranked = pa.concat_tables([early, finish(state)[1]]).column("o0").to_pylist()
    known = sorted((v for v in values if v is not None), reverse=descending)
    assert ranked == [*known, None]


def test_equal_decimals_are_dealt_to_one_part() -> None:
    values = [MOST, NEGATIVE, None, Decimal(7), MOST, Decimal(7), NEGATIVE, Decimal(-1)]
    parts = _parts(pa.chunked_array([pa.array(values, WIDE)]), 5).tolist()
    assert parts[0] == parts[4] and parts[1] == parts[6] and parts[3] == parts[5]
    many = _parts(pa.chunked_array([pa.array([Decimal(n) for n in range(1000)], WIDE)]), 4)
    assert np.bincount(many, minlength=4).min() > 150


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("w = f", [False, False, None, True]),
        ("w > f", [True, False, None, False]),
        ("i = w", [False, False, None, True]),
        ("f <> i", [True, True, True, False]),
        ("w IN (0, f)", [False, False, None, True]),
        ("w BETWEEN f AND 1.5", [False, False, None, True]),
        ("x < f", [False, True, True, False]),
        ("COALESCE(w, i) = i", [False, False, True, True]),
    ],
)
def test_decimals_of_other_scales_are_compared_by_value(sql: str, expected: list[bool | None]) -> None:
    """Also where no decimal of 38 digits has both values."""
    rows = pa.table(
        {
            "w": pa.array([MOST, NEGATIVE, None, Decimal(0)], WIDE),
            "f": pa.array([Decimal("0." + "9" * 38), LEAST, LEAST, Decimal(0)], pa.decimal128(38, 38)),
            "i": pa.array([2**63 - 1, -(2**63), 3, 0], pa.int64()),
            "x": pa.array([1.0, 0.0, 0.0, 0.0]),
        }
    )  # fmt: skip
    assert evaluate(sql, rows).to_pylist() == expected
    assert truth(sql, rows).tolist() == [value is True for value in expected]


def test_what_does_not_fit_is_null() -> None:
    rows = pa.table({"w": pa.array([MOST], WIDE), "p": pa.array([Decimal("99.99")], pa.decimal128(4, 2))})
    nothing = [
        "w + w",
        "w * 2",
        "CAST(w AS BIGINT)",
        "CAST(p AS DECIMAL(3, 2))",
        "p / 0",
        "p % 0",
        "CAST('x' AS DECIMAL)",
    ]
    assert [evaluate(sql, rows).to_pylist() for sql in nothing] == [[None]] * len(nothing)


def test_names_of_types_in_other_systems() -> None:
    kind = pa.decimal128(22, 2)
    assert (spark_type(kind), duckdb_type(spark_type(kind))) == ("decimal(22,2)", "DECIMAL(22,2)")
    assert duckdb_type(spark_type(WIDTHS)) == "MAP(VARCHAR, DOUBLE)"


def test_an_answer_shows_all_digits() -> None:
    rows = [{"total": Decimal("1234567890123456789.10")}, {"total": Decimal("-0.00000001")}, {"total": None}]
    lines = [line.strip() for line in table(rows, ["total"], 80)]
    assert lines == ["total", "1234567890123456789.10", "-0.00000001", "NULL"]


def test_only_columns_may_be_called_by_words_of_the_language() -> None:
    assert [refusal(name, "column") is None for name in ("order", "End", "from", "interval")] == [
        True,
        True,
        True,
        False,
    ]
    assert all(refusal("order", what) for what in ("alias", "answer's column", "stream"))
