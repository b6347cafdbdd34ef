"""Flights a local day of New York, through the night in which clocks went forward, against the airports' own dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from tests.command import run_stages

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.examples.land_flights import data_folder, main
from tidegate.store.warehouse import Warehouse

pytestmark = pytest.mark.e2e

# Local midnight of the 8th, and what is known when the windows of the 8th to 10th are final.
START, END = datetime(2013, 3, 8, 5, tzinfo=UTC), datetime(2013, 3, 11, 12, tzinfo=UTC)
README = Path(__file__).resolve().parents[2] / "spark_apps/tidegate/examples/flights/README.md"


def dates() -> pd.DataFrame:
    """(origin, local date of the schedule) → flights that left, and until when the last 6 hours late of them."""
    columns = ["origin", "year", "month", "day", "dep_time", "dep_delay", "time_hour", "minute"]
    flights = pd.read_csv(data_folder() / "flights.csv.zip", usecols=columns)
    flights = flights[flights["dep_time"].notna() & (flights["month"] == 3) & flights["day"].between(8, 10)].copy()
    minutes = pd.to_timedelta(flights["minute"] + flights["dep_delay"], unit="min")
    flights["left"] = pd.to_datetime(flights["time_hour"], utc=True) + minutes
    return flights


def the_query() -> str:
    """As the example's README has it."""
    lines = README.read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if "AT TIME ZONE" in line)
    while lines[first - 1].startswith("    "):
        first -= 1
    last = next(i for i in range(first, len(lines)) if not lines[i].strip())
    return "\n".join(lines[first:last])


def test_flights_of_local_days_are_those_of_the_airports_dates(tmp_path: Path) -> None:
    init(tmp_path / "flights", "flights")
    hours = [f"{at:%Y-%m-%dT%H}" for at in (START, END)]
    landing = str(tmp_path / "flights" / "landing")
    assert main(["--landing", landing, "--stream", "departures", "--from", hours[0], "--to", hours[1]]) == 0
    for query in (tmp_path / "flights" / "queries").iterdir():
        query.unlink()
    (tmp_path / "flights" / "queries" / "by_day.sql").write_text(the_query())
    pipeline = load_pipeline(tmp_path / "flights")
    run_stages(pipeline, tmp_path / "warehouse", START, END, ["ingest", "join_aggregate", "calibrate"])
    warehouse = Warehouse(tmp_path / "warehouse", pipeline)
    flights = dates()
    days = {datetime(2013, 3, 9, 5, tzinfo=UTC): 8, datetime(2013, 3, 10, 5, tzinfo=UTC): 9,
            datetime(2013, 3, 11, 4, tzinfo=UTC): 10}  # fmt: skip
    for table, waited in (("answers_by_day", None), ("truth_by_day", timedelta(hours=6))):
        rows = warehouse.read_arrow(table).to_pylist()
        found = {(row["window_end"], row["origin"]): row["departures"] for row in rows}
        expected = {}
        for end, day in days.items():
            until = (
                end + waited if waited is not None else next(r["emitted_at"] for r in rows if r["window_end"] == end)
            )
            own = flights[(flights["day"] == day) & (flights["left"] <= until)]
            expected |= {(end, origin): count for origin, count in own.groupby("origin").size().items()}
        assert found == expected
        assert len(found) == 9
    ranges = {
        row["window_end"]: row["range_s"][0][1] / 3600 for row in warehouse.read_arrow("answers_by_day").to_pylist()
    }
    assert list(ranges.values()) == [24, 24, 23]
