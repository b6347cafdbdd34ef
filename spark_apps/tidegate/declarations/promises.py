"""What queries promise, in one place: the sentence that says it, its shares, its periods.

``operators.accuracy.judge`` judges by it, calibrate writes the judgement to ``promise_periods``, and whatever shows it
(report, Data Docs, Airflow, the demo) shows the ``lines`` of those rows. dbt and the documentation repeat ``SENTENCE``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.declarations.models import Pipeline, Query, to_us
from tidegate.declarations.units import DAY_US, SECOND_US, show_duration, show_percent
from tidegate.values.calendar import Calendar, Periods

WINDOWS_WITHIN = 0.95
"""ERROR is promised for this share of a period's windows."""
GROUPS_WITHIN = 0.95
"""ACCURACY FOR EACH is promised for this share of a period's groups: of those with a truth."""
PERIODS_KEPT = 0.95
"""A promise is to be kept in this share of the periods."""
LEAST_PERIODS = 20
"""With fewer judged periods it is not known whether it is: 19 of 20 is the first share that tells."""
DIGITS = 12
"""What is measured and what was promised are rounded to so many digits after the point, then compared exactly."""

SENTENCE = (
    "A promise is kept in a period if the mean hit rate of its windows is at least ACCURACY, or if at least "
    f"{WINDOWS_WITHIN * 100:.0f} of 100 of its windows lie within ERROR; it is to be kept in "
    f"{PERIODS_KEPT * 100:.0f} of 100 periods."
)
NOT_KNOWN = (
    f"Whether a promise is kept in {PERIODS_KEPT * 100:.0f} of 100 periods is not known before {LEAST_PERIODS} of them "
    "are judged."
)

_CHANGE_US = 3600 * SECOND_US
"""By so much clocks are changed, twice a year."""

Row = Mapping[str, Any]
"""A row of ``promise_periods``."""


@dataclass(frozen=True)
class Terms:
    """What one query promises.

    ``promise``: as declared (``ERROR 5 %``). ``bound``: the least mean hit rate, or the largest relative error of a
    window, as fractions. ``period_us``: length of a period in microseconds; periods begin at its multiples since 1970.
    ``calendar``: of a query with one, the days, weeks or months that its periods are; ``period_us`` is then their usual
    length.
    ``for_each``: whether the mean hit rate is promised for each of some groups, which are judged one by one.
    """

    query: str
    promise: str
    metric: Literal["hit_rate", "relative_error"]
    bound: float
    period_us: int
    calendar: Calendar | None = None
    for_each: bool = False

    @property
    def periods(self) -> Periods:
        """The periods, one after the other."""
        return Periods(self.period_us, self.calendar)

    def period_name(self, count: int = 1) -> str:
        """What so many of its periods are called."""
        if self.calendar is None:
            return period_name(self.period_us, count)
        name = self.calendar.name
        if " " in name:
            return f"period{'s' if count != 1 else ''} of {name}"
        return f"{name}s" if count != 1 else name

    @property
    def sentence(self) -> str:
        """The promise and its period: ``ERROR 5 % each day``."""
        zone = "" if self.calendar is None else f" of {self.calendar.zone}"
        return f"{self.promise} each {self.period_name()}{zone}"

    @property
    def accuracy(self) -> float:
        """The mean hit rate, or the share of windows within ERROR, that is promised: of all, or of a group."""
        return round(self.bound if self.metric == "hit_rate" else WINDOWS_WITHIN, DIGITS)

    @property
    def least(self) -> float:
        """What is measured over a period has to be at least this: that, or the share of groups that reach it."""
        return GROUPS_WITHIN if self.for_each else self.accuracy


def terms_of(pipeline: Pipeline, query: Query) -> Terms | None:
    """What a query promises; None if nothing.

    A period is the declared ``promise_period``, or the least multiple of it that always holds a tick. Of a query with a
    calendar it is as many of its days, weeks or months as are no shorter than that: seven days begin on a Monday.
    """
    if query.promised is None:
        return None
    declared_us, every_us = pipeline.promise_period_s * SECOND_US, round(query.every_s * SECOND_US)
    period_us, calendar = -(-every_us // declared_us) * declared_us, query.calendar
    if calendar is not None:
        count = -(-declared_us // calendar.usual_us)
        calendar = Calendar(calendar.zone, calendar.days * count, calendar.months * count)
        period_us = calendar.usual_us
    return Terms(
        query.id,
        promise_of(query),
        "relative_error" if query.error is not None else "hit_rate",
        query.promised,
        period_us,
        calendar,
        bool(query.for_each),
    )


def promise_of(query: Query) -> str:
    """A query's promise as it is declared, without what comes of a miss; empty if there is none."""
    if query.promised is None:
        return ""
    parts = [f"{'ERROR' if query.error is not None else 'ACCURACY'} {query.promised * 100:.6g} %"]
    parts += [f"OR {floor:.16g} IN {name}" for name, floor in query.floors.items()]
    if query.groups_within < 1:
        parts.append(f"FOR {query.groups_within * 100:.6g} % OF GROUPS")
    if query.for_each:
        parts.append(f"FOR EACH {', '.join(query.for_each)}")
    return " ".join(parts)


def period_name(period_us: int, count: int = 1) -> str:
    """What periods of that length are called.

    >>> period_name(DAY_US), period_name(DAY_US, 3), period_name(6 * 3600 * SECOND_US, 2)
    ('day', 'days', 'periods of 6 hours')
    """
    name = {3600 * SECOND_US: "hour", DAY_US: "day", 7 * DAY_US: "week"}.get(period_us)
    plural = "s" if count != 1 else ""
    return f"{name}{plural}" if name else f"period{plural} of {show_duration(period_us / SECOND_US)}"


@dataclass(frozen=True)
class Line:
    """One query's promise as every page shows it.

    ``tone``: ``good`` or ``bad`` once enough periods are judged to know, ``open`` before. ``kept``, ``judged``: in how
    many of how many ``periods``. ``last``: the newest judged period. ``so_far``: the one that is still open.
    """

    query: str
    tone: Literal["good", "bad", "open"]
    promise: str
    kept: int
    judged: int
    periods: str
    last: str
    so_far: str

    @property
    def cells(self) -> tuple[str, str, str, str, str, str]:
        """What stands under ``HEADINGS``; the mark is the tone for those who see no colours."""
        mark = {"good": "✓", "bad": "✗", "open": "…"}[self.tone]
        kept = f"{self.kept} of {self.judged} {self.periods}"
        return self.query, mark, self.promise, kept, self.last, self.so_far

    @property
    def sentence(self) -> str:
        """All of it but the query."""
        _, mark, promise, kept, last, so_far = self.cells
        share = f"{PERIODS_KEPT * 100:.0f} of 100"
        known = {"good": f"at least {share}", "bad": f"fewer than {share}", "open": "too few to know"}[self.tone]
        return (
            f"{promise}: {mark} kept in {kept}, {known}. Newest period judged: {last}. Open period, so far: {so_far}."
        )


HEADINGS = ("query", "", "promise", "kept in", "newest period judged", "open period, so far")


def lines(pipeline: Pipeline, rows: Iterable[Row]) -> list[Line]:
    """A line for each query that promises something, from rows of ``promise_periods``: the newest of each count."""
    newest: dict[str, Row] = {}
    judged: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: (row["judged_at"], row["period_start"])):
        newest[row["query"]] = row
        if row["kept"] is not None:
            judged[row["query"]] = row
    found = [terms_of(pipeline, query) for query in pipeline.queries]
    return [_line(terms, newest.get(terms.query), judged.get(terms.query)) for terms in found if terms is not None]


def newest_of_each(rows: Iterable[Row]) -> list[Row]:
    """The newest row of each query and period, by query and period: what is said of a period in the end."""
    newest: dict[tuple[str, Any], Row] = {}
    for row in sorted(rows, key=lambda row: row["judged_at"]):
        newest[row["query"], row["period_start"]] = row
    return [row for _, row in sorted(newest.items())]


def show_measured(row: Row) -> str:
    """What was measured over a period: ``97.2 % over 144 windows``."""
    if row["measured"] is None:
        return "no window is final yet"
    windows = f"{row['windows']:,} window{'s' if row['windows'] != 1 else ''}"
    of_groups = " of the groups" if " FOR EACH " in str(row.get("promise")) else ""
    return f"{show_percent(row['measured'])}{of_groups} over {windows}"


def show_period(row: Row) -> str:
    """The start of a period: the day, and the time if it does not begin with it."""
    start = row["period_start"]
    return f"{start:%Y-%m-%d}" if start.hour == start.minute == start.second == 0 else f"{start:%Y-%m-%d %H:%M}"


def explained(shown: Iterable[Line]) -> str:
    """What stands beside the lines: what is promised, and what is not known yet."""
    return f"{SENTENCE} {NOT_KNOWN}" if any(line.tone == "open" for line in shown) else SENTENCE


def period_length(row: Row) -> str:
    """What the row's period is called: day."""
    start_us, length_us = to_us(row["period_start"]), to_us(row["period_end"]) - to_us(row["period_start"])
    # A month of a calendar seldom begins at a multiple of its length; other periods always do.
    of_calendars = [("day", 1, 1), ("week", 7, 7)] + ([("month", 28, 31)] if start_us % length_us else [])
    for name, least, most in of_calendars:
        if least * DAY_US - _CHANGE_US <= length_us <= most * DAY_US + _CHANGE_US:
            return name
    return period_name(length_us)


def _line(terms: Terms, newest: Row | None, judged: Row | None) -> Line:
    promise = terms.sentence
    if newest is None:
        return Line(terms.query, "open", promise, 0, 0, terms.period_name(0), "none", "no window is final yet")
    count = newest["periods_judged"]
    tone: Literal["good", "bad", "open"] = "open"
    if count >= LEAST_PERIODS:
        tone = "good" if newest["met_so_far"] >= PERIODS_KEPT else "bad"
    last = "none"
    if count and judged is not None:
        last = f"{show_period(judged)}: {show_measured(judged)}, {'kept' if judged['kept'] else 'missed'}"
    so_far = "none" if newest["kept"] is not None else f"{show_period(newest)}: {show_measured(newest)}"
    named = terms.period_name(count)
    return Line(terms.query, tone, promise, newest["periods_kept"], count, named, last, so_far)
