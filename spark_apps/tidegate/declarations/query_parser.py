"""One query file → a typed `Query`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.tokens import Token, TokenType

from tidegate.aggregates import is_call, names
from tidegate.declarations.aggregate_query import AggregateQuery
from tidegate.declarations.bounded_joins import check_bounded, read_joined, take_exists
from tidegate.declarations.from_clause import read_from
from tidegate.declarations.models import Query, QueryKind
from tidegate.declarations.names import CLAUSES, CORRECTED, CORRECTION_COLUMNS, UPDATE_COLUMNS, is_reserved
from tidegate.declarations.positions import Misspelt, Report, nearest_name
from tidegate.declarations.promise_clauses import floors_of, for_each_of
from tidegate.declarations.query_text import QueryText, split_query, tokenize
from tidegate.declarations.reference_joins import Tables, attach, take_joins, with_lookups
from tidegate.declarations.scope import Scope, StreamSchema, offset_of
from tidegate.declarations.time_windows import SPARK_SESSION_SHAPE, take_columns
from tidegate.declarations.top_k_query import QUALIFY_SHAPE, Ranking, TopKQuery
from tidegate.declarations.units import SECOND_US, show_duration

_KEYWORDS = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "ORDER", "LIMIT", *CLAUSES)
MAX_ANSWER_COLUMNS = 200
MOST_UPDATES = 1000
QUERY_SHAPE = "SELECT … FROM stream [60 MINUTES] …"
_SUPPORTED = frozenset({"expressions", "from_", "joins", "where", "group", "having", "qualify", "order", "limit"})
# What comes behind FROM, WHERE, GROUP and their like; behind a column come operators, commas and closing parentheses.
_BEHIND_CLAUSES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.L_PAREN)
_BESIDE_QUALIFY = (("group", "GROUP BY"), ("order", "ORDER BY"), ("limit", "LIMIT"))
_UNSUPPORTED = {
    "distinct": ("SELECT DISTINCT", "GROUP BY"),
    "offset": ("OFFSET", "LIMIT k"),
    "windows": ("WINDOW", "stream [60 MINUTES]"),
    "sort": ("SORT BY", "ORDER BY"),
    "laterals": ("LATERAL VIEW", "streams by name"),
    "hint": ("a hint", "plain SQL"),
}


def parse_query(
    query_id: str,
    report: Report,
    schemas: Mapping[str, StreamSchema] | None,
    tick_us: int | None,
    tables: Tables = MappingProxyType({}),
    horizon_us: int | None = None,
) -> Query | None:
    """The query that the report's file holds, or None after a mistake (the report says which).

    ``tables``: the reference tables, None of those that could not be read.

    ``schemas`` is None if the streams could not be read, ``tick_us`` if the tick could not, ``horizon_us`` if the
    horizon could not: what can be checked without them is checked.
    """
    before = len(report.mistakes)
    try:
        text = split_query(report)
        if text is not None:
            _check_emit(text, report, tick_us, horizon_us)
        query = _parse(query_id, text, report, schemas, tick_us, tables) if text else None
    except RecursionError:
        report.add(0, "the query is nested too deeply", "fewer levels, or shorter chains of operators")
        query = None
    return query if len(report.mistakes) == before else None


def _parse(
    query_id: str,
    text: QueryText,
    report: Report,
    schemas: Mapping[str, StreamSchema] | None,
    tick_us: int | None,
    tables: Tables,
) -> Query | None:
    _check_every(text, report, tick_us)
    columns = {name.lower() for schema in (schemas or {}).values() for name in schema.columns or ()}
    select = parse_select(text, report, columns)
    if select is None or not _check_shape(select, report):
        return None
    exists = take_exists(select, report)
    joins = take_joins(select, text, report, tables)
    sources = None if joins is None else read_from(select, text, report, schemas, tick_us, tables, exists)
    if sources is None or joins is None:
        return None
    optional = {bare.alias: bare.kind for bare in sources.bare if bare.kind != "inner"}
    scope = Scope({alias: schema for alias, schema in sources.schemas.items() if alias not in optional})
    wheres = [select.args["where"].this] if select.args.get("where") else []
    lookups, conditions = attach(joins, [*sources.on, *wheres], scope, report)
    joined = None if lookups is None else read_joined(sources, conditions, scope, report, tick_us)
    if lookups is None or joined is None:
        return None
    scope.matched_only = frozenset(alias for alias, kind in optional.items() if kind != "left")
    scope.takes_back = any(kind in ("left", "anti") for kind in optional.values())
    shows_start = take_columns(select, scope, report)
    if shows_start and len({(window.range_s, window.calendar) for window in sources.windows}) > 1:
        report.add(offset_of(select), "windows of different ranges begin at different times", "no window_start")
    if text.session is not None and not _check_sessions(select, text, report):
        return None
    parts = _read_kind(select, text, scope, report)
    if report.mistakes or tick_us is None:
        return None
    if len(joined.windows) > 1 and parts["kind"] == "aggregate":
        parts["kind"] = "join_aggregate"
    query = Query(
        id=query_id,
        text=text.statement,
        description=text.description,
        windows=tuple(with_lookups(window, lookups) for window in joined.windows),
        predicates=joined.predicates,
        join_classes=joined.classes,
        compared=tuple(joined.compared.columns),
        conditions=tuple(joined.compared.conditions),
        error=text.error,
        accuracy=text.accuracy,
        on_miss=text.on_miss,
        every_s=(text.every_us or tick_us if text.calendar is None else text.calendar.usual_us) / SECOND_US,
        calendar=text.calendar,
        active_from=text.active_from,
        active_to=text.active_to,
        priority=text.priority,
        shows_window_start=shows_start or text.session is not None,
        sessions=sources.sessions,
        emit_early=text.emit.early,
        emit_every_s=None if text.emit.every_us is None else text.emit.every_us / SECOND_US,
        **parts,
    )
    if query.on_miss == "correct":
        _check_corrections(query, text, report)
    if query.emits_updates:
        _check_updates(query, text, report)
    check_bounded(query, text, select, report)
    return query


def _check_sessions(select: exp.Select, text: QueryText, report: Report) -> bool:
    """What a query over sessions does not have."""
    before = len(report.mistakes)
    for key, name in (("qualify", "QUALIFY"), ("order", "ORDER BY"), ("limit", "LIMIT")):
        if select.args.get(key):
            message = f"{name} is not of sessions: each is answered by itself, when it has ended"
            report.add(offset_of(select.args[key]), message, "HAVING")
            return False
    if text.session is not None and text.session.keys is not None and select.args.get("where"):
        message = "Flink makes SESSION's sessions of all tuples, before WHERE: here WHERE comes first"
        report.add(offset_of(select.args["where"]), message, f"{SPARK_SESSION_SHAPE} in GROUP BY")
    if "EMIT" in text.offsets:
        message = "EMIT is not supported for sessions: one that goes on is answered once more, with its new end"
        report.add(text.offsets["EMIT"], message, "no EMIT")
    if text.on_miss in ("omit", "correct"):
        message = f"ON MISS {text.on_miss.upper()} is not supported for sessions"
        report.add(text.offsets["MISS"], message, "ON MISS WARN, or ON MISS FAIL")
    promised = text.promised_for
    if promised.groups_at is not None or promised.floors or promised.for_each:
        message = "the promise of sessions is that each is right by itself: its bounds, and its values within ERROR"
        report.add(text.offsets["ERROR" if text.error is not None else "ACCURACY"], message, "ERROR 5%")
    return len(report.mistakes) == before


def _check_keys(keys: Sequence[tuple[str, int]], query: AggregateQuery, text: QueryText, report: Report) -> None:
    """Sessions of Flink's are of the keys of PARTITION BY: here, those of GROUP BY."""
    assert text.session is not None
    names = {name.strip("`").lower() for name, _ in keys}
    grouped = {column.name.lower() for column in query.grouped.values()}
    if names != grouped or query.computed:
        at = next((at for name, at in keys if name.strip("`").lower() not in grouped), text.session.offset)
        shown = ", ".join(column.name for column in query.grouped.values())
        expected = f"PARTITION BY {shown}" if shown and not query.computed else SPARK_SESSION_SHAPE
        report.add(at, "the keys of PARTITION BY and of GROUP BY are not the same", expected)


def _check_updates(query: Query, text: QueryText, report: Report) -> None:
    """No column of the answer may bear the name of one that its updates have besides."""
    for name in (output.name for output in query.outputs if output.name.lower() in UPDATE_COLUMNS):
        message = f"updates have a column '{name.lower()}' of their own, beside the answer's '{name}'"
        report.add(text.offsets["EMIT"], message, "another AS name for that column of the answer")


def _check_corrections(query: Query, text: QueryText, report: Report) -> None:
    """Two columns of its corrections may not bear one name."""
    names = [*CORRECTION_COLUMNS, *query.answer_keys]
    names += [pattern.format(name) for name in query.corrected for pattern in CORRECTED]
    lower = [name.lower() for name in names]
    for twice in dict.fromkeys(name for name in lower if lower.count(name) > 1):
        message = f"two columns of the corrections would be named '{twice}'"
        report.add(text.offsets["MISS"], message, "another AS name for one of the answer's columns")


def parse_select(text: QueryText, report: Report, columns: Set[str], shape: str = QUERY_SHAPE) -> exp.Select | None:
    """Parse with sqlglot: the tree of the plain SELECT; its positions are those of the file.

    ``columns``: lower-case names of all streams' columns, for the message where one of them is a word of SQL.
    """
    tokens = tokenize(text.body, report)
    if tokens is None:
        return None
    parser = Dialect.get_or_raise("spark").parser(error_level=ErrorLevel.IMMEDIATE)
    try:
        trees = parser.parse(tokens, text.body)
    except ParseError as error:
        _report_syntax(error, tokens, report, columns)
        return None
    except (ValueError, TypeError, AttributeError, IndexError, KeyError):
        # Malformed text can trip the parser itself before it knows what it met.
        report.add(tokens[0].start, "the query cannot be parsed", shape)
        return None
    if len(trees) != 1 or not isinstance(trees[0], exp.Select):
        report.add(tokens[0].start, "the query cannot be parsed", shape)
        return None
    return trees[0]


def _report_syntax(error: ParseError, tokens: list[Token], report: Report, columns: Set[str]) -> None:
    detail = error.errors[0] if error.errors else {}
    place = (detail.get("line"), detail.get("col"))
    index = next((i for i, token in enumerate(tokens) if (token.line, token.col) == place), 0)
    token, description = tokens[index], str(detail.get("description") or "")
    for before in range(index, max(index - 3, -1), -1):
        word = tokens[before]
        if word.text.lower() in columns and _stands_for_a_column(tokens, before):
            message = f"'{word.text}' is a word of SQL and cannot stand here as a column's bare name"
            report.add(word.start, message, f"`{word.text}`, in backticks")
            return
    misspelt = None
    # A misspelt keyword is met as a name; what comes after it is what cannot be parsed.
    for word in tokens[max(index - 1, 0) : index + 1]:
        if word.text.upper() not in _KEYWORDS and nearest_name(word.text, _KEYWORDS):
            token, misspelt = word, Misspelt(word.text, _KEYWORDS)
            break
    shown = token.text[:60]
    if description.startswith("Required keyword"):
        report.add(token.start, f"something is missing after '{shown}'", "", misspelt)
    elif description.startswith("Expect"):
        expected = description.split(maxsplit=1)[-1].rstrip(".")
        report.add(token.start, f"cannot be parsed at '{shown}'", expected[:60], misspelt)
    else:
        report.add(token.start, f"unexpected '{shown}'", "", misspelt)


def _stands_for_a_column(tokens: list[Token], place: int) -> bool:
    """Whether a word of SQL is written where it can only be meant as a column."""
    word = tokens[place]
    if not is_reserved(word.text):
        return word.token_type not in (TokenType.VAR, TokenType.IDENTIFIER)
    behind = tokens[place + 1].token_type if place + 1 < len(tokens) else TokenType.VAR
    return word.token_type is not TokenType.IDENTIFIER and behind not in _BEHIND_CLAUSES


def _check_every(text: QueryText, report: Report, tick_us: int | None) -> None:
    if text.calendar is not None and tick_us and text.calendar.largest_tick_us % tick_us:
        would_do = show_duration(math.gcd(text.calendar.largest_tick_us, tick_us) / SECOND_US)
        tick = show_duration(tick_us / SECOND_US)
        message = f"midnights of {text.calendar.zone} are not multiples of the tick, {tick}"
        report.add(text.offsets["EVERY"], message, f"a tick of {would_do} in pipeline.yml")
    if text.every_us and tick_us and text.every_us % tick_us:
        tick = show_duration(tick_us / SECOND_US)
        every = show_duration(text.every_us / SECOND_US)
        report.add(text.offsets["EVERY"], f"EVERY {every} is not a multiple of the tick", f"a multiple of {tick}")


def _check_emit(text: QueryText, report: Report, tick_us: int | None, horizon_us: int | None) -> None:
    every_us = text.emit.every_us
    if every_us and horizon_us and -(-horizon_us // every_us) > MOST_UPDATES:
        message = f"a window would have {-(-horizon_us // every_us)} answers until it is final"
        step_us = tick_us or SECOND_US
        least = show_duration(-(-horizon_us // MOST_UPDATES // step_us) * step_us / SECOND_US)
        report.add(text.emit.every_at or 0, message, f"EMIT EVERY at least {least}, a {MOST_UPDATES}th of the horizon")
    if every_us and tick_us and every_us % tick_us:
        message = f"EMIT EVERY {show_duration(every_us / SECOND_US)} is not a multiple of the tick"
        report.add(text.emit.every_at or 0, message, f"a multiple of {show_duration(tick_us / SECOND_US)}")


def _check_shape(select: exp.Select, report: Report) -> bool:
    for key, value in select.args.items():
        if value and key not in _SUPPORTED:
            node = value[0] if isinstance(value, list) else value
            what, expected = _UNSUPPORTED.get(key, (key.strip("_").upper(), "a plain SELECT"))
            offset = offset_of(node) if isinstance(node, exp.Expression) else offset_of(select)
            report.add(offset, f"{what} is not supported", expected)
            return False
    if not select.args.get("from_"):
        report.add(offset_of(select), "FROM is missing", "FROM stream [60 MINUTES]")
        return False
    if len(select.expressions) > MAX_ANSWER_COLUMNS:
        offset = offset_of(select.expressions[MAX_ANSWER_COLUMNS])
        report.add(offset, "the answer has too many columns", f"at most {MAX_ANSWER_COLUMNS}")
        return False
    if not select.expressions:
        report.add(0, "the SELECT list is empty", "columns or aggregates")
        return False
    return True


def _read_kind(select: exp.Select, text: QueryText, scope: Scope, report: Report) -> dict[str, Any]:
    """Tell the kind of the query and read what belongs to it."""
    args = select.args
    keys = ("having", "order", "qualify") if args.get("group") else ("having",)
    nodes = [*select.expressions, *(args[key] for key in keys if args.get(key))]
    ordered = [args[key] for key in ("order", "limit") if args.get(key)]
    ranked = bool(ordered or args.get("qualify"))
    # Groups without an aggregate are what a top-k is ranked within.
    called = any(is_call(part) for node in nodes for part in node.walk())
    aggregated = called or (bool(args.get("group")) and not ranked)
    if aggregated or (len(scope.aliases) > 1 and not ranked):
        return _read_aggregate(select, text, scope, report)
    start = offset_of(select)
    if args.get("having"):
        report.add(offset_of(args["having"]), "HAVING without aggregates", "WHERE")
    elif len(scope.aliases) > 1:
        report.add(start, "a top-k query reads one stream", "aggregates over the join, or one stream")
    elif args.get("qualify"):
        beside = [(name, args[key]) for key, name in _BESIDE_QUALIFY if args.get(key)]
        for name, node in beside:
            report.add(offset_of(node), f"{name} beside QUALIFY is not supported", QUALIFY_SHAPE)
        return {} if beside else _read_top_k(select, text, scope, report)
    elif len(ordered) < 2:
        message = "the query has neither an aggregate nor ORDER BY … LIMIT"
        if ordered:
            message = f"a top-k query needs {'LIMIT' if args.get('order') else 'ORDER BY'}"
        report.add(start, message, "aggregates such as COUNT(*), or ORDER BY … LIMIT k")
    else:
        return _read_top_k(select, text, scope, report)
    return {}


def _read_aggregate(select: exp.Select, text: QueryText, scope: Scope, report: Report) -> dict[str, Any]:
    ranking = _group_ranking(select, text, scope, report)
    ranked = any(select.args.get(key) for key in ("qualify", "order", "limit"))
    if text.accuracy is not None and not ranked:
        report.add(text.offsets["ACCURACY"], "ACCURACY is the promise of a top-k query", "ERROR for aggregates")
    if text.error is not None and ranked:
        report.add(text.offsets["ERROR"], "the promise of best groups is how many are right", "ACCURACY 90%")
    query = AggregateQuery(scope, report)
    query.read(select, ranking)
    if text.session is not None and text.session.keys is not None and query.groups_are_good:
        _check_keys(text.session.keys, query, text, report)
    promised = text.promised_for
    if promised.groups_at is not None and not select.args.get("group"):
        report.add(promised.groups_at, "without GROUP BY a window has no groups", "GROUP BY, or ERROR alone")
    # What the answer shows is known only after all of it could be read.
    readable = len(query.outputs) == len(select.expressions)
    if not query.aggregates and not query.groups and not report.mistakes:
        message = "a join without an aggregate would return every pair" if len(scope.aliases) > 1 else "no aggregate"
        report.add(offset_of(select), message, names())
    kind: QueryKind = "aggregate" if len(scope.aliases) == 1 else "join_aggregate"
    return {
        "kind": kind,
        "group_by": tuple(query.groups),
        "aggregates": tuple(query.aggregates),
        "outputs": tuple(query.outputs),
        "having": query.having,
        "order_by": tuple(query.order_by),
        "limit": query.limit,
        "within": tuple(query.within),
        "groups_within": promised.groups_within,
        "floors": floors_of(promised, query.outputs, query.aggregates, report) if readable else {},
        "for_each": for_each_of(promised, query.groups, query.within, report) if readable else (),
    }


def _group_ranking(select: exp.Select, text: QueryText, scope: Scope, report: Report) -> Ranking | None:
    """How an aggregate's groups are ranked; None if they are not, or after a mistake."""
    args = select.args
    if not any(args.get(key) for key in ("qualify", "order", "limit")):
        return None
    if text.nulls_first is not None:
        report.add(text.nulls_first, "NULLS FIRST is not supported: NULLs come last", "NULLS LAST, or nothing")
    if args.get("qualify"):
        if args.get("order") or args.get("limit"):
            report.add(offset_of(args["qualify"]), "QUALIFY beside ORDER BY or LIMIT is not supported", QUALIFY_SHAPE)
            return None
        return TopKQuery(scope, report).ranking(select)
    missing = [name for key, name in (("order", "ORDER BY"), ("limit", "LIMIT")) if not args.get(key)]
    if missing:
        node = args.get("order") or args.get("limit")
        report.add(offset_of(node), f"{missing[0]} is missing", "ORDER BY an aggregate LIMIT k, or neither")
        return None
    if not args.get("group"):
        report.add(offset_of(args["order"]), "without GROUP BY there is one row, and nothing to rank", "GROUP BY")
        return None
    return TopKQuery(scope, report).ranking(select)


def _read_top_k(select: exp.Select, text: QueryText, scope: Scope, report: Report) -> dict[str, Any]:
    if text.error is not None:
        report.add(text.offsets["ERROR"], "ERROR is the promise of an aggregate query", "ACCURACY for top-k")
    query = TopKQuery(scope, report)
    query.read(select)
    if text.nulls_first is not None:
        report.add(text.nulls_first, "NULLS FIRST is not supported: NULLs come last", "NULLS LAST, or nothing")
    return {
        "kind": "top_k",
        "group_by": tuple(query.groups),
        "outputs": tuple(query.outputs),
        "order_by": tuple(query.order_by),
        "limit": query.limit,
        "for_each": for_each_of(text.promised_for, query.groups, [g.shown_as for g in query.groups], report),
    }
