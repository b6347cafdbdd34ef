"""What an aggregate is: a class in a file of its own, from which all others learn what it means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa
from sqlglot import exp

from tidegate.aggregates.accumulators import Extreme, Partial, Total
from tidegate.aggregates.exact import Float64s, Int64s
from tidegate.values.types import ColumnType, arrow_type

Estimated = Literal[
    "count",
    "sum",
    "average",
    "least",
    "greatest",
    "var_pop",
    "var_samp",
    "stddev_pop",
    "stddev_samp",
    "percentile",
    "percentile_approx",
    "every",
    "some",
]
"""What history estimates from its samples; its leaves have the first five, too."""


class CallError(Exception):
    """An aggregate that is written as it cannot be: what is wrong, and what can be written."""

    def __init__(self, message: str, expected: str):
        super().__init__(message)
        self.message, self.expected = message, expected


@dataclass(frozen=True)
class Call:
    """An aggregate as a query writes it.

    ``argument`` None: it is of every row, as COUNT(*). ``condition``: of those alone of which it is true. ``by``: by
    what the value is chosen; None of a function that chooses: by event time. ``parameters``: its numbers.
    """

    function: AggregateFunction
    argument: exp.Expression | None
    condition: exp.Expression | None = None
    by: exp.Expression | None = None
    parameters: tuple[float, ...] = ()


class AggregateFunction(ABC):
    """One aggregate.

    To add one: a subclass in a file beside this one, named in ``AGGREGATES`` of the package; cases in tests/spec.
    Nothing else knows its name.

    Attributes:
        name: how models and answers' columns call it.
        nodes: sqlglot's classes of its SQL names.
        shapes: how it is written.
        scaled: whether a window that holds a share of its range has its value divided by that share.
        distinct: whether it is written with DISTINCT.
        valued: whether it matters which values there are, and not only how many.
        by_value: whether it needs to know how many there are of each value (``accumulators.VALUES``).
        of_distinct: of one by value that only asks which there are: its sums over the different values, beside how many
            they are (``accumulators.DISTINCT``). Such sums change where a value comes or goes, and nowhere else.
        of_ranks: of one by value that only asks for the values of some ranks: how many (``ranks``).
        chooses: whether it is a value chosen by another one, its ``by``.
        sums, extreme: its accumulators, beside the count of values that every aggregate has.
        estimated: what history estimates of it; None: nothing, it has a value only of a past whose tuples are all kept.
        counts_values: whether it is how many different values there are, which leaves know of their group columns.
        of_nothing: the value of no rows, in SQL.
        zero_of_nothing: whether no rows are as good as 0 to its reader, so that a promise can have a floor.
    """

    name: ClassVar[str]
    nodes: ClassVar[tuple[type[exp.Expression], ...]]
    shapes: ClassVar[tuple[str, ...]]
    scaled: ClassVar[bool] = False
    distinct: ClassVar[bool] = False
    valued: ClassVar[bool] = True
    by_value: ClassVar[bool] = False
    of_distinct: ClassVar[tuple[Total, ...] | None] = None
    of_ranks: ClassVar[int] = 0
    chooses: ClassVar[bool] = False
    sums: ClassVar[tuple[Total, ...]] = ()
    extreme: ClassVar[Extreme | None] = None
    estimated: ClassVar[Estimated | None] = None
    counts_values: ClassVar[bool] = False
    of_nothing: ClassVar[str] = "NULL"
    zero_of_nothing: ClassVar[bool] = False

    @property
    def is_listed(self) -> bool:
        """Whether it needs the values whole: neither sums over the different ones nor those of some ranks will do."""
        return self.by_value and self.of_distinct is None and not self.of_ranks

    def read(self, node: exp.Expression) -> Call:
        """The call that an expression of ``nodes`` is.

        Raises:
            CallError: it is written wrongly.
        """
        argument = node.this
        if isinstance(argument, exp.Distinct):
            if len(argument.expressions) != 1:
                text = node.sql("spark", comments=False)[:60]
                raise CallError(f"'{text}' is over several values", "DISTINCT of one expression")
            argument = argument.expressions[0]
        if argument is None or isinstance(argument, exp.Star):
            name = self.name.upper()
            raise CallError(f"{name} needs a value", f"{name}(column)")
        return Call(self, argument)

    def refusal(self, kind: ColumnType) -> tuple[str, str] | None:
        """Why values of a type are no arguments of it, and what would be; None if they are."""
        return None

    @abstractmethod
    def result(self, kind: ColumnType | None) -> ColumnType:
        """The type of the aggregate of values of a type; None: of rows."""

    def measured(self, kind: ColumnType) -> ColumnType:
        """As what the operator is given values of a type."""
        return kind

    def held_type(self, measured: ColumnType) -> pa.DataType:
        """The Arrow type of what the operator is given, of values of the type ``measured``."""
        return arrow_type(measured)

    def held(self, values: pa.Array, by: pa.Array | None, parameters: tuple[float, ...]) -> pa.Array:
        """What the operator is given of some values, of ``held_type``; NULL of those that do not count."""
        return values

    def ranks(self, numbers: Int64s, parameters: tuple[float, ...]) -> tuple[Int64s, ...]:
        """Of rows that have so many values, at least one, the ranks of those that are asked for, from 0."""
        raise NotImplementedError(f"{self.name} asks for no ranks")

    def shown(self, values: Float64s, parameters: tuple[float, ...]) -> Float64s:
        """Numbers as answers show them: what history estimates of values is of these."""
        return values

    @abstractmethod
    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """The values, as emitted."""

    def lost(self, partial: Partial, value: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
        """bool[n]: where there is a value that the type cannot express; None: nowhere."""
        return None

    def duckdb(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """The same in DuckDB's SQL, of whole windows: what tests compare with."""
        return f"{self.name}({argument})"

    def called(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """The aggregate of an argument, in words of SQL."""
        return f"{self.name.upper()}({', '.join([argument, *([by] if by else []), *map(str, parameters)])})"
