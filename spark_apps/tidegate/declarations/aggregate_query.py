"""SELECT list, GROUP BY and HAVING of an aggregate query → slots, and answers over the slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from tidegate.aggregates import Call, CallError, is_call, read_call
from tidegate.declarations.answer_names import AnswerNames, given_name
from tidegate.declarations.expression_types import Typer, render, stored_column, typed_sql
from tidegate.declarations.group_terms import expression_key, group_terms
from tidegate.declarations.models import Aggregate, GroupColumn, Order, Output
from tidegate.declarations.positions import Report
from tidegate.declarations.scope import Scope, ScopedColumn, Unresolved, offset_of
from tidegate.declarations.top_k_query import Ranking, read_k
from tidegate.values.types import ColumnType


@dataclass
class AggregateQuery:
    """Reads the parts of one aggregate query; everything wrong goes into the report."""

    scope: Scope
    report: Report
    groups: list[GroupColumn] = field(default_factory=list)
    grouped: dict[str, ScopedColumn] = field(default_factory=dict)  # by slot
    computed: dict[str, str] = field(default_factory=dict)  # slot → what tells one expression from another
    computed_groups: dict[str, tuple[str, str, ColumnType]] = field(default_factory=dict)
    group_offsets: dict[str, int] = field(default_factory=dict)
    group_texts: dict[str, str] = field(default_factory=dict)
    aggregates: list[Aggregate] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    having: str | None = None
    order_by: list[Order] = field(default_factory=list)
    limit: int | None = None
    within: list[str] = field(default_factory=list)
    groups_are_good: bool = True

    def read(self, select: exp.Select, ranking: Ranking | None = None) -> None:
        """Read all parts; afterwards they stand in the fields. ``ranking``: of the groups, if they are ranked."""
        before = len(self.report.mistakes)
        self._read_groups(select.args.get("group"), select.expressions)
        self.groups_are_good = len(self.report.mistakes) == before
        typer = Typer(self.report, self._leaf, self._type_of_group)
        names = AnswerNames(self.scope, self.report, ("rank",) if ranking else ())
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
        if ranking is not None:
            self._read_ranking(ranking, typer, answers)

    def _read_ranking(self, ranking: Ranking, typer: Typer, answers: dict[str, exp.Expression]) -> None:
        """By what the groups are ranked, how many there are, and within which others."""
        self.limit = read_k(ranking, self.report)
        for term in ranking.terms:
            if term.args.get("with_fill") or isinstance(term.this, exp.Literal):
                self.report.add(offset_of(term), "ORDER BY takes aggregates and groups", "an aggregate, or its name")
                continue
            node = self._with_answers(term.this, answers).unnest()
            kind = typer.value_type(node)
            if kind is not None:
                sql = typed_sql(render(node, self._slot), kind, self._slot(node) or node)
                slot, descending = f"o{len(self.order_by)}", bool(term.args.get("desc"))
                self.order_by.append(Order(slot=slot, expression=sql, descending=descending, type=kind))
        if ranking.grouping != "PARTITION BY":
            return
        shown = {group.slot: group.shown_as for group in self.groups}
        for node in ranking.groups:
            group = self._slot(self._with_answers(node, answers).unnest())
            name = None if group is None else shown.get(group.name)
            if name is None:
                self.report.add(offset_of(node), "PARTITION BY takes groups of the answer", "a column of GROUP BY")
            elif name not in self.within:
                self.within.append(name)

    def _read_groups(self, group: exp.Group | None, items: Sequence[exp.Expression]) -> None:
        for written, node in group_terms(group, items, self.scope, self.report):
            if isinstance(node, exp.Column):
                column = self.scope.resolve(node, self.report)
                if column is not None and self._group_of(column) is None:
                    self.grouped[self._next_group(written)] = column
            else:
                self._read_computed(node, written)

    def _read_computed(self, node: exp.Expression, written: exp.Expression) -> None:
        """A group by what is computed of one alias' columns."""
        key = expression_key(node, self.scope)
        if key in self.computed.values():
            return
        kind = Typer(self.report, self._column_leaf).value_type(node)
        if kind is None:
            return
        alias = self._alias_of(node, [node], "a group")
        if alias is not None:
            slot = self._next_group(written)
            self.computed[slot] = key
            sql = typed_sql(render(node, self._bare), kind, node)
            self.computed_groups[slot] = (alias, sql, kind)

    def _next_group(self, node: exp.Expression) -> str:
        slot = f"g{len(self.group_offsets)}"
        self.group_offsets[slot] = offset_of(node)
        self.group_texts[slot] = node.sql("spark", comments=False)
        return slot

    def _computed_slot(self, node: exp.Expression) -> str | None:
        """The slot of the computed group that an expression is."""
        if not self.computed or isinstance(node, (exp.Column, exp.Literal)):
            return None
        key = expression_key(node, self.scope)
        return next((slot for slot, own in self.computed.items() if own == key), None)

    def _alias_of(self, node: exp.Expression, parts: Sequence[exp.Expression], what: str) -> str | None:
        """The one alias whose columns some expressions use; otherwise a mistake."""
        columns = [c for part in parts for c in part.find_all(exp.Column)]
        found = [one for c in columns if isinstance(one := self.scope.find(c), ScopedColumn)]
        aliases = list(dict.fromkeys(column.alias for column in found))
        if len(aliases) == 1:
            return aliases[0]
        message = f"{what} uses no column"
        if aliases:
            message = f"{what} is over {' and '.join(aliases)} at once, but joined pairs are not stored"
        self.report.add(offset_of(node), message, "an expression over the columns of one alias")
        return None

    def _show_groups(self) -> None:
        """A group that the answer does not show could not be told from the others, nor compared with its truth."""
        shown = {output.expression: output.name for output in reversed(self.outputs)}
        groups = {slot: (c.alias, c.source, c.type) for slot, c in self.grouped.items()} | self.computed_groups
        for slot, offset in self.group_offsets.items():
            alias, column, kind = groups[slot]
            computed = slot in self.computed or bool(self.grouped[slot].computed)
            if slot in shown:
                self.groups.append(
                    GroupColumn(
                        slot=slot, alias=alias, column=column, type=kind, shown_as=shown[slot], computed=computed
                    )
                )
            else:
                what, text = "group's column", self.grouped[slot].name if slot in self.grouped else ""
                if slot in self.computed:
                    what, text = "group's expression", self.group_texts[slot][:60]
                self.report.add(offset, f"the answer does not show the {what} '{text}'", f"{text} in the SELECT list")

    def _group_of(self, column: ScopedColumn) -> str | None:
        """The slot of the group column that is the same, or is equal by a join."""
        for slot, other in self.grouped.items():
            if self.scope.representative(other) == self.scope.representative(column) and other.type == column.type:
                return slot
        return None

    def _type_of_group(self, node: exp.Expression) -> ColumnType | None:
        slot = self._computed_slot(node)
        return self.computed_groups[slot][2] if slot else None

    def _leaf(self, node: exp.Expression) -> ColumnType | None:
        if not isinstance(node, exp.Column):
            aggregate = self._aggregate(node)
            return aggregate.type if aggregate else None
        column = self.scope.resolve(node, self.report)
        if column is None:
            return None
        if self._group_of(column) is None:
            if not self.groups_are_good:  # what is missing may be what was mistaken
                return None
            message = f"column '{node.sql('spark', comments=False)}' is neither aggregated nor grouped"
            expected = f"GROUP BY {column.alias}.{column.name}, or an aggregate of it"
            self.report.add(offset_of(node), message, expected)
            return None
        return column.type

    def _slot(self, node: exp.Expression) -> exp.Expression | None:
        """The slot that stands for a column, a group or an aggregate that has been read."""
        computed = self._computed_slot(node)
        if computed:
            return exp.column(computed)
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
        if call.argument is None and call.condition is None:
            function = call.function
            rows = Aggregate(slot="", function=function.name, alias=None, expression=None, type=function.result(None))
            return self._take(rows)
        return self._argument(node, call)

    def _argument(self, node: exp.Expression, call: Call) -> Aggregate | None:
        function, argument = call.function, call.argument if call.argument is not None else exp.true()
        typer = Typer(self.report, self._column_leaf)
        kind = typer.value_type(argument)
        if call.condition is not None and not typer.condition(call.condition, "FILTER"):
            return None
        if kind is None:
            return None
        parts = [argument, *(part for part in (call.condition, call.by) if part is not None)]
        alias = self._alias_of(node, parts, "the aggregate")
        if alias is None:
            return None
        if self.scope.takes_back and function.extreme is not None:
            message = f"{function.name.upper()} cannot be taken back when a match comes late: not of LEFT or ANTI joins"
            self.report.add(offset_of(node), message, "COUNT, SUM, AVG, PERCENTILE or COUNT(DISTINCT …)")
            return None
        refusal = function.refusal(kind)
        if refusal:
            self.report.add(offset_of(node), *refusal)
            return None
        sql = typed_sql(render(argument, self._bare), kind, argument)
        by, by_type = None, "timestamp"
        if function.chooses:
            by = "event_time"
            if call.by is not None:
                by_kind = typer.value_type(call.by)
                if by_kind is None:
                    return None
                by, by_type = typed_sql(render(call.by, self._bare), by_kind, call.by), by_kind
        if call.condition is not None:
            condition = render(call.condition, self._bare)
            if by:  # without what it is chosen by, a value does not count
                by = f"CASE WHEN {condition} THEN {by} END"
            else:
                sql = f"CASE WHEN {condition} THEN {sql} END"
        new = Aggregate(
            slot="",
            function=function.name,
            alias=alias,
            expression=sql,
            type=function.result(kind),
            measured_type=function.measured(kind) if function.measured(kind) != function.result(kind) else None,
            by=by,
            by_type=by_type,
            parameters=call.parameters,
        )
        return self._take(new)

    def _column_leaf(self, node: exp.Expression) -> ColumnType | None:
        if isinstance(node, exp.Column):
            column = self.scope.resolve(node, self.report)
            return column.type if column else None
        self.report.add(offset_of(node), "an aggregate cannot stand inside an aggregate", "an expression over columns")
        return None

    def _bare(self, node: exp.Expression) -> exp.Expression | None:
        found = self.scope.find(node) if isinstance(node, exp.Column) else None
        return stored_column(found) if isinstance(found, ScopedColumn) else None

    def _take(self, new: Aggregate) -> Aggregate:
        for known in self.aggregates:
            if known.model_copy(update={"slot": ""}) == new:
                return known
        self.aggregates.append(new.model_copy(update={"slot": f"a{len(self.aggregates)}"}))
        return self.aggregates[-1]

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
