"""UNION ALL in ``streams/<name>.sql``: one stream of the tuples of several SELECTs.

Each SELECT is a branch: what the union's columns are of its tuples, and which of them it has. A tuple's identity is its
id behind the number of its branch, so that tuples of two streams, and a tuple in two branches, are told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot.tokens import Token, TokenType

from tidegate.declarations import decimals
from tidegate.declarations.expression_types import spark_type
from tidegate.declarations.models import Branch, DerivedColumn, Lookup
from tidegate.declarations.names import ID_COLUMN
from tidegate.declarations.positions import Report
from tidegate.declarations.scope import StreamSchema
from tidegate.values.types import ColumnType, Digits, digits_of, is_number

MAX_BRANCHES = 16
"""Branches of a union, those of unions that it reads counted one by one."""
MAX_BRANCH_SQL = 10_000
"""Characters of a column or condition of a branch, the columns of unions in it written out."""
UNION_SHAPE = "SELECT … FROM stream UNION ALL SELECT … FROM stream"
_INSTEAD = {
    TokenType.UNION: ("UNION without ALL is", "UNION ALL, and GROUP BY or COUNT(DISTINCT …) in the queries"),
    TokenType.INTERSECT: ("INTERSECT is", "EXISTS in the queries, with a bound in time"),
    TokenType.EXCEPT: ("EXCEPT is", "NOT EXISTS in the queries, with a bound in time"),
}
_BIGINT = Digits(20, 0)


@dataclass(frozen=True)
class BranchColumn:
    """A column of a branch: SQL over the tuples, where it stands, and whether it is the tuples' event time."""

    type: ColumnType
    sql: str
    offset: int
    is_event_time: bool


@dataclass(frozen=True)
class UnionBranch:
    """A branch as it is read. ``below``: the stream that it reads."""

    below: StreamSchema
    columns: Mapping[str, BranchColumn]
    conditions: tuple[str, ...]
    lookups: tuple[Lookup, ...]


def branch_texts(tokens: Sequence[Token], report: Report) -> list[str] | None:
    """The file's text for each SELECT of it, with blanks for the others; None after a mistake."""
    text = report.source.text
    bounds, depth, last = [(0, 0)], 0, -1
    for index, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        behind = [one.text.upper() for one in tokens[index + 1 : index + 2]]
        if depth or token.token_type not in _INSTEAD or behind == ["("] and token.token_type is TokenType.EXCEPT:
            continue
        if token.token_type is not TokenType.UNION or behind != ["ALL"]:
            message, expected = _INSTEAD[token.token_type]
            report.add(token.start, f"{message} not supported in a derived stream", expected)
            return None
        before = tokens[index - 1].token_type
        if index == last + 1 or index + 2 == len(tokens) or before is TokenType.SEMICOLON:
            report.add(token.start, "UNION ALL stands between two SELECTs", UNION_SHAPE)
            return None
        bounds.append((token.start, tokens[index + 1].end + 1))
        last = index + 1
    ends = [start for start, _ in bounds[1:]] + [len(text)]
    starts = [start for _, start in bounds]
    return [_blank(text[:a]) + text[a:b] + _blank(text[b:]) for a, b in zip(starts, ends, strict=True)]


def _blank(text: str) -> str:
    return "".join(c if c in "\r\n" else " " for c in text)


def united(name: str, branches: Sequence[UnionBranch], report: Report) -> StreamSchema | None:
    """The schema of the union of some branches, whose columns bear the same names; None after a mistake."""
    before = len(report.mistakes)
    types: dict[str, ColumnType] = {}
    for column, first in branches[0].columns.items():
        types[column] = first.type
        for number, branch in enumerate(branches[1:], 2):
            own = branch.columns[column]
            kind = wider_type(types[column], own.type)
            if kind is None:
                message = f"column '{column}' is {types[column]} before and {own.type} in SELECT {number} of the union"
                report.add(
                    own.offset,
                    message,
                    f"CAST to the same type, such as CAST(… AS {spark_type(first.type).sql('spark')})",
                )
            types[column] = kind or types[column]
    if len(report.mistakes) > before:
        return None
    found = [one for number, branch in enumerate(branches, 1) for one in _written(branch, number, types)]
    longest = max(len(sql) for one in found for sql in (one.predicate or "", *(c.expression for c in one.columns)))
    if len(found) > MAX_BRANCHES:
        message = f"the union has {len(found)} branches, those of unions that it reads among them"
        report.add(0, message, f"at most {MAX_BRANCHES}")
    elif longest > MAX_BRANCH_SQL:
        message = "with the columns of derived streams written out, an expression of the union is too long"
        report.add(0, message, f"at most {MAX_BRANCH_SQL} characters")
    if len(report.mistakes) > before:
        return None
    times = [column for column in types if all(branch.columns[column].is_event_time for branch in branches)]
    event_time = times[0] if times else "event_time"
    return StreamSchema(name, types, event_time, stream=name, branches=tuple(found))


def _written(branch: UnionBranch, number: int, types: Mapping[str, ColumnType]) -> Iterable[Branch]:
    """A branch over the tuples of a declared stream; of one that reads a union those of the union's own."""
    below = branch.below
    sources = [one.looking_up(branch.lookups) for one in below.branches]
    for source in sources or [Branch(stream=below.stream or below.name, lookups=branch.lookups)]:
        columns = []
        for name, column in branch.columns.items():
            sql = source.over(column.sql)
            if column.type != types[name]:
                sql = f"TRY_CAST({sql} AS {spark_type(types[name]).sql('spark')})"
            columns.append(DerivedColumn(name=name, type=types[name], expression=sql))
        conditions = [source.predicate, *map(source.over, branch.conditions)]
        yield Branch(
            stream=source.stream,
            columns=tuple(columns),
            id=f"'{number}:' || {source.over(ID_COLUMN)}",
            predicate=" AND ".join(sql for sql in conditions if sql) or None,
            lookups=source.lookups,
        )


def wider_type(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """The type of a column that is of two types in two branches, as Spark's UNION has it; None if there is none.

    Text and other values have none here: whether they are compared as one or the other is to be written down.

    >>> wider_type("integer", "double"), wider_type("decimal(5,2)", "integer"), wider_type("date", "timestamp")
    ('double', 'decimal(22,2)', 'timestamp')
    >>> wider_type("string", "integer") is None
    True
    """
    if one == other:
        return one
    if {one, other} == {"date", "timestamp"}:
        return "timestamp"
    if not is_number(one) or not is_number(other):
        return None
    if "double" in (one, other):
        return "double"
    return decimals.as_type(decimals.widest([digits_of(one) or _BIGINT, digits_of(other) or _BIGINT]))
