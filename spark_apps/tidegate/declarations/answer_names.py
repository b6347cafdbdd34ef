"""The names of an answer's columns."""

from __future__ import annotations

from sqlglot import exp

from tidegate.declarations.functions import AGGREGATES
from tidegate.declarations.names import ANSWER_COLUMNS, TOP_K_COLUMNS, refusal
from tidegate.declarations.positions import Report
from tidegate.declarations.scope import Scope, ScopedColumn, offset_of


class AnswerNames:
    """Gives each item of a SELECT list its name: the alias, else the column, else like ``count``, ``avg_dep_delay``."""

    def __init__(self, scope: Scope, report: Report, top_k: bool):
        self.scope = scope
        self.report = report
        self.reserved = (*ANSWER_COLUMNS, *(TOP_K_COLUMNS if top_k else ()))
        self.taken: set[str] = set()

    def take(self, item: exp.Expression) -> str | None:
        """The item's name, or None: without a name, or with one that is taken, it is a mistake."""
        name = given_name(item, self.scope)
        offset = offset_of(item.args["alias"]) if isinstance(item, exp.Alias) else offset_of(item)
        if name is None:
            self.report.add(offset_of(item), "a computed column needs a name", "AS name after it")
            return None
        problem = refusal(name, "answer's column")
        if problem:
            self.report.add(offset, *problem)
        elif name.lower() in self.reserved:
            self.report.add(offset, f"every answer has a column '{name}' of its own", "AS another name")
        elif name.lower() in self.taken:
            self.report.add(offset, f"two columns of the answer are named '{name}'", "AS another name")
        else:
            self.taken.add(name.lower())
            return name
        return None


def given_name(item: exp.Expression, scope: Scope) -> str | None:
    """The name that an item would have, whether it may have it or not."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return _declared(item, scope)
    function = AGGREGATES.get(type(item))
    if function is None:
        return None
    if isinstance(item.this, exp.Column):
        return f"{function}_{_declared(item.this, scope)}"
    return function if function == "count" and isinstance(item.this, (exp.Star, exp.Literal)) else None


def _declared(column: exp.Column, scope: Scope) -> str:
    """The column's name as it was declared, however the query writes it."""
    found = scope.find(column)
    return found.name if isinstance(found, ScopedColumn) else column.name
