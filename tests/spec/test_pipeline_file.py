"""pipeline.yml as a table: one change to a good file, and the mistakes that it makes.

``pipeline_file/mistakes.txt`` holds cases parted by ``====``: the text that is replaced, ``--->``, its replacement,
``----``, the mistakes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import DeclarationErrors
from tidegate.declarations.models import Pipeline

FIXTURES = Path(__file__).parent / "pipeline_file"
GOOD = (FIXTURES / "pipeline.yml").read_text(encoding="utf-8")
QUERY = "SELECT COUNT(*) FROM departures [1 HOUR]"


def cases() -> list[tuple[str, str, str]]:
    """What is replaced, by what, and the mistakes expected."""
    found = []
    for block in (FIXTURES / "mistakes.txt").read_text(encoding="utf-8").split("\n====\n"):
        change, expected = block.strip("\n").split("\n----\n")
        before, after = change.split("\n--->\n")
        found.append((before, after, expected))
    return found


def load(folder: Path, text: str) -> Pipeline | str:
    """The pipeline that the text declares, or its mistakes, one a line."""
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(text, encoding="utf-8", newline="")
    (folder / "queries" / "count.sql").write_text(QUERY, encoding="utf-8")
    try:
        return load_pipeline(folder)
    except DeclarationErrors as error:
        return "\n".join(str(mistake).replace(f"{folder}/", "") for mistake in error.mistakes)


@pytest.fixture(autouse=True)
def _no_landing_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_LANDING", raising=False)
    monkeypatch.delenv("TIDEGATE_UNSET_VARIABLE", raising=False)


def test_the_unchanged_file_is_good(tmp_path: Path) -> None:
    assert isinstance(load(tmp_path / "flights", GOOD), Pipeline)


@pytest.mark.parametrize(("before", "after", "expected"), cases())
def test_a_change_for_the_worse_is_told(tmp_path: Path, before: str, after: str, expected: str) -> None:
    assert before in GOOD
    assert load(tmp_path / "flights", GOOD.replace(before, after, 1)) == expected


def test_the_fixture_holds_the_cases_that_it_should() -> None:
    assert len(cases()) >= 140


def test_a_column_that_is_called_none_is_the_id_that_none_names(tmp_path: Path) -> None:
    columns = "      none_of_it: boolean\n    id: [receipt, line]"
    pipeline = load(tmp_path / "flights", GOOD.replace(columns, "      none: string\n    id: none", 1))
    assert isinstance(pipeline, Pipeline) and pipeline.stream("sales").id == ("none",)
    without = load(tmp_path / "without" / "flights", GOOD.replace("id: [receipt, line]", "id: none", 1))
    assert isinstance(without, Pipeline) and without.stream("sales").id == ()


def test_what_the_new_keys_say_is_in_the_model(tmp_path: Path) -> None:
    pipeline = load(tmp_path / "flights", GOOD)
    assert isinstance(pipeline, Pipeline)
    sales = pipeline.stream("sales")
    dialect = sales.csv
    assert (dialect.delimiter, dialect.decimal, dialect.quote, dialect.nulls) == (";", ",", '"', ("", "NA"))
    assert (dialect.header, dialect.encoding, dialect.comment) == (True, "utf-8", "")
    steps = {column.name: column.steps for column in sales.columns}
    assert steps["receipt"] == ("Receipt no",) and steps["line"] == (3,) and steps["none_of_it"] == ("none_of_it",)
    sold = sales.column("sold")
    assert (sold.format, sold.zone) == ("%d.%m.%Y %H:%M:%S", "Europe/Berlin")
    assert sales.column("price").type == "decimal(10,2)" and sales.other_columns == "ignore"
