"""Joins of reference tables: columns that the tuples of one alias have besides their own.

``orders [30 MINUTES] AS o JOIN goods AS g ON o.product = g.product`` is no join of two windows. For each tuple of ``o``
a row of ``goods`` is looked up by its key; from then on ``g.price`` is a column of ``o``. JOIN drops tuples without a
row, LEFT JOIN has NULLs there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from tidegate.declarations.expression_types import Typer, column_named, render, stored_column, typed_sql
from tidegate.declarations.from_clause import check_table, read_alias
from tidegate.declarations.join_conditions import conjuncts
from tidegate.declarations.models import Lookup, ReferenceTable, Window
from tidegate.declarations.positions import Report
from tidegate.declarations.query_text import QueryText
from tidegate.declarations.scope import Scope, ScopedColumn, Unresolved, offset_of
from tidegate.values.types import ColumnType

Tables = Mapping[str, ReferenceTable | None]
"""Name → reference table, None of one that could not be read (a mistake says why)."""
Lookups = dict[str, tuple[Lookup, ...]]
"""Alias → what is looked up for its tuples."""
LOOKUP_SHAPE = "stream [60 MINUTES] AS s JOIN table AS t ON s.column = t.key"


@dataclass
class ReferenceJoin:
    """One reference table that FROM names. ``optional``: LEFT JOIN. ``on``: the parts of ON."""

    alias: str
    table: ReferenceTable
    optional: bool
    on: list[exp.Expression]
    offset: int


def take_joins(select: exp.Select, text: QueryText, report: Report, tables: Tables) -> list[ReferenceJoin] | None:
    """Take the reference tables out of FROM; None if one of them is not known, so that nothing more can be checked."""
    by_lower = {name.lower(): name for name in tables}
    first = select.args["from_"].this
    if isinstance(first, exp.Table) and first.name.lower() in by_lower:
        report.add(
            offset_of(first), f"'{first.name}' is a reference table, and FROM begins with a stream", LOOKUP_SHAPE
        )
        return None
    known = [alias for t in select.find_all(exp.Table) if t.name.lower() not in by_lower and (alias := t.alias_or_name)]
    joins: list[ReferenceJoin] = []
    left = []
    complete = True
    for join in select.args.get("joins") or ():
        if not isinstance(join.this, exp.Table) or join.this.name.lower() not in by_lower:
            left.append(join)
            continue
        table = tables[by_lower[join.this.name.lower()]]
        window = text.windows.pop(offset_of(join.this.this), None)
        if window is not None:
            report.add(window.offset, f"'{join.this.name}' is a reference table and has no window", LOOKUP_SHAPE)
        alias = read_alias(join.this, [*known, *(j.alias for j in joins)], report)
        good = check_table(join.this, report) and _check_kind(join, report)
        complete &= good and alias is not None and table is not None
        if good and alias and table:
            on = conjuncts(join.args["on"]) if join.args.get("on") else []
            optional = (join.args.get("side") or "").upper() == "LEFT"
            joins.append(ReferenceJoin(alias, table, optional, on, offset_of(join.this)))
    select.set("joins", left)
    return joins if complete else None


def _check_kind(join: exp.Join, report: Report) -> bool:
    side, kind = ((join.args.get(key) or "").upper() for key in ("side", "kind"))
    if side not in ("", "LEFT") or join.args.get("method") or kind not in ("", "INNER", "CROSS", "OUTER"):
        words = " ".join(word for word in ((join.args.get("method") or "").upper(), side, kind) if word)
        report.add(offset_of(join.this), f"{words} joins of reference tables are not supported", "JOIN or LEFT JOIN")
        return False
    if join.args.get("using"):
        report.add(offset_of(join.args["using"][0]), "USING is not supported", "ON s.column = t.key")
        return False
    return True


def attach(
    joins: Sequence[ReferenceJoin], conditions: Sequence[exp.Expression], scope: Scope, report: Report
) -> tuple[Lookups | None, list[exp.Expression]]:
    """Make columns of the tables columns of the aliases whose tuples are looked up; the conditions that are left.

    ``conditions``: of WHERE and of the other joins. The lookups are None after a mistake.
    """
    left = [part for whole in conditions for part in conjuncts(whole)]
    lookups: Lookups = {}
    waiting = list(joins)
    before = len(report.mistakes)
    while waiting:
        # A table may be looked up by what another lookup gives, in whatever order they are written.
        join = next((join for join in waiting if len(_keys(join, left, scope)) == len(join.table.key)), None)
        if join is None:
            for join in waiting:
                _report_missing(join, _keys(join, left, scope), report)
            return None, left
        waiting.remove(join)
        keys = _keys(join, left, scope)
        used = {id(part) for part, _ in keys.values()}
        rest = [part for part in join.on if id(part) not in used]
        left = [part for part in left if id(part) not in used]
        if join.optional and rest:
            message = f"LEFT JOIN of reference table '{join.table.name}' takes the equality of its key alone"
            report.add(offset_of(rest[0]), message, "the condition in WHERE")
        else:
            left += rest
        _attach(join, {name: value for name, (_, value) in keys.items()}, lookups, scope, report)
        if len(report.mistakes) > before:
            return None, left
    return lookups, left


def with_lookups(window: Window, lookups: Lookups) -> Window:
    """The window, with what is looked up for its tuples besides."""
    more = lookups.get(window.alias, ())
    return window.model_copy(update={"lookups": tuple(dict.fromkeys((*window.lookups, *more)))}) if more else window


def _keys(
    join: ReferenceJoin, conditions: Sequence[exp.Expression], scope: Scope
) -> dict[str, tuple[exp.Expression, exp.Expression]]:
    """Column of the key → the first condition that says what it equals, and what that is."""
    keys: dict[str, tuple[exp.Expression, exp.Expression]] = {}
    for part in (*join.on, *(() if join.optional else conditions)):
        if not isinstance(part, exp.EQ):
            continue
        for column, value in ((part.this.unnest(), part.expression), (part.expression.unnest(), part.this)):
            name = _key_name(column, join, scope)
            if name and name not in keys and _is_known(value, join, scope):
                keys[name] = part, value.unnest()
                break
    return keys


def _key_name(node: exp.Expression, join: ReferenceJoin, scope: Scope) -> str | None:
    """The column of the table's key that an expression is."""
    if not isinstance(node, exp.Column) or (node.table and node.table.lower() != join.alias.lower()):
        return None
    if not node.table and not isinstance(scope.find(node), Unresolved):
        return None
    return next((name for name in join.table.key if name.lower() == node.name.lower()), None)


def _is_known(node: exp.Expression, join: ReferenceJoin, scope: Scope) -> bool:
    """Whether an expression is over columns that tuples have by now."""
    columns = list(node.find_all(exp.Column))
    return all(c.table.lower() != join.alias.lower() and isinstance(scope.find(c), ScopedColumn) for c in columns)


def _report_missing(join: ReferenceJoin, keys: Mapping[str, object], report: Report) -> None:
    missing = [f"s.column = {join.alias}.{name}" for name in join.table.key if name not in keys]
    names = ", ".join(join.table.key)
    message = f"reference table '{join.table.name}' is not joined on its key ({names})"
    report.add(join.offset, message, f"ON {' AND '.join(missing)}")


def _attach(
    join: ReferenceJoin, keys: Mapping[str, exp.Expression], lookups: Lookups, scope: Scope, report: Report
) -> None:
    """Look up the table's rows for the tuples of the one alias that the keys are of."""
    table = join.table
    columns = [c for value in keys.values() for c in value.find_all(exp.Column)]
    hosts = list(dict.fromkeys(c.alias for node in columns if isinstance(c := scope.find(node), ScopedColumn)))
    if len(hosts) != 1:
        of = f"columns of {' and '.join(hosts)} at once" if hosts else "no column"
        message = f"the key of reference table '{table.name}' is compared with {of}"
        report.add(join.offset, message, "columns of one stream")
        return

    def leaf(node: exp.Expression) -> ColumnType | None:
        column = scope.resolve(node, report) if isinstance(node, exp.Column) else None
        if column is None and not isinstance(node, exp.Column):
            report.add(offset_of(node), "an aggregate cannot stand in a join", "an expression over columns")
        return column.type if column else None

    def bare(node: exp.Expression) -> exp.Expression | None:
        column = scope.find(node) if isinstance(node, exp.Column) else None
        return stored_column(column) if isinstance(column, ScopedColumn) else None

    sql: list[str] = []
    same: dict[str, ScopedColumn] = {}
    for name in table.key:
        node, wanted = keys[name], table.column(name).type
        kind = Typer(report, leaf).value_type(node)
        if kind is None:
            return
        if kind != wanted:
            shown = node.sql("spark", comments=False)[:60]
            message = f"'{shown}' ({kind}) and {join.alias}.{name} ({wanted}) cannot be joined"
            report.add(offset_of(node), message, f"a value of type {wanted}")
            return
        sql.append(typed_sql(render(node, bare), kind, node))
        column = scope.find(node) if isinstance(node, exp.Column) else None
        stored, computed = (column.source, column.computed) if isinstance(column, ScopedColumn) else ("", sql[-1])
        same[name] = ScopedColumn(hosts[0], name, kind, "" if computed else stored, computed)
    lookup = Lookup(table=table.name, keys=tuple(sql))
    lookups[hosts[0]] = tuple(dict.fromkeys((*lookups.get(hosts[0], ()), lookup)))
    seen = {c.name: ScopedColumn(hosts[0], c.name, c.type, lookup.name_of(c.name)) for c in table.columns}
    if not join.optional:
        # The key of the row is that of the tuple.
        seen |= same
        there = column_named(lookup.name_of(table.key[0])).sql("spark")
        scope.matched.setdefault(hosts[0], []).append(f"{there} IS NOT NULL")
    scope.references[join.alias] = {name.lower(): column for name, column in seen.items()}
