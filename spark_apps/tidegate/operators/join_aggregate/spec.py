"""What a join-aggregate computes: its sides, its aggregates, and the columns that come in and go out."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidegate.aggregates import AGGREGATES, AggregateFunction
from tidegate.aggregates.accumulators import DISTINCT, VALUES, Extreme, Total, ranked, values_type
from tidegate.aggregates.exact import PARTS
from tidegate.values.limbs import WIDE, is_decimal

SIGN = "sign"
"""The column of a signed spec that says how often a tuple counts: 1, or −1 where it takes back an earlier one."""


@dataclass(frozen=True)
class Side:
    """One alias of the query.

    Args:
        alias: its name, as in the schedule's ``lower_us``.
        classes: the join-class slots (``j0`` …) that it has a column of; sides that share a class are joined on it.
        groups: the group slots (``g0`` …) whose values come from it, but for those that are a class's.
        compared: the slots (``c0`` …) that conditions over several sides read of it.
    """

    alias: str
    classes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measure:
    """One aggregate in a slot (``a0`` …) over a column of one alias; ``alias`` is None for COUNT(*).

    ``parameters``: its numbers.
    """

    slot: str
    function: str
    alias: str | None = None
    parameters: tuple[float, ...] = ()

    @property
    def called(self) -> AggregateFunction:
        """What the aggregate is."""
        return AGGREGATES[self.function]

    @property
    def sums(self) -> tuple[tuple[str, Total], ...]:
        """The sums that it needs, each with the name of its column among the partial answers."""
        return tuple((f"{self.slot}_{total.name}", total) for total in self.called.sums)

    @property
    def extreme(self) -> Extreme | None:
        """The extreme that it needs."""
        return self.called.extreme

    @property
    def by_value(self) -> bool:
        """Whether it needs to know how many there are of each value: tuples are then told apart by it, like groups."""
        return self.called.by_value

    @property
    def stored(self) -> bool:
        """Whether the values are held in a column of their own."""
        return self.called.valued and not self.by_value


@dataclass(frozen=True)
class Spec:
    """A natural join of 1..n sides on their shared classes, aggregated by group.

    Args:
        sides: the aliases; the batch's column ``side`` holds the index into it.
        aggregates: the measures, in the order in which their partials come out.
        columns: Arrow types of the slot columns j*, g* and a* (COUNT(*) has no column, nor a group that is a class).
        class_groups: (group slot, class slot): the group's values are the class's, which has them in every joined
            tuple. It then costs nothing: batches have no column for it, and the join needs no codes of its own.
        in_parts: sums come out unrounded, as (exponent, units) of the powers of two that they consist of, so that
            ``combined`` can add up those of several hash partitions.
        conditions: Spark SQL over compared slots, of several sides each: joined tuples count for which all are true.
        signed: of one side, and without extremes: batches have a column ``sign``, 1, or −1 of a tuple that takes back
            an equal one that has arrived before it.

    >>> spec = Spec(
    ...     sides=(Side("d", classes=("j0",), groups=("g0",)), Side("w", classes=("j0",))),
    ...     aggregates=(Measure("a0", "count"), Measure("a1", "avg", "d")),
    ...     columns=pa.schema([("j0", pa.string()), ("g0", pa.string()), ("a1", pa.float64())]),
    ... )
    >>> spec.input_schema.names
    ['side', 'event_us', 'arrival_us', 'j0', 'g0', 'a1']
    >>> spec.output_schema.names
    ['window_index', 'g0', 'pairs', 'a0_count', 'a1_count', 'a1_sum']
    >>> by_key = Spec(
    ...     sides=(Side("d", classes=("j0",)), Side("w", classes=("j0",))),
    ...     aggregates=(Measure("a0", "count"),),
    ...     columns=pa.schema([("j0", pa.string())]),
    ...     class_groups=(("g0", "j0"),),
    ... )
    >>> by_key.input_schema.names, by_key.output_schema.names
    (['side', 'event_us', 'arrival_us', 'j0'], ['window_index', 'g0', 'pairs', 'a0_count'])
    """

    sides: tuple[Side, ...]
    aggregates: tuple[Measure, ...]
    columns: pa.Schema
    class_groups: tuple[tuple[str, str], ...] = ()
    in_parts: bool = False
    conditions: tuple[str, ...] = ()
    signed: bool = False

    def __post_init__(self) -> None:
        """Refuse a spec that contradicts itself."""
        if not self.sides:
            raise ValueError("Spec: no sides")
        if self.signed and (len(self.sides) > 1 or any(m.extreme is not None for m in self.aggregates)):
            raise ValueError("Spec: what is taken back is of one side, and in no extreme")
        aliases = [side.alias for side in self.sides]
        slots = [
            *self.classes,
            *self._own_groups,
            *self._compared,
            *(m.slot for m in self.aggregates if m.alias is not None),
        ]
        unknown = [name for _, name in self.class_groups if name not in self.classes]
        if unknown:
            raise ValueError(f"Spec: groups by classes {unknown} that no side has; there are {list(self.classes)}")
        for name, values in (("alias", aliases), ("group slot", list(self.groups))):
            if len(set(values)) < len(values):
                raise ValueError(f"Spec: {name} named twice in {values}")
        if len({m.slot for m in self.aggregates}) < len(self.aggregates):
            raise ValueError("Spec: aggregate slot named twice")
        if sorted(slots) != sorted(self.columns.names):
            raise ValueError(f"Spec: columns must be {sorted(slots)}, not {sorted(self.columns.names)}")
        for measure in self.aggregates:
            if measure.alias is None and measure.called.valued:
                raise ValueError(f"Spec: {measure.function.upper()} of {measure.slot!r} has no alias")
            if measure.alias is not None and measure.alias not in aliases:
                raise ValueError(f"Spec: {measure.slot!r} is of unknown alias {measure.alias!r}; known: {aliases}")
            if measure.alias is not None and measure.sums:
                kind = self.columns.field(measure.slot).type
                if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_decimal(kind)):
                    raise ValueError(f"Spec: {measure.function.upper()} of {measure.slot!r} needs a number, not {kind}")

    @property
    def classes(self) -> tuple[str, ...]:
        """The join-class slots, each once, in order of first mention."""
        return tuple(dict.fromkeys(name for side in self.sides for name in side.classes))

    @property
    def groups(self) -> tuple[str, ...]:
        """The group slots in the order of their names' numbers: g0, g1 … as the query names them."""
        names = [*self._own_groups, *(name for name, _ in self.class_groups)]
        return tuple(sorted(names, key=lambda n: (len(n), n)))

    @property
    def group_keys(self) -> dict[str, str]:
        """Group slot → the slot that has its values: a class, or itself."""
        classes = dict(self.class_groups)
        return {name: classes.get(name, name) for name in self.groups}

    @property
    def _own_groups(self) -> tuple[str, ...]:
        return tuple(name for side in self.sides for name in side.groups)

    @property
    def _compared(self) -> tuple[str, ...]:
        return tuple(name for side in self.sides for name in side.compared)

    @property
    def listed_slots(self) -> tuple[str, ...]:
        """Those of the aggregates by value whose answers need the values themselves, all of them."""
        return tuple(m.slot for m in self.aggregates if m.by_value and (self.in_parts or m.called.is_listed))

    @property
    def ordered_slots(self) -> tuple[str, ...]:
        """Those whose answers need the order of the values."""
        return tuple(m.slot for m in self.aggregates if m.slot in self.listed_slots or m.called.of_ranks)

    @property
    def value_slots(self) -> tuple[str, ...]:
        """The slots of the aggregates by value."""
        return tuple(m.slot for m in self.aggregates if m.by_value)

    def measures_of(self, alias: str) -> tuple[Measure, ...]:
        """The measures over a column of that alias."""
        return tuple(m for m in self.aggregates if m.alias == alias)

    def added_type(self, slot: str) -> pa.DataType:
        """Type of the numbers that the slot adds up: int64 of integers, decimals as they are, else double."""
        kind = self.columns.field(slot).type
        if is_decimal(kind):
            return kind
        return pa.int64() if pa.types.is_integer(kind) else pa.float64()

    def sum_type(self, slot: str) -> pa.DataType:
        """Type of the slot's partial sum; of decimals one that no sum is too large for."""
        kind = self.added_type(slot)
        return pa.decimal256(WIDE, kind.scale) if is_decimal(kind) else kind

    @property
    def input_schema(self) -> pa.Schema:
        """What a batch must hold (other columns are ignored, other types are cast)."""
        own_groups = [name for name in self.groups if name in self._own_groups]
        slots = [*self.classes, *own_groups, *self._compared, *(m.slot for m in self.aggregates if m.alias is not None)]
        return pa.schema(
            [
                pa.field("side", pa.int8()),
                pa.field("event_us", pa.int64()),
                pa.field("arrival_us", pa.int64()),
                *self._sign,
                *(self.columns.field(slot) for slot in slots),
            ]
        )

    @property
    def _sign(self) -> tuple[pa.Field, ...]:
        return (pa.field(SIGN, pa.int8()),) if self.signed else ()

    def side_schema(self, index: int) -> pa.Schema:
        """The columns of a batch that one side owns: all that is held of its tuples."""
        side = self.sides[index]
        slots = [*side.classes, *side.groups, *side.compared, *(m.slot for m in self.measures_of(side.alias))]
        times = [pa.field("event_us", pa.int64()), pa.field("arrival_us", pa.int64()), *self._sign]
        return pa.schema([*times, *(self.columns.field(slot) for slot in slots)])

    @property
    def output_schema(self) -> pa.Schema:
        """The partial answers: one row per window and group that has pairs."""
        fields = [pa.field("window_index", pa.int64())]
        fields += [self.columns.field(key).with_name(slot) for slot, key in self.group_keys.items()]
        fields.append(pa.field("pairs", pa.int64()))
        for measure in self.aggregates:
            fields.append(pa.field(f"{measure.slot}_count", pa.int64()))
            for name, total in measure.sums:
                in_parts = self.in_parts or not total.rounded
                fields.append(pa.field(name, PARTS if in_parts else self.sum_type(measure.slot)))
            if measure.extreme is not None:
                name = f"{measure.slot}_{measure.extreme.name}"
                fields.append(pa.field(name, self.columns.field(measure.slot).type))
            if measure.slot in self.listed_slots:
                kind = values_type(self.columns.field(measure.slot).type)
                fields.append(pa.field(f"{measure.slot}_{VALUES}", kind))
            elif measure.called.of_ranks:
                kind = self.columns.field(measure.slot).type
                fields += [pa.field(f"{measure.slot}_{ranked(i)}", kind) for i in range(measure.called.of_ranks)]
            elif measure.by_value:
                fields.append(pa.field(f"{measure.slot}_{DISTINCT}", pa.int64()))
                kind = self.sum_type(measure.slot)
                fields += [pa.field(f"{measure.slot}_{total.name}", kind) for total in measure.called.of_distinct or ()]
        return pa.schema(fields)
