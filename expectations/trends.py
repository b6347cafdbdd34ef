"""How the pipeline has been doing: series over the intervals, a line a day, a summary a week.

Everything comes from the rows of ``quality_results`` and ``promise_periods``: SQL and alerts see the same numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from expectations.results import Row, failures
from tidegate.declarations.interval_labels import label_start
from tidegate.declarations.promises import Row as Judged
from tidegate.declarations.promises import newest_of_each, show_measured, show_period
from tidegate.declarations.units import show_percent

_BROKEN_NAMED = 8
_WIDTH, _HEIGHT, _EDGE = 560, 110, 6

# Rules → what is shown of them, in this order. A rule with `measured` and `promised` becomes a trend by a line here.
TRENDS = {
    "Slack K against the oracle's": ("slack_covers_oracle",),
    "Bytes held against M": ("plan_held_within_memory_budget",),
    "Coverage of history intervals": ("history_interval_coverage",),
    "Share of records refused": ("quarantine_share",),
}
PROMISES = "Accuracy of each period against the promise"
_SHARES = (PROMISES, "history_interval_coverage", "quarantine_share")


@dataclass(frozen=True)
class Series:
    """One query's (or the pipeline's) measured and promised values over the intervals, oldest first."""

    of: str
    rule: str
    labels: tuple[str, ...]
    measured: tuple[float, ...]
    promised: tuple[float, ...]

    def shown(self, value: float) -> str:
        """A value as people read it."""
        if self.rule in _SHARES:
            return show_percent(value)
        if self.rule == "slack_covers_oracle":
            return f"{value / 60:.1f} min"
        return f"{value / 1024:.1f} KiB"

    @property
    def by_day(self) -> list[tuple[str, str, str, str]]:
        """(day, measured last, lowest and highest, promised last), newest first."""
        days: dict[str, list[int]] = defaultdict(list)
        for i, label in enumerate(self.labels):
            days[label[:10]].append(i)
        return [
            (
                day,
                self.shown(self.measured[at[-1]]),
                f"{self.shown(min(self.measured[i] for i in at))} to {self.shown(max(self.measured[i] for i in at))}",
                self.shown(self.promised[at[-1]]),
            )
            for day, at in sorted(days.items(), reverse=True)
        ]

    @property
    def lines(self) -> tuple[str, str]:
        """The points of the two lines in the drawing: measured, promised."""
        values = (*self.measured, *self.promised)
        low, high = min(values), max(values)
        spread = (high - low) or abs(high) or 1.0
        start, end = label_start(self.labels[0]), label_start(self.labels[-1])
        span = (end - start).total_seconds()

        def points(own: Sequence[float]) -> str:
            heights = [_HEIGHT - _EDGE - (value - low) / spread * (_HEIGHT - 2 * _EDGE) for value in own]
            if not span:  # one value is a level line: a line of one point would not show
                return f"{_EDGE},{heights[0]:.1f} {_WIDTH - _EDGE},{heights[0]:.1f}"
            return " ".join(
                f"{_EDGE + (label_start(label) - start).total_seconds() / span * (_WIDTH - 2 * _EDGE):.1f},{height:.1f}"
                for label, height in zip(self.labels, heights, strict=True)
            )

        return points(self.measured), points(self.promised)

    @property
    def extent(self) -> tuple[str, str]:
        """Highest and lowest value in the drawing."""
        values = (*self.measured, *self.promised)
        return self.shown(max(values)), self.shown(min(values))


def trends(by_label: Mapping[str, Sequence[Row]], periods: Sequence[Judged]) -> list[tuple[str, list[Series]]]:
    """(title, a series for each query), those that have values; ``periods``: rows of ``promise_periods``."""
    found: dict[tuple[str, str, str], dict[str, Row]] = defaultdict(dict)
    for label in sorted(by_label):
        for row in by_label[label]:
            if row["measured"] is None or row["promised"] is None:
                continue
            for title, rules in TRENDS.items():
                if row["expectation"] in rules:
                    own = found[title, row["query"] or _stream(row), rules[0]]
                    # Of several tables or streams the one that is worst off.
                    if label not in own or row["measured"] > own[label]["measured"]:
                        own[label] = row
    made: dict[str, list[Series]] = {title: [] for title in TRENDS}
    for (title, query, rule), own in sorted(found.items()):
        rows = list(own.values())
        measured, promised = (tuple(float(row[key]) for row in rows) for key in ("measured", "promised"))
        made[title].append(
            Series(
                query or ("all windows" if rule.startswith("plan") else "worst stream"),
                rule,
                tuple(own),
                measured,
                promised,
            )
        )
    return [(title, series) for title, series in {PROMISES: _of_promises(periods), **made}.items() if series]


def _of_promises(periods: Sequence[Judged]) -> list[Series]:
    """What was measured over each judged period, at its start."""
    by_query: dict[str, list[Judged]] = defaultdict(list)
    for row in newest_of_each(periods):
        if row["kept"] is not None:
            by_query[row["query"]].append(row)
    return [
        Series(
            query,
            PROMISES,
            tuple(f"{row['period_start']:%Y-%m-%dT%H%M%S}" for row in own),
            tuple(row["measured"] for row in own),
            tuple(row["promised"] for row in own),
        )
        for query, own in by_query.items()
    ]


def _stream(row: Row) -> str:
    """The stream of a trend that has a line for each."""
    return row["table"].removeprefix("history_samples_") if row["expectation"] == "history_interval_coverage" else ""


def week_of(label: str) -> str:
    """The ISO week of an interval: 2013-W06."""
    year, week, _ = label_start(label).isocalendar()
    return f"{year}-W{week:02d}"


@dataclass(frozen=True)
class Week:
    """One week in a few sentences."""

    name: str
    first: date
    last: date
    sentences: tuple[str, ...]
    promises: tuple[dict[str, Any], ...]
    broken: tuple[dict[str, Any], ...]


def weeks(by_label: Mapping[str, Sequence[Row]], periods: Sequence[Judged]) -> list[Week]:
    """Each week's summary, newest first; ``periods``: rows of ``promise_periods``, with their ``interval``."""
    labels: dict[str, list[str]] = defaultdict(list)
    for label in sorted(by_label):
        labels[week_of(label)].append(label)
    judged: dict[str, list[Judged]] = defaultdict(list)
    for row in newest_of_each(periods):
        if row["kept"] is not None:
            judged[week_of(row["interval"])].append(row)
    return [_week(name, own, by_label, judged[name]) for name, own in sorted(labels.items(), reverse=True)]


def _week(name: str, labels: Sequence[str], by_label: Mapping[str, Sequence[Row]], judged: Sequence[Judged]) -> Week:
    rows = [{"label": label, **row} for label in labels for row in by_label[label]]
    critical, warned = failures(rows, "critical"), failures(rows, "warning")
    bad, doubtful = {row["label"] for row in critical}, {row["label"] for row in warned}
    count = len(labels)
    sentences = [
        f"{count} interval{'s were' if count != 1 else ' was'} judged: {count - len(bad | doubtful)} in order, "
        f"{len(doubtful - bad)} with a warning, {len(bad)} with critical failures."
    ]
    held = [row for row in rows if row["expectation"] == "plan_held_within_memory_budget" and row["promised"]]
    if held:
        most = max((row["measured"] or 0) / row["promised"] for row in held)
        sentences.append(f"Windows held at most {most:.1%} of the memory budget.")
    refused = [row["measured"] for row in rows if row["expectation"] == "quarantine_share" and row["measured"]]
    sentences.append(
        f"At most {max(refused):.1%} of a stream's records were refused in an interval."
        if refused
        else "No stream exceeded its tolerated share of refused records."
    )
    covered = [row["measured"] for row in rows if row["expectation"] == "history_interval_coverage" and row["promised"]]
    if covered:
        sentences.append(
            f"Of a stream's 95 % intervals about the past at least {min(covered):.1%} contained the true value after "
            "every pass."
        )
    absent = [row for row in rows if row["expectation"].startswith("file_missing") and not row["success"]]
    if absent:
        sentences.append(f"{len(absent)} file{'s were' if len(absent) != 1 else ' was'} missing.")
    monday = date.fromisocalendar(int(name[:4]), int(name[6:]), 1)
    kept = tuple(_promise(query, judged) for query in sorted({row["query"] for row in judged}))
    return Week(name, monday, monday + timedelta(days=6), tuple(sentences), kept, _kinds([*critical, *warned]))


def _kinds(broken: Sequence[Row]) -> tuple[dict[str, Any], ...]:
    """What is broken the same way again and again is one thing: since when, how often, and how it looked at first."""
    kinds: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in broken:
        kinds[row["severity"], row["expectation"], row["table"], row["query"] or ""].append(row)
    return tuple(
        {
            **own[0],
            "intervals": len({row["label"] for row in own}),
            "until": max(row["label"] for row in own),
        }
        for _, own in sorted(kinds.items())[:_BROKEN_NAMED]
    )


def _promise(query: str, judged: Sequence[Judged]) -> dict[str, Any]:
    """In how many of the periods that were judged in the week a promise was kept, and the worst."""
    own = [row for row in judged if row["query"] == query]
    worst = min(own, key=lambda row: (row["measured"] - row["promised"], row["period_start"]))
    return {
        "query": query,
        "kept": sum(row["kept"] for row in own),
        "judged": len(own),
        "worst": f"{show_period(worst)}: {show_measured(worst)}",
        "promised": show_percent(worst["promised"]),
        "when": worst["interval"],
    }
