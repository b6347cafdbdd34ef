"""Laws of local days, weeks and months: their instants, and what is counted in windows of them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.declarations.models import Query, from_us, to_us
from tidegate.declarations.positions import Report, Source
from tidegate.declarations.query_parser import parse_query
from tidegate.declarations.scope import StreamSchema
from tidegate.operators.schedule import Schedule, window_ends_us, window_ranges_us
from tidegate.queries.questions import Answering, Question
from tidegate.queries.scan import EventFiles
from tidegate.values.calendar import Calendar, Periods

TICK_US = 15 * 60 * 1_000_000
HOUR_US = 3_600_000_000
# Changes of an hour, of half an hour, at midnight (forward and back), none; offsets of quarters, and negative ones.
ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo", "Asia/Beirut",
    "America/Havana", "Asia/Kolkata", "Pacific/Chatham", "America/St_Johns", "Africa/Casablanca", "UTC",
)  # fmt: skip
zones = st.sampled_from(ZONES)
days = st.dates(date(2012, 1, 1), date(2036, 1, 1))


def midnight(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time(), UTC)


def first_quarters(zone: str, start: datetime, end: datetime) -> list[datetime]:
    """The first quarters of an hour in [start, end) of each local date, found by looking at every one."""
    found, newest = [], (start - timedelta(minutes=15)).astimezone(ZoneInfo(zone)).date()
    while start < end:
        if start.astimezone(ZoneInfo(zone)).date() > newest:
            newest = start.astimezone(ZoneInfo(zone)).date()
            found.append(start)
        start += timedelta(minutes=15)
    return found


@settings(max_examples=examples(100), deadline=None)
@given(zones, days, st.integers(1, 40))
def test_days_begin_at_the_first_instant_of_their_date(zone: str, first: date, length: int) -> None:
    start, end = midnight(first), midnight(first) + timedelta(days=length)
    starts_us = Calendar(zone, days=1).starts_us(to_us(start), to_us(end))
    assert [from_us(at) for at in starts_us.tolist()] == first_quarters(zone, start, end)


@settings(max_examples=examples(50), deadline=None)
@given(zones, days)
def test_weeks_begin_on_mondays_and_months_on_the_first(zone: str, first: date) -> None:
    span_us = to_us(midnight(first)), to_us(midnight(first) + timedelta(days=70))
    every = Calendar(zone, days=1).starts_us(*span_us).tolist()
    dates = {at: from_us(at).astimezone(ZoneInfo(zone)).date() for at in every}
    assert Calendar(zone, days=7).starts_us(*span_us).tolist() == [at for at in every if dates[at].weekday() == 0]
    assert Calendar(zone, months=1).starts_us(*span_us).tolist() == [at for at in every if dates[at].day == 1]


@settings(max_examples=examples(100), deadline=None)
@given(zones, days, st.sampled_from([(1, 0), (2, 0), (7, 0), (14, 0), (0, 1), (0, 3)]), st.integers(0, 90 * 96))
def test_an_instant_is_in_one_period(zone: str, first: date, length: tuple[int, int], quarters: int) -> None:
    periods, at_us = Periods(1, Calendar(zone, *length)), to_us(midnight(first)) + quarters * TICK_US + 1
    begin_us = periods.begin_us(at_us)
    end_us = periods.next_us(begin_us)
    assert begin_us <= at_us < end_us
    assert periods.begin_us(end_us - 1) == begin_us
    assert (periods.begin_us(begin_us), periods.begin_us(end_us)) == (begin_us, end_us)
    assert end_us - begin_us <= periods.longest_us
    assert begin_us % periods.calendar.largest_tick_us == 0  # type: ignore[union-attr]
    numbers = periods.calendar.numbers(np.array([begin_us, end_us]))  # type: ignore[union-attr]
    assert int(numbers[1] - numbers[0]) == 1


@settings(max_examples=examples(100), deadline=None)
@given(zones, days, st.sampled_from([(1, 0), (3, 0), (7, 0), (0, 1), (0, 2)]))
def test_a_window_reaches_back_by_dates(zone: str, day: date, length: tuple[int, int]) -> None:
    calendar = Calendar(zone, *length)
    end_us = Calendar(zone, days=1).starts_us(to_us(midnight(day)), to_us(midnight(day) + timedelta(days=2)))
    begin_us = calendar.before_us(end_us)
    for begin, end in zip(begin_us.tolist(), end_us.tolist(), strict=True):
        first, last = (from_us(at).astimezone(ZoneInfo(zone)).date() for at in (begin, end))
        if calendar.days:
            assert last - first == timedelta(days=calendar.days)
        else:
            months = (last.year - first.year) * 12 + last.month - first.month
            assert months == calendar.months
            assert first.day == last.day or (first.day < last.day and (first + timedelta(days=1)).day == 1)
        assert end - begin <= calendar.longest_us


def query_of(every: str, window: str = "") -> Query:
    report = Report(Source(Path("q.sql"), f"SELECT COUNT(*) AS n FROM events {window} EVERY {every}"))
    query = parse_query("q", report, {"events": StreamSchema("events", {"id": "string"})}, TICK_US)
    assert query is not None, report.mistakes
    return query


def counts(folder: Path, query: Query, start: datetime, end: datetime, event_us: np.ndarray) -> dict[datetime, int]:
    """Window begin → how many events are in the window, as the operator counts them."""
    ends_us = window_ends_us(query, to_us(start), to_us(end))
    ranges_us = window_ranges_us(query, ends_us)
    schedule = Schedule.from_ticks(ends_us, 0, ranges_us)
    instants = pa.array(np.sort(event_us)).cast(pa.timestamp("us", tz="UTC"))
    ids = pa.array([str(n) for n in range(len(event_us))])
    events = pa.table({"event_id": ids, "event_time": instants, "arrival_time": instants})
    pq.write_table(events, folder / "events.parquet")
    files = {"events": EventFiles((str(folder / "events.parquet"),), events.schema)}
    rows = Answering(Question(query, schedule, np.ones(len(schedule)), files, TICK_US)).table().to_pylist()
    begins_us = ends_us - ranges_us["events"]
    return {from_us(int(begins_us[row["_window_index"]])): row["n"] for row in rows}


@settings(max_examples=examples(20), deadline=None)
@given(
    st.sampled_from([zone for zone in ZONES if zone != "America/Sao_Paulo"]),
    days,
    st.integers(0, 2**32 - 1),
    st.sampled_from(["DAY", "WEEK", "MONTH"]),
)
def test_what_is_counted_a_local_day_is_what_dates_count(
    tmp_path_factory: pytest.TempPathFactory, zone: str, first: date, seed: int, unit: str
) -> None:
    """Over two years, with their changes: each event under the date that the zone's clocks show."""
    start, end = midnight(first), midnight(first) + timedelta(days=730)
    chance = np.random.default_rng(seed)
    event_us = np.unique(chance.integers(to_us(start), to_us(end), 4000))
    expected: Counter[date] = Counter()
    for at in event_us.tolist():
        day = from_us(at).astimezone(ZoneInfo(zone)).date()
        day -= timedelta(days={"DAY": 0, "WEEK": day.weekday(), "MONTH": day.day - 1}[unit])
        expected[day] += 1
    query = query_of(f"1 {unit} AT TIME ZONE '{zone}'")
    found = counts(tmp_path_factory.mktemp("events"), query, start + timedelta(days=63), end, event_us)
    assert len(found) > 20
    for begin, count in found.items():
        assert count == expected[begin.astimezone(ZoneInfo(zone)).date()], begin


def test_a_date_that_a_zone_leaves_out_has_no_window() -> None:
    """Samoa went over the date line: after the 29th of December 2011 came the 31st."""
    query = query_of("1 DAY AT TIME ZONE 'Pacific/Apia'")
    ends_us = window_ends_us(query, to_us(datetime(2011, 12, 29, tzinfo=UTC)), to_us(datetime(2012, 1, 1, tzinfo=UTC)))
    assert np.diff(ends_us).tolist() == [24 * HOUR_US, 24 * HOUR_US]
    assert window_ranges_us(query, ends_us)["events"].tolist() == [24 * HOUR_US] * 3


def test_ranges_in_hours_and_utc_are_as_long_as_they_say() -> None:
    query = query_of("1 DAY AT TIME ZONE 'Europe/Berlin'", "[24 HOURS]")
    spring = to_us(datetime(2024, 3, 30, tzinfo=UTC)), to_us(datetime(2024, 4, 2, tzinfo=UTC))
    ends_us = window_ends_us(query, *spring)
    assert np.diff(ends_us).tolist() == [23 * HOUR_US, 24 * HOUR_US]
    assert set(window_ranges_us(query, ends_us)["events"].tolist()) == {24 * HOUR_US}
    fixed, local = query_of("1 DAY", "[1 DAY]"), query_of("1 DAY AT TIME ZONE 'UTC'", "[1 DAY]")
    assert window_ends_us(fixed, *spring).tolist() == window_ends_us(local, *spring).tolist()
    assert (fixed.windows[0].range_s, local.windows[0].range_s) == (86_400.0, 86_400.0)
