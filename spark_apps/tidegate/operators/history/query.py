"""An ad-hoc query over history: ``SELECT aggregates FROM stream WHERE … GROUP BY …``, parsed and typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from tidegate.aggregates import CallError, is_call, read_call, shapes
from tidegate.declarations.answer_names import name_of_call
from tidegate.declarations.errors import DeclarationErrors, UserError
from tidegate.declarations.expression_types import Typer
from tidegate.declarations.models import DerivedStream, Stream
from tidegate.declarations.positions import Report, Source, nearest_name
from tidegate.declarations.scope import Scope, StreamSchema, offset_of
from tidegate.values.types import ColumnType, is_number

SHAPE = "SELECT AVG(x) FROM stream WHERE … GROUP BY …"
_CLAUSES = ("expressions", "from_", "where", "group")


@dataclass(frozen=True)
class HistoryAggregate:
    """One aggregate of the SELECT list.

    ``expression``: NULL of tuples that do not count, such as those that FILTER leaves out; None is COUNT(*). ``column``
    is set if it is a bare column.
    """

    name: str
    function: str
    expression: exp.Expression | None
    column: str | None


@dataclass(frozen=True)
class HistoryQuery:
    """A checked query. ``groups``: (name in the answer, column) of the selected ones among ``group_by``."""

    stream: Stream
    aggregates: tuple[HistoryAggregate, ...]
    groups: tuple[tuple[str, str], ...]
    group_by: tuple[str, ...]
    predicate: exp.Expression | None

    @property
    def selects_all(self) -> bool:
        """Whether every tuple of the period counts, in one group."""
        return self.predicate is None and not self.group_by


def parse_history_query(sql: str, streams: Sequence[Stream], derived: Sequence[DerivedStream] = ()) -> HistoryQuery:
    """Parse and check a query over history.

    Raises:
        UserError: syntax, an unknown stream or column (with the nearest name), or what history cannot answer; all
            mistakes of the expressions at once, with line and column.

    >>> from tidegate.declarations.models import Column
    >>> flights = Stream(name="flights", format="csv", path="", columns=(Column(name="delay", type="double"),),
    ...                  event_time="t", arrival_time=None, id=("i",), rate=1, max_early_s=0, max_late_s=0,
    ...                  history={"leaf_s": 60, "capacity_tuples": 10})
    >>> query = parse_history_query("SELECT AVG(delay) FROM flights WHERE delay > 0", [flights])
    >>> query.aggregates[0].name, query.aggregates[0].column
    ('avg_delay', 'delay')
    """
    report = Report(Source(Path("query"), sql))
    select = _parse(sql)
    stream = _stream(select, streams, derived)
    columns: dict[str, ColumnType] = {c.name: c.type for c in stream.columns}
    columns |= {"event_id": "string", "event_time": "timestamp", "arrival_time": "timestamp"}
    source = select.args["from_"].this
    scope = Scope({source.alias_or_name: StreamSchema(stream.name, columns)})

    def column_type(node: exp.Expression) -> ColumnType | None:
        if not isinstance(node, exp.Column):
            report.add(offset_of(node), "an aggregate cannot stand here", "an expression over columns")
            return None
        found = scope.resolve(node, report)
        return found.type if found else None

    typer = Typer(report, column_type)
    where = select.args.get("where")
    if where is not None:
        typer.condition(where.this, "WHERE")
    group_by = _groups(select.args.get("group"), scope, report)
    aggregates: list[HistoryAggregate] = []
    groups: list[tuple[str, str]] = []
    names: set[str] = set()
    for item in select.expressions:
        node, name = item.unalias(), _name(item)
        if name is None:
            report.add(offset_of(item), "a computed column needs a name", "AS name after it")
        elif name.lower() in names:
            report.add(offset_of(item), f"two columns of the answer are named '{name}'", "AS another name")
        names.add((name or "").lower())
        if isinstance(node, exp.Column):
            found = scope.resolve(node, report)
            if found and found.name not in group_by:
                report.add(offset_of(node), f"column '{found.name}' is neither aggregated nor grouped", "GROUP BY it")
            elif found and name:
                groups.append((name, found.name))
            continue
        aggregate = _aggregate(node, name or "", typer, scope, report)
        if aggregate is not None:
            aggregates.append(aggregate)
    if not aggregates and not report.mistakes:
        report.add(0, "no aggregate", SHAPE)
    if report.mistakes:
        raise DeclarationErrors(report.mistakes)
    return HistoryQuery(stream, tuple(aggregates), tuple(groups), group_by, where.this if where is not None else None)


def _parse(sql: str) -> exp.Select:
    try:
        trees = sqlglot.parse(sql, dialect="spark")
    except (ParseError, TokenError, RecursionError) as error:
        details = getattr(error, "errors", None) or [{}]
        line, column = details[0].get("line") or 1, details[0].get("col") or 1
        what = details[0].get("description") or "the query cannot be read"
        raise UserError(f"query:{line}:{column}: {what}; expected {SHAPE}") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Select):
        raise UserError(f"query:1:1: one SELECT statement is needed; expected {SHAPE}")
    select = trees[0]
    for key, value in select.args.items():
        if value and key not in _CLAUSES:
            clause = {"joins": "a join", "limit": "LIMIT", "order": "ORDER BY", "having": "HAVING"}
            raise UserError(
                f"query:1:1: {clause.get(key, key.strip('_').upper())} is not supported in a query over history; "
                f"expected {SHAPE}"
            )
    return select


def _stream(select: exp.Select, streams: Sequence[Stream], derived: Sequence[DerivedStream]) -> Stream:
    source = select.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table) or source.this.args.get("joins"):
        raise UserError(f"query:1:1: FROM must name one stream; expected {SHAPE}")
    name = source.this.name
    with_history = [s.name for s in streams if s.history is not None]
    stream = next((s for s in streams if s.name.lower() == name.lower()), None)
    if stream is None:
        known = next((s for s in derived if s.name.lower() == name.lower()), None)
        below = known.stream if known is not None else None
        if known is not None and known.branches:
            raise UserError(
                f"'{name}' is a union, and its past is that of {' and '.join(known.streams)}: ask each, with the "
                "expressions and the WHERE that tidegate explain shows"
            )
        if below is not None:
            raise UserError(
                f"'{name}' is a derived stream, and its past is that of {below}: ask {below}, with the expressions and "
                "the WHERE that tidegate explain shows"
            )
        nearest = nearest_name(name, with_history)
        hint = f"; did you mean '{nearest}'?" if nearest else f"; streams with history: {', '.join(with_history)}"
        raise UserError(f"unknown stream '{name}'{hint}")
    if stream.history is None:
        raise UserError(
            f"stream '{stream.name}' keeps no history: declare 'history' for it in pipeline.yml"
            + (f"; streams with history: {', '.join(with_history)}" if with_history else "")
        )
    return stream


def _groups(group: exp.Group | None, scope: Scope, report: Report) -> tuple[str, ...]:
    if group is None:
        return ()
    names = []
    for node in group.expressions:
        if not isinstance(node, exp.Column):
            report.add(offset_of(node), "GROUP BY takes plain columns", "a column")
            continue
        found = scope.resolve(node, report)
        if found and found.name not in names:
            names.append(found.name)
    if any(value for key, value in group.args.items() if key != "expressions"):
        report.add(offset_of(group), "only plain GROUP BY is supported", "GROUP BY column, column …")
    return tuple(names)


def _aggregate(node: exp.Expression, name: str, typer: Typer, scope: Scope, report: Report) -> HistoryAggregate | None:
    try:
        call = read_call(node)
    except CallError as error:
        report.add(offset_of(node), error.message, error.expected)
        return None
    function, argument = call.function, call.argument
    if function.estimated is None:
        text = node.sql("spark", comments=False)[:60]
        report.add(offset_of(node), f"history cannot estimate '{text}'", shapes(estimated=True))
        return None
    if call.condition is not None and not typer.condition(call.condition, "FILTER"):
        return None
    if argument is None:
        rows = None if call.condition is None else _where(call.condition, exp.Literal.number(1))
        return HistoryAggregate(name, function.name, rows, None)
    kind = typer.value_type(argument)
    if kind is None:
        return None
    if function.valued and not is_number(kind):
        called = function.name.upper()
        report.add(offset_of(argument), f"history estimates {called} of numbers, not of a {kind}", "a number")
        return None
    plain = argument.unnest()
    if call.condition is not None:
        return HistoryAggregate(name, function.name, _where(call.condition, plain), None)
    bare = scope.resolve(plain, report) if isinstance(plain, exp.Column) else None
    return HistoryAggregate(name, function.name, plain, bare.name if bare else None)


def _where(condition: exp.Expression, value: exp.Expression) -> exp.Case:
    """A value where a condition is true, else NULL."""
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


def _name(item: exp.Expression) -> str | None:
    """The alias, else the column, else like ``count``, ``avg_dep_delay``."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return str(item.name)
    return name_of_call(item, lambda column: str(column.name)) if is_call(item) else None
