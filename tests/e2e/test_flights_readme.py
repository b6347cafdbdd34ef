"""The answers in the flights' README are those that DuckDB finds in the data."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.oracle.answers import expected_truth
from tests.command import ROOT

from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.declarations.tables import schema
from tidegate.examples import land_flights

FLIGHTS = ROOT / "dags" / "pipelines" / "flights"
QUERIES = sorted(path.stem for path in (FLIGHTS / "queries").glob("*.sql"))
WINDOW_END = datetime(2013, 2, 8, 18, tzinfo=UTC)
DAY_END = datetime(2013, 2, 9, 5, tzinfo=UTC)
"""The end of that day in New York."""


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return load_pipeline(FLIGHTS)


@pytest.fixture(scope="module")
def warehouse(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tuples of 7 to 9 February, as if they had been ingested."""
    folder = tmp_path_factory.mktemp("warehouse") / "flights"
    for stream in pipeline.streams:
        tuples = getattr(land_flights, stream.name)(land_flights.data_folder())
        tuples = tuples[tuples["arrival"].between("2013-02-07", "2013-02-10", inclusive="left")]
        keys = {"event_id": stream.id[0], "event_time": stream.event_time, "arrival_time": stream.arrival_time}
        tuples = tuples.assign(**{key: tuples[column] for key, column in keys.items()})
        wanted = schema(pipeline, f"events_{stream.name}")
        partition = folder / f"events_{stream.name}" / "interval=2013-02-07T00"
        partition.mkdir(parents=True)
        data = pa.Table.from_pandas(tuples[wanted.names], preserve_index=False).cast(wanted)
        pq.write_table(data, partition / "part-00000.parquet")
    return folder


def cell(value: Any) -> str:
    """A value as the README writes it."""
    if isinstance(value, datetime):
        return f"{value:%H:%M}"
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


@pytest.mark.parametrize("query_id", QUERIES)
def test_the_answer_shown_is_the_truth(pipeline: Pipeline, warehouse: Path, query_id: str) -> None:
    query = pipeline.query(query_id)
    shown = DAY_END if query.calendar is not None else WINDOW_END
    final = shown + timedelta(seconds=pipeline.horizon_s)
    rows = expected_truth(pipeline, query, warehouse, final, final + timedelta(seconds=1))
    names = [*(["rank"] if query.kind == "top_k" else []), *(o.name for o in query.outputs)]
    text = (FLIGHTS / "README.md").read_text(encoding="utf-8")
    block = re.search(rf"<!-- answer: {query_id}(?:, rank <= (\d+))? -->\n((?:\|.*\|\n)+)", text)
    assert block is not None, f"README.md shows no answer of {query_id}"
    if block.group(1) is not None:
        rows = [row for row in rows if row["rank"] <= int(block.group(1))]
    expected = [names, *([cell(row[name]) for name in names] for row in rows)]
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in block.group(2).splitlines()]
    assert [lines[0], *lines[2:]] == expected
    assert len(rows) > 0
