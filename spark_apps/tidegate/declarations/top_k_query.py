"""SELECT list, ORDER BY and LIMIT of a top-k query."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sqlglot import exp

from tidegate.declarations.answer_names import AnswerNames, given_name
from tidegate.declarations.expression_types import Typer, render, typed_sql
from tidegate.declarations.models import ColumnType, Order, Output
from tidegate.declarations.positions import Report
from tidegate.declarations.scope import Scope, ScopedColumn, Unresolved, offset_of

MAX_K = 100_000


@dataclass
class TopKQuery:
    """Reads the parts of one top-k query; everything wrong goes into the report."""

    scope: Scope
    report: Report
    outputs: list[Output] = field(default_factory=list)
    order_by: list[Order] = field(default_factory=list)
    limit: int | None = None

    def read(self, select: exp.Select) -> None:
        """Read all parts; afterwards they stand in the fields."""
        typer = Typer(self.report, self._leaf)
        names = AnswerNames(self.scope, self.report, top_k=True)
        aliased: dict[str, exp.Expression] = {}
        for item in select.expressions:
            node = item.unalias()
            kind = typer.value_type(node)
            name = names.take(item) if kind else given_name(item, self.scope)
            if name and isinstance(item, exp.Alias):
                aliased[name.lower()] = node
            if kind and name:
                self.outputs.append(Output(name=name, expression=self._sql(node, kind), type=kind))
        self.scope.answers = tuple(aliased)
        for index, term in enumerate(select.args["order"].expressions):
            self._read_term(index, term, typer, aliased)
        self._read_limit(select.args["limit"])

    def _read_term(self, index: int, term: exp.Expression, typer: Typer, aliased: dict[str, exp.Expression]) -> None:
        if term.args.get("with_fill"):
            self.report.add(offset_of(term), "WITH FILL is not supported", "column DESC")
            return
        if isinstance(term.this, exp.Literal):
            self.report.add(offset_of(term), "ORDER BY takes columns, not positions", "a column or an expression")
            return

        def step(node: exp.Expression) -> exp.Expression:
            if isinstance(node, exp.Column) and not node.table and node.name.lower() in aliased:
                return exp.Paren(this=aliased[node.name.lower()].copy())
            return node

        node = term.this.copy().transform(step)
        node = node.unnest()
        kind = typer.value_type(node)
        if kind is None:
            return
        if not any(True for _ in node.find_all(exp.Column)):
            self.report.add(offset_of(term), "ORDER BY names no column", "a column or an expression")
            return
        descending = bool(term.args.get("desc"))
        self.order_by.append(
            Order(slot=f"o{index}", expression=self._sql(node, kind), descending=descending, type=kind)
        )

    def _read_limit(self, limit: exp.Expression) -> None:
        number = limit.expression if isinstance(limit, exp.Limit) else None
        plain = isinstance(number, exp.Literal) and not number.is_string
        text = number.name if number is not None and plain else ""
        if re.fullmatch(r"[0-9]{1,9}", text) and 1 <= int(text) <= MAX_K:
            self.limit = int(text)
        else:
            offset = offset_of(limit if number is None else number)
            self.report.add(offset, "LIMIT takes a plain number", f"a whole number from 1 to {MAX_K}")

    def _leaf(self, node: exp.Expression) -> ColumnType | None:
        if isinstance(node, exp.Column):
            column = self.scope.resolve(node, self.report)
            return column.type if column else None
        self.report.add(offset_of(node), "ORDER BY … LIMIT ranks tuples and takes no aggregates", "columns")
        return None

    def _sql(self, node: exp.Expression, kind: ColumnType) -> str:
        return typed_sql(render(node, self._bare), kind, node)

    def _bare(self, node: exp.Expression) -> exp.Expression | None:
        found = Unresolved("") if not isinstance(node, exp.Column) else self.scope.find(node)
        return exp.column(found.name) if isinstance(found, ScopedColumn) else None
