"""Which windows must have been answered, when, and how much of each was held: plain Python from the plans.

Written to be believed at sight, one instant after the other; it shares no code with the applications.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from tidegate.declarations.models import EPOCH, Pipeline, Query, Window

NOTHING = datetime.max.replace(tzinfo=UTC)
"""The bound of a window of width 0: it holds nothing, not even what has arrived since the last tick."""
LEVELS = ["A", "B", "C", "unsupported"]
UNPLANNED = (EPOCH, None, None, None, "A", None)
"""The row of ``query_plan`` that stands for none: answers at every EVERY, whatever is held will do."""


@dataclass(frozen=True)
class ExpectedWindow:
    """One window that must have been answered."""

    window_end: datetime
    emitted_at: datetime
    slack_s: float
    lower: dict[str, datetime]  # alias → start of what was held, inclusive
    width_s: dict[str, float]  # alias → seconds held
    range_s: dict[str, float]  # alias → seconds declared
    coverage: float
    support_level: str


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def connect() -> duckdb.DuckDBPyConnection:
    """A connection that thinks in UTC, to this process's one DuckDB: another one takes a hundred times as long.

    What a connection registers is its own.
    """
    connection = _duckdb().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def parquet(folder: Path, table: str) -> str:
    """The rows of all partitions of a table, as a FROM item; an error if it has none."""
    return f"read_parquet({live(folder, table)}, hive_partitioning = false)"


def live(folder: Path, table: str) -> list[str]:
    """The table's files by Delta's own reader, none of superseded rows; of plain Parquet, all that there are."""
    return _live(folder, table, version(folder, table))


@lru_cache(256)
def _live(folder: Path, table: str, _version: tuple) -> list[str]:
    if DeltaTable.is_deltatable(str(folder / table)):
        paths = pa.table(DeltaTable(str(folder / table)).get_add_actions())["path"].to_pylist()
        return sorted(str(folder / table / path) for path in paths)
    return sorted(str(path) for path in folder.glob(f"{table}/*/*.parquet"))


def rows(folder: Path, sql: str, table: str) -> list[tuple]:
    """The rows of ``SELECT … FROM {t} …`` over a table's partitions; none if it has no partitions."""
    return _rows(folder, sql, table, version(folder, table))


@lru_cache(1024)
def _rows(folder: Path, sql: str, table: str, _version: tuple) -> list[tuple]:
    if not live(folder, table):
        return []
    return connect().execute(sql.format(t=parquet(folder, table))).fetchall()


def version(folder: Path, table: str) -> tuple:
    """Changes whenever the table does: what every query asks anew is read once."""
    log = folder / table / "_delta_log"
    files = log.iterdir() if log.is_dir() else folder.glob(f"{table}/*/*.parquet")
    return tuple((path.name, path.stat().st_mtime_ns) for path in sorted(files))


def multiples(step_s: float, start: datetime, end: datetime) -> Iterator[datetime]:
    """The multiples of a step since 1970 in [start, end)."""
    step = timedelta(seconds=step_s)
    instant = EPOCH + -((EPOCH - start) // step) * step
    while instant < end:
        yield instant
        instant += step


def regular_ends(query: Query, start: datetime, end: datetime) -> Iterator[datetime]:
    """The ends of windows in [start, end) that EVERY names.

    By a calendar: the first quarter of an hour of each local date, of Mondays or of first days of months alone if so.
    """
    if query.calendar is None:
        yield from multiples(query.every_s, start, end)
        return
    zone, step = ZoneInfo(query.calendar.zone), 15 * 60
    newest = (start - timedelta(seconds=step)).astimezone(zone).date()
    for instant in multiples(step, start, end):
        shown = instant.astimezone(zone).date()
        if shown > newest:
            newest = shown
            if query.calendar.months and shown.day != 1 or query.calendar.days == 7 and shown.weekday() != 0:
                continue
            yield instant


def begin_of(window: Window, window_end: datetime) -> datetime:
    """Where a window begins that ends at an instant."""
    if window.calendar is None:
        return window_end - timedelta(seconds=window.range_s)
    zone, begin = ZoneInfo(window.calendar.zone), window_end
    first = window_end.astimezone(zone).date() - timedelta(days=window.calendar.days)
    if window.calendar.months:
        year, month = divmod(first.year * 12 + first.month - 1 - window.calendar.months, 12)
        length = monthrange(year, month + 1)[1]
        first = first.replace(year=year, month=month + 1, day=min(first.day, length))
    while (begin - timedelta(minutes=15)).astimezone(zone).date() >= first:
        begin -= timedelta(minutes=15)
    return begin


def in_effect(plan: list[tuple], instant: datetime) -> tuple | None:
    """The newest of the rows (effective_from, …), which ascend, that took effect at or before an instant."""
    count = bisect_right(plan, instant, key=lambda row: row[0])
    return plan[count - 1] if count else None


def first_tick(pipeline: Pipeline, query: Query, folder: Path) -> datetime | None:
    """The first tick of EVERY after the first arrival on a stream that the query reads."""
    arrivals = [rows(folder, "SELECT min(arrival_time) FROM {t}", f"events_{name}") for name in query.streams]
    instants = [found[0][0] for found in arrivals if found and found[0][0] is not None]
    if not instants:
        return None
    after = min(instants) + timedelta(microseconds=1)
    return next(regular_ends(query, after, after + timedelta(seconds=2 * query.every_s + 1)))


def wanted_from(row: tuple, tick: datetime, after: bool) -> datetime:
    """The start of what a row (effective_from, width, slot offset, slot, period, left) lets a window hold at a tick.

    ``after``: once the tick's answers are given and its evictions done. During its slot a window lets nothing go.
    ``left``: what an early eviction leaves at the row's own instant; after that the window grows up to its width.
    """
    effective_from, width_s, offset_s, slot_s, period_s, left_s = row
    if left_s is not None and tick == effective_from:
        return tick - timedelta(seconds=left_s)
    width = timedelta(seconds=width_s)
    if period_s is None:
        return tick - width
    since = tick - effective_from - timedelta(seconds=offset_s)
    phase = since % timedelta(seconds=period_s)
    slot = timedelta(seconds=slot_s)
    if since > timedelta(0) and not after and phase == timedelta(0):
        phase = timedelta(seconds=period_s)  # the very end of a period belongs to it
    growing = since >= timedelta(0) and (phase < slot if after else phase <= slot)
    return (tick - phase if growing else tick) - width


def lower_bounds(
    pipeline: Pipeline, stream: str, folder: Path, start: datetime, end: datetime, for_answers: bool = False
) -> dict:
    """Tick → start of what the stream's window holds after the tick, tick by tick.

    ``for_answers``: a window of width 0 holds NOTHING, whatever arrives before the next tick.

    A window never gets back what it let go, so the bound never moves back. When a plan gives way to another, its width
    held until that very instant. Before the first plan its width counts as having been in effect.
    """
    return _bounds(pipeline.tick_s, stream, folder, start, end, for_answers, version(folder, "window_plan"))


@lru_cache(64)
def _bounds(
    tick_s: float, stream: str, folder: Path, start: datetime, end: datetime, for_answers: bool, _version: tuple
) -> dict:
    plan = rows(
        folder,
        "SELECT effective_from, CASE WHEN trigger = 'eviction' AND width_s > 0 THEN greatest(width_s, max_width_s) "
        "ELSE width_s END, slot_offset_s, slot_s, period_s, CASE WHEN trigger = 'eviction' THEN width_s END "
        f"FROM {{t}} WHERE stream = '{stream}' ORDER BY effective_from",
        "window_plan",
    )
    bounds: dict[datetime, datetime | None] = {}
    if not plan:
        return dict.fromkeys(multiples(tick_s, start, end))
    held_from: datetime | None = None
    before = plan[0]
    for tick in multiples(tick_s, min(start, plan[0][0]), end):
        now = in_effect(plan, tick) or plan[0]
        wanted = [wanted_from(now, tick, after=True)]
        if before is not now:
            wanted.append(wanted_from(before, tick, after=False))
        held_from = max(wanted) if held_from is None else max(held_from, *wanted)
        bounds[tick] = held_from
        before = now
        if for_answers and now[1] <= 0 and wanted_from(now, tick, after=True) == tick:
            bounds[tick] = NOTHING
    return bounds


def whole_ticks(pipeline: Pipeline, duration: timedelta) -> timedelta:
    """The least multiple of the tick that is no shorter."""
    tick = timedelta(seconds=pipeline.tick_s)
    return -(-duration // tick) * tick


def slack_at(pipeline: Pipeline, query: Query, slacks: list[tuple], instant: datetime) -> timedelta:
    """K in effect; a query that promises nothing waits for nothing."""
    row = in_effect(slacks, instant)
    if row is not None:
        return timedelta(seconds=row[1])
    return timedelta(seconds=pipeline.initial_slack_s if query.promised is not None else 0)


def emissions(
    pipeline: Pipeline, query: Query, folder: Path, first: datetime, start: datetime, end: datetime
) -> list[tuple[datetime, datetime, tuple]]:
    """(instant of the answer, window end, plan row) of every answer in [start, end), each window once.

    A row of ``query_plan`` reigns from just after its instant up to the next row's instant, inclusive.
    """
    plan = rows(
        folder,
        "SELECT effective_from, slot_end, period_s, extra_answer, support_level, map_entries(tolerable_s) FROM {t} "
        f"WHERE query = '{query.id}' ORDER BY effective_from",
        "query_plan",
    )
    slacks = rows(
        folder,
        f"SELECT effective_from, slack_s FROM {{t}} WHERE query = '{query.id}' ORDER BY effective_from",
        "slack_plan",
    )
    found: list[tuple[datetime, datetime, tuple]] = []
    for tick in regular_ends(query, first, end):
        emitted_at = tick + slack_at(pipeline, query, slacks, tick)
        row = in_effect(plan, emitted_at - timedelta(microseconds=1)) or (plan[0] if plan else UNPLANNED)
        if row[2] is None:
            found.append((emitted_at, tick, row))
    for number, row in enumerate(plan):
        until = plan[number + 1][0] if number + 1 < len(plan) else end
        instants = [] if row[3] is None else [row[3]]
        instant = row[1]
        while row[2] is not None and instant is not None and instant <= until:
            if instant > row[0]:
                instants.append(instant)
            instant += timedelta(seconds=row[2])
        for at in instants:
            if at <= until:
                before = at - timedelta(microseconds=1)
                waited = whole_ticks(pipeline, slack_at(pipeline, query, slacks, before))
                found.append((at, at - waited, row))
    once: dict[datetime, tuple[datetime, datetime, tuple]] = {}
    for answer in sorted(found, key=lambda a: a[:2]):
        if start <= answer[0] < end:
            once.setdefault(answer[1], answer)
    return sorted(once.values(), key=lambda a: a[:2])


def expected_windows(
    pipeline: Pipeline, query: Query, folder: Path, start: datetime, end: datetime
) -> list[ExpectedWindow]:
    """The windows of a query that must have been answered at an instant in [start, end), by instant."""
    first = first_tick(pipeline, query, folder)
    if first is None:
        return []
    origin = first - timedelta(days=1)
    bounds = {name: lower_bounds(pipeline, name, folder, origin, end, for_answers=True) for name in query.streams}
    tick_length = timedelta(seconds=pipeline.tick_s)
    expected = []
    for emitted_at, window_end, row in emissions(pipeline, query, folder, first, start, end):
        if window_end < first:
            continue
        if query.active_from is not None and window_end < query.active_from:
            continue
        if query.active_to is not None and window_end >= query.active_to:
            continue
        last_tick = EPOCH + whole_ticks(pipeline, emitted_at - EPOCH) - tick_length
        tolerable_s = {entry["key"]: entry["value"] for entry in row[5] or []}
        lower, width_s, ranges_s, coverage, levels = {}, {}, {}, 1.0, []
        for window in query.windows:
            whole = begin_of(window, window_end)
            range_s = (window_end - whole).total_seconds()
            known = [held for stream in window.streams if (held := bounds[stream].get(last_tick)) is not None]
            held_from = max(known, default=None)
            lower[window.alias] = whole if held_from is None else min(max(whole, held_from), window_end)
            width_s[window.alias] = (window_end - lower[window.alias]).total_seconds()
            coverage *= width_s[window.alias] / range_s
            ranges_s[window.alias] = range_s
            may_miss = min(query.ranges_s()[s] - tolerable_s.get(s, 0.0) for s in window.streams)
            may_miss *= range_s / window.range_s
            if width_s[window.alias] >= range_s - 1e-6:
                levels.append("A")
            elif width_s[window.alias] >= range_s - may_miss - 1e-6:
                levels.append("B" if row[2] is None else "C")
            else:
                levels.append("unsupported")
        expected.append(
            ExpectedWindow(
                window_end,
                emitted_at,
                (emitted_at - window_end).total_seconds(),
                lower,
                width_s,
                ranges_s,
                coverage,
                max(levels, key=LEVELS.index),
            )
        )
    return expected


def final_windows(pipeline: Pipeline, query: Query, folder: Path, start: datetime, end: datetime) -> list[datetime]:
    """The window ends whose truth must have become known in [start, end): multiples of EVERY, and ends of slots."""
    first = first_tick(pipeline, query, folder)
    if first is None:
        return []
    horizon = timedelta(seconds=pipeline.horizon_s)
    in_slots = {a[1] for a in emissions(pipeline, query, folder, first, start - horizon, end) if a[1] >= first}
    return [
        tick
        for tick in sorted(in_slots | set(regular_ends(query, first, end)))
        if start <= tick + horizon < end
        and (query.active_from is None or tick >= query.active_from)
        and (query.active_to is None or tick < query.active_to)
    ]
