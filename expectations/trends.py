"""How the pipeline has been doing: series over the intervals, a line a day, a summary a week.

Everything comes from the rows of ``quality_results``, so that SQL and alerts see the same numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from expectations.results import Row, failures
from expectations.tables import label_start

_BROKEN_NAMED = 8
_WIDTH, _HEIGHT, _EDGE = 560, 110, 6

# Rules → what is shown of them, in this order. A rule with `measured` and `promised` becomes a trend by a line here.
TRENDS = {
    "Accuracy against the promise": ("promise_kept", "promise_warming_up"),
    "Slack K against the oracle's": ("slack_covers_oracle",),
    "Bytes held against M": ("plan_held_within_memory_budget",),
    "Coverage of history intervals": ("history_interval_coverage",),
    "Share of records refused": ("quarantine_share",),
}
_SHARES = ("promise_kept", "promise_warming_up", "history_interval_coverage", "quarantine_share")


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
            return f"{value:.1%}"
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


def trends(by_label: Mapping[str, Sequence[Row]]) -> list[tuple[str, list[Series]]]:
    """(title, a series for each query), those that have values."""
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
    return [(title, series) for title, series in made.items() if series]


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


def weeks(by_label: Mapping[str, Sequence[Row]]) -> list[Week]:
    """Each week's summary, newest first."""
    labels: dict[str, list[str]] = defaultdict(list)
    for label in sorted(by_label):
        labels[week_of(label)].append(label)
    return [_week(name, own, by_label) for name, own in sorted(labels.items(), reverse=True)]


def _week(name: str, labels: Sequence[str], by_label: Mapping[str, Sequence[Row]]) -> Week:
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
    kept = tuple(_promise(query, rows) for query in _promised(rows))
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


def _promised(rows: Iterable[Row]) -> list[str]:
    return sorted(
        {row["query"] for row in rows if row["expectation"] in TRENDS["Accuracy against the promise"]} - {None}
    )


def _promise(query: str, rows: Sequence[Row]) -> dict[str, Any]:
    """In how many of the week's intervals a query's promise stood, and the worst."""
    own = [row for row in rows if row["query"] == query and row["expectation"] == "promise_kept"]
    early = [row for row in rows if row["query"] == query and row["expectation"] == "promise_warming_up"]
    judged = own or early
    worst = min((row for row in judged if row["measured"] is not None), key=lambda row: row["measured"], default=None)
    return {
        "query": query,
        "kept": sum(row["success"] for row in own),
        "judged": len(own),
        "warming": len(early),
        "worst": worst and f"{worst['measured']:.1%}",
        "promised": worst and f"{worst['promised']:.1%}",
        "when": worst and worst["label"],
    }
