"""``streams/<name>.sql``: SELECTs that queries read like streams.

A derived stream is no copy of anything. Where a query names it, its columns are expressions over the tuples of the
declared stream beneath it and its WHERE is one more condition; all that answers the query knows the declared stream.
Of UNION ALL each SELECT is a branch (:mod:`tidegate.declarations.unions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlglot import exp
from sqlglot.tokens import TokenType

from tidegate.declarations.errors import Mistake
from tidegate.declarations.expression_types import Typer, render, stored_column, typed_sql
from tidegate.declarations.from_clause import check_table
from tidegate.declarations.join_conditions import render_condition
from tidegate.declarations.models import DerivedColumn, DerivedStream, Lookup
from tidegate.declarations.names import EVENT_COLUMNS, ID_COLUMN, identifier_refusal, refusal
from tidegate.declarations.positions import Misspelt, Report, Source, read_source
from tidegate.declarations.query_parser import MAX_ANSWER_COLUMNS, parse_select
from tidegate.declarations.query_text import MAX_BRACKETS, QueryText, leading_comment, split_query, tokenize
from tidegate.declarations.reference_joins import ReferenceJoin, Tables, attach, take_joins
from tidegate.declarations.scope import Scope, ScopedColumn, StreamSchema, offset_of
from tidegate.declarations.unions import BranchColumn, UnionBranch, branch_texts, united
from tidegate.values.types import ColumnType

DERIVED_SHAPE = "SELECT columns and expressions FROM stream WHERE …"
MAX_EXPRESSION = 10_000
"""Characters of a column's expression, the columns of derived streams in it written out."""
_IN_QUERIES = "it in the queries that read the stream"
_NAMES = {
    "group": "GROUP BY", "having": "HAVING", "qualify": "QUALIFY", "order": "ORDER BY", "limit": "LIMIT",
    "distinct": "SELECT DISTINCT", "offset": "OFFSET", "windows": "WINDOW", "sort": "SORT BY",
}  # fmt: skip


@dataclass(frozen=True)
class _Select:
    """One SELECT of a derived stream's file, and what it reads."""

    select: exp.Select
    table: exp.Table
    joins: Sequence[ReferenceJoin]


@dataclass
class _File:
    """A derived stream's file. ``selects``: of UNION ALL several, none after a mistake in any of them."""

    name: str
    report: Report
    selects: Sequence[_Select] = ()

    @property
    def description(self) -> str:
        """The comment that it begins with."""
        return leading_comment(self.report.source.text)


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
        """Make the schema of a derived stream, and before it those of the ones that it reads."""
        if self.schemas is None or file.name in self.schemas or file.name in self._open:
            return
        self._open.append(file.name)
        schema = StreamSchema(file.name, None)
        try:
            below = [self._below(file, select.table) for select in file.selects]
            read = [_Derived(file, s, known) for s, known in zip(file.selects, below, strict=True) if known is not None]
            if read and len(read) == len(below):
                schema = (read[0].schema() if len(read) == 1 else self._united(file, read)) or schema
            if schema.columns is not None:
                self.streams.append(_model(file, schema, [one.below.name for one in read]))
        except RecursionError:
            file.report.add(0, "the query is nested too deeply", "fewer levels, or shorter chains of operators")
        self.schemas[file.name] = schema
        self._open.remove(file.name)

    def _united(self, file: _File, read: Sequence[_Derived]) -> StreamSchema | None:
        """The schema of a union; None after a mistake."""
        before = len(file.report.mistakes)
        branches: list[UnionBranch] = []
        for one in read:
            names = list(branches[0].columns) if branches and len(file.report.mistakes) == before else None
            found = one.branch(names, is_first=not branches)
            branches.append(found)
        return united(file.name, branches, file.report) if len(file.report.mistakes) == before else None

    def _below(self, file: _File, table: exp.Table) -> StreamSchema | None:
        """The schema of a stream that a derived one reads; None after a mistake."""
        if self.schemas is None:
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
    """Read the syntax of a file: SELECTs over one stream each, without any clause that belongs to a query."""
    report = file.report
    tokens = tokenize(report.source.text, report)
    texts = None if tokens is None else branch_texts(tokens, report)
    if texts is None:
        return
    # Blanks stand for the other branches, so that places are those of the file.
    found = [
        _parse_select(Report(Source(report.source.file, text), report.mistakes), columns, tables) for text in texts
    ]
    selects = [select for select in found if select is not None]
    file.selects = selects if len(selects) == len(found) else ()


def _parse_select(report: Report, columns: set[str], tables: Tables) -> _Select | None:
    text = split_query(report)
    if text is None:
        return None
    for window in text.windows.values():
        report.add(window.offset, "a derived stream has no window", "FROM stream; the queries that read it say it")
    for clause, offset in text.offsets.items():
        report.add(offset, f"{clause} stands in queries", f"{_IN_QUERIES}: {clause}")
    if text.windows or text.offsets:
        return None
    select = parse_select(text, report, columns, DERIVED_SHAPE)
    return None if select is None or not _has_nothing_else(select, report) else _read(text, select, tables, report)


def _has_nothing_else(select: exp.Select, report: Report) -> bool:
    for key, value in select.args.items():
        if value and key not in ("expressions", "from_", "joins", "where"):
            node = value[0] if isinstance(value, list) else value
            offset = offset_of(node) if isinstance(node, exp.Expression) else offset_of(select)
            name = _NAMES.get(key, key.strip("_").upper())
            report.add(offset, f"{name} is not supported in a derived stream", _IN_QUERIES)
            return False
    return True


def _read(text: QueryText, select: exp.Select, tables: Tables, report: Report) -> _Select | None:
    """The SELECT with what it reads; None after a mistake."""
    if not select.args.get("from_"):
        report.add(offset_of(select), "FROM is missing", DERIVED_SHAPE)
        return None
    joins = take_joins(select, text, report, tables)
    if joins is None:
        return None
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
            return _Select(select, table, joins)
    return None


def _model(file: _File, schema: StreamSchema, reads: Sequence[str]) -> DerivedStream:
    """The declared thing."""
    assert schema.columns is not None and schema.stream is not None
    columns = []
    for name, kind in schema.columns.items():
        column = ScopedColumn("", name, kind, schema.stored.get(name, ""), schema.computed.get(name, ""))
        columns.append(DerivedColumn(name=name, type=kind, expression=_sql_of(column)))
    return DerivedStream(
        name=schema.name,
        description=file.description,
        reads=", ".join(dict.fromkeys(reads)),
        stream=schema.stream,
        columns=tuple(columns),
        predicate=" AND ".join(schema.conditions) or None,
        lookups=schema.lookups,
        branches=schema.branches,
    )


def _sql_of(column: ScopedColumn) -> str:
    """A column as SQL over the tuples' columns."""
    return column.computed or stored_column(column).sql("spark")


class _Derived:
    """Reads what one SELECT of a derived stream means. ``below``: the schema of the stream that it reads."""

    def __init__(self, file: _File, read: _Select, below: StreamSchema):
        self.file, self.below, self.report = file, below, file.report
        self.select, self.table, self.joins = read.select, read.table, read.joins
        self.alias = str(self.table.alias or self.table.name)
        self.scope = Scope({self.alias: below})
        self.typer = Typer(self.report, self._leaf)

    def schema(self) -> StreamSchema | None:
        """What queries need to know of it; None after a mistake."""
        before = len(self.report.mistakes)
        lookups = self._lookups()
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
            column = self._column(node, kind)
            if column.computed:
                computed[name] = column.computed
            elif column.source != name:
                stored[name] = column.source
        self._check_number(len(columns))
        conditions = self._conditions()
        if len(self.report.mistakes) > before:
            return None
        shown = [name for name in columns if name not in computed and stored.get(name, name) in self._times]
        return replace(
            self.below,
            name=self.file.name,
            columns=columns,
            event_time=shown[0] if shown else "event_time",
            stream=self.below.stream or self.below.name,
            stored=stored,
            computed=computed,
            conditions=conditions,
            lookups=tuple(dict.fromkeys((*self.below.lookups, *lookups))),
        )

    def branch(self, names: Sequence[str] | None, is_first: bool) -> UnionBranch:
        """The same of a branch of a union; whether it is any good, the report says.

        ``names``: of its columns, as the first branch names them; None: not known, or it is the first.
        """
        lookups = self._lookups() or ()
        items = self._items()
        first = offset_of(self.select)
        if names is not None and len(items) != len(names):
            message = f"the SELECT has a list of {len(items)}, and the first one of the union a list of {len(names)}"
            self.report.add(offset_of(items[0]) if items else first, message, f"a value for each of {', '.join(names)}")
            names = None
        columns: dict[str, BranchColumn] = {}
        for place, item in enumerate(items):
            node, offset = item.unalias(), offset_of(item)
            kind = self.typer.value_type(node)
            name = self._name(item, columns) if is_first else names[place] if names is not None else f"_{place}"
            if kind is None or name is None:
                continue
            column = self._column(node, kind)
            source = "" if column.computed else column.source
            if name.lower() == ID_COLUMN:
                message = "the id of a union's tuple says of which SELECT it is, so that no column is named 'event_id'"
                self.report.add(offset, message, "another name, with AS")
            elif (
                name.lower() in EVENT_COLUMNS
                and not is_first
                and name.lower() not in (source.lower(), "event_time" if source in self._times else "")
            ):
                message = f"'{name}' of the union is each tuple's own, and here it is something else"
                self.report.add(offset, message, f"{name}, or another name in the first SELECT")
            columns[name] = BranchColumn(kind, _sql_of(column), offset, source in self._times)
        self._check_number(len(columns))
        return UnionBranch(
            self.below, columns, self._conditions(), tuple(dict.fromkeys((*self.below.lookups, *lookups)))
        )

    def _column(self, node: exp.Expression, kind: ColumnType) -> ScopedColumn:
        """A value of the SELECT list as a column of the stream below, or computed of its tuples."""
        column = self.scope.find(node) if isinstance(node, exp.Column) else None
        if isinstance(column, ScopedColumn):
            return column
        sql = self._short(typed_sql(render(node, self._bare), kind, node), node)
        return ScopedColumn(self.alias, "", kind, computed=sql)

    @property
    def _times(self) -> tuple[str, str]:
        """The columns that are the event time of the tuples."""
        return self.below.event_time or "event_time", "event_time"

    def _lookups(self) -> tuple[Lookup, ...] | None:
        """What is looked up; None after a mistake."""
        problem = refusal(self.alias, "alias") if self.table.alias else None
        if problem:
            self.report.add(offset_of(self.table.args["alias"]), *problem)
        where = self.select.args.get("where")
        lookups, self.wheres = attach(self.joins, [where.this] if where else [], self.scope, self.report)
        return None if lookups is None else lookups.get(self.alias, ())

    def _check_number(self, columns: int) -> None:
        if columns > MAX_ANSWER_COLUMNS:
            self.report.add(0, "the stream has too many columns", f"at most {MAX_ANSWER_COLUMNS}")

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

    def _name(self, item: exp.Expression, before: Mapping[str, object]) -> str | None:
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
