"""The names that a query can see: its aliases and their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from sqlglot import exp

from tidegate.declarations.models import Branch, JoinClass, Lookup
from tidegate.declarations.positions import Misspelt, Report
from tidegate.values.types import ColumnType


def offset_of(node: exp.Expression) -> int:
    """The offset at which an expression begins in the text, or what holds it if the parser kept none (NULL, ?)."""
    holder: exp.Expr | None = node
    while holder is not None:
        starts = [int(n.meta["start"]) for n in holder.walk() if n._meta and "start" in n.meta]
        if starts:
            return min(starts)
        holder = holder.parent
    return 0


@dataclass(frozen=True)
class StreamSchema:
    """What queries need to know of a stream; ``columns`` is None if they could not be read (a mistake says why).

    ``event_time``: the column that is the tuples' event time.

    Of a derived stream ``stream`` is the declared stream whose tuples it has; ``stored`` and ``computed`` say of its
    columns under which other name the tuples hold them, or by which Spark SQL they are computed of the tuples;
    ``conditions`` must be true of a tuple; ``lookups``: what is looked up for it. Of a union, and of what reads one,
    ``stream`` is the union, over whose columns all this is, and ``branches`` say what those are.
    """

    name: str
    columns: dict[str, ColumnType] | None
    event_time: str | None = None
    stream: str | None = None
    stored: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    branches: tuple[Branch, ...] = ()

    @cached_property
    def read(self) -> dict[str, Any]:
        """What a `Window` says of the stream that it is of."""
        stream, derived = (self.stream, self.name) if self.stream else (self.name, None)
        return {"stream": stream, "derived": derived, "lookups": self.lookups, "branches": self.branches}

    @cached_property
    def by_lower(self) -> dict[str, str]:
        """Name in lower case → name."""
        return {name.lower(): name for name in self.columns or ()}


@dataclass(frozen=True)
class ScopedColumn:
    """One column as the query sees it.

    ``stored``: the name under which tuples hold it, empty: its own; ``computed``: Spark SQL of a column that they do
    not hold.
    """

    alias: str
    name: str
    type: ColumnType
    stored: str = ""
    computed: str = ""

    @property
    def source(self) -> str:
        """The tuples' column, or what is computed of them."""
        return self.computed or self.stored or self.name


@dataclass(frozen=True)
class Unresolved:
    """Why a name means nothing here."""

    message: str
    expected: str = ""
    misspelt: Misspelt | None = None


@dataclass
class Scope:
    """Aliases in order of FROM.

    ``references``: aliases of reference tables → their columns, by name in lower case, as columns of the alias whose
    tuples are looked up. ``matched``: alias → SQL that is true of tuples for which there is a row. ``classes``: the
    join classes, once the WHERE clause has been read. ``answers``: names of the answer's columns, once the SELECT list
    has been read, to suggest. ``takes_back``: whether what is in the result may leave it again.
    ``matched_only``: aliases that only decide what is in the result.
    """

    aliases: dict[str, StreamSchema]
    classes: tuple[JoinClass, ...] = ()
    answers: tuple[str, ...] = ()
    references: dict[str, dict[str, ScopedColumn]] = field(default_factory=dict)
    matched: dict[str, list[str]] = field(default_factory=dict)
    takes_back: bool = False
    matched_only: frozenset[str] = frozenset()

    def find(self, column: exp.Column) -> ScopedColumn | Unresolved:
        """The column that a name means.

        An unqualified name must be a column of one alias; of several, only if the WHERE clause equates them all, as in
        the papers' ``SELECT location, COUNT(*) FROM A, B WHERE A.location = B.location``.
        """
        if column.args.get("db") or isinstance(column.this, exp.Star):
            return Unresolved(f"'{column.sql('spark', comments=False)}' is not a column", "column, or alias.column")
        if column.table:
            return self._qualified(column.table, column.name)
        found = [c for alias in self.aliases if (c := self._column(alias, column.name))]
        found += [c for columns in self.references.values() if (c := columns.get(column.name.lower()))]
        if not found:
            looked_up = (c.name for columns in self.references.values() for c in columns.values())
            names = chain(*(schema.columns or () for schema in self.aliases.values()), looked_up, self.answers)
            known = (name for name in names if name.lower() != column.name.lower())
            return Unresolved(f"unknown column '{column.name}'", "", Misspelt(column.name, known))
        if len(found) == 1 or len({(self.representative(c), c.type) for c in found}) == 1:
            return found[0]
        aliases = [alias for alias in self.aliases if self._column(alias, column.name)]
        aliases += [alias for alias, columns in self.references.items() if column.name.lower() in columns]
        choices = " or ".join(f"{alias}.{c.name}" for alias, c in zip(aliases, found, strict=True))
        return Unresolved(f"column '{column.name}' is ambiguous", choices)

    def resolve(self, column: exp.Column, report: Report) -> ScopedColumn | None:
        """Like `find`; a name that means nothing is a mistake."""
        found = self.find(column)
        if isinstance(found, Unresolved):
            report.add(offset_of(column), found.message, found.expected, found.misspelt)
            return None
        return found

    def representative(self, column: ScopedColumn) -> tuple[str, str]:
        """The same for all columns of a join class, unlike for any other column."""
        own = (column.alias, column.source)
        return next((joined.columns[0] for joined in self.classes if own in joined.columns), own)

    def _qualified(self, table: str, name: str) -> ScopedColumn | Unresolved:
        alias = next((a for a in self.aliases if a.lower() == table.lower()), None)
        reference = next((a for a in self.references if a.lower() == table.lower()), None)
        if reference is not None:
            columns = self.references[reference]
            misspelt = Misspelt(name, [c.name for c in columns.values()])
            return columns.get(name.lower()) or Unresolved(f"unknown column '{name}' of {reference}", "", misspelt)
        if alias is None:
            called = [a for a, schema in self.aliases.items() if schema.name.lower() == table.lower()]
            if called:
                return Unresolved(
                    f"stream '{table}' must be referred to by its alias here",
                    " or ".join(f"{a}.{name}" for a in called),
                )
            if table.lower() in map(str.lower, self.matched_only):
                message = f"'{table}' is not in the result of a SEMI or ANTI join"
                return Unresolved(message, "the other stream's columns; LEFT JOIN has those of both")
            return Unresolved(f"unknown alias '{table}'", "", Misspelt(table, [*self.aliases, *self.references]))
        schema = self.aliases[alias]
        misspelt = Misspelt(name, schema.columns or ())
        owner = alias if alias == schema.name else f"{alias} ({schema.name})"
        return self._column(alias, name) or Unresolved(f"unknown column '{name}' of {owner}", "", misspelt)

    def _column(self, alias: str, name: str) -> ScopedColumn | None:
        schema = self.aliases[alias]
        known = schema.by_lower.get(name.lower())
        if not known or not schema.columns:
            return None
        stored, computed = schema.stored.get(known, ""), schema.computed.get(known, "")
        return ScopedColumn(alias, known, schema.columns[known], stored, computed)
