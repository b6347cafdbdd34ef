"""The terms of GROUP BY: what each of them stands for, and which of them are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from tidegate.aggregates import is_call
from tidegate.declarations.positions import Report
from tidegate.declarations.scope import Scope, ScopedColumn, Unresolved, offset_of


def group_terms(
    group: exp.Group | None, items: Sequence[exp.Expression], scope: Scope, report: Report
) -> Iterator[tuple[exp.Expression, exp.Expression]]:
    """Each term as it is written, and what it stands for; those that are mistakes are left out.

    ``items``: the SELECT list.
    """
    if group is None:
        return
    if any(value for key, value in group.args.items() if key != "expressions"):
        report.add(offset_of(group), "only plain GROUP BY is supported", "GROUP BY expression, expression …")
        return
    for written in group.expressions:
        node = _meaning(written, items, scope, report)
        if node is not None:
            yield written, node


def expression_key(node: exp.Expression, scope: Scope) -> str:
    """The same for expressions that mean the same columns and are written alike."""

    def step(part: exp.Expression) -> exp.Expression:
        column = scope.find(part) if isinstance(part, exp.Column) else None
        return exp.column(column.name, table=column.alias, quoted=True) if isinstance(column, ScopedColumn) else part

    return str(node.unnest().copy().transform(step).sql("spark", comments=False, normalize_functions="upper"))


def _meaning(
    node: exp.Expression, items: Sequence[exp.Expression], scope: Scope, report: Report
) -> exp.Expression | None:
    """What a term stands for: a column first, then an item of the SELECT list, by number or name."""
    named = None
    if isinstance(node, exp.Literal) and not node.is_string:
        place = int(node.this) if node.this.isdigit() else 0
        if not 1 <= place <= len(items):
            report.add(offset_of(node), f"GROUP BY {node.this} is no item of the SELECT list", "its number")
            return None
        named = items[place - 1].unalias()
    elif isinstance(node, exp.Column) and not node.table and isinstance(scope.find(node), Unresolved):
        of_name = (i for i in items if isinstance(i, exp.Alias) and i.alias.lower() == node.name.lower())
        named = next((item.unalias() for item in of_name), None)
    if named is None:
        return node.unnest()
    if any(is_call(part) for part in named.walk()):
        report.add(offset_of(node), "GROUP BY stands for an aggregate", "an expression over columns")
        return None
    return named.unnest()
