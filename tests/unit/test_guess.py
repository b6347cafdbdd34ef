"""The parts of a proposal, each on its own: dialects, times, zones, ids, paths, clocks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tidegate.declarations.models import CsvDialect
from tidegate.guess.clock import Lateness, clock_of, lateness_of, limits_s, rate_words, span_us
from tidegate.guess.columns import Seen, column_of, schema_of
from tidegate.guess.csv_dialect import cells, decoded, dialect_of
from tidegate.guess.file_patterns import Place, pattern_of
from tidegate.guess.records import FileSample, sample_of
from tidegate.guess.roles import identity_of, times_of
from tidegate.guess.sampling import read_sample
from tidegate.guess.written_times import time_format, time_reader
from tidegate.guess.zones import zoned
from tidegate.values.base import Number

US = 1_000_000
NOON = 1767614400 * US  # 2026-01-05T12:00:00Z


def column(name: str, values: Sequence[Any], csv: CsvDialect | None = None) -> Seen:
    """A column at the top of a record."""
    return column_of((name,), list(values), csv)


def isos(seconds: Sequence[float], zone: str = "Z") -> list[str]:
    """Instants after noon, in ISO 8601."""
    start = datetime(2026, 1, 5, 12, tzinfo=UTC)
    return [(start + timedelta(seconds=s)).strftime(f"%Y-%m-%dT%H:%M:%S{zone}") for s in seconds]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2026-01-05T12:00:00Z", "iso"),
        ("2026-01-05 12:00:00.000000000+00:00", "iso"),
        ("2026-01-05 13:00:00+0100", "iso"),
        ("05.01.2026 12:00:00", "%d.%m.%Y %H:%M:%S"),
        ("5.1.2026 12:00", "%d.%m.%Y %H:%M"),
        ("Mon, 05 Jan 2026 12:00:00 GMT", "%a, %d %b %Y %H:%M:%S %Z"),
        ("Mon, 05 Jan 2026 13:00:00 +0100", "%a, %d %b %Y %H:%M:%S %z"),
        ("Mon Jan 05 12:00:00 +0000 2026", "%a %b %d %H:%M:%S %z %Y"),
        ("Mon Jan  5 12:00:00 2026", "%a %b %d %H:%M:%S %Y"),
        ("Mon Jan 05 12:00:00 UTC 2026", "%a %b %d %H:%M:%S %Z %Y"),
        ("2026/01/05 12:00", "%Y/%m/%d %H:%M"),
        ("05-Jan-2026 12:00", "%d-%b-%Y %H:%M"),
        ("05/Jan/2026:12:00:00 +0000", "%d/%b/%Y:%H:%M:%S %z"),
        ("01/05/2026 12:00:00 PM", "%m/%d/%Y %I:%M:%S %p"),
        ("Jan 5, 2026 12:00:00 PM", "%b %d, %Y %I:%M:%S %p"),
        ("January 5, 2026, 12:00", "%B %d, %Y, %H:%M"),
        ("2026-01-05 12:00:00,000", "%Y-%m-%d %H:%M:%S,%f"),
        ("2026-01-05 12:00:00 UTC", "%Y-%m-%d %H:%M:%S %Z"),
        ("20260105120000", "%Y%m%d%H%M%S"),
        ("20260105T120000Z", "%Y%m%dT%H%M%S%z"),
        ("1767614400", "epoch_s"),
        ("1767614400.000", "epoch_s"),
        ("1.7676144e9", "epoch_s"),
        ("1767614400000", "epoch_ms"),
        ("1767614400000000", "epoch_us"),
        ("1767614400000000000", "epoch_ns"),
    ],
)
def test_a_time_is_read_by_the_format_that_is_seen(text: str, written: str) -> None:
    seen = time_format([text] * 3, named_so=True)
    assert seen is not None and seen.format == written
    assert time_reader(written)(text) == NOON


@pytest.mark.parametrize(
    "text", ["1.5", "42", "12:00", "9999999999999999999", "4111111111111111", "A-2026-01-05", "", "v1.2.3"]
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert time_format([text] * 3, named_so=False) is None


def test_a_number_of_seconds_is_a_time_only_if_its_name_says_so() -> None:
    assert column("sent_at", [Number("1767614400")] * 3).type == "timestamp"
    assert column("sales", [Number("1767614400")] * 3).type == "integer"
    assert column("order_id", [Number("1767614400000")] * 3).type == "integer"
    assert column("q", [Number("1767614400000")] * 3).type == "timestamp"


@pytest.mark.parametrize(
    ("days", "written", "other"),
    [
        (["13/02/2026", "01/02/2026"], "%d/%m/%Y", ""),
        (["02/13/2026", "02/01/2026"], "%m/%d/%Y", ""),
        (["01/02/2026", "02/02/2026", "03/02/2026"], "%d/%m/%Y", ""),
        (["03/04/2026"], "%m/%d/%Y", "%d/%m/%Y"),
    ],
)
def test_days_and_months_are_told_apart_by_values_and_by_order(days: list[str], written: str, other: str) -> None:
    seen = time_format(days, named_so=True)
    assert seen is not None and (seen.format, seen.other, seen.day_only) == (written, other, True)


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("n", ["1", "2", "-3"], "integer"),
        ("n", ["1", "2.5"], "double"),
        ("price", ["1.50", "2.25"], "decimal(10,2)"),
        ("price", ["1.50000000", "2.25000000"], "double"),
        ("price", ["1234567890.50"], "decimal(15,2)"),
        ("total", [Number("1.5"), Number("2.25"), Number("3")], "decimal(10,2)"),
        ("total", [Number("1.5"), Number("2.2533")], "double"),
        ("price", [1.5, 2.25], "double"),
        ("ok", ["true", "False"], "boolean"),
        ("ok", [True, False], "boolean"),
        ("zip", ["01234", "99999"], "string"),
        ("n", ["99999999999999999999", "1"], "string"),
        ("code", [Number("12"), Number("13")], "integer"),
        ("n", [Number("1")] * 30 + ["broken"], "integer"),
        ("n", [Number("1")] * 10 + ["broken"], "string"),
        ("day", ["2026-01-05"], "date"),
    ],
)
def test_a_type_is_the_narrowest_that_nearly_all_values_are_of(name: str, values: list[Any], kind: str) -> None:
    assert column(name, values, CsvDialect()).type == kind


def test_a_text_of_digits_in_json_is_a_text_if_it_is_an_id() -> None:
    assert column("id", ["17", "18"]).type == "string"
    assert column("amount_seen", ["17", "18"]).type == "integer"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n3,4\n", CsvDialect()),
        ("1,2\n3,4\n", CsvDialect(header=False)),
        ("a;b\n1,5;2\n3,5;4\n", CsvDialect(delimiter=";", decimal=",")),
        ("a\tb\nx\t1\n", CsvDialect(delimiter="\t")),
        ("a|b\nx|1\ny|2\n", CsvDialect(delimiter="|")),
        ("# made by a machine\na,b\n1,2\n", CsvDialect(comment="#")),
        ("a,b\n'x,y',1\n'z',2\n", CsvDialect(quote="'")),
        ('0\tsay "hi"\n1\t"\n2\tno\n3\t"\n', CsvDialect(delimiter="\t", header=False, quote="")),
        ('a,b\n"x\ny",1\n"z",2\n', CsvDialect()),
        ("a,b,c\nx,y,z\nx,w,z\n", CsvDialect()),
        ("x,y,z\nx,w,z\nx,y,q\n", CsvDialect(header=False)),
    ],
)
def test_a_dialect_is_seen_from_the_lines(text: str, expected: CsvDialect) -> None:
    assert dialect_of(text, "utf-8") == expected


def test_prose_is_no_csv() -> None:
    assert dialect_of("It was a dark night.\nThe rain, in torrents, fell.\nOn and on.\n", "utf-8") is None


def test_cells_in_quotes_go_over_lines() -> None:
    assert cells('a,b\n"x\ny",1\n', CsvDialect()) == [["a", "b"], ["x\ny", "1"]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_an_encoding_is_seen_from_the_octets(encoding: str) -> None:
    text = "Größe;Maß\n" * 50
    assert decoded(text.encode(encoding), True).text.lstrip("\ufeff") == text


def test_nulls_are_words_among_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,who,coupon\n1,NA,\\N\n-,Bo,x\nNA,NA,y\n4,Jo,\\N\n" + "5,Al,z\n" * 60)
    file = read_sample(tmp_path / "a.csv")
    schema = schema_of(sample_of([file]), file.csv, {})
    assert schema.nulls == ("NA", "-", "\\N")
    assert [c.type for c in schema.columns] == ["integer", "string", "string"]


def test_of_two_shapes_the_usual_one_is_declared() -> None:
    rows = [{"at": {"$date": "2026-01-05"}, "e": [{"x": n}]} for n in range(9)]
    odd: list[dict[str, Any]] = [{"at": {"$date": {"$numberLong": Number("1767600000000")}}, "e": ["a", "b"]}]
    schema = schema_of(sample_of([FileSample(Path("a"), "jsonl", [*rows, *odd])]), None, {})
    assert [c.shown for c in schema.columns] == ["at.$date", "e[0].x"]
    assert set(schema.left_out) == {("at", "$date", "$numberLong"), ("e",)}


def test_a_zone_is_that_by_which_local_times_agree_with_others() -> None:
    local, sure = column("local", isos(range(3600, 3700), "")), column("received", isos(range(100)))
    seen = zoned([local, sure], 0)
    assert [c.zone for c in seen.columns] == ["Etc/GMT-1", "UTC"] and "1 hours ahead of UTC" in seen.why
    assert seen.columns[0].instants == sure.instants


def test_a_zone_may_be_named_by_a_column() -> None:
    seen = zoned([column("t", isos(range(9), "")), column("tz", ["Europe/Berlin"] * 9)], 0)
    assert seen.columns[0].zone == "Europe/Berlin" and seen.why == "as tz says"


def test_without_anything_that_shows_a_zone_utc_is_assumed_and_said() -> None:
    local = column("t", isos(range(9), ""))
    assert zoned([local], 0).columns[0].zone == "UTC" and "UTC assumed" in zoned([local], 0).why
    assert "later than its file" in zoned([local], NOON / US - 3600).why
    assert zoned([column("t", isos(range(9)))], 0).why == ""


def test_the_event_is_never_after_its_arrival() -> None:
    early, late = column("sent_at", isos(range(50))), column("created_at", isos(range(100, 150)))
    times = times_of([early, late], "x")
    assert times.event is late and times.arrival is late


def test_an_arrival_is_a_later_time_in_better_order() -> None:
    arrivals = list(range(0, 500, 5))
    event, other = column("at", isos([a - a * 7 % 60 for a in arrivals])), column("stamp", isos(arrivals))
    times = times_of([other, event], "x")
    assert (times.event, times.arrival) == (event, other)
    dropoff = column("dropoff_time", isos([a + 600 for a in arrivals]))
    assert times_of([column("pickup_time", isos(arrivals)), dropoff], "x").arrival is not dropoff


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"v": range(50), "id": range(50)}, ("id",)),
        ({"user_id": [1, 2] * 25, "order_id": range(50)}, ("order_id",)),
        ({"id": [*range(49), 48]}, ("id",)),
        ({"order": [n // 2 for n in range(50)], "line": [n % 2 for n in range(50)]}, ("order", "line")),
        ({"VendorID": [n % 5 for n in range(25)], "PULocationID": [n // 5 for n in range(25)]}, ()),
        ({"device": [n % 2 for n in range(50)]}, ("device", "at")),
        ({"level": [n % 2 for n in range(50)]}, ()),
        ({"temperature": [n * 7 % 50 for n in range(50)]}, ()),
        ({"x": [f"{n:032x}" for n in range(50)]}, ("x",)),
    ],
)
def test_an_id_is_what_never_repeats_and_is_named_so(columns: dict[str, Sequence[Any]], names: tuple[str, ...]) -> None:
    count = len(next(iter(columns.values())))
    event = column("at", isos([n // 2 for n in range(count)]))
    seen = [column(name, [Number(v) if isinstance(v, int) else v for v in values]) for name, values in columns.items()]
    assert tuple(c.shown for c in identity_of([*seen, event], event).columns) == names


def place(*files: str, others: Sequence[str] = (), hours: float = 0.5, folders: bool = True) -> Place:
    """Files whose records begin at 2026-01-05 08:00, an hour after another."""
    paths = [Path(file) for file in files]
    start = NOON - 4 * 3600 * US
    spans = {p: (start + n * 3600 * US, start + int((n + hours) * 3600) * US) for n, p in enumerate(paths)}
    return Place(paths, [Path(other) for other in others], folders, Path("/home/me/shop"), spans)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (place("/in/2026-01-05T08.jsonl", "/in/2026-01-05T09.jsonl"), "/in/%Y-%m-%dT%H.jsonl"),
        (place("/in/orders-20260105.csv.gz"), "/in/orders-%Y%m%d.csv.gz"),
        (place("/in/year=2026/month=01/day=05/a.parquet"), "/in/year=%Y/month=%m/day=%d/a.parquet"),
        (place("/in/dt=2026-01-05/hour=08/a1", "/in/dt=2026-01-05/hour=09/b2"), "/in/dt=%Y-%m-%d/hour=%H/*"),
        (place("/in/2026-01-05T07.jsonl"), "/in/*.jsonl"),
        (place("/in/2026-01-05T08.jsonl", hours=1.5), "/in/*.jsonl"),
        (place("/in/2026-01-05-8.gz", "/in/2026-01-05-9.gz"), "/in/*.gz"),
        (place("/in/a.csv", folders=False), "/in/a.csv"),
        (place("/in/100%/a[1].csv", folders=False), "/in/100%%/a[[]1].csv"),
        (place("/in/t-1.csv", "/in/t-2.csv", others=["/in/q-1.csv"]), "/in/t-*.csv"),
        (place("/in/t-1.csv", "/in/t-2.csv", others=["/in/t.json"]), "/in/*.csv"),
        (place("/home/me/landing/a.csv"), "../landing/*.csv"),
        (place("/home/me/shop/landing/a.csv"), "landing/*.csv"),
        (place("/in/a/x.csv", "/in/b/x.csv"), "/in/*/*.csv"),
    ],
)
def test_a_path_has_dates_only_where_arrivals_lie_in_them(files: Place, expected: str) -> None:
    assert pattern_of(files).text == expected


def test_a_path_that_matches_other_files_says_so() -> None:
    assert "look different" in pattern_of(place("/in/1.csv", "/in/3.csv", others=["/in/2.csv"])).remarks[0]


@pytest.mark.parametrize(
    ("rate", "words"), [(0.5, "30 per minute"), (1234.5, "1300 per second"), (0.00001, "1 per day")]
)
def test_a_rate_is_in_the_unit_that_people_would_use(rate: float, words: str) -> None:
    assert rate_words(rate) == words


def test_an_outlier_moves_neither_the_range_nor_the_limits() -> None:
    arrivals = [NOON + n * US for n in range(1000)]
    assert span_us([0, *arrivals]) == (NOON, NOON + 999 * US)
    late = lateness_of([a - 5 * US for a in arrivals[:-1]] + [0], arrivals)
    assert late.most_s == 5 and late.share == 1


def test_the_range_ends_with_the_data_once_its_last_windows_are_answered() -> None:
    late = Lateness(300, 4000, 0, 0.5)
    clock = clock_of([(NOON, NOON + 17_900 * US)], [None], [late])
    assert (clock.interval_s, clock.horizon_s, clock.slack_s) == (3600, 7200, 300)
    assert (clock.from_s, clock.to_s) == (NOON // US, NOON // US + 5 * 3600)
    waits = clock_of([(NOON, NOON + 300 * US)], [None], [Lateness(290, 300, 0, 0.5)])
    assert (waits.interval_s, waits.slack_s, waits.to_s) == (300, 290, NOON // US + 600)
    assert limits_s(late, clock) == (60, 86_400)


def test_short_data_have_short_intervals_and_long_data_long_ones() -> None:
    none = Lateness(0, 0, 0, 0)
    lengths = {
        span_s: clock_of([(NOON, NOON + span_s * US)], [None], [none]).interval_s
        for span_s in (30, 900, 86_400, 90 * 86_400)
    }
    assert lengths == {30: 60, 900: 300, 86_400: 3600, 90 * 86_400: 86_400}
    assert clock_of([(NOON, NOON + US)], [86_400], [none]).interval_s == 86_400
