"""Rendered SQL over some columns, as SQL over what these stand for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import sqlglot
from sqlglot import exp


def rewritten(sql: str, meant: Callable[[str], str | None]) -> str:
    """The SQL with what columns stand for in their places; all else stays as it is written.

    ``meant``: a column's name → SQL that is whole by itself (a name, or in parentheses); None: it stays.

    >>> rewritten("UPPER(k) || `a b` > 'k'", {"k": "carrier", "a b": "(x + 1)"}.get)
    "UPPER(carrier) || (x + 1) > 'k'"
    """
    for start, end, name in _columns(sql):
        replacement = meant(name)
        if replacement is not None:
            sql = f"{sql[:start]}{replacement}{sql[end:]}"
    return sql


@cache
def _columns(sql: str) -> tuple[tuple[int, int, str], ...]:
    """Where columns stand, the last one first: begin, end and name."""
    names = [column.this for column in sqlglot.parse_one(sql, dialect="spark").find_all(exp.Column)]
    places = ((int(name.meta["start"]), int(name.meta["end"]) + 1, str(name.name)) for name in names)
    return tuple(sorted(places, reverse=True))
