"""The conditions of WHERE and ON → predicates on one alias each, joined columns, and conditions on what is joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from tidegate.declarations.decimals import any_decimal, holding_all
from tidegate.declarations.expression_types import Typer, render, stored_column
from tidegate.declarations.models import ComparedColumn, JoinClass, PairCondition
from tidegate.declarations.positions import Report
from tidegate.declarations.scope import Scope, ScopedColumn, Unresolved, offset_of
from tidegate.values.types import ColumnType, is_number

Equalities = Sequence[tuple[ScopedColumn, ScopedColumn]]


@dataclass
class Compared:
    """Conditions over several aliases that are no equality of two columns, and the columns that they read."""

    columns: list[ComparedColumn] = field(default_factory=list)
    conditions: list[PairCondition] = field(default_factory=list)

    def add(self, condition: exp.Expression, scope: Scope) -> None:
        """Take a checked condition in."""

        def slot(node: exp.Expression) -> exp.Expression | None:
            column = scope.find(node) if isinstance(node, exp.Column) else None
            return exp.column(self._slot(column)) if isinstance(column, ScopedColumn) else None

        def named(node: exp.Expression) -> exp.Expression | None:
            column = scope.find(node) if isinstance(node, exp.Column) else None
            return exp.column(column.name, column.alias) if isinstance(column, ScopedColumn) else None

        words = render(condition.copy(), named)
        self.conditions.append(PairCondition(expression=render(condition, slot), words=words))

    def _slot(self, column: ScopedColumn) -> str:
        sql = stored_column(column).sql("spark")
        known = next((c for c in self.columns if (c.alias, c.sql) == (column.alias, sql)), None)
        if known is None:
            known = ComparedColumn(slot=f"c{len(self.columns)}", alias=column.alias, sql=sql, type=column.type)
            self.columns.append(known)
        return known.slot


def read_conditions(
    conditions: Sequence[exp.Expression], scope: Scope, report: Report, paired: str | None = None
) -> tuple[dict[str, str], tuple[JoinClass, ...], Compared]:
    """Predicates (alias → Spark SQL over its bare column names), join classes, and what else pairs must meet.

    ``paired``: an alias whose tuples without a match stay, so that a condition on it alone is about pairs.
    """
    compared = Compared()
    equalities: list[tuple[ScopedColumn, ScopedColumn]] = []
    predicates = {a: [*schema.conditions, *scope.matched.get(a, ())] for a, schema in scope.aliases.items()}

    def leaf(node: exp.Expression) -> ColumnType | None:
        if isinstance(node, exp.Column):
            column = scope.resolve(node, report)
            return column.type if column else None
        report.add(offset_of(node), "an aggregate cannot stand in WHERE", "HAVING")
        return None

    typer = Typer(report, leaf)
    for condition in (part for whole in conditions for part in conjuncts(whole)):
        sides = _joined_columns(condition, scope)
        if sides is not None:
            if _comparable(*sides, [*equalities, sides], condition, report):
                equalities.append(sides)
            continue
        if not typer.condition(condition, "WHERE"):
            continue
        aliases = _aliases(condition, scope)
        if not aliases:
            report.add(offset_of(condition), "the condition uses no column", "a condition on the tuples")
        elif len(aliases) > 1 or aliases == [paired]:
            compared.add(condition, scope)
        else:
            predicates[aliases[0]].append(render_condition(condition, scope))
    joined = _classes(equalities)
    return {alias: " AND ".join(parts) for alias, parts in predicates.items() if parts}, joined, compared


def check_connected(scope: Scope, classes: Sequence[JoinClass], offsets: dict[str, int], report: Report) -> None:
    """A mistake for every alias that no equality connects with the first: a cross product."""
    first, *rest = scope.aliases
    reached = {first}
    while True:
        members = [{alias for alias, _ in joined.columns} for joined in classes]
        wider = reached.union(*(aliases for aliases in members if aliases & reached))
        if wider == reached:
            break
        reached = wider
    for alias in rest:
        if alias not in reached:
            message = f"'{alias}' has no join condition: a cross product of streams is not supported"
            report.add(offsets[alias], message, f"an equality such as {first}.x = {alias}.y in WHERE")


def conjuncts(condition: exp.Expression) -> list[exp.Expression]:
    """The parts between the ANDs, in order."""
    parts: list[exp.Expression] = []
    stack = [condition]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And):
            stack += [node.expression, node.this]
        elif isinstance(node, exp.Paren) and isinstance(node.this, (exp.And, exp.Paren, exp.EQ)):
            stack.append(node.this)
        else:
            parts.append(node)
    return parts


def _joined_columns(condition: exp.Expression, scope: Scope) -> tuple[ScopedColumn, ScopedColumn] | None:
    """Both sides of an equality of columns of two aliases."""
    if not isinstance(condition, exp.EQ):
        return None
    left, right = condition.this.unnest(), condition.expression.unnest()
    if not (isinstance(left, exp.Column) and isinstance(right, exp.Column)):
        return None
    sides = scope.find(left), scope.find(right)
    if isinstance(sides[0], Unresolved) or isinstance(sides[1], Unresolved) or sides[0].alias == sides[1].alias:
        return None
    return sides[0], sides[1]


def _comparable(
    left: ScopedColumn, right: ScopedColumn, equalities: Equalities, node: exp.Expression, report: Report
) -> bool:
    """Whether the last one of some equalities can be joined on, beside the others."""
    message = f"{left.alias}.{left.name} ({left.type}) and {right.alias}.{right.name} ({right.type}) cannot be joined"
    if left.type != right.type and not (is_number(left.type) and is_number(right.type)):
        report.add(offset_of(node), message, "columns of the same type")
        return False
    if any(_type_of_all(group) is None for group in _groups(equalities)):
        report.add(offset_of(node), f"{message}: together they have more than 38 digits", "columns of fewer digits")
        return False
    return True


def _aliases(condition: exp.Expression, scope: Scope) -> list[str]:
    named = {column.alias for c in condition.find_all(exp.Column) if isinstance(column := scope.find(c), ScopedColumn)}
    return [alias for alias in scope.aliases if alias in named]


def render_condition(condition: exp.Expression, scope: Scope) -> str:
    """Spark SQL of a condition over bare column names, as a part of others joined by AND."""

    def replace(node: exp.Expression) -> exp.Expression | None:
        column = scope.find(node) if isinstance(node, exp.Column) else None
        return stored_column(column) if isinstance(column, ScopedColumn) else None

    sql = render(condition, replace)
    return f"({sql})" if isinstance(condition, exp.Or) else sql


def _groups(equalities: Equalities) -> list[list[ScopedColumn]]:
    """Equalities closed under transitivity: each group holds all columns that are equal to one another."""
    groups: list[list[ScopedColumn]] = []
    for pair in equalities:
        touched = [group for group in groups if any(column in group for column in pair)]
        merged = list(dict.fromkeys(column for column in (*(c for group in touched for c in group), *pair)))
        position = groups.index(touched[0]) if touched else len(groups)
        groups = [group for group in groups if group not in touched]
        groups.insert(min(position, len(groups)), merged)
    return groups


def _type_of_all(group: Sequence[ScopedColumn]) -> ColumnType | None:
    """The type in which the columns are equal if their values are; None if there is none."""
    kinds = [column.type for column in group]
    if "double" in kinds:
        return "double"
    return holding_all(kinds) if any_decimal(kinds) else kinds[0]


def _classes(equalities: Equalities) -> tuple[JoinClass, ...]:
    return tuple(
        JoinClass(
            slot=f"j{slot}",
            columns=tuple(dict.fromkeys((column.alias, column.source) for column in group)),
            type=_type_of_all(group) or group[0].type,
            computed=tuple(dict.fromkeys((column.alias, column.source) for column in group if column.computed)),
        )
        for slot, group in enumerate(_groups(equalities))
    )
