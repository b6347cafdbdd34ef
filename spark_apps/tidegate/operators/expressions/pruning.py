"""What of a condition a Parquet scan can use to leave out row groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.operators.expressions.columns import DOUBLE, INTEGER, STRING
from tidegate.operators.expressions.evaluation import parsed

_COMPARISONS: Mapping[type[exp.Expression], Callable[..., pc.Expression]] = {
    exp.EQ: pc.equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
}


def pushed_down(sql: str, schema: pa.Schema) -> pc.Expression | None:
    """A condition of pyarrow's that holds wherever the given one does, and may hold elsewhere; None if there is none.

    It is made of those parts, joined by AND, that compare a column with a constant. NaN is larger than all numbers here
    and beyond compare in pyarrow, so for doubles only what NaN fails in both is used.

    >>> str(pushed_down("n > 5 AND UPPER(k) = 'A' AND x < 2E0", pa.schema({"n": pa.int64(), "x": pa.float64()})))
    '((n > 5) and (x < 2))'
    """
    return _part(parsed(sql), schema)


def _part(node: exp.Expression, schema: pa.Schema) -> pc.Expression | None:
    node = node.unnest()
    if isinstance(node, exp.And):
        sides = [part for side in (node.this, node.expression) if (part := _part(side, schema)) is not None]
        return reduce(and_, sides) if sides else None
    compare = _COMPARISONS.get(type(node))
    if compare is None or not isinstance(node.this, exp.Column) or not isinstance(node.expression, exp.Literal):
        return None
    field = next((f for f in schema if f.name.lower() == node.this.name.lower()), None)
    literal = node.expression
    if field is None or field.type not in (INTEGER, DOUBLE, STRING) or literal.is_string != (field.type == STRING):
        return None
    if field.type == STRING:
        return compare(pc.field(field.name), pc.scalar(str(literal.this)))
    if field.type == INTEGER and literal.this.isdigit():
        return compare(pc.field(field.name), pc.scalar(int(literal.this)))
    if field.type == DOUBLE and not isinstance(node, (exp.GT, exp.GTE)):
        return compare(pc.field(field.name), pc.scalar(float(literal.this)))
    return None
