"""The demo's source: what it lands, when, and that it lands the same again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.examples import land_flights


@pytest.fixture(scope="module")
def source() -> ModuleType:
    """The program as a module."""
    return land_flights


@pytest.fixture(scope="module")
def feed(source: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 February 2013, all streams."""
    folder = tmp_path_factory.mktemp("landing")
    assert source.main(["--landing", str(folder), "--from", "2013-02-08", "--to", "2013-02-09"]) == 0
    return folder


def test_one_file_per_stream_and_hour_of_arrival(feed: Path) -> None:
    for stream, suffix in (("departures", "jsonl"), ("landings", "csv"), ("weather", "parquet")):
        names = sorted(path.name for path in (feed / stream).iterdir())
        assert names == [f"2013-02-08T{hour:02d}.{suffix}" for hour in range(24)]


def test_every_tuple_is_in_the_file_of_its_arrival(feed: Path) -> None:
    for path in sorted((feed / "departures").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            assert json.loads(line)["departed"][:13] == path.stem
    for path in sorted((feed / "landings").glob("*.csv")):
        assert {reported[:13] for reported in pd.read_csv(path)["reported"]} <= {path.stem}
    for path in sorted((feed / "weather").glob("*.parquet")):
        assert {f"{at:%Y-%m-%dT%H}" for at in pq.read_table(path)["published"].to_pylist()} <= {path.stem}


def test_nothing_is_lost_between_hours(feed: Path, source: ModuleType) -> None:
    landed = [json.loads(line) for path in (feed / "departures").iterdir() for line in path.read_text().splitlines()]
    table = source.departures(source.data_folder())
    of_the_day = table[table["departed"].dt.strftime("%Y-%m-%d") == "2013-02-08"]
    assert len(landed) == len(of_the_day) == 607
    assert {row["flight_id"] for row in landed} == set(of_the_day["flight_id"])


def test_a_silent_hour_has_a_file_without_tuples(feed: Path) -> None:
    # The storm: nothing left New York between 23:00 on 8 February and 14:00 on the 9th, UTC.
    assert (feed / "departures" / "2013-02-08T23.jsonl").read_bytes() == b""
    assert (feed / "landings" / "2013-02-08T10.csv").read_text().startswith("flight_id,carrier,origin,dest,")


def test_an_empty_parquet_file_has_the_types_of_a_full_one(source: ModuleType, tmp_path: Path) -> None:
    table = source.weather(source.data_folder())
    for rows, name in ((table.head(3), "full"), (table.head(0), "empty")):
        source.write_parquet(rows.drop(columns="arrival"), tmp_path / name)
    assert pq.read_schema(tmp_path / "empty") == pq.read_schema(tmp_path / "full")
    assert pq.read_schema(tmp_path / "full").field("observed").type == pa.timestamp("us", tz="UTC")


def test_landing_again_gives_the_same_bytes(feed: Path, source: ModuleType, tmp_path: Path) -> None:
    # Another range, run twice over the same folder: the hours that both have must not differ.
    for _ in range(2):
        source.main(["--landing", str(tmp_path), "--from", "2013-02-08T12", "--to", "2013-02-08T15"])
    again = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(again) == 9
    for path in again:
        assert path.read_bytes() == (feed / path.relative_to(tmp_path)).read_bytes()


def test_ids_are_unique_over_the_year(source: ModuleType) -> None:
    flights = source.read_flights(source.data_folder())
    assert len(flights) == 328_521
    assert flights["flight_id"].is_unique
    assert source.weather(source.data_folder())["observation_id"].is_unique


def test_scheduled_departures_are_utc_in_winter_and_summer(source: ModuleType) -> None:
    flights = source.read_flights(source.data_folder()).set_index("flight_id")
    # 05:15 on the clock of New York is 10:15 UTC in January, 09:15 in July.
    assert flights.loc["UA1545-EWR-20130101T1015", "scheduled"] == pd.Timestamp("2013-01-01T10:15Z")
    local = flights["scheduled"].dt.tz_convert("America/New_York")
    assert (local.dt.minute == flights["minute"]).all()
    actual = flights["departed"].dt.tz_convert("America/New_York")
    assert (actual.dt.hour * 100 + actual.dt.minute == flights["dep_time"] % 2400).all()


def test_landings_are_after_the_time_in_the_air(source: ModuleType) -> None:
    departed = source.read_flights(source.data_folder()).set_index("flight_id")["departed"]
    landings = source.landings(source.data_folder()).set_index("flight_id")
    minutes = (landings["landed"] - departed.loc[landings.index]).dt.total_seconds() / 60
    on_the_ground = (minutes - landings["air_time"]).dropna()
    # Taxiing out and in: never negative, which an hour's or a day's mistake would make it or blow it up.
    assert on_the_ground.min() >= 5
    assert on_the_ground.max() < 240
    assert (landings["reported"] >= landings["landed"]).all()


def test_a_landing_in_the_hour_that_the_clock_shows_twice(source: ModuleType) -> None:
    # 3 November 2013, 01:30 in New York: first in summer time (05:30 UTC), then in winter time (06:30 UTC).
    departed = pd.to_datetime(["2013-11-03T04:00Z", "2013-11-03T05:45Z"])
    flights = pd.DataFrame({"dest": ["BOS", "BOS"], "departed": departed, "arr_time": [130.0, 130.0]})
    landed = source.landing_times(flights, {"BOS": "America/New_York"})
    assert list(landed) == [pd.Timestamp("2013-11-03T05:30Z"), pd.Timestamp("2013-11-03T06:30Z")]


def test_modelled_delays_stay_within_what_they_claim(source: ModuleType) -> None:
    landings = source.landings(source.data_folder())
    delay_s = (landings["reported"] - landings["landed"]).dt.total_seconds()
    assert delay_s.min() >= 0
    assert delay_s.max() <= 90 * 60
    assert (delay_s > 15 * 60).mean() == pytest.approx(1 / 50, abs=0.002)
    weather = source.weather(source.data_folder())
    published_s = (weather["published"] - weather["observed"]).dt.total_seconds()
    assert published_s.between(5 * 60, 7 * 60).all()


def test_streams_can_be_chosen(source: ModuleType, tmp_path: Path) -> None:
    source.main(["--landing", str(tmp_path), "--from", "2013-02-08", "--to", "2013-02-08T01", "--stream", "weather"])
    assert [path.name for path in tmp_path.iterdir()] == ["weather"]


def test_a_date_is_an_hour_in_utc(source: ModuleType) -> None:
    assert source.parse_hour("2013-02-07") == datetime(2013, 2, 7, tzinfo=UTC)
    assert source.parse_hour("2013-02-07T10:00:00Z") == datetime(2013, 2, 7, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "2013-02-08", "--to", "2013-02-08"], "--to must be after --from"),
        (["--from", "2013-02-08T10:30", "--to", "2013-02-09"], "'2013-02-08T10:30' is not a whole hour"),
        (["--from", "yesterday", "--to", "2013-02-09"], "'yesterday' is not a time; expected 2013-02-07"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    source: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        source.main(["--landing", str(tmp_path), *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_told(source: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = Path(__file__) / "below-a-file"
    status = source.main(["--landing", str(nowhere), "--from", "2013-02-08", "--to", "2013-02-09"])
    assert status == 2
    assert "cannot write to" in capsys.readouterr().err
