"""An ad-hoc query over history: ``SELECT aggregates FROM stream WHERE … GROUP BY …``, parsed and typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from tidegate.aggregates import AggregateFunction, Call, CallError, is_call, read_call, shapes
from tidegate.declarations.answer_names import name_of_call
from tidegate.declarations.errors import DeclarationErrors, UserError
from tidegate.declarations.expression_types import Typer
from tidegate.declarations.group_terms import expression_key, group_terms
from tidegate.declarations.models import DerivedStream, Stream
from tidegate.declarations.positions import Report, Source, nearest_name
from tidegate.declarations.scope import Scope, StreamSchema, offset_of
from tidegate.operators.history.estimating import estimating
from tidegate.values.types import ColumnType, is_number

SHAPE = "SELECT AVG(x) FROM stream WHERE … GROUP BY …"
_CLAUSES = ("expressions", "from_", "where", "group")


@dataclass(frozen=True)
class HistoryAggregate:
    """One aggregate of the SELECT list.

    ``expression``: NULL of tuples that do not count, such as those that FILTER leaves out; None is COUNT(*). ``column``
    is set if it is a bare column. ``kind``: the type of its estimates, of numbers double; ``parameters``: its numbers.
    ``estimated``: whether samples say something of it; otherwise it is computed, of ``measured`` values, where every
    tuple is kept. ``by``: what it chooses by. ``text``: as it is written.
    """

    name: str
    function: str
    expression: exp.Expression | None
    column: str | None
    kind: ColumnType = "double"
    parameters: tuple[float, ...] = ()
    estimated: bool = True
    measured: ColumnType = "double"
    by: exp.Expression | None = None
    text: str = ""


@dataclass(frozen=True)
class HistoryGroup:
    """One term of GROUP BY: a column, named like it, or an ``expression``."""

    name: str
    kind: ColumnType
    expression: exp.Expression | None = None


@dataclass(frozen=True)
class HistoryQuery:
    """A checked query. ``groups``: (name in the answer, group's name) of the selected ones among ``group_by``."""

    stream: Stream
    aggregates: tuple[HistoryAggregate, ...]
    groups: tuple[tuple[str, str], ...]
    group_by: tuple[HistoryGroup, ...]
    predicate: exp.Expression | None

    @property
    def selects_all(self) -> bool:
        """Whether every tuple of the period counts, in one group."""
        return self.predicate is None and not self.group_by

    def group(self, name: str) -> HistoryGroup:
        """The group of a name."""
        return next(group for group in self.group_by if group.name == name)


def parse_history_query(
    sql: str, streams: Sequence[Stream], derived: Sequence[DerivedStream] = (), only_estimated: bool = False
) -> HistoryQuery:
    """Parse and check a query over history; ``only_estimated``: what samples say nothing of is refused.

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
    reader = _Groups(scope, report, typer)
    group_by = reader.read(select.args.get("group"), select.expressions)
    aggregates, groups = _selected(select, reader, group_by)
    if only_estimated:
        for unknown in (a for a in aggregates if not a.estimated):
            report.add(0, f"history cannot estimate '{unknown.text}' from a sample", shapes(estimated=True))
    if not aggregates and not report.mistakes:
        report.add(0, "no aggregate", SHAPE)
    if report.mistakes:
        raise DeclarationErrors(report.mistakes)
    return HistoryQuery(stream, tuple(aggregates), tuple(groups), group_by, where.this if where is not None else None)


def _selected(
    select: exp.Select, reader: _Groups, group_by: Sequence[HistoryGroup]
) -> tuple[list[HistoryAggregate], list[tuple[str, str]]]:
    """The aggregates and the groups of the SELECT list."""
    scope, report = reader.scope, reader.report
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
            if found and all(group.name != found.name or group.expression for group in group_by):
                report.add(offset_of(node), f"column '{found.name}' is neither aggregated nor grouped", "GROUP BY it")
            elif found and name:
                groups.append((name, found.name))
            continue
        computed = reader.computed.get(expression_key(node, scope))
        if computed is not None:
            groups.append((name or "", computed))
            continue
        aggregate = _aggregate(node, name or "", reader.typer, scope, report)
        if aggregate is not None:
            aggregates.append(aggregate)
    return aggregates, groups


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


@dataclass
class _Groups:
    """Reads GROUP BY. ``computed``: what tells one expression from another → the group's name."""

    scope: Scope
    report: Report
    typer: Typer
    computed: dict[str, str] = field(default_factory=dict)

    def read(self, group: exp.Group | None, items: Sequence[exp.Expression]) -> tuple[HistoryGroup, ...]:
        """The groups, each once."""
        groups: dict[str, HistoryGroup] = {}
        for _, node in group_terms(group, items, self.scope, self.report):
            if isinstance(node, exp.Column):
                column = self.scope.resolve(node, self.report)
                if column is not None:
                    groups[column.name] = HistoryGroup(column.name, column.type)
                continue
            key = expression_key(node, self.scope)
            kind = self.typer.value_type(node) if key not in self.computed else None
            if kind is not None:
                # No column is called so: it would need backticks, and a space is in no declared name.
                name = f"group {len(self.computed)}"
                self.computed[key] = name
                groups[name] = HistoryGroup(name, kind, node)
        return tuple(groups.values())


def _aggregate(node: exp.Expression, name: str, typer: Typer, scope: Scope, report: Report) -> HistoryAggregate | None:
    try:
        call = read_call(node)
    except CallError as error:
        report.add(offset_of(node), error.message, error.expected)
        return None
    function, argument, text = call.function, call.argument, node.sql("spark", comments=False)[:60]
    if call.condition is not None and not typer.condition(call.condition, "FILTER"):
        return None
    if argument is None:
        rows = None if call.condition is None else _where(call.condition, exp.Literal.number(1))
        return HistoryAggregate(name, function.name, rows, None, text=text)
    kind = typer.value_type(argument)
    if kind is None:
        return None
    refusal = function.refusal(kind)
    if refusal is not None:
        report.add(offset_of(argument), *refusal)
        return None
    by = _chosen_by(call)
    if call.by is not None and typer.value_type(call.by) is None:
        return None
    plain = argument.unnest()
    expression, bare = plain, None
    if call.condition is not None and by is not None:  # without what it is chosen by, a value does not count
        by = _where(call.condition, by)
    elif call.condition is not None:
        expression = _where(call.condition, plain)
    elif isinstance(plain, exp.Column):
        bare = scope.resolve(plain, report)
    estimated = _is_estimated(function, kind)
    return HistoryAggregate(
        name,
        function.name,
        expression,
        bare.name if bare else None,
        kind=function.result(kind) if not estimated or estimating(function.name).of_conditions else "double",
        parameters=call.parameters,
        estimated=estimated,
        measured=function.measured(kind),
        by=by,
        text=text,
    )


def _is_estimated(function: AggregateFunction, kind: ColumnType) -> bool:
    """Whether samples say something of an aggregate of values of a type."""
    if function.estimated is None:
        return False
    return not function.valued or is_number(kind) or estimating(function.name).of_conditions


def _chosen_by(call: Call) -> exp.Expression | None:
    """By what a function that chooses does: without another one by event time."""
    return (call.by or exp.column("event_time", quoted=True)) if call.function.chooses else None


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
