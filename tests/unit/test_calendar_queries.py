"""What else a calendar decides for a query: its tick, its periods, its turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.test_promise_periods import pipeline_of

from tidegate.declarations.models import Query, from_us
from tidegate.declarations.positions import Report, Source
from tidegate.declarations.promises import period_length, terms_of
from tidegate.declarations.query_parser import parse_query
from tidegate.declarations.scope import StreamSchema
from tidegate.operators.window_sizing import ControllerSpec
from tidegate.operators.window_sizing.needs import Needs, QueryNeed, WindowNeed
from tidegate.operators.window_sizing.slots import slot_schedule
from tidegate.values.calendar import Calendar, utc_us

DAY_S = 86_400
MINUTE_US = 60_000_000


def parsed(text: str, tick_minutes: int = 15) -> tuple[Query | None, list[str]]:
    report = Report(Source(Path("q.sql"), text))
    query = parse_query("q", report, {"s": StreamSchema("s", {"id": "string"})}, tick_minutes * MINUTE_US)
    return query, [str(mistake) for mistake in report.mistakes]


@pytest.mark.parametrize(
    ("zone", "tick_minutes", "would_do"),
    [("Asia/Kathmandu", 10, "5 minutes"), ("Asia/Kathmandu", 60, "15 minutes"),
     ("Australia/Lord_Howe", 60, "30 minutes"), ("America/New_York", 120, "1 hour"),
     ("America/New_York", 7, "1 minute")],
)  # fmt: skip
def test_a_tick_that_no_midnight_is_a_multiple_of_is_refused(zone: str, tick_minutes: int, would_do: str) -> None:
    query, mistakes = parsed(f"SELECT COUNT(*) AS n FROM s EVERY 1 DAY AT TIME ZONE '{zone}'", tick_minutes)
    assert query is None
    (mistake,) = mistakes
    assert mistake.endswith(f"expected a tick of {would_do} in pipeline.yml")
    minutes = int(would_do.split(maxsplit=1)[0]) * (60 if "hour" in would_do else 1)
    assert parsed(f"SELECT COUNT(*) AS n FROM s EVERY 1 DAY AT TIME ZONE '{zone}'", minutes)[0] is not None


@pytest.mark.parametrize(
    ("every", "declared_days", "period", "name"),
    [((1, 0), 1, (1, 0), "day"), ((1, 0), 2, (2, 0), "period of 2 days"), ((1, 0), 7, (7, 0), "week"),
     ((7, 0), 1, (7, 0), "week"), ((7, 0), 8, (14, 0), "period of 2 weeks"), ((0, 1), 30, (0, 1), "month"),
     ((0, 1), 90, (0, 3), "period of 3 months")],
)  # fmt: skip
def test_promise_periods_are_whole_days_weeks_or_months(
    every: tuple[int, int], declared_days: int, period: tuple[int, int], name: str
) -> None:
    pipeline, calendar = pipeline_of(declared_days), Calendar("Europe/Berlin", *every)
    query = pipeline.query("worst").model_copy(update={"calendar": calendar, "every_s": calendar.usual_us / 1e6})
    terms = terms_of(pipeline, query)
    assert terms is not None
    assert terms.calendar == Calendar("Europe/Berlin", *period)
    assert terms.period_name() == name
    assert terms.sentence.endswith(f"each {name} of Europe/Berlin")


@pytest.mark.parametrize(
    ("start", "end", "name"),
    [("2024-03-30T23:00", "2024-03-31T22:00", "day"), ("2024-10-26T22:00", "2024-10-27T23:00", "day"),
     ("2024-10-20T22:00", "2024-10-27T23:00", "week"), ("2024-02-01T00:00", "2024-03-01T00:00", "month"),
     ("2024-02-01T06:00", "2024-02-01T12:00", "period of 6 hours"), ("2024-02-01T00:00", "2024-02-02T00:00", "day")],
)  # fmt: skip
def test_a_judged_period_is_called_what_it_is(start: str, end: str, name: str) -> None:
    assert period_length({"period_start": from_us(utc_us(start)), "period_end": from_us(utc_us(end))}) == name


def test_a_query_with_a_calendar_takes_no_turns() -> None:
    """Its windows end at midnights alone, so no plan may have it wait for a slot."""
    windows = [WindowNeed("a", 1.0), WindowNeed("b", 1.0)]
    for delay_s, peak_bytes in ((12.0, 14.0), (0.0, 20.0)):
        queries = [QueryNeed("p", {"a": 10.0}, delay_s=delay_s), QueryNeed("q", {"b": 10.0}, delay_s=12.0)]
        assert slot_schedule(Needs.of(windows, queries), quantum_s=1.0).peak_bytes == pytest.approx(peak_bytes)
    pipeline = pipeline_of()
    local = pipeline.query("worst").model_copy(update={"calendar": Calendar("UTC", days=1), "every_s": float(DAY_S)})
    spec = ControllerSpec.from_pipeline(pipeline.model_copy(update={"queries": (local,)}))
    assert spec.by_id["worst"].delay_s == 0.0
