"""How values are read, by the table in values/cases.yml: a value at a time, and as columns. And how to add a format."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from tidegate.declarations import load_pipeline
from tidegate.engine.context import RunContext
from tidegate.sources.layout import layout_of
from tidegate.stages import ingest
from tidegate.store.intervals import intervals_between
from tidegate.values import value_format
from tidegate.values.base import Moment, NotFiniteError, NotOfTypeError, ValueFormat
from tidegate.values.times import TIME_FORMATS, TimeFormat

CASES = yaml.safe_load((Path(__file__).parent / "values" / "cases.yml").read_text(encoding="utf-8"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def reader(case: dict[str, Any]) -> ValueFormat:
    return value_format(case["type"], case.get("format", "iso"), case.get("zone", "UTC"), case.get("point", "."))


def meant(kind: str, value: Any) -> Any:
    """What a cell of the table means, as :meth:`ValueFormat.read` gives it."""
    if value is None or value == "non_finite":
        return value
    if kind == "timestamp":
        instant = datetime.fromisoformat(value)
        return ((instant - EPOCH).days * 86_400 + (instant - EPOCH).seconds) * 1_000_000 + instant.microsecond
    if kind == "date":
        return (date.fromisoformat(value) - EPOCH.date()).days
    return Decimal(value) if kind.startswith("decimal") else value


def read(values: ValueFormat, text: str) -> Any:
    try:
        return values.read(text)
    except NotOfTypeError:
        return None
    except NotFiniteError:
        return "non_finite"


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(f"{v}" for k, v in c.items() if k != "texts"))
def test_a_text_means_what_the_table_says(case: dict[str, Any]) -> None:
    values = reader(case)
    found = {text: read(values, text) for text in case["texts"]}
    assert found == {text: meant(case["type"], value) for text, value in case["texts"].items()}
    assert {type(x) for x in found.values()} <= {
        str,
        type(None),
        *(type(meant(case["type"], v)) for v in case["texts"].values()),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(f"{v}" for k, v in c.items() if k != "texts"))
def test_columns_of_texts_have_the_same_values(case: dict[str, Any]) -> None:
    """Whole columns of each text, alone and beside another: what is not left to a closer look is what is read."""
    values = reader(case)
    texts = list(case["texts"])
    for column in [[text] for text in texts] + [[text, None, text] for text in texts] + [texts]:
        typed, doubtful = values.column(pa.array(column, pa.string()))
        assert len(typed) == len(column)
        sure = [row for row in range(len(column)) if not doubtful[row] and column[row] is not None]
        expected = [read(values, column[row] or "") for row in sure]
        taken = typed.take(pa.array(sure, pa.int64()))
        suspects = values.suspects(taken)
        assert None not in expected
        kept = [n for n in range(len(sure)) if expected[n] != "non_finite"]
        assert all(suspects is not None and suspects[n] for n in range(len(sure)) if n not in kept)
        assert taken.take(pa.array(kept, pa.int64())).equals(values.of([expected[n] for n in kept]))
        assert [row for row in range(len(column)) if column[row] is None and not typed[row].is_valid] == [
            row for row in range(len(column)) if column[row] is None
        ]


class DaysOfSheets(TimeFormat):
    """The days since 1899-12-30 that spreadsheets count: what a test adds as somebody would."""

    def moment(self, text: str) -> Moment:
        try:
            return Moment(round((float(text) - 25569) * 86_400_000_000), zoned=False)
        except (ValueError, OverflowError):
            raise NotOfTypeError from None


def test_a_format_is_a_class_and_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else asks what it is called: it is declared, read in CSV and JSON, and refused where it does not fit."""
    monkeypatch.setitem(TIME_FORMATS, "sheet_days", lambda kind, zone, point: DaysOfSheets(kind, zone))
    folder = tmp_path / "sheets"
    (folder / "queries").mkdir(parents=True)
    (folder / "queries" / "n.sql").write_text("SELECT COUNT(*) AS n FROM a [1 HOUR] EVERY 5 MINUTES\n")
    stream = """
  {name}:
    format: {format}
    path: {name}.{format}
    columns: {{id: string, at: {{type: timestamp, format: sheet_days, zone: Europe/Berlin}}}}
    id: id
    event_time: at
    arrival_time: at
    rate: 10 per hour
"""
    head = (
        "name: sheets\nowner: nobody\nstart: 2026-01-05T00:00:00Z\ninterval: 1 hour\ntick: 5 minutes\nhorizon: 1 hour\n"
    )
    head += "memory_budget: 1 MiB\nprocess_budget: 3 GiB\nstreams:"
    text = head + stream.format(name="a", format="csv") + stream.format(name="b", format="jsonl")
    (folder / "pipeline.yml").write_text(text)
    (folder / "a.csv").write_text("id,at\n1,46027.375\n2,soon\n")
    (folder / "b.jsonl").write_text('{"id": "1", "at": 46027.375}\n{"id": "2", "at": "46027,5"}\n')
    pipeline = load_pipeline(folder)
    assert isinstance(layout_of(pipeline.streams[0]).fields[1].values, DaysOfSheets)
    start = datetime(2026, 1, 5, 8, tzinfo=UTC)
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        ingest.read(context, intervals_between(pipeline, start, start.replace(hour=9)))
        for name in "ab":
            rows = context.warehouse.read_arrow(f"events_{name}").to_pylist()
            assert [(r["event_id"], r["event_time"]) for r in rows] == [("1", start)]
        refused = context.warehouse.read_arrow("quarantine").to_pylist()
        assert [(r["stream"], r["reason"], r["column"], r["position"]) for r in refused] == [
            ("a", "wrong_type", "at", 3),
            ("b", "wrong_type", "at", 2),
        ]
