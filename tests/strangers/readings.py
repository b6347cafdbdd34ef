"""Whether the tables have what the readings of a case say: answers, truths, accuracies, updates.

A reading (`tests.strangers.case.Reading`) is what a query asks, by hand, in DuckDB's SQL. Which windows are due, and
when, says `infra.oracle.schedule`; of sessions and of joins with a bound it is worked out here from ``slack_plan``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import pyarrow as pa
from infra.oracle.answers import Row, arrow, compare, order_value, read_rows, relative_error
from infra.oracle.schedule import (
    begin_of,
    connect,
    expected_windows,
    final_windows,
    first_tick,
    multiples,
    parquet,
    rows,
    slack_at,
)
from tests.strangers.case import Reading
from tests.strangers.machine import World

from tidegate.declarations.models import Query

UTC_US = pa.timestamp("us", tz="UTC")
SHOWN = 4
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Moment:
    """A window, or the last event of a session, and until when tuples count."""

    window_end: datetime
    begin: datetime
    seen: datetime


class Judge:
    """One query's reading beside its tables."""

    def __init__(self, world: World, query: Query, reading: Reading):
        self.world, self.query, self.reading = world, query, reading
        self.horizon = timedelta(seconds=world.pipeline.horizon_s)
        self.lag, self.gap = timedelta(seconds=reading.lag_s), timedelta(seconds=reading.gap_s)
        self.connection = connect()
        for stream in world.pipeline.streams:
            seen = 'SELECT *, greatest(arrival_time, event_time) AS "__seen"'
            events = parquet(world.tables, f"events_{stream.name}")
            self.connection.execute(f'CREATE OR REPLACE TEMP VIEW "tuples_{stream.name}" AS {seen} FROM {events}')
        plans = "SELECT effective_from, slack_s FROM {t} "
        plans += f"WHERE query = '{query.id}' ORDER BY effective_from"
        self.slacks = rows(world.tables, plans, "slack_plan")
        levels = f"SELECT DISTINCT support_level FROM {{t}} WHERE query = '{query.id}'"
        self.is_whole = all(level == "A" for (level,) in rows(world.tables, levels, "query_plan"))
        """Whether all that the query needs was always held."""

    @property
    def keys(self) -> list[str]:
        """The columns that tell rows apart."""
        start = ["window_start"] if self.reading.kind == "sessions" else []
        return ["window_end", *start, *self.reading.keys]

    def table(self, prefix: str) -> list[Row]:
        """The rows of one of the query's tables."""
        return read_rows(self.world.tables, f"{prefix}_{self.query.id}")

    def evaluated(self, moments: Sequence[Moment]) -> list[list[Row]]:
        """What each of these has, by DuckDB; of best groups all of them."""
        if not moments:
            return []
        columns = {
            name: pa.array([getattr(one, name) for one in moments], UTC_US) for name in ("window_end", "begin", "seen")
        }
        self.connection.register("moments", pa.table({"number": pa.array(range(len(moments)), pa.int64()), **columns}))
        results: list[list[Row]] = [[] for _ in moments]
        for row in arrow(self.connection, self.reading.sql).to_pylist():
            number = row.pop("number")
            results[number].append({"window_end": moments[number].window_end, **row})
        return results

    # Which windows there are.

    def due(self) -> list[Moment]:
        """What must have been answered in the run, whole; where less was held some of it."""
        start, end, pipeline = self.world.start, self.world.end, self.world.pipeline
        if self.reading.kind == "windows":
            windows = expected_windows(pipeline, self.query, self.world.tables, start, end)
            whole = [w for w in windows if w.coverage > 1 - 1e-9]
            return [Moment(w.window_end, self.begin(w.window_end), w.emitted_at) for w in whole]
        candidates = (Moment(t, begin, t + self.lag + self.slack(t + self.lag)) for t, begin in self.ends())
        return [one for one in candidates if start <= one.seen < end]

    def final(self) -> list[Moment]:
        """What became final in the run."""
        start, end, pipeline = self.world.start, self.world.end, self.world.pipeline
        if self.reading.kind == "windows":
            ends = final_windows(pipeline, self.query, self.world.tables, start, end)
            return [Moment(t, self.begin(t), t + self.horizon) for t in ends]
        candidates = (Moment(t, begin, t + self.lag + self.horizon) for t, begin in self.ends())
        return [one for one in candidates if start <= one.seen < end]

    def ends(self) -> Iterator[tuple[datetime, datetime]]:
        """Ends and begins of the windows of a join with a bound; of sessions what may be one's, and its last event."""
        if self.reading.kind == "sessions":
            for (last,) in self.connection.execute(self.reading.ends).fetchall():
                yield last + self.gap, last
            return
        first = first_tick(self.world.pipeline, self.query, self.world.tables)
        if first is not None:
            for tick in multiples(self.query.every_s, first, self.world.end):
                yield tick, self.begin(tick)

    def begin(self, window_end: datetime) -> datetime:
        """Where the window begins that has a RANGE."""
        (window,) = self.query.ranged
        return begin_of(window, window_end)

    def slack(self, instant: datetime) -> timedelta:
        """K in effect."""
        return slack_at(self.world.pipeline, self.query, self.slacks, instant)

    # The laws.

    def answers(self) -> Iterator[str]:
        """Answers of windows that were held whole are the reading's at their instants."""
        due = self.due()
        expected = [row for rows_of_one in self.evaluated(due) for row in self.ranked(rows_of_one)]
        actual = self.table("answers")
        whole = [row for row in actual if row["coverage"] > 1 - 1e-9]
        if not self.is_whole and self.reading.kind != "windows":
            # Held whole or not at all: which of them follows from plans that other laws are about.
            of = self.key if self.reading.kind == "sessions" else lambda row: row["window_end"]
            known = {of(row) for row in whole}
            expected = [row for row in expected if of(row) in known]
        instants = {one.window_end: one.seen for one in due}
        expected = [{**row, "emitted_at": instants[row["window_end"]]} for row in expected]
        self.count("answers", expected)
        yield from self.unlike("answers", whole, expected)

    def truth(self) -> Iterator[str]:
        """Truths are the reading's of all that came within the horizon."""
        expected = [
            row for rows_of_one in self.evaluated(self.final()) for row in self.ranked(rows_of_one, with_ties=True)
        ]
        self.count("truths", expected)
        yield from self.unlike("truth", self.table("truth"), expected)

    def accuracy(self) -> Iterator[str]:
        """An answer's accuracy follows from answers and truths by the terms of the promise."""
        judged = [r for r in read_rows(self.world.tables, "accuracy") if r["query"] == self.query.id]
        if self.reading.kind == "sessions":
            yield from self.accuracy_of_sessions(judged)
            return
        answers, truths = by_end(self.table("answers")), by_end(self.table("truth"))
        expected, actual = [], {row["window_end"]: row for row in judged}
        if len(actual) != len(judged):
            yield f"accuracy of {self.query.id}: {len(judged)} rows for {len(actual)} windows"
        for end, row in actual.items():
            if self.reading.kind == "bounded" and not any(dict(row["width_s"]).values()):
                value = 1.0  # it was not held whole
            else:
                value = self.value(answers.get(end, []), truths.get(end, []))
            expected.append({"window_end": end, "value": value, **self.kept(value, row)})
        both = {one.window_end for one in self.due()} & {one.window_end for one in self.final()}
        needed = {end for end in both if answers.get(end) or (self.is_whole and truths.get(end))}
        if needed - actual.keys():
            yield f"accuracy of {self.query.id}: no row of {sorted(needed - actual.keys())[:SHOWN]}"
        self.count("accuracies", expected)
        if expected:
            comparison = compare(f"accuracy of {self.query.id}", judged, expected, ["window_end"], atol=2e-9)
            yield from shown(comparison.subject, comparison.differences)

    def accuracy_of_sessions(self, judged: Sequence[Row]) -> Iterator[str]:
        """Each session that is true or was answered has a row of its own: of those that ended in the run."""
        within = {
            one.window_end for one in self.final() if one.window_end + self.slack(one.window_end) >= self.world.start
        }
        answers, truths = (
            {self.key(row): row for row in self.table(prefix) if row["window_end"] in within}
            for prefix in ("answers", "truth")
        )
        expected = []
        for key in answers.keys() | truths.keys():
            answer, true = answers.get(key), truths.get(key)
            value = 1.0 if answer is None or true is None else self.error(answer, true)
            expected.append((key[0], value))
        actual = sorted((row["window_end"], row["value"]) for row in judged)
        self.count("accuracies", expected)
        pairs = zip(actual, sorted(expected), strict=False)
        different = [(a, b) for a, b in pairs if a[0] != b[0] or not math.isclose(a[1], b[1], abs_tol=1e-6)]
        if different or len(actual) != len(expected):
            subject = f"accuracy of {self.query.id}: {len(actual)} sessions, expected {len(expected)}"
            yield f"{subject}; first difference {different[:1]}"
        if len({(row["window_end"], row["group_key"]) for row in judged}) != len(judged):
            yield f"accuracy of {self.query.id}: a session has more than one row"

    def updates(self) -> Iterator[str]:
        """After each revision the rows of all so far are the reading's at its instant; the last ones are the truth."""
        reading = self.reading
        if not (reading.emit_early or reading.emit_every_s):
            return
        due = self.due() if self.is_whole else []
        answers, updates = by_end(self.table("answers")), by_end(self.table("updates"))
        due = [one for one in due if all(r["coverage"] > 1 - 1e-9 for r in updates.get(one.window_end, []))]
        moments, revisions = [], []
        for one in due:
            for revision, kind, at in self.revisions(one):
                if self.world.start <= at < self.world.end:
                    moments.append(Moment(one.window_end, one.begin, at))
                    revisions.append((one, revision, kind))
        numbered = zip(moments, revisions, self.evaluated(moments), strict=True)
        for at, (one, revision, kind), rows_of_one in numbered:
            wanted = [self.plain(row) for row in self.ranked(rows_of_one)]
            state = self.state(answers.get(one.window_end, []), updates.get(one.window_end, []), revision)
            self.count("updates", wanted)
            yield from shown(
                f"{self.query.id}: window to {at.window_end}, revision {revision} ({kind}) at {at.seen}",
                compare("", state, wanted, self.keys, atol=1e-9).differences if wanted or state else [],
            )
        known = {(one.window_end, revision) for one, revision, _ in revisions}
        known |= {(one.window_end, 1) for one in due}
        strange = [
            r for one in due for r in updates.get(one.window_end, ()) if (one.window_end, r["revision"]) not in known
        ]
        if strange:
            yield f"updates_{self.query.id}: {len(strange)} rows of revisions that are not due, {strange[:1]}"

    def revisions(self, promised: Moment) -> Iterator[tuple[int, str, datetime]]:
        """The further answers of a window: revision, kind and instant."""
        reading, end = self.reading, promised.window_end
        if reading.emit_early and promised.seen > end:
            yield 0, "early", end
        if not reading.emit_every_s:
            return
        number, step = 1, timedelta(seconds=reading.emit_every_s)
        while promised.seen + number * step < end + self.horizon:
            yield 1 + number, "update", promised.seen + number * step
            number += 1
        yield 1 + number, "final", max(end + self.horizon, promised.seen)

    def state(self, answers: Iterable[Row], updates: Iterable[Row], revision: int) -> list[Row]:
        """The rows of a window after a revision: the newest of each key, without those that have left."""
        newest: dict[Key, tuple[int, Row]] = {}
        changes = [(1, row) for row in answers] + [(row["revision"], row) for row in updates]
        for number, row in sorted(changes, key=lambda change: change[0]):
            if number <= revision:
                newest[self.key(row)] = (number, row)
        return [self.plain(row) for _, row in newest.values() if not row.get("deleted")]

    def latest(self) -> list[Row]:
        """What the newest revisions of all windows come to."""
        answers, updates = by_end(self.table("answers")), by_end(self.table("updates"))
        newest = []
        for end in sorted(answers.keys() | updates.keys()):
            newest += self.state(answers.get(end, []), updates.get(end, []), 10**9)
        return newest

    # Parts of them.

    def key(self, row: Row) -> Key:
        """What tells a row apart; NULL is a key."""
        return tuple(row[name] for name in self.keys)

    def plain(self, row: Row) -> Row:
        """The columns that tuples decide."""
        return {
            name: row[name] for name in [*self.keys, *self.reading.values, *(["rank"] if self.reading.limit else [])]
        }

    def ranked(self, unranked: list[Row], with_ties: bool = False) -> list[Row]:
        """The best groups of a window's, NULL last, ties by the groups; of a query without LIMIT all rows."""
        reading = self.reading
        if not reading.limit:
            return unranked
        parts: dict[Key, list[Row]] = defaultdict(list)
        for row in unranked:
            parts[tuple(row[name] for name in reading.within)].append(row)
        best = []
        for part in parts.values():
            part.sort(key=lambda row: [group_order(row[name]) for name in reading.keys])
            part.sort(key=self.order)
            last = self.order(part[: reading.limit][-1])
            chosen = [row for row in part if self.order(row) <= last] if with_ties else part[: reading.limit]
            best += [{**row, "rank": rank} for rank, row in enumerate(chosen, 1)]
        return best

    def order(self, row: Row) -> tuple[bool, float]:
        """A row's place by what groups are ranked by."""
        value = row[self.reading.ranked_by]
        return value is None, 0.0 if value is None else float(-value if self.reading.descending else value)

    def value(self, answer: Sequence[Row], truth: Sequence[Row]) -> float:
        """The accuracy of an answer: a hit rate, or an error."""
        reading = self.reading
        if reading.limit:
            return self.hit_rate(answer, truth)
        answers, truths = ({self.key(row): row for row in rows} for rows in (answer, truth))
        errors = []
        for key in answers.keys() | truths.keys():
            if (key not in answers or key not in truths) and not set(reading.values) <= reading.floors.keys():
                errors.append(1.0)
            else:
                errors.append(self.error(answers.get(key, {}), truths.get(key, {})))
        count = math.ceil(Fraction(reading.of_groups) / 100 * len(errors))
        return sorted(errors)[count - 1] if errors else 0.0

    def error(self, answer: Row, true: Row) -> float:
        """The largest error of a row's values."""
        return max((self.value_error(name, answer, true) for name in self.reading.values), default=0.0)

    def value_error(self, name: str, answer: Row, true: Row) -> float:
        """The error of a value; of one with a floor, what is not there is 0."""
        floor = self.reading.floors.get(name)
        if floor is None or self.reading.error is None:
            return relative_error(answer[name], true[name])
        said, truth = (float(row.get(name) or 0) for row in (answer, true))
        return abs(said - truth) / max(abs(truth), floor / self.reading.error)

    def hit_rate(self, answer: Sequence[Row], truth: Sequence[Row]) -> float:
        """The share of the true best that were named: of all together, or the mean of each part."""
        reading = self.reading
        parts: dict[Key, list[Key]] = defaultdict(list)
        for row in truth:
            parts[tuple(row[name] for name in reading.within)].append(self.key(row))
        named = {self.key(row) for row in answer}
        counts = [(len(named & set(best)), min(reading.limit, len(best))) for best in parts.values()]
        if not counts:
            return 1.0
        if reading.for_each:
            return sum(hits / most for hits, most in counts) / len(counts)
        return sum(hits for hits, _ in counts) / sum(most for _, most in counts)

    def kept(self, value: float, row: Row) -> Row:
        """Whether the window keeps the promise; on its very edge the last digit of a sum decides."""
        reading = self.reading
        promised = reading.accuracy if reading.limit else reading.error
        if promised is None:
            return {"kept": None}
        if math.isclose(value, promised, rel_tol=1e-6):
            return {}
        return {"kept": value >= promised if reading.limit else value <= promised}

    def unlike(self, table: str, actual: list[Row], expected: list[Row]) -> Iterator[str]:
        """Where a table's rows are not those that are expected; the rank of truths with ties is left out."""
        names = [*self.keys, *self.reading.values]
        names += ["rank"] if self.reading.limit and table == "answers" else []
        names += ["emitted_at"] if table == "answers" else []
        rows_of = ([{name: row[name] for name in names} for row in rows] for rows in (actual, expected))
        mine, theirs = rows_of
        if mine or theirs:
            comparison = compare(f"{table}_{self.query.id}", mine, theirs, self.keys, atol=1e-9)
            yield from shown(
                comparison.subject, [d for d in comparison.differences if theirs or not d.startswith("nothing is")]
            )

    def count(self, what: str, expected: Sequence[Any]) -> None:
        """Note how much was compared."""
        self.world.compared[f"{what} of {self.reading.kind}"] += len(expected)


def by_end(table: Iterable[Row]) -> dict[datetime, list[Row]]:
    """Rows by their window's end."""
    windows: dict[datetime, list[Row]] = defaultdict(list)
    for row in table:
        windows[row["window_end"]].append(row)
    return windows


def group_order(value: Any) -> Any:
    """Where a group comes among others: texts by their bytes, NULL last."""
    return order_value(value.encode().hex() if isinstance(value, str) else value)


def shown(subject: str, differences: Sequence[str]) -> Iterator[str]:
    """A few of the differences."""
    if differences:
        yield f"{subject}: {len(differences)} differences: " + "; ".join(differences[:SHOWN])
