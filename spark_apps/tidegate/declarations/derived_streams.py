"""``streams/<name>.sql``: SELECTs that queries read like streams.

A derived stream is no copy of anything. Where a query names it, its columns are expressions over the tuples of the
declared stream beneath it and its WHERE is one more condition; all that answers the query knows the declared stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from tidegate.declarations.errors import Mistake
from tidegate.declarations.expression_types import Typer, render, stored_column, typed_sql
from tidegate.declarations.from_clause import check_table
from tidegate.declarations.join_conditions import render_condition
from tidegate.declarations.models import DerivedColumn, DerivedStream
from tidegate.declarations.names import EVENT_COLUMNS, identifier_refusal, refusal
from tidegate.declarations.positions import Misspelt, Report, read_source
from tidegate.declarations.query_parser import MAX_ANSWER_COLUMNS, parse_select
from tidegate.declarations.query_text import MAX_BRACKETS, QueryText, split_query, tokenize
from tidegate.declarations.reference_joins import ReferenceJoin, Tables, attach, take_joins
from tidegate.declarations.scope import Scope, ScopedColumn, StreamSchema, offset_of
from tidegate.values.types import ColumnType

DERIVED_SHAPE = "SELECT columns and expressions FROM stream WHERE …"
MAX_EXPRESSION = 10_000
"""Characters of a column's expression, the columns of derived streams in it written out."""
_IN_QUERIES = "it in the queries that read the stream"
_NAMES = {
    "group": "GROUP BY", "having": "HAVING", "qualify": "QUALIFY", "order": "ORDER BY", "limit": "LIMIT",
    "distinct": "SELECT DISTINCT", "offset": "OFFSET", "windows": "WINDOW", "sort": "SORT BY",
}  # fmt: skip


@dataclass
class _File:
    """A derived stream's file. ``select`` and ``table`` are None after a mistake."""

    name: str
    report: Report
    text: QueryText | None = None
    select: exp.Select | None = None
    table: exp.Table | None = None
    joins: Sequence[ReferenceJoin] = ()


@dataclass
class DerivedStreams:
    """Reads the derived streams of a folder, each after the one that it reads.

    ``schemas``: of the declared streams, and then of the derived ones; None if the declared ones could not be read.
    ``tables``: the reference tables, None of those that could not be read.
    """

    schemas: dict[str, StreamSchema] | None
    tables: Tables = field(default_factory=dict)
    streams: list[DerivedStream] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    _files: dict[str, _File] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)

    def read(self, folder: Path) -> None:
        """Read ``streams/*.sql`` of a pipeline's folder."""
        paths = sorted((folder / "streams").glob("*.sql"))
        declared = set(self.schemas or ())
        for path in paths:
            source = read_source(path)
            if isinstance(source, Mistake):
                self.mistakes.append(source)
                continue
            file = _File(path.stem, Report(source))
            problem = identifier_refusal(path.stem, "stream")
            if problem is None and path.stem in (*declared, *self.tables):
                kind = "stream" if path.stem in declared else "table"
                problem = f"pipeline.yml has a {kind} '{path.stem}' already", "another name"
            if problem:
                file.report.add(0, *problem)
            else:
                columns = {c.lower() for s in (self.schemas or {}).values() for c in s.columns or ()}
                _parse(file, columns, self.tables)
                self._files[path.stem] = file
            self.mistakes += file.report.mistakes
        for file in self._files.values():
            before = len(file.report.mistakes)
            self._resolve(file)
            self.mistakes += sorted(file.report.mistakes[before:], key=lambda one: (one.line, one.column))
        self.mistakes.sort(key=lambda one: (str(one.file), one.line, one.column))

    def _resolve(self, file: _File) -> None:
        """Make the schema of a derived stream, and before it that of the one that it reads."""
        if self.schemas is None or file.name in self.schemas or file.name in self._open:
            return
        self._open.append(file.name)
        schema = StreamSchema(file.name, None)
        try:
            below = self._below(file)
            if below is not None and file.select is not None:
                derived = _Derived(file, below)
                schema = derived.schema() or schema
                if schema.columns is not None:
                    self.streams.append(derived.model(schema))
        except RecursionError:
            file.report.add(0, "the query is nested too deeply", "fewer levels, or shorter chains of operators")
        self.schemas[file.name] = schema
        self._open.remove(file.name)

    def _below(self, file: _File) -> StreamSchema | None:
        """The schema of the stream that a derived one reads; None after a mistake."""
        table = file.table
        if table is None or self.schemas is None:
            return None
        names = dict.fromkeys([*self.schemas, *self._files])
        name = next((known for known in names if known.lower() == table.name.lower()), None)
        if name is None:
            known = [known for known in names if known != file.name]
            message, expected = f"unknown stream '{table.name}'", f"one of {', '.join(known)}"
            file.report.add(offset_of(table), message, expected, Misspelt(table.name, known))
            return None
        if name in self._open:
            circle = [*self._open[self._open.index(name) :], name]
            message = f"derived streams read each other: {' reads '.join(circle)}"
            file.report.add(offset_of(table), message, "a stream of pipeline.yml at the end")
            return None
        if name in self._files:
            below = self._files[name]
            before = len(below.report.mistakes)
            self._resolve(below)
            self.mistakes += below.report.mistakes[before:]
        return self.schemas[name] if self.schemas[name].columns is not None else None


def _parse(file: _File, columns: set[str], tables: Tables) -> None:
    """Read the syntax of a file: a SELECT over one stream, without any clause that belongs to a query."""
    report = file.report
    tokens = tokenize(report.source.text, report)
    if tokens is None or not _is_one_select(tokens, report):
        return
    text = split_query(report)
    if text is None:
        return
    for window in text.windows.values():
        report.add(window.offset, "a derived stream has no window", "FROM stream; the queries that read it say it")
    for clause, offset in text.offsets.items():
        report.add(offset, f"{clause} stands in queries", f"{_IN_QUERIES}: {clause}")
    if text.windows or text.offsets:
        return
    select = parse_select(text, report, columns, DERIVED_SHAPE)
    if select is not None and _has_nothing_else(select, report):
        _read_from(file, text, select, tables)


def _has_nothing_else(select: exp.Select, report: Report) -> bool:
    for key, value in select.args.items():
        if value and key not in ("expressions", "from_", "joins", "where"):
            node = value[0] if isinstance(value, list) else value
            offset = offset_of(node) if isinstance(node, exp.Expression) else offset_of(select)
            name = _NAMES.get(key, key.strip("_").upper())
            report.add(offset, f"{name} is not supported in a derived stream", _IN_QUERIES)
            return False
    return True


def _read_from(file: _File, text: QueryText, select: exp.Select, tables: Tables) -> None:
    report = file.report
    if not select.args.get("from_"):
        report.add(offset_of(select), "FROM is missing", DERIVED_SHAPE)
        return
    joins = take_joins(select, text, report, tables)
    if joins is None:
        return
    if select.args.get("joins"):
        message = "a derived stream reads one stream, and reference tables"
        report.add(offset_of(select.args["joins"][0].this), message, "the join in the queries that read the streams")
    elif not select.expressions:
        report.add(0, "the SELECT list is empty", "columns and expressions")
    else:
        table = select.args["from_"].this
        named = isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) and not table.args.get("db")
        if not named:
            report.add(offset_of(table), "FROM takes a stream by name", DERIVED_SHAPE)
        elif check_table(table, report):
            file.text, file.select, file.table, file.joins = text, select, table, joins


def _is_one_select(tokens: list[Token], report: Report) -> bool:
    for token in tokens:
        if token.token_type is TokenType.UNION:
            message = "UNION is not supported in a derived stream: a tuple has the id and the times of one stream"
            report.add(token.start, message, "one SELECT a file, and queries over each of the streams")
            return False
    return True


class _Derived:
    """Reads what one derived stream means. ``below``: the schema of the stream that it reads."""

    def __init__(self, file: _File, below: StreamSchema):
        assert file.select is not None and file.table is not None
        self.file, self.below, self.report = file, below, file.report
        self.select, self.table = file.select, file.table
        self.alias = str(self.table.alias or self.table.name)
        self.scope = Scope({self.alias: below})
        self.typer = Typer(self.report, self._leaf)

    def schema(self) -> StreamSchema | None:
        """What queries need to know of it; None after a mistake."""
        before = len(self.report.mistakes)
        problem = refusal(self.alias, "alias") if self.table.alias else None
        if problem:
            self.report.add(offset_of(self.table.args["alias"]), *problem)
        where = self.select.args.get("where")
        lookups, self.wheres = attach(self.file.joins, [where.this] if where else [], self.scope, self.report)
        if lookups is None:
            return None
        columns: dict[str, ColumnType] = {}
        stored: dict[str, str] = {}
        computed: dict[str, str] = {}
        for item in self._items():
            node = item.unalias()
            kind, name = self.typer.value_type(node), self._name(item, columns)
            if kind is None or name is None:
                continue
            columns[name] = kind
            column = self.scope.find(node) if isinstance(node, exp.Column) else None
            if isinstance(column, ScopedColumn):
                if column.computed:
                    computed[name] = column.computed
                elif column.source != name:
                    stored[name] = column.source
            else:
                computed[name] = self._short(typed_sql(render(node, self._bare), kind, node), node)
        if len(columns) > MAX_ANSWER_COLUMNS:
            self.report.add(0, "the stream has too many columns", f"at most {MAX_ANSWER_COLUMNS}")
        conditions = self._conditions()
        if len(self.report.mistakes) > before:
            return None
        times = (self.below.event_time or "", "event_time")
        shown = [name for name in columns if name not in computed and stored.get(name, name) in times]
        return replace(
            self.below,
            name=self.file.name,
            columns=columns,
            event_time=shown[0] if shown else "event_time",
            stream=self.below.stream or self.below.name,
            stored=stored,
            computed=computed,
            conditions=conditions,
            lookups=tuple(dict.fromkeys((*self.below.lookups, *lookups.get(self.alias, ())))),
        )

    def model(self, schema: StreamSchema) -> DerivedStream:
        """The declared thing."""
        assert schema.columns is not None and schema.stream is not None and self.file.text is not None
        columns = []
        for name, kind in schema.columns.items():
            column = ScopedColumn(self.alias, name, kind, schema.stored.get(name, ""), schema.computed.get(name, ""))
            sql = column.computed or stored_column(column).sql("spark")
            columns.append(DerivedColumn(name=name, type=kind, expression=sql))
        return DerivedStream(
            name=schema.name,
            description=self.file.text.description,
            reads=self.below.name,
            stream=schema.stream,
            columns=tuple(columns),
            predicate=" AND ".join(schema.conditions) or None,
            lookups=schema.lookups,
        )

    def _items(self) -> list[exp.Expression]:
        """The SELECT list, with every ``*`` written out."""
        items: list[exp.Expression] = []
        for item in self.select.expressions:
            every = isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            if not isinstance(item, exp.Star) and not every:
                items.append(item)
                continue
            table, names = None, list(self.below.columns or ())
            if every and item.table.lower() != self.alias.lower():
                table = next((a for a in self.scope.references if a.lower() == item.table.lower()), None)
                names = [column.name for column in self.scope.references[table].values()] if table else []
            if names:
                for name in names:
                    column = exp.column(name, table=table or self.alias, quoted=True)
                    column.this.meta["start"] = offset_of(item)
                    items.append(column)
            else:
                self.report.add(offset_of(item), f"unknown alias '{item.table}'", f"{self.alias}.*")
        return items

    def _name(self, item: exp.Expression, before: Mapping[str, ColumnType]) -> str | None:
        """The column's name: the alias, else that of the column; None after a mistake."""
        node = item.unalias()
        column = self.scope.find(node) if isinstance(node, exp.Column) else None
        source = column.source if isinstance(column, ScopedColumn) and not column.computed else None
        offset = offset_of(item.args["alias"]) if isinstance(item, exp.Alias) else offset_of(item)
        if isinstance(item, exp.Alias):
            name = str(item.alias)
        elif isinstance(column, ScopedColumn):
            name = column.name
        else:
            if not isinstance(node, exp.Column):
                self.report.add(offset, "a computed column needs a name", "AS name after it")
            return None
        problem = refusal(name, "column")
        if problem is None and name.lower() in EVENT_COLUMNS and name != source:
            problem = f"every stream has a column '{name.lower()}' of its own", "another name"
        if problem is None and name.lower() in map(str.lower, before):
            problem = f"two columns of the stream are named '{name}'", "another name, with AS"
        if problem:
            self.report.add(offset, *problem)
            return None
        return name

    def _conditions(self) -> tuple[str, ...]:
        conditions = [*self.below.conditions, *self.scope.matched.get(self.alias, ())]
        for part in self.wheres:
            if self.typer.condition(part, "WHERE"):
                conditions.append(self._short(render_condition(part, self.scope), part))
        return tuple(conditions)

    def _short(self, sql: str, node: exp.Expression) -> str:
        """SQL that is not so long or so deep that nothing can be made of it; otherwise a mistake."""
        depth = deepest = 0
        for token in tokenize(sql, self.report) or ():
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            deepest = max(deepest, depth)
        if len(sql) > MAX_EXPRESSION or deepest > 2 * MAX_BRACKETS:
            message = "with the columns of derived streams written out, the expression is too long or too deep"
            expected = f"at most {MAX_EXPRESSION} characters and {2 * MAX_BRACKETS} levels of brackets"
            self.report.add(offset_of(node), message, expected)
        return sql

    def _leaf(self, node: exp.Expression) -> ColumnType | None:
        if isinstance(node, exp.Column):
            column = self.scope.resolve(node, self.report)
            return column.type if column else None
        self.report.add(offset_of(node), "a derived stream takes no aggregates", _IN_QUERIES)
        return None

    def _bare(self, node: exp.Expression) -> exp.Expression | None:
        column = self.scope.find(node) if isinstance(node, exp.Column) else None
        return stored_column(column) if isinstance(column, ScopedColumn) else None
