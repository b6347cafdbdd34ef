"""One side's tuples as numpy columns: what a query keeps of them, and how many bytes that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.operators.arrivals import int64s
from tidegate.operators.codes import NULL, decode
from tidegate.operators.join_aggregate.codebook import Codebook
from tidegate.operators.join_aggregate.combinations import Combinations
from tidegate.operators.join_aggregate.spec import SIGN, Measure, Spec
from tidegate.operators.schedule import NEVER_US, Int64s
from tidegate.values.limbs import from_limbs, is_decimal, limbs
from tidegate.values.ordered import as_ordered_integers, from_ordered_integers, orders_as_integers

Column = npt.NDArray[Any]
Books = dict[str, Codebook]
# Sides with the same slots share their combinations' codes.
AllCombinations = dict[tuple[str, ...], Combinations]


@dataclass(frozen=True, eq=False)
class Tuples:
    """Tuples of one side in order of arrival.

    Args:
        event_us, arrival_us: int64[n].
        code: int64[n], each one's combination of class and group values.
        values: slot → float64[n], int64[n] or ``LIMBS``[n]; of SUM and AVG the number (0 for NULL), of MIN and MAX an
            integer that orders as the value does, or its code in the slot's codebook.
        nulls: slot → bool[n], only for slots that have a NULL here.
        weight: of cells (see ``cells``) how many tuples each stands for, int64[n]; of sums ``values`` then has the
            parts, by (slot, part), of MIN and MAX the extreme, and ``nulls`` how many have a NULL. None for tuples.
        sign: of tuples of a signed spec 1 or −1, int64[n]; None for others, and for cells.
    """

    event_us: Int64s
    arrival_us: Int64s
    code: Int64s
    values: Mapping[Any, Column] = field(default_factory=dict)
    nulls: Mapping[str, Column] = field(default_factory=dict)
    weight: Int64s | None = None
    sign: Int64s | None = None

    def __len__(self) -> int:
        """Count the tuples."""
        return len(self.event_us)

    def __getitem__(self, rows: slice | Int64s | npt.NDArray[np.bool_]) -> Tuples:
        """Some of the tuples, in their order."""
        return Tuples(
            self.event_us[rows],
            self.arrival_us[rows],
            self.code[rows],
            {slot: column[rows] for slot, column in self.values.items()},
            {slot: column[rows] for slot, column in self.nulls.items()},
            None if self.weight is None else self.weight[rows],
            None if self.sign is None else self.sign[rows],
        )

    @cached_property
    def earliest_us(self) -> int:
        """The least event time."""
        return int(self.event_us.min()) if len(self) else NEVER_US

    @cached_property
    def in_order(self) -> bool:
        """Whether event times ascend too."""
        return bool((self.event_us[1:] >= self.event_us[:-1]).all())

    @cached_property
    def latest_us(self) -> int:
        """The largest event time."""
        return int(self.event_us.max()) if len(self) else -NEVER_US


def together(parts: Sequence[Tuples]) -> Tuples:
    """All of the parts, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    slots = dict.fromkeys(slot for part in parts for slot in part.nulls)
    weights = [part.weight for part in parts if part.weight is not None]
    signs = [part.sign for part in parts if part.sign is not None]
    return Tuples(
        np.concatenate([part.event_us for part in parts]),
        np.concatenate([part.arrival_us for part in parts]),
        np.concatenate([part.code for part in parts]),
        {slot: np.concatenate([part.values[slot] for part in parts]) for slot in parts[0].values},
        {
            slot: np.concatenate([part.nulls.get(slot, np.zeros(len(part), dtype=bool)) for part in parts])
            for slot in slots
        },
        np.concatenate(weights) if weights else None,
        np.concatenate(signs) if signs else None,
    )


def side_slots(spec: Spec, side: int) -> tuple[str, ...]:
    """What tells a side's tuples apart: groups, classes that another side has or that group, columns that are compared,
    aggregates by value.
    """
    own = spec.sides[side]
    others = {name for index, other in enumerate(spec.sides) if index != side for name in other.classes}
    others |= {name for _, name in spec.class_groups}
    values = (m.slot for m in spec.measures_of(own.alias) if m.by_value)
    return (*(name for name in own.classes if name in others), *own.groups, *own.compared, *values)


def encoded(
    spec: Spec, table: pa.Table, books: Books, combinations: AllCombinations
) -> tuple[Books, AllCombinations, list[Tuples]]:
    """The tuples of each side of a batch, without those that can never join (a NULL in a join key)."""
    side = int64s(table.column("side"))
    if len(side) and not 0 <= side.min() <= side.max() < len(spec.sides):
        raise ValueError(f"column side must lie in 0..{len(spec.sides) - 1}")
    books = dict(books)
    codes: dict[str, Int64s] = {}
    for slot in {name: None for index in range(len(spec.sides)) for name in side_slots(spec, index)}:
        books[slot], codes[slot] = books[slot].encode(_array(table.column(slot)))
    combinations, parts = dict(combinations), []
    for index, declared in enumerate(spec.sides):
        chosen = side == index if len(spec.sides) > 1 else np.ones(len(side), dtype=bool)
        for slot in declared.classes:
            if slot in table.column_names and table.column(slot).null_count:
                chosen &= table.column(slot).is_valid().to_numpy()
        rows: Any = slice(None) if chosen.all() else np.flatnonzero(chosen)
        slots = side_slots(spec, index)
        own = [codes[slot][rows] for slot in slots]
        event_us, arrival_us = (int64s(table.column(name))[rows] for name in ("event_us", "arrival_us"))
        combinations[slots], code = combinations[slots].encode(own, len(event_us))
        values: dict[str, Column] = {}
        nulls: dict[str, Column] = {}
        for measure in spec.measures_of(declared.alias):
            column = _array(table.column(measure.slot))
            if not isinstance(rows, slice):
                column = column.take(pa.array(rows)) if column.null_count else _taken(column, rows)
            if column.null_count:
                nulls[measure.slot] = column.is_null().to_numpy(zero_copy_only=False)
            if measure.stored:
                books, values[measure.slot] = _measured(spec, measure, column, books)
        sign = int64s(table.column(SIGN))[rows].astype(np.int64) if spec.signed else None
        parts.append(Tuples(event_us, arrival_us, code, values, nulls, sign=sign))
    return books, combinations, parts


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _taken(column: pa.Array, rows: Int64s) -> pa.Array:
    if pa.types.is_int64(column.type) or pa.types.is_float64(column.type):
        return pa.array(column.to_numpy()[rows])
    return column.take(pa.array(rows))


def _measured(spec: Spec, measure: Measure, column: pa.Array, books: Books) -> tuple[Books, Column]:
    slot = measure.slot
    if measure.sums:
        numbers = column.cast(spec.added_type(slot))
        if is_decimal(numbers.type):
            return books, limbs(numbers)
        return books, (numbers.fill_null(0) if numbers.null_count else numbers).to_numpy()
    if orders_as_integers(column.type):
        return books, as_ordered_integers(column)
    book, codes = books[slot].encode(column)
    return {**books, slot: book}, np.maximum(codes, 0)


def held_schema(spec: Spec, side: int) -> pa.Schema:
    """What is held of a side's tuples: of COUNT(x) whether there is an x, of SUM and AVG the number to add."""
    fields = [pa.field("event_us", pa.int64()), pa.field("arrival_us", pa.int64())]
    fields += [pa.field(SIGN, pa.int8())] if spec.signed else []
    fields += [spec.columns.field(slot) for slot in side_slots(spec, side)]
    for measure in spec.measures_of(spec.sides[side].alias):
        kind = spec.columns.field(measure.slot).type
        if measure.by_value:
            continue
        if not measure.stored:
            kind = pa.bool_()
        elif measure.sums:
            kind = spec.added_type(measure.slot)
        fields.append(pa.field(measure.slot, kind))
    return pa.schema(fields)


def decoded(spec: Spec, side: int, tuples: Tuples, books: Books, combinations: Combinations) -> pa.Table:
    """The tuples as rows of ``held_schema``; ``encoded`` takes them back."""
    columns: dict[str, pa.Array] = {"event_us": pa.array(tuples.event_us), "arrival_us": pa.array(tuples.arrival_us)}
    if tuples.sign is not None:
        columns[SIGN] = pa.array(tuples.sign.astype(np.int8))
    for slot, codes in combinations.slot_codes(tuples.code).items():
        columns[slot] = decode(codes, books[slot].values)
    for measure in spec.measures_of(spec.sides[side].alias):
        slot, kind = measure.slot, spec.columns.field(measure.slot).type
        null = tuples.nulls.get(slot, np.zeros(len(tuples), dtype=bool))
        if measure.by_value:
            continue
        if not measure.stored:
            columns[slot] = pa.array(~null, mask=null)
        elif measure.sums:
            values, kind = tuples.values[slot], spec.added_type(slot)
            columns[slot] = from_limbs(values, kind, null) if is_decimal(kind) else pa.array(values, mask=null)
        elif orders_as_integers(kind):
            columns[slot] = from_ordered_integers(tuples.values[slot], kind, null)
        else:
            columns[slot] = decode(np.where(null, NULL, tuples.values[slot]), books[slot].values)
    return pa.table(columns, schema=held_schema(spec, side))
