"""SELECT list, GROUP BY and HAVING of an aggregate query → slots, and answers over the slots."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from tidegate.aggregates import AggregateFunction, CallError, is_call, read_call
from tidegate.declarations.answer_names import AnswerNames, given_name
from tidegate.declarations.expression_types import Typer, render, stored_column, typed_sql
from tidegate.declarations.models import Aggregate, GroupColumn, Output
from tidegate.declarations.positions import Report
from tidegate.declarations.scope import Scope, ScopedColumn, Unresolved, offset_of
from tidegate.values.types import ColumnType


@dataclass
class AggregateQuery:
    """Reads the parts of one aggregate query; everything wrong goes into the report."""

    scope: Scope
    report: Report
    groups: list[GroupColumn] = field(default_factory=list)
    grouped: dict[str, ScopedColumn] = field(default_factory=dict)  # by slot
    group_offsets: dict[str, int] = field(default_factory=dict)
    aggregates: list[Aggregate] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    having: str | None = None

    def read(self, select: exp.Select) -> None:
        """Read all parts; afterwards they stand in the fields."""
        self._read_groups(select.args.get("group"))
        typer = Typer(self.report, self._leaf)
        names = AnswerNames(self.scope, self.report, top_k=False)
        answers: dict[str, exp.Expression] = {}
        for item in select.expressions:
            node = item.unalias()
            kind = typer.value_type(node)
            name = names.take(item) if kind else given_name(item, self.scope)
            if name:
                answers[name.lower()] = node
            if kind and name:
                sql = typed_sql(render(node, self._slot), kind, self._slot(node) or node)
                self.outputs.append(Output(name=name, expression=sql, type=kind))
        if len(self.outputs) == len(select.expressions):
            self._show_groups()
        self.scope.answers = tuple(answers)
        having = select.args.get("having")
        if having is not None:
            condition = self._with_answers(having.this, answers)
            if typer.condition(condition, "HAVING"):
                self.having = render(condition, self._slot)

    def _read_groups(self, group: exp.Group | None) -> None:
        if group is None:
            return
        if any(value for key, value in group.args.items() if key != "expressions"):
            self.report.add(offset_of(group), "only plain GROUP BY is supported", "GROUP BY column, column …")
            return
        for node in group.expressions:
            if not isinstance(node, exp.Column):
                self.report.add(offset_of(node), "GROUP BY takes plain columns", "a column")
                continue
            column = self.scope.resolve(node, self.report)
            if column is not None and self._group_of(column) is None:
                slot = f"g{len(self.grouped)}"
                self.group_offsets[slot] = offset_of(node)
                self.grouped[slot] = column

    def _show_groups(self) -> None:
        """A group that the answer does not show could not be told from the others, nor compared with its truth."""
        shown = {output.expression: output.name for output in reversed(self.outputs)}
        for slot, column in self.grouped.items():
            if slot in shown:
                self.groups.append(
                    GroupColumn(
                        slot=slot, alias=column.alias, column=column.name, type=column.type, shown_as=shown[slot]
                    )
                )
            else:
                message = f"the answer does not show the group's column '{column.name}'"
                self.report.add(self.group_offsets[slot], message, f"{column.name} in the SELECT list")

    def _group_of(self, column: ScopedColumn) -> str | None:
        """The slot of the group column that is the same, or is equal by a join."""
        for slot, other in self.grouped.items():
            if self.scope.representative(other) == self.scope.representative(column) and other.type == column.type:
                return slot
        return None

    def _leaf(self, node: exp.Expression) -> ColumnType | None:
        if not isinstance(node, exp.Column):
            aggregate = self._aggregate(node)
            return aggregate.type if aggregate else None
        column = self.scope.resolve(node, self.report)
        if column is None:
            return None
        if self._group_of(column) is None:
            message = f"column '{node.sql('spark', comments=False)}' is neither aggregated nor grouped"
            expected = f"GROUP BY {column.alias}.{column.name}, or an aggregate of it"
            self.report.add(offset_of(node), message, expected)
            return None
        return column.type

    def _slot(self, node: exp.Expression) -> exp.Expression | None:
        """The slot that stands for a column or an aggregate that has been read."""
        if isinstance(node, exp.Column):
            found = self.scope.find(node)
            slot = None if isinstance(found, Unresolved) else self._group_of(found)
            return exp.column(slot) if slot else None
        aggregate = self._aggregate(node) if is_call(node) else None
        return exp.column(aggregate.slot) if aggregate else None

    def _aggregate(self, node: exp.Expression) -> Aggregate | None:
        """The slot of an aggregate: a new one, unless the same aggregate has one already."""
        try:
            call = read_call(node)
        except CallError as error:
            self.report.add(offset_of(node), error.message, error.expected)
            return None
        if call.argument is None:
            return self._take(call.function, None, None, call.function.result(None))
        return self._argument(node, call.function, call.argument)

    def _argument(
        self, node: exp.Expression, function: AggregateFunction, argument: exp.Expression
    ) -> Aggregate | None:
        kind = Typer(self.report, self._column_leaf).value_type(argument)
        if kind is None:
            return None
        columns = [
            found for c in argument.find_all(exp.Column) if isinstance(found := self.scope.find(c), ScopedColumn)
        ]
        aliases = list(dict.fromkeys(column.alias for column in columns))
        if len(aliases) != 1:
            message = "the aggregate uses no column"
            if aliases:
                message = f"the aggregate is over {' and '.join(aliases)} at once, but joined pairs are not stored"
            self.report.add(offset_of(node), message, "an expression over the columns of one alias")
            return None
        refusal = function.refusal(kind)
        if refusal:
            self.report.add(offset_of(node), *refusal)
            return None
        sql = typed_sql(render(argument, self._bare), kind, argument)
        return self._take(function, aliases[0], sql, function.result(kind), function.measured(kind))

    def _column_leaf(self, node: exp.Expression) -> ColumnType | None:
        if isinstance(node, exp.Column):
            column = self.scope.resolve(node, self.report)
            return column.type if column else None
        self.report.add(offset_of(node), "an aggregate cannot stand inside an aggregate", "an expression over columns")
        return None

    def _bare(self, node: exp.Expression) -> exp.Expression | None:
        found = self.scope.find(node) if isinstance(node, exp.Column) else None
        return stored_column(found) if isinstance(found, ScopedColumn) else None

    def _take(
        self,
        function: AggregateFunction,
        alias: str | None,
        expression: str | None,
        kind: ColumnType,
        measured: ColumnType | None = None,
    ) -> Aggregate:
        for known in self.aggregates:
            if (known.function, known.alias, known.expression) == (function.name, alias, expression):
                return known
        new = Aggregate(
            slot=f"a{len(self.aggregates)}",
            function=function.name,
            alias=alias,
            expression=expression,
            type=kind,
            measured_type=measured if measured != kind else None,
        )
        self.aggregates.append(new)
        return new

    def _with_answers(self, condition: exp.Expression, answers: dict[str, exp.Expression]) -> exp.Expression:
        """HAVING with the answer's names replaced by what they stand for; columns that are grouped come first."""

        def step(node: exp.Expression) -> exp.Expression:
            if is_call(node):
                # A new object ends the descent: inside an aggregate a name is a column.
                return node.copy()
            if isinstance(node, exp.Column) and not node.table and node.name.lower() in answers:
                found = self.scope.find(node)
                if isinstance(found, Unresolved) or self._group_of(found) is None:
                    return exp.Paren(this=answers[node.name.lower()].copy())
            return node

        return condition.copy().transform(step)
