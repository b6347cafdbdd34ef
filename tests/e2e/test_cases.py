"""What strangers have, run by the command line: what is accepted, what is refused and why, and what is answered.

Each case is a folder of `tests/cases`, whose expectations are counted by hand.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.command import run_pipeline
from tests.live_files import live_rows

pytestmark = [pytest.mark.e2e, pytest.mark.no_cover]

CASES = Path(__file__).parents[1] / "cases"
NAMES = sorted(path.parent.name for path in CASES.glob("*/expected.json"))


def test_there_are_the_cases_that_there_should_be() -> None:
    assert len(NAMES) == 22


@pytest.mark.parametrize("name", NAMES)
def test_a_case_comes_out_as_it_was_counted_by_hand(name: str, tmp_path: Path) -> None:
    expected = json.loads((CASES / name / "expected.json").read_text(encoding="utf-8"))
    home = shutil.copytree(CASES / name, tmp_path / name)
    run_pipeline(home, tmp_path / "warehouse", expected["from"], expected["to"], "--stage", "answers")
    tables = tmp_path / "warehouse" / name
    refused = Counter(row["reason"] for row in rows_of(tables, "quarantine"))
    assert (len(rows_of(tables, "events_s")), dict(refused)) == (expected["accepted"], expected["refused"])
    if "unknown" in expected:
        unknown = Counter[str]()
        for row in rows_of(tables, "unknown_columns"):
            unknown[row["column"]] += row["records"]
        assert dict(unknown) == expected["unknown"]
    for query, answer in expected["answers"].items():
        end = datetime.fromisoformat(answer["window_end"])
        rows = [row for row in rows_of(tables, f"answers_{query}") if row["window_end"] == end]
        shown = [[row[column] for column in answer["columns"]] for row in rows]
        assert len(shown) == len(answer["rows"]), shown
        for wanted, actual in zip(sorted(answer["rows"], key=repr), sorted(shown, key=in_order(answer)), strict=True):
            assert all(map(same, actual, wanted)), f"{actual}, expected {wanted}"


def rows_of(tables: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table."""
    rows: list[dict[str, Any]] = live_rows(tables / table).to_pylist()
    return rows


def in_order(answer: dict[str, Any]) -> Any:
    """A key that brings actual rows into the order of the expected ones: by what they show first, or by that alone."""
    places = {repr(row[: keys_of(answer)]): number for number, row in enumerate(sorted(answer["rows"], key=repr))}
    return lambda row: places.get(repr([plain(value) for value in row[: keys_of(answer)]]), len(places))


def keys_of(answer: dict[str, Any]) -> int:
    """How many of the first columns tell the rows apart."""
    for count in range(len(answer["columns"]) + 1):
        if len({repr(row[:count]) for row in answer["rows"]}) == len(answer["rows"]):
            return count
    raise AssertionError("two rows are expected that are equal")


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    return str(value) if isinstance(value, Decimal | datetime) else value


def same(actual: Any, wanted: Any) -> bool:
    """Whether a value is the expected one; a decimal that is expected as text has its very digits."""
    if isinstance(actual, Decimal) and isinstance(wanted, str):
        return str(actual) == wanted
    if isinstance(actual, Decimal) and wanted is not None:
        return actual == Decimal(str(wanted))
    if isinstance(wanted, float) and actual is not None:
        return math.isclose(actual, wanted, rel_tol=1e-12)
    return bool(actual == wanted)
