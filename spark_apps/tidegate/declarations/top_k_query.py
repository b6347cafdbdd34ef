"""SELECT list, groups, order and k of a top-k query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from tidegate.declarations.answer_names import AnswerNames, given_name
from tidegate.declarations.expression_types import Typer, render, stored_column, typed_sql
from tidegate.declarations.models import GroupColumn, Order, Output
from tidegate.declarations.names import ID_COLUMN, TOP_K_COLUMNS
from tidegate.declarations.positions import Report
from tidegate.declarations.scope import Scope, ScopedColumn, Unresolved, offset_of
from tidegate.values.types import ColumnType

MAX_K = 100_000
QUALIFY_SHAPE = "QUALIFY ROW_NUMBER() OVER (PARTITION BY column ORDER BY column DESC) <= k"


@dataclass(frozen=True)
class Ranking:
    """What is ranked by what: the nodes of the groups, of the order's terms, and of the number k.

    ``grouping``: the clause that names the groups. ``counting``: the clause that k stands in.
    """

    grouping: str
    groups: list[exp.Expression]
    terms: list[exp.Expression]
    counting: str
    number: exp.Expression


@dataclass
class TopKQuery:
    """Reads the parts of one top-k query; everything wrong goes into the report.

    There are two ways to write the k best of each group: GROUP BY … ORDER BY … LIMIT k without an aggregate, and
    QUALIFY ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= k, as several engines have it.
    """

    scope: Scope
    report: Report
    groups: list[GroupColumn] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    order_by: list[Order] = field(default_factory=list)
    limit: int | None = None

    def read(self, select: exp.Select) -> None:
        """Read all parts; afterwards they stand in the fields."""
        typer = Typer(self.report, self._leaf)
        names = AnswerNames(self.scope, self.report, TOP_K_COLUMNS)
        aliased: dict[str, exp.Expression] = {}
        shown: dict[str, str] = {}
        for item in select.expressions:
            node = item.unalias()
            kind = typer.value_type(node)
            name = names.take(item) if kind else given_name(item, self.scope)
            if name and isinstance(item, exp.Alias):
                aliased[name.lower()] = node
            if name and isinstance(node, exp.Column) and isinstance(found := self.scope.find(node), ScopedColumn):
                shown.setdefault(found.name, name)
            if name == ID_COLUMN:
                kind = "string"
            if kind and name:
                self.outputs.append(Output(name=name, expression=self._sql(node, kind), type=kind))
        self.scope.answers = tuple(aliased)
        ranking = self.ranking(select)
        if ranking is None:
            return
        self._read_groups(ranking, shown)
        for index, term in enumerate(ranking.terms):
            self._read_term(index, term, typer, aliased)
        self.limit = read_k(ranking, self.report)

    def ranking(self, select: exp.Select) -> Ranking | None:
        """What the query ranks by what, None after a mistake."""
        qualify = select.args.get("qualify")
        return self._clauses(select) if qualify is None else self._qualify(qualify)

    def _clauses(self, select: exp.Select) -> Ranking | None:
        group, limit = select.args.get("group"), select.args["limit"]
        if group is not None and any(value for key, value in group.args.items() if key != "expressions"):
            self.report.add(offset_of(group), "only plain GROUP BY is supported", "GROUP BY column, column …")
            return None
        number = limit.expression if isinstance(limit, exp.Limit) else limit
        return Ranking(
            "GROUP BY", group.expressions if group else [], select.args["order"].expressions, "LIMIT", number
        )

    def _qualify(self, qualify: exp.Qualify) -> Ranking | None:
        condition = qualify.this
        sides = [condition.this, condition.expression] if isinstance(condition, exp.Binary) else []
        if isinstance(condition, exp.GTE):
            sides.reverse()
        first_only = isinstance(condition, exp.EQ) and condition.expression.name == "1"
        if not (isinstance(condition, (exp.LTE, exp.GTE)) or first_only) or not isinstance(sides[0], exp.Window):
            self.report.add(offset_of(qualify), "QUALIFY takes the best of each group", QUALIFY_SHAPE)
            return None
        window, number = sides
        order, extra = window.args.get("order"), {"this", "partition_by", "order", "over"}
        if not isinstance(window.this, exp.RowNumber) or window.this.args.get("this"):
            self.report.add(offset_of(qualify), "QUALIFY takes ROW_NUMBER() alone", QUALIFY_SHAPE)
        elif any(value for key, value in window.args.items() if key not in extra):
            self.report.add(offset_of(qualify), "the window of ROW_NUMBER() must be plain", QUALIFY_SHAPE)
        elif order is None:
            self.report.add(offset_of(qualify), "ROW_NUMBER() needs ORDER BY", QUALIFY_SHAPE)
        else:
            groups = window.args.get("partition_by") or []
            return Ranking("PARTITION BY", groups, order.expressions, "QUALIFY", number)
        return None

    def _read_groups(self, ranking: Ranking, shown: Mapping[str, str]) -> None:
        for node in ranking.groups:
            if not isinstance(node, exp.Column):
                self.report.add(offset_of(node), f"{ranking.grouping} takes plain columns", "a column")
                continue
            column = self.scope.resolve(node, self.report)
            if column is None or any(column.source == group.column for group in self.groups):
                continue
            if column.name not in shown:
                message = f"the answer does not show the group's column '{column.name}'"
                self.report.add(offset_of(node), message, f"{column.name} in the SELECT list")
                continue
            self.groups.append(
                GroupColumn(
                    slot=f"g{len(self.groups)}",
                    alias=column.alias,
                    column=column.source,
                    type=column.type,
                    shown_as=shown[column.name],
                    computed=bool(column.computed),
                )
            )

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
            self.report.add(offset_of(term), "ORDER BY uses no column", "a column or an expression")
            return
        descending = bool(term.args.get("desc"))
        self.order_by.append(
            Order(slot=f"o{index}", expression=self._sql(node, kind), descending=descending, type=kind)
        )

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
        return stored_column(found) if isinstance(found, ScopedColumn) else None


def read_k(ranking: Ranking, report: Report) -> int | None:
    """The number of a ranking, None after a mistake."""
    number = ranking.number
    plain = isinstance(number, exp.Literal) and not number.is_string
    text = number.name if plain else ""
    if re.fullmatch(r"[0-9]{1,9}", text) and 1 <= int(text) <= MAX_K:
        return int(text)
    report.add(offset_of(number), f"{ranking.counting} takes a plain number", f"a whole number from 1 to {MAX_K}")
    return None
