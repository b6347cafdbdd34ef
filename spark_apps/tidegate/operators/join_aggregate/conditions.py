"""Conditions over several sides: which of the joined tuples count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.operators.codes import decode
from tidegate.operators.expressions import columns_of, truth
from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.join_aggregate.tuples import Books
from tidegate.operators.schedule import Int64s

Codes = Mapping[str, Int64s]
Meets = Callable[[Codes], npt.NDArray[np.bool_]]
"""Slot → int64[n], codes of n joined tuples → bool[n]: which of them count."""


@dataclass(frozen=True, eq=False)
class Conditions:
    """A query's conditions over several sides, and what the codes of their slots stand for.

    **Idea.** Tuples are told apart by the slots that are compared, as by groups. So a condition is true of all tuples
    of two histories or of none, and is looked at once for each two that match; where it is not true they do not.
    """

    conditions: tuple[tuple[str, frozenset[str]], ...]
    books: Books

    @staticmethod
    def of(spec: Spec, books: Books) -> Conditions:
        """Those of a query."""
        known = spec.columns.names
        return Conditions(tuple((sql, frozenset(columns_of(sql, known))) for sql in spec.conditions), books)

    def awaited(self, names: Iterable[str]) -> set[str]:
        """The slots that are read by a condition for which a relation with these names does not have all."""
        there = set(names)
        return {slot for _, slots in self.conditions if not slots <= there for slot in slots}

    def between(self, left: Iterable[str], right: Iterable[str]) -> Meets | None:
        """What two relations with these names must meet together, and neither alone; None if that is nothing."""
        own, other = set(left), set(right)
        due = [
            (sql, slots)
            for sql, slots in self.conditions
            if slots <= own | other and not slots <= own and not slots <= other
        ]
        if not due:
            return None

        def meets(codes: Codes) -> npt.NDArray[np.bool_]:
            rows = len(next(iter(codes.values())))
            found = np.ones(rows, dtype=bool)
            for sql, slots in due:
                values = {slot: decode(codes[slot], self.books[slot].values) for slot in sorted(slots)}
                found &= truth(sql, pa.table(values))
            return found

        return meets
