"""The laws that every stranger's pipeline must keep. Each yields what breaks it, in words that name where to look."""

from __future__ import annotations

import contextlib
import html.parser
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import duckdb
from infra.oracle import misses
from infra.oracle.answers import Comparison, check_accuracy, check_answers, check_truth, read_rows
from infra.oracle.history import check_history, check_samples, entered, tuple_key
from infra.oracle.schedule import connect, final_windows, parquet
from tests.live_files import contents, live_files, live_rows
from tests.reader.accounts import Fate
from tests.strangers.machine import World
from tests.strangers.readings import Judge

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import EPOCH, Pipeline, Query, Stream, from_us, to_us
from tidegate.declarations.tables import STREAM_KEYS
from tidegate.operators.tuple_bytes import tuple_bytes
from tidegate.queries import planner
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

Law = Callable[[World], Iterable[str]]
Partitions = dict[tuple[str, str], list[str]]
SHOWN = 5
MEASURED = ("run_metrics", "quality_results")
"""Tables that say when and how long something ran, or that only the first warehouse has."""


def every_record_is_in_exactly_one_table(world: World) -> Iterator[str]:
    """Events and quarantine together hold each record of the files once, accepted or refused for the right reason."""
    quarantine = _rows_by_interval(world, "quarantine")
    for stream in world.pipeline.streams:
        landing = world.landing(stream)
        rows = [row for row in quarantine if row["stream"] == stream.name]
        wanted = Counter(_refusal(world, fate) for fate in landing.account.refused)
        actual = Counter(_refused_row(row) for row in rows if row["reason"] != "broken_file")
        yield from _unlike(f"quarantine of {stream.name}", wanted, actual)
        broken = Counter(row["source"] for row in rows if row["reason"] == "broken_file")
        yield from _unlike(f"broken files of {stream.name}", +landing.broken, broken)
        events = read_rows(world.tables, f"events_{stream.name}")
        accepted = Counter(_tuple(world, stream, fate) for fate in landing.account.accepted)
        yield from _unlike(f"events_{stream.name}", accepted, Counter(_event(stream, row) for row in events))


def _interval(world: World, instant_us: int) -> datetime:
    length_us = world.pipeline.interval_s * 1_000_000
    return from_us(instant_us // length_us * length_us)


def _refusal(world: World, fate: Fate) -> tuple[Any, ...]:
    """A refused record: why, where in which file, when it arrived, and the interval that it belongs to."""
    home = _interval(world, fate.home_us)
    return fate.reason, fate.column, fate.file.path, fate.record.position, fate.verdict.arrival_us, home


def _refused_row(row: dict[str, Any]) -> tuple[Any, ...]:
    arrival = None if row["arrival_time"] is None else to_us(row["arrival_time"])
    return row["reason"], row["column"], row["source"], row["position"], arrival, _start(row)


def _rows_by_interval(world: World, table: str) -> list[dict[str, Any]]:
    """The rows of a table, each with the label of its interval."""
    if not any(live_files(world.tables / table).values()):
        return []
    rows: list[dict[str, Any]] = live_rows(world.tables / table).to_pylist()
    return rows


def _start(row: dict[str, Any]) -> datetime:
    """Start of the interval in whose partition a row is."""
    return datetime.fromisoformat(str(row["interval"])).replace(tzinfo=UTC)


def _tuple(world: World, stream: Stream, fate: Fate) -> tuple[Any, ...]:
    values = fate.verdict.values
    keys = fate.id, values[stream.event_time], fate.verdict.arrival_us
    return (*keys, *(repr(values[c.name]) for c in stream.columns if c.name not in STREAM_KEYS))


def _event(stream: Stream, row: dict[str, Any]) -> tuple[Any, ...]:
    keys = row["event_id"], to_us(row["event_time"]), to_us(row["arrival_time"])
    return (*keys, *(repr(_plain(row[c.name])) for c in stream.columns if c.name not in STREAM_KEYS))


def _plain(value: Any) -> Any:
    """A value as the independent reader has it."""
    if isinstance(value, datetime):
        return to_us(value)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


def _unlike(what: str, wanted: Counter[Any], actual: Counter[Any]) -> Iterator[str]:
    if wanted != actual:
        lost, extra = list((wanted - actual).elements()), list((actual - wanted).elements())
        yield f"{what}: {len(lost)} lost {lost[:SHOWN]}, {len(extra)} too many {extra[:SHOWN]}"


def columns_that_nobody_declares_are_counted(world: World) -> Iterator[str]:
    """Of every interval the accepted tuples that have such a column, and the first of their arrivals."""
    rows = _rows_by_interval(world, "unknown_columns")
    for stream in world.pipeline.streams:
        counted = world.landing(stream).account.unknown_columns()
        length_us = world.pipeline.interval_s * 1_000_000
        wanted = Counter((from_us(n * length_us), name, *counts) for (n, name), counts in counted.items())
        own = [row for row in rows if row["stream"] == stream.name]
        actual = Counter((_start(r), r["column"], r["records"], to_us(r["first_seen"])) for r in own)
        yield from _unlike(f"unknown_columns of {stream.name}", wanted, actual)


def files_are_named_with_what_they_hold(world: World) -> Iterator[str]:
    """Each file whose records belong to the intervals is listed, with as many as it holds; a broken one says so."""
    rows = _rows_by_interval(world, "source_files")
    for stream in world.pipeline.streams:
        landing = world.landing(stream)
        own = [row for row in rows if row["stream"] == stream.name]
        actual = Counter[str]()
        for row in own:
            actual[row["path"]] += row["rows"] or 0
        wanted = Counter(fate.file.path for fate in landing.account.fates)
        yield from _unlike(f"rows of the files of {stream.name}", wanted, +actual)
        unreadable = {row["path"] for row in own if row["status"] == "unreadable"}
        if unreadable != {file.path for file in landing.account.broken}:
            yield f"{stream.name}: unreadable are {sorted(unreadable)}"
        missing = sum(row["status"] == "missing" for row in own)
        if bool(missing) != bool(landing.missing):
            yield f"{stream.name}: {missing} rows say that a file is missing, {landing.missing} patterns have none"


def answers_equal_brute_force(world: World) -> Iterator[str]:
    """At coverage 1 the exact answer, below it the scaled one, at the instants that the plans name."""
    yield from _queries(world, check_answers)


def truth_equals_brute_force(world: World) -> Iterator[str]:
    """The truth is the answer over whole ranges and all tuples within the horizon."""
    yield from _queries(world, check_truth)


def accuracy_equals_brute_force(world: World) -> Iterator[str]:
    """What is said of an answer's accuracy is its distance from the truth, both recomputed."""
    yield from _queries(world, check_accuracy)


def answers_are_the_readings(world: World) -> Iterator[str]:
    """Of a query that was written twice by hand the answers are those of the other text, at their instants."""
    for judge in _readings(world):
        yield from judge.answers()


def truth_is_the_readings(world: World) -> Iterator[str]:
    """So is the truth, of all tuples within the horizon."""
    for judge in _readings(world):
        yield from judge.truth()


def accuracy_follows_from_answers_and_truth(world: World) -> Iterator[str]:
    """By the terms of the promise: floors, shares of groups, best groups, sessions."""
    for judge in _readings(world):
        yield from judge.accuracy()


def updates_come_to_the_readings(world: World) -> Iterator[str]:
    """After each further answer the rows of a window are those of the other text at that instant."""
    for judge in _readings(world):
        yield from judge.updates()


def _readings(world: World) -> Iterator[Judge]:
    for query in world.pipeline.queries:
        if query.id in world.case.readings:
            yield Judge(world, query, world.case.readings[query.id])


def _queries(world: World, check: Callable[..., Comparison]) -> Iterator[str]:
    for query in (query for query in world.pipeline.queries if query.id not in world.case.readings):
        yield from _differences(check(world.pipeline, query, world.tables, world.start, world.end))


def _differences(comparison: Comparison) -> Iterator[str]:
    # A stranger's pipeline may rightly have nothing to say; that it does is seen by the other laws.
    found = [d for d in comparison.differences if not d.startswith(("nothing is expected", "nothing was sampled"))]
    if found:
        yield f"{comparison.subject}: {len(found)} differences: " + "; ".join(found[:SHOWN])


def no_more_is_held_than_the_budget(world: World) -> Iterator[str]:
    """At no tick do all windows together hold more than M, nor does any operator's state."""
    budget = world.pipeline.memory_budget_bytes
    held: Counter[Any] = Counter()
    for row in read_rows(world.tables, "stream_rates"):
        held[row["tick"]] += row["held_bytes"] or 0
    over = {tick: size for tick, size in held.items() if size > budget}
    if over:
        worst = max(over, key=lambda tick: over[tick])
        yield f"{len(over)} ticks hold more than {budget} bytes, the most {over[worst]} at {worst}"
    for row in read_rows(world.tables, "run_metrics"):
        if (row["peak_state_bytes"] or 0) > budget:
            yield f"{row['app']} {row['query']}: state of {row['peak_state_bytes']} bytes, budget {budget}"
            return


def enough_memory_is_level_a(world: World) -> Iterator[str]:
    """No query is ever supported below level A where M suffices for what truly came.

    It does if, at every tick, the tuples that came within the widest range and the longest slack fit together, each
    counted as its stream's largest. Rates that are declared too high, and bursts, make plans, but refuse nothing. A
    query whose DURATION begins later than the run is left out: what came before it may not have been held. So is the
    time in which a window grows into a slack that was raised, where ``max_width``, or a plan for rates that M would not
    do for, had left it no wider than it needed until then.
    """
    pipeline = world.pipeline
    if pipeline.tables:
        return  # what is looked up is held, too, and no tuple tells how long it is
    tick_s, needed = pipeline.tick_s, Counter[float]()
    rates = read_rows(world.tables, "stream_rates")
    for stream in pipeline.streams:
        own = [row for row in rates if row["stream"] == stream.name]
        ranges = [q.ranges_s()[stream.name] for q in pipeline.queries if stream.name in q.streams]
        if not ranges or not own:
            continue
        # The estimate begins with what was declared, and may lag behind what has come.
        events = Warehouse(world.whole, pipeline).read_arrow(f"events_{stream.name}")
        weights = tuple_bytes(planner.held(pipeline, stream), events).tolist()
        size = max([*weights, *(row["tuple_bytes"] or 0 for row in own)])
        # A join with a bound holds a tuple twice: to be matched, and in its result.
        size *= 2 if any(q.bounded is not None and stream.name in q.streams for q in pipeline.queries) else 1
        ticks = math.ceil((max(ranges) + pipeline.horizon_s) / tick_s) + 2
        came = {row["tick"].timestamp(): row["tuples"] for row in own}
        # A tick's row counts what came before it: of the last tick's own no row tells.
        last = max(came)
        came[last + tick_s] = sum(at.timestamp() >= last for at in events["arrival_time"].to_pylist())
        for tick, tuples in came.items():
            for later in range(ticks if tuples else 0):
                needed[tick + later * tick_s] += tuples * size
    most = max(needed.values(), default=0.0)
    if most > pipeline.memory_budget_bytes:
        return
    began = {q.id for q in pipeline.queries if q.active_from is None or q.active_from <= world.start}
    grows = {q.id: _growing(world, q) for q in pipeline.queries}
    for row in read_rows(world.tables, "query_plan"):
        grown = any(first <= row["effective_from"] <= last for first, last in grows[row["query"]])
        if row["query"] in began and row["support_level"] != "A" and not grown:
            level, since = row["support_level"], row["effective_from"]
            yield f"{row['query']} from {since}: level {level} though {most:.0f} bytes suffice"
            return


def _growing(world: World, query: Query) -> list[tuple[datetime, datetime]]:
    """When windows that ``max_width`` or a plan without surplus kept narrow grow into a slack of the query's."""
    widths = sorted(read_rows(world.tables, "window_plan"), key=lambda row: row["effective_from"])

    def kept_narrow(raised: dict[str, Any]) -> bool:
        for window in query.windows:
            asked_s, most_s = window.range_s + raised["slack_s"], world.pipeline.stream(window.stream).max_width_s
            plans = [row for row in widths if row["stream"] == window.stream]
            until = [row for row in plans if row["effective_from"] < raised["effective_from"]]
            foreseen_full = bool(until) and until[-1]["support_level"] != "A" and until[-1]["width_s"] < asked_s
            if foreseen_full or (most_s is not None and most_s < asked_s):
                return True
        return False

    # Before its first row a query waits as long as is declared.
    plans: list[dict[str, Any]] = [{"effective_from": world.start, "slack_s": world.pipeline.initial_slack_s}]
    of_query = [row for row in read_rows(world.tables, "slack_plan") if row["query"] == query.id]
    plans += sorted(of_query, key=lambda row: row["effective_from"])
    return [
        (new["effective_from"], new["effective_from"] + timedelta(seconds=new["slack_s"] - old["slack_s"]))
        for old, new in pairwise(plans)
        if new["slack_s"] > old["slack_s"] and kept_narrow(new)
    ]


def no_query_is_silent_without_a_finding(world: World) -> Iterator[str]:
    """A query whose truth has rows and that never answers is named by a finding.

    Unless all its windows held their whole range: then what they hold by their instants of emission is nothing, for
    every tuple was later than K, and `answers_equal_brute_force` has judged that. Or unless it declares a promise that
    every window kept: ERROR 100% is kept by no answer at all. Or unless it was answered at the first tick of its
    DURATION only, when nothing has been held for it yet.
    """
    findings = [row for row in read_rows(world.tables, "quality_results") if not row["success"]]
    for query in world.pipeline.queries:
        if query.sessions is not None or query.bounded is not None:
            continue  # the law of readings knows which of them are due
        due = final_windows(world.pipeline, query, world.tables, world.start, world.end)
        truth = read_rows(world.tables, f"truth_{query.id}")
        if not due or not truth or read_rows(world.tables, f"answers_{query.id}"):
            continue
        begun = query.active_from
        if begun is not None and due[-1] - begun < timedelta(seconds=world.pipeline.tick_s):
            continue
        ranges_s = {w.alias: w.range_s for w in query.windows}
        judged = [row for row in read_rows(world.tables, "accuracy") if row["query"] == query.id]
        if len(judged) == len(due) and all(row["kept"] or dict(row["width_s"]) == ranges_s for row in judged):
            continue
        if not any(row["query"] == query.id or query.id in (row["detail"] or "") for row in findings):
            yield f"{query.id}: {len(due)} windows were due, none was answered, and no finding says so"


def misses_come_to_what_is_declared(world: World) -> Iterator[str]:
    """OMIT keeps the answers that kept the promise, CORRECT corrects those that missed it: all of them, no others."""
    for query in world.pipeline.queries:
        judged = [row for row in read_rows(world.tables, "accuracy") if row["query"] == query.id]
        answers = read_rows(world.tables, f"answers_{query.id}")
        if query.on_miss == "omit":
            yield from _rows_are(world, f"kept_{query.id}", misses.kept(answers, judged))
        if query.on_miss == "correct":
            truth, horizon = read_rows(world.tables, f"truth_{query.id}"), timedelta(seconds=world.pipeline.horizon_s)
            wanted = misses.corrections(query, answers, truth, judged, horizon)
            yield from _rows_are(world, f"corrections_{query.id}", wanted)


def _rows_are(world: World, table: str, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    wanted = Counter(map(_without_interval, rows))
    found = Counter(map(_without_interval, read_rows(world.tables, table)))
    if wanted != found:
        lacking, strange = list((wanted - found).elements()), list((found - wanted).elements())
        told = [f"{len(own)} {what}: {own[:SHOWN]}" for own, what in ((lacking, "lack"), (strange, "are too many"))]
        yield f"{table}: of {wanted.total()} rows {', '.join(told)}"


def _without_interval(row: dict[str, Any]) -> str:
    return repr(sorted((name, value) for name, value in row.items() if name != "interval"))


def repeated_is_identical(world: World) -> Iterator[str]:
    """Cut differently, and with intervals run again, every table has the same rows in the same order.

    But for what is said of files that have grown in between.
    """
    left_out = _left_out(world)
    mine, theirs = (contents(world.pipeline, root, left_out) for root in (world.whole, world.parts))
    yield from _rows_differ(mine, theirs, "in one go", "in parts")


def _left_out(world: World) -> tuple[str, ...]:
    """The tables that say what a run was like: where files have grown meanwhile, how long they were, too."""
    return (*MEASURED, "source_files") if any(f.first is not None for f in world.case.files) else tuple(MEASURED)


def live_is_hourly(world: World) -> Iterator[str]:
    """Of the intervals that a live run has ended, every table has the rows of a run after the fact.

    But for what is said of files that have grown in between, and for the leaves of history if a day has ended since:
    then they are thinned and merged.
    """
    later = [i for i in intervals_between(world.pipeline, world.start, world.end) if i.label not in world.lived]
    rewritten = any(interval.ends_day for interval in later)

    def told_of(table: str, label: str) -> bool:
        return label in world.lived and not (rewritten and table.startswith("history_"))

    hourly, live = (
        {key: rows for key, rows in contents(world.pipeline, root, _left_out(world)).items() if told_of(*key)}
        for root in (world.parts, world.live)
    )
    yield from _rows_differ(hourly, live, "hourly", "live")


def _rows_differ(mine: Partitions, theirs: Partitions, how: str, other: str) -> Iterator[str]:
    if mine.keys() != theirs.keys():
        yield f"partitions of one run alone: {sorted(mine.keys() ^ theirs.keys())[:SHOWN]}"
        return
    different = [key for key in mine if mine[key] != theirs[key]]
    for table, label in different[:3]:
        pairs = [(a, b) for a, b in zip(mine[table, label], theirs[table, label], strict=False) if a != b]
        yield (
            f"{table} of {label} (one of {len(different)} partitions): {len(mine[table, label])} rows {how}, "
            f"{len(theirs[table, label])} {other}; first difference {pairs[:1]}"
        )


def history_is_exact_on_leaves(world: World) -> Iterator[str]:
    """Every tuple that entered is in one leaf, whose aggregates are exact; samples are of such tuples, each once."""
    for stream in world.pipeline.streams:
        if stream.history is not None:
            for check in (check_history, check_samples):
                yield from _differences(check(world.pipeline, stream, world.tables, world.start, world.end))


def history_answers_are_honest(world: World) -> Iterator[str]:
    """Exact estimates are the truth; whether intervals hold it is judged over many cases (`Pool`)."""
    from tidegate.history.questions import query_history

    counted: set[str] = set()
    for name, sql, start, end in world.case.questions:
        stream = next((s for s in world.pipeline.streams if s.name == name), None)
        if stream is None or stream.history is None:
            continue
        tuples = entered(world.pipeline, stream, world.tables, world.start, world.end)
        try:
            result = query_history(world.pipeline, world.whole, sql, start, end)
        except UserError as error:
            if any(start <= row["event_time"] < end for row in tuples):
                yield f"{sql} from {start} to {end}: {error}"
            continue
        truth = _truth_of_the_past(world, name, sql, start, end, {tuple_key(row) for row in tuples})
        for row in result["rows"]:
            answer = row["v"]
            if answer["exact"] and not _close(answer["estimate"], truth):
                yield f"{sql} from {start} to {end}: exactly {answer['estimate']}, the truth is {truth}"
            if not answer["exact"] and answer["low"] is not None and truth is not None:
                # Two questions on one stream would meet the same samples: only the first counts.
                world.covered += [answer["low"] <= truth <= answer["high"]] if name not in counted else []
                counted.add(name)
                if not answer["low"] <= answer["estimate"] <= answer["high"]:
                    yield f"{sql}: the estimate {answer['estimate']} is not in [{answer['low']}, {answer['high']}]"


def _truth_of_the_past(world: World, stream: str, sql: str, start: Any, end: Any, keys: set[tuple[Any, ...]]) -> Any:
    connection = connect()
    connection.execute("CREATE TEMP TABLE keys (id VARCHAR, happened TIMESTAMPTZ, arrived TIMESTAMPTZ)")
    if keys:
        connection.executemany("INSERT INTO keys VALUES (?, ?, ?)", [list(key) for key in keys])
    value = sql.split(" FROM ", maxsplit=1)[0]
    events = parquet(world.tables, f"events_{stream}")
    where = "event_time >= ? AND event_time < ? AND (event_id, event_time, arrival_time) IN (FROM keys)"
    found = connection.execute(f"{value} FROM {events} WHERE {where}", [start, end]).fetchone()
    return None if found is None or found[0] is None else float(found[0])


def _close(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return (a or 0.0) == (b or 0.0)
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1.0)


class _Words(html.parser.HTMLParser):
    """The text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def pages_are_made(world: World) -> Iterator[str]:
    """The report and the Data Docs are there and name the pipeline's queries; dbt's marts are, where they were made."""
    from tidegate.report.report import run as report

    page = report(world.pipeline, world.whole)
    words = _Words()
    words.feed(page.read_text(encoding="utf-8"))
    text = " ".join(words.text)
    yield from (f"the report does not name {q.id}" for q in world.pipeline.queries if q.id not in text)
    if not (world.tables / "_docs" / "quality" / "index.html").is_file():
        yield "no Data Docs"
    if world.case.publish:
        if not list((world.tables / "marts").glob("*/_delta_log")):
            yield "dbt published no marts"
        if not (world.tables / "_docs" / "dbt" / "index.html").is_file():
            yield "dbt wrote no docs page"


def commands_answer(world: World) -> Iterator[str]:
    """``explain`` explains, ``sql --duckdb`` prints views that DuckDB takes, ``fill`` fills or says why not."""
    from tidegate.cli.memory_ladder import needs, render
    from tidegate.cli.query_work import query_work
    from tidegate.declarations.explain import describe
    from tidegate.history.filled import fill_answers, render_filled
    from tidegate.sql.relations import duckdb_script

    text = "\n".join([describe(world.pipeline), query_work(world.pipeline), render(needs(world.pipeline))])
    yield from (f"explain does not name {q.id}" for q in world.pipeline.queries if q.id not in text)
    connection = duckdb.connect()
    try:
        connection.execute(duckdb_script(Warehouse(world.whole, world.pipeline)))
        for query in world.pipeline.queries:
            connection.execute(f'SELECT * FROM warehouse."answers_{query.id}"').fetchall()
        if world.case.publish:
            counted = connection.execute("SELECT query, count(*) FROM tidegate.answers GROUP BY query").fetchall()
            of = {q.id: len(read_rows(world.tables, f"answers_{q.id}")) for q in world.pipeline.queries}
            wanted = {name: count for name, count in of.items() if count}
            if not any(q.on_miss == "omit" for q in world.pipeline.queries) and dict(counted) != wanted:
                yield f"the mart answers has {dict(counted)} rows, the tables {wanted}"
        for judge in _readings(world):
            if judge.query.emits_updates and world.case.publish:  # dbt's project names the view
                latest = connection.execute(f'SELECT * FROM tidegate."latest_{judge.query.id}"').to_arrow_table()
                shown = [judge.plain(row) for row in latest.to_pylist()]
                yield from _unlike(
                    f"latest_{judge.query.id}", Counter(map(repr, judge.latest())), Counter(map(repr, shown))
                )
    except duckdb.Error as error:
        yield f"sql --duckdb: {error}"
    for query in world.pipeline.queries:
        if fillable(world.pipeline, query):
            # A refusal in words is an answer, too: what history cannot estimate cannot be filled.
            with contextlib.suppress(UserError):
                render_filled(fill_answers(world.pipeline, world.whole, query.id, world.start, world.end, 0.95))


def fillable(pipeline: Pipeline, query: Query) -> bool:
    """Whether a query is one of those that ``fill`` answers."""
    return query.kind == "aggregate" and pipeline.stream(query.windows[0].stream).history is not None


LAWS: tuple[Law, ...] = (
    every_record_is_in_exactly_one_table,
    columns_that_nobody_declares_are_counted,
    files_are_named_with_what_they_hold,
    answers_equal_brute_force,
    truth_equals_brute_force,
    accuracy_equals_brute_force,
    answers_are_the_readings,
    truth_is_the_readings,
    accuracy_follows_from_answers_and_truth,
    updates_come_to_the_readings,
    no_more_is_held_than_the_budget,
    enough_memory_is_level_a,
    no_query_is_silent_without_a_finding,
    misses_come_to_what_is_declared,
    repeated_is_identical,
    live_is_hourly,
    history_is_exact_on_leaves,
    history_answers_are_honest,
    pages_are_made,
    commands_answer,
)
