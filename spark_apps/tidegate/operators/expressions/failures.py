"""On which rows an expression fails: overflows, divisions by zero, casts that do not fit, instants beyond the years.

A function, an operator or a cast fails on a row where its arguments are known and it has no value. What need not be
computed does not fail, for SQL reads from left to right: the branches of CASE and IF that are not taken, what stands
behind the first value of COALESCE, behind FALSE AND, behind TRUE OR.

>>> rows = pa.table({"n": [1, 2**62, None]})
>>> checked("n * 4", rows)[1].tolist(), checked("IF(n > 9, 0, n * 4)", rows)[1].tolist()
([False, True, False], [False, False, False])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.operators.expressions.columns import BOOLEAN, Value, whole
from tidegate.operators.expressions.comparing import COMPARISONS
from tidegate.operators.expressions.evaluation import Evaluator, Expression, Rows, evaluate, parsed

# They have a value wherever their arguments have one, or NULL is what they are asked for.
_SURE = (
    *(exp.Paren, exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.And, exp.Or, exp.Not, exp.Is, exp.Between),
    *(exp.In, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Case, exp.If, exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif),
    *(exp.Upper, exp.Lower, exp.Length, exp.Contains, exp.StartsWith, exp.EndsWith, exp.Like, exp.ILike),
    *COMPARISONS,
)


@cache
def can_fail(sql: str) -> bool:
    """Whether there may be rows on which a rendered expression fails.

    >>> can_fail("k = 'a' AND n > 3"), can_fail("n + 1 > 3")
    (False, True)
    """
    nodes = parsed(sql).walk()
    return any(isinstance(n, (exp.Func, exp.Binary, exp.Unary)) and not isinstance(n, _SURE) for n in nodes)


def checked(expression: Expression, rows: Rows, kind: pa.DataType | None = None) -> tuple[pa.Array, np.ndarray]:
    """The value of a checked expression for every row, and bool[n]: the rows on which it fails."""
    watcher = _Watcher(rows)
    return watcher.column(expression, kind), watcher.failed


class Failed:
    """Which of some rows fail while one expression after the other is computed from them, and some are dropped.

    ``rows``: bool[n], of all that there were at first. ``before``: bool[n], which had failed before.
    """

    def __init__(self, rows: Rows, before: np.ndarray | None = None):
        self.rows = np.zeros(rows.num_rows, dtype=bool) if before is None else before
        self._left = np.arange(rows.num_rows)
        self._table = rows

    def value(self, sql: str, kind: pa.DataType | None = None) -> pa.Array:
        """An expression's value for the rows that are left."""
        if not can_fail(sql):
            return evaluate(sql, self._table, kind)
        found, failed = checked(sql, self._table, kind)
        self.rows[self._left[failed]] = True
        return found

    def filtered(self, condition: str) -> Rows:
        """The rows that are left of those before: for which a condition is true."""
        found = self.value(condition, BOOLEAN)
        holds = np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False), dtype=bool)
        self._left, self._table = self._left[holds], self._table.filter(pa.array(holds))
        return self._table


class _Watcher(Evaluator):
    """Evaluates, and notes where a value that matters is missing."""

    def __init__(self, rows: Rows):
        super().__init__(rows)
        self.failed = np.zeros(rows.num_rows, dtype=bool)
        self._matters = np.ones(rows.num_rows, dtype=bool)
        self._values: dict[int, Value] = {}

    def value(self, node: exp.Expression) -> Value:
        """The same, noted."""
        found = super().value(node)
        self._values[id(node)] = found
        if not isinstance(node, _SURE):
            lost = self._bools(pc.is_null(found)) & self._matters
            for argument in self._arguments(node) if lost.any() else ():
                lost &= self._bools(pc.is_valid(argument))
            self.failed |= lost
        return found

    @contextmanager
    def among(self, rows: Callable[[], Value]) -> Iterator[None]:
        before = self._matters
        self._matters = before & self._bools(pc.fill_null(rows(), False))
        try:
            yield
        finally:
            self._matters = before

    def _arguments(self, node: exp.Expression) -> Iterator[Value]:
        """The values that a node's own was computed from."""
        for child in node.iter_expressions():
            if isinstance(node, (exp.Div, exp.IntDiv, exp.Mod)) and isinstance(child.unnest(), exp.Nullif):
                child = child.unnest().this  # put there so that Spark divides by no zero
            if id(child) in self._values:
                yield self._values[id(child)]
            else:
                yield from self._arguments(child)

    def _bools(self, value: Value) -> np.ndarray:
        column = whole(value.cast(BOOLEAN), self.rows.num_rows)
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
