"""FROM and JOIN → the windows that a query reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tidegate.declarations.join_conditions import conjuncts
from tidegate.declarations.models import JoinKind, Sessions, Window
from tidegate.declarations.names import CLAUSES, CLAUSES_OF_SEVERAL_WORDS, refusal
from tidegate.declarations.positions import Misspelt, Report
from tidegate.declarations.query_text import CALENDAR_SHAPE, WINDOW_SHAPE, QueryText, SessionClause, WindowClause
from tidegate.declarations.scope import StreamSchema, offset_of
from tidegate.declarations.units import SECOND_US, show_duration
from tidegate.values.calendar import Calendar

BOUND_SHAPE = "b.at BETWEEN a.at AND a.at + INTERVAL 30 MINUTES"


@dataclass(frozen=True)
class Bare:
    """A stream without RANGE: ``kind`` of its join, the conditions ``on`` it, and where it stands under which name."""

    kind: JoinKind
    on: list[exp.Expression]
    offset: int
    stream: str
    alias: str = ""


@dataclass
class From:
    """What FROM names. ``on``: conditions of JOIN … ON. ``offsets``: where each alias' stream stands.

    ``bare``: the streams without RANGE, of which a bound has to say which tuples match. ``sessions``: of which the
    windows are, if they are sessions.
    """

    windows: tuple[Window, ...] = ()
    bare: list[Bare] = field(default_factory=list)
    sessions: Sessions | None = None
    schemas: dict[str, StreamSchema] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    on: list[exp.Expression] = field(default_factory=list)


def read_from(
    select: exp.Select,
    text: QueryText,
    report: Report,
    streams: Mapping[str, StreamSchema] | None,
    tick_us: int | None,
    others: Iterable[str] = (),
    exists: Sequence[tuple[exp.Table, Bare]] = (),
) -> From | None:
    """The windows of a query; None if a stream's columns are not known, so that nothing more can be checked.

    ``others``: what a name may have been meant to be that is no stream's. ``exists``: the streams of EXISTS.
    """
    sources = From()
    windows: list[Window] = []
    unused = dict(text.windows)
    nameless = unused.pop(-1, None)
    tables: list[tuple[exp.Expression, Bare | None]] = [(select.args["from_"].this, None)]
    complete = streams is not None and _read_joins(select, sources, tables, report)
    alone = len(tables) == 1
    tables += exists
    if text.session is not None and len(tables) > 1:
        report.add(text.session.offset, "sessions are of one stream, not of a join", "a query over one stream")
        return None
    named = 0
    for place, (table, bare) in enumerate(tables):
        # Parentheses around a table, or joins hung below one, are read as another node or as arguments of the table.
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or table.args.get("db"):
            report.add(offset_of(table), "FROM takes streams by name", WINDOW_SHAPE)
            complete = False
            continue
        named += 1
        complete &= check_table(table, report)
        offset = offset_of(table.this)
        clause = unused.pop(offset, nameless if alone and place == 0 else None)
        if bare is not None:
            if clause is not None:
                message = "the optional side of a join has no window: it follows from a bound"
                report.add(clause.offset, message, BOUND_SHAPE)
                complete = False
        elif clause is None and nameless is not None:
            report.add(nameless.offset, "window(…) is of a query over one stream", WINDOW_SHAPE)
        elif clause is None:
            is_joined = place > 0 and table.name.lower() in map(str.lower, streams or ())
            clause, bare = _without_clause(table, is_joined, unused, text, report)
        schema = _schema(table, report, streams, others)
        alias = read_alias(table, sources.schemas, report)
        if schema is None or alias is None:
            complete = False
            continue
        sources.schemas[alias] = schema
        sources.offsets[alias] = offset
        complete &= schema.columns is not None
        if bare is not None:
            sources.bare.append(replace(bare, alias=alias))
        _check_time(schema, text.times.get(-1 if nameless is not None else offset), report)
        if clause is not None and text.session is not None:
            sources.sessions = read_sessions(clause, text.session, report, tick_us)
        if clause is not None and (window := _window(clause, alias, schema, text, report, tick_us)) is not None:
            windows.append(window)
    if named == len(tables):
        for clause in unused.values():
            report.add(clause.offset, "a window must follow a stream's name", WINDOW_SHAPE)
    sources.windows = tuple(windows)
    return sources if complete and sources.schemas else None


def _read_joins(
    select: exp.Select, sources: From, tables: list[tuple[exp.Expression, Bare | None]], report: Report
) -> bool:
    """Add what is joined to the tables; whether all of it can be."""
    good = True
    for join in select.args.get("joins") or ():
        kind, bare = _read_join(join, report), None
        good &= kind is not None
        if kind == "inner" and join.args.get("on") is not None:
            sources.on.append(join.args["on"])
        elif kind is not None and kind != "inner":
            bare = Bare(kind, conjuncts(join.args["on"]), offset_of(join.this), join.this.name)
        tables.append((join.this, bare))
    return good


def _without_clause(
    table: exp.Table, is_joined: bool, unused: dict[int, WindowClause], text: QueryText, report: Report
) -> tuple[WindowClause | None, Bare | None]:
    """What the window of a stream without RANGE is: the calendar's, or one that follows from a bound.

    ``is_joined``: whether it is a stream behind the first one, which has no bound.
    """
    offset, alias_node = offset_of(table.this), table.args.get("alias")
    misplaced = unused.pop(offset_of(alias_node), None) if alias_node else None
    if misplaced is None and text.calendar is not None:
        # Without a range a window is the day, week or month itself.
        return WindowClause(offset, None, (text.calendar.days, text.calendar.months)), None
    if misplaced is None and is_joined:
        return None, Bare("inner", [], offset, table.name)
    where = "stands after the alias" if misplaced else "is missing"
    at = misplaced.offset if misplaced else offset
    report.add(at, f"the window of stream '{table.name}' {where}", WINDOW_SHAPE)
    return None, None


def _window(
    clause: WindowClause, alias: str, schema: StreamSchema, text: QueryText, report: Report, tick_us: int | None
) -> Window | None:
    """The window that a clause means; None if its range could not be read.

    Whole days, weeks and months are those of the calendar, if the query has one.
    """
    if text.session is not None:
        sessions = read_sessions(clause, text.session, report, tick_us)
        if sessions is None:
            return None
        range_s = -(-sessions.reach_us // (tick_us or 1)) * (tick_us or 1) / SECOND_US
        return Window(alias=alias, range_s=range_s, **schema.read)
    if clause.length is not None and text.calendar is not None:
        calendar = Calendar(text.calendar.zone, *clause.length)
        range_s = calendar.longest_us / SECOND_US
        return Window(alias=alias, range_s=range_s, calendar=calendar, **schema.read)
    if clause.range_us is None:
        if clause.length is not None:
            unit = "months" if clause.length[1] else "weeks"
            report.add(clause.offset, f"a range of {unit} is of a calendar", f"days, or {CALENDAR_SHAPE}")
        return None
    if tick_us and clause.range_us % tick_us:
        message = f"the range {show_duration(clause.range_us / SECOND_US)} is not a multiple of the tick"
        report.add(clause.offset, message, f"a multiple of {show_duration(tick_us / SECOND_US)}")
    return Window(alias=alias, range_s=clause.range_us / SECOND_US, **schema.read)


def read_sessions(clause: WindowClause, session: SessionClause, report: Report, tick_us: int | None) -> Sessions | None:
    """The sessions that a query is about, ``clause`` saying how long one may be; None after a mistake."""
    gap_us, longest_us = session.gap_us, clause.range_us
    if longest_us is None:
        if clause.length is not None:
            report.add(clause.offset, "the longest session is no month of a calendar", "[RANGE 1 DAY]")
        return None
    if tick_us and longest_us % tick_us:
        message = f"the range {show_duration(longest_us / SECOND_US)} is not a multiple of the tick"
        report.add(clause.offset, message, f"a multiple of {show_duration(tick_us / SECOND_US)}")
    if gap_us > longest_us:
        message = f"the gap is longer than a session may be, {show_duration(longest_us / SECOND_US)}"
        report.add(session.offset, message, f"[RANGE {show_duration(gap_us / SECOND_US)}] behind the stream")
        return None
    return Sessions(gap_us=gap_us, longest_us=longest_us)


def _check_time(schema: StreamSchema, written: tuple[str, int] | None, report: Report) -> None:
    """Windows are over the event time, whatever a query says."""
    if written is None or schema.event_time is None:
        return
    column, offset = written
    if column.lower() not in (schema.event_time.lower(), "event_time"):
        message = f"windows of stream '{schema.name}' are over its event time, not over '{column}'"
        report.add(offset, message, schema.event_time)


_INNER = "JOIN, LEFT JOIN, LEFT SEMI JOIN or LEFT ANTI JOIN"
_INSTEAD = {
    "RIGHT": "LEFT JOIN, with the streams the other way round",
    "FULL": "LEFT JOIN, and a query with NOT EXISTS for what only the other stream has",
}


def _read_join(join: exp.Join, report: Report) -> JoinKind | None:
    """The kind of a join; None after a mistake."""
    side, method, kind, on = ((join.args.get(key) or "") for key in ("side", "method", "kind", "on"))
    side, kind = side.upper(), kind.upper()
    refused = method or (side if side != "LEFT" else "")
    if refused:
        word = refused.upper()
        report.add(offset_of(join.this), f"{word} joins are not supported", _INSTEAD.get(word, _INNER))
        return None
    if kind not in ("", "INNER", "CROSS", "SEMI", "ANTI", *(["OUTER"] if side else [])):
        report.add(offset_of(join.this), f"{kind} joins are not supported", _INNER)
        return None
    if join.args.get("using"):
        report.add(offset_of(join.args["using"][0]), "USING is not supported", "ON a.x = b.x")
        return None
    found: JoinKind = "semi" if kind == "SEMI" else "anti" if kind == "ANTI" else "left" if side else "inner"
    if found != "inner" and not on:
        report.add(offset_of(join.this), f"{found.upper()} joins have a condition", f"ON a.x = b.x AND {BOUND_SHAPE}")
        return None
    return found


def check_table(table: exp.Table, report: Report) -> bool:
    """Whether nothing stands behind a stream's name but its alias; the rest is a mistake."""
    good = True
    for key, value in table.args.items():
        if value and key not in ("this", "alias"):
            report.add(offset_of(table), f"{key.upper()} after a stream is not supported", WINDOW_SHAPE)
            good = False
    alias = table.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        report.add(offset_of(table), "an alias cannot rename columns", "stream [60 MINUTES] AS alias")
        good = False
    return good


def _schema(
    table: exp.Table, report: Report, streams: Mapping[str, StreamSchema] | None, others: Iterable[str]
) -> StreamSchema | None:
    if streams is None:
        return None
    name = next((known for known in streams if known.lower() == table.name.lower()), None)
    if name is None:
        known = f"one of {', '.join(streams)}"
        misspelt = Misspelt(table.name, [*streams, *others])
        report.add(offset_of(table), f"unknown stream '{table.name}'", known, misspelt)
        return None
    return streams[name]


def read_alias(table: exp.Table, known: Iterable[str], report: Report) -> str | None:
    """The name by which a query calls what FROM names; None after a mistake, as where it is one of those known."""
    alias = table.alias or table.name
    offset = offset_of(table.args["alias"]) if table.alias else offset_of(table)
    problem = refusal(alias, "alias")
    if problem is None and alias.upper() in set(CLAUSES).difference(CLAUSES_OF_SEVERAL_WORDS):
        problem = (f"'{alias}' is a word of the query language and cannot name an alias", "another name")
    if problem is None and alias.lower() in map(str.lower, known):
        problem = (f"two windows are named '{alias}'", "an alias of its own for each: stream [60 MINUTES] AS alias")
    if problem:
        report.add(offset, *problem)
        return None
    return str(alias)
