"""The arrival clock of a live run: what is known from the files that have landed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidegate.declarations.models import Column, Stream, to_us
from tidegate.live.clock import Clock, Landed, Patience, arrival_clock
from tidegate.sources.files import landing_glob, period_of

T0 = datetime(2024, 3, 1, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def stream(name: str, path: str, **other: Any) -> Stream:
    columns = (Column(name="id", type="string"), Column(name="at", type="timestamp"))
    given = {"event_time": "at", "arrival_time": None, "id": ("id",), "rate": 1.0, "max_early_s": 5, "max_late_s": 60}
    return Stream(name=name, format="jsonl", path=path, columns=columns, **given | other)


def minute(name: str, number: int, suffix: str = "", landed_at: datetime | None = None) -> Landed:
    """The file of minute ``number``, landed at the minute's end."""
    start = T0 + number * MINUTE
    end = start + MINUTE
    at = landed_at or end
    return Landed(
        0, name, f"/in/{name}/{start:%H%M}{suffix}", 1, to_us(at), to_us(start), to_us(end), "ok",
        to_us(start), to_us(end) - 1, to_us(end) - 1,
    )  # fmt: skip


def at_any_time(name: str, last: datetime, claimed: datetime | None = None) -> Landed:
    """A file that landed at ``last``; its newest record claims to have arrived then, or at ``claimed``."""
    newest = to_us(claimed or last)
    return Landed(0, name, f"/in/{name}", 1, to_us(last), None, None, "ok", to_us(T0), newest, to_us(last))


A, B = (stream(name, f"/in/{name}/%Y-%m-%dT%H%M.jsonl") for name in "ab")
PARTS = stream("p", "/in/p/%Y-%m-%dT%H%M*.jsonl")
ANY = stream("q", "/in/q/*.jsonl")


def clock(streams: list[Stream], landed: list[Landed], patience: Patience | None = None, wall_s: float = 0.0) -> Clock:
    return arrival_clock(streams, landed, to_us(T0), patience or Patience(1e9), wall_s)


def minutes(found: Clock) -> float:
    return (found.until_us - to_us(T0)) / 60e6


def test_the_least_of_the_streams_counts_and_the_one_that_holds_is_named() -> None:
    found = clock([A, B], [minute("a", 0), minute("a", 1), minute("b", 0)])
    assert minutes(found) == 1
    assert found.waits_for == (("b", "/in/b/2024-03-01T1001.jsonl"),)
    assert found.newest_us == to_us(T0 + 2 * MINUTE)


def test_a_gap_holds_the_clock_whatever_lands_later() -> None:
    assert minutes(clock([A], [minute("a", 0), minute("a", 2), minute("a", 3)])) == 1
    assert minutes(clock([A], [minute("a", n) for n in (3, 0, 2, 1)])) == 4


def test_where_files_share_a_period_only_a_later_one_completes_it() -> None:
    landed = [minute("p", 0, "-x"), minute("p", 0, "-y")]
    assert minutes(clock([PARTS], landed)) == 0
    assert minutes(clock([PARTS], [*landed, minute("p", 1, "-x")])) == 1


def test_without_time_in_the_pattern_the_newest_arrival_speaks() -> None:
    assert minutes(clock([ANY], [at_any_time("q", T0 + 3 * MINUTE), at_any_time("q", T0 + MINUTE)])) == 3
    assert minutes(clock([ANY], [])) == 0


def test_a_record_that_claims_to_arrive_later_moves_no_clock_and_is_taken_in_its_time() -> None:
    file = at_any_time("q", T0 + 3 * MINUTE, claimed=T0 + 99 * MINUTE)
    assert file.known_until_us == to_us(T0 + 3 * MINUTE)
    assert file.arrived_in(to_us(T0 + 98 * MINUTE), to_us(T0 + 100 * MINUTE))


def test_a_file_without_content_stands_for_its_period() -> None:
    found = arrival_clock(
        [A], [minute("a", 0)], to_us(T0), Patience(1e9), 0.0, lambda p: p == "/in/a/2024-03-01T1001.jsonl"
    )
    assert minutes(found) == 2


def test_patience_ends_so_long_after_arrivals_have_passed() -> None:
    patience, landed = Patience(60.0), [minute("a", n) for n in range(3)]
    assert minutes(clock([A, B], landed[:1], patience, 0.0)) == 0
    assert minutes(clock([A, B], landed, patience, 50.0)) == 0
    assert minutes(clock([A, B], landed, patience, 60.0)) == 1, "what had been passed at 0 s"
    assert minutes(clock([A, B], landed, patience, 110.0)) == 3
    assert minutes(clock([A, B], [*landed, minute("b", 0)], patience, 111.0)) == 3


def test_patience_has_no_end_where_a_missing_file_is_an_error() -> None:
    strict = B.model_copy(update={"missing_file": "error"})
    patience, landed = Patience(60.0), [minute("a", n) for n in range(3)]
    clock([A, strict], landed, patience, 0.0)
    assert minutes(clock([A, strict], landed, patience, 1e6)) == 0


@pytest.mark.parametrize("number", [5, 60 * 24 * 365])
def test_a_file_of_the_future_gives_nobody_up(number: int) -> None:
    patience = Patience(60.0)
    landed = [minute("a", 0), minute("a", number, landed_at=T0 + MINUTE)]
    clock([A, B], landed, patience, 0.0)
    assert minutes(clock([A, B], landed, patience, 61.0)) == 1


@pytest.mark.parametrize(
    ("pattern", "path", "start"),
    [
        ("/in/%Y/%m-%d/%H%M.csv", "/in/2024/03-01/1005.csv", "2024-03-01T10:05"),
        ("/in/%Y%j-%H.csv", "/in/2024061-10.csv", "2024-03-01T10:00"),
        ("/in/%Y/%Y-%m-%d.csv", "/in/2024/2024-03-01.csv", "2024-03-01T00:00"),
        ("/in/%Y/%Y-%m-%d.csv", "/in/2023/2024-03-01.csv", None),
        ("/in/%Y-%m-%dT%H*.csv", "/in/2024-03-01T10-part/x.csv", None),
        ("/in/%Y-%m-%dT%H.csv", "/in/2024-13-01T10.csv", None),
        ("/in/100%%/%Y-%m-%dT%H[ab].csv", "/in/100%/2024-03-01T10b.csv", "2024-03-01T10:00"),
    ],
)
def test_the_period_is_in_the_name(pattern: str, path: str, start: str | None) -> None:
    found = period_of(pattern, path)
    assert (None if found is None else found[0]) == (
        None if start is None else to_us(datetime.fromisoformat(start).replace(tzinfo=UTC))
    )


def test_what_spark_watches_is_open_where_the_pattern_names_times() -> None:
    assert landing_glob("/in/100%%/{x}/%Y-%m/%d*.csv") == r"/in/100%/{x}/*-*/**.csv"
