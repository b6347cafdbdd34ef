"""The benchmark of whole intervals: every way takes in the same tuples, whatever the format."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest
from infra.benchmarks.pipeline.landed import COLUMNS, FORMATS, land
from infra.benchmarks.pipeline.ways import STAGES, WAYS

TUPLES = 2_000


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("landed")
    land(folder, TUPLES)
    return folder


def test_formats_hold_the_same_records(landed: Path) -> None:
    for stream, columns in COLUMNS.items():
        keys = [name for name, kind in columns.items() if kind == "string"]
        text = {name: pl.Float64 if kind == "double" else pl.String for name, kind in columns.items()}
        readers = {
            "jsonl": lambda p, s=text: pl.read_ndjson(p, schema=s),
            "csv": pl.read_csv,
            "parquet": pl.read_parquet,
        }
        found = [
            pl.concat(readers[kind](file).select(keys) for file in sorted((landed / kind / stream).iterdir())).sort(
                keys
            )
            for kind in FORMATS
        ]
        assert len(found[0]) == 2 * (TUPLES * 4 // 5 if stream == "orders" else TUPLES // 5)
        assert all(other.equals(found[0]) for other in found[1:])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("way", ["duckdb", "polars"])
def test_rivals_take_in_every_tuple_in_order(landed: Path, way: str, kind: str) -> None:
    assert [list(WAYS[way](landed, kind, hour, STAGES)) for hour in range(2)] == [[("ingest", TUPLES)]] * 2
    written = landed / f"{way}-{kind}-1-orders.parquet"
    unsorted = "SELECT count(*) FROM (SELECT received_at < lag(received_at) OVER () AS back FROM '{}') WHERE back"
    assert duckdb.sql(unsorted.format(written)).fetchall() == [(0,)]


def test_tidegate_runs_its_stages_on_both_hours(landed: Path) -> None:
    told = [list(WAYS["tidegate"](landed, "jsonl", hour, STAGES)) for hour in range(2)]
    assert told == [[(stage, TUPLES) for stage in STAGES]] * 2
