"""The names of an answer's columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from tidegate.aggregates import CallError, is_call, read_call
from tidegate.declarations.names import ANSWER_COLUMNS, ID_COLUMN, refusal
from tidegate.declarations.positions import Report
from tidegate.declarations.scope import Scope, ScopedColumn, offset_of


class AnswerNames:
    """Gives each item of a SELECT list its name: the alias, else the column, else like ``count``, ``avg_dep_delay``.

    ``beside``: names of the columns that such answers have beside those of all.
    """

    def __init__(self, scope: Scope, report: Report, beside: Sequence[str] = ()):
        self.scope = scope
        self.report = report
        self.reserved = (*ANSWER_COLUMNS, *beside)
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
        elif name.lower() in self.reserved and not self._is_the_id(item, name):
            expected = f"another name, such as AS {self._free(name)}"
            self.report.add(offset, f"every answer has a column '{name.lower()}' of its own", expected)
        elif name.lower() in self.taken:
            expected = f"another name, such as AS {self._free(name)}"
            self.report.add(offset, f"two columns of the answer are named '{name}'", expected)
        else:
            self.taken.add(name.lower())
            return name
        return None

    def _is_the_id(self, item: exp.Expression, name: str) -> bool:
        """Whether a top-k query selects the tuple's id under the very name that its answers give it."""
        found = self.scope.find(item) if isinstance(item, exp.Column) else None
        return name == ID_COLUMN and isinstance(found, ScopedColumn) and found.name == ID_COLUMN

    def _free(self, name: str) -> str:
        """A name like this one that the answer has not used yet."""
        candidates = [f"{next(iter(self.scope.aliases), 'own')}_{name}", *(f"{name}_{n}" for n in range(2, 1000))]
        return next(c for c in candidates if c.lower() not in self.taken and c.lower() not in self.reserved)


def given_name(item: exp.Expression, scope: Scope) -> str | None:
    """The name that an item would have, whether it may have it or not."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return _declared(item, scope)
    return name_of_call(item, lambda column: _declared(column, scope)) if is_call(item) else None


def name_of_call(node: exp.Expression, declared: Callable[[exp.Column], str]) -> str | None:
    """The name of an aggregate of all rows, or of a column; ``declared``: the column's name as it was declared."""
    try:
        call = read_call(node)
    except CallError:
        return None
    if isinstance(call.argument, exp.Column):
        return f"{call.function.name}_{declared(call.argument)}"
    return call.function.name if call.argument is None else None


def _declared(column: exp.Column, scope: Scope) -> str:
    """The column's name as it was declared, however the query writes it."""
    found = scope.find(column)
    return found.name if isinstance(found, ScopedColumn) else column.name
