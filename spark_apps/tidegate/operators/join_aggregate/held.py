"""The tuples that windows still to answer can need: taken in, grown old, forgotten, and given new codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidegate.operators.join_aggregate.combinations import Combinations
from tidegate.operators.join_aggregate.tuples import AllCombinations, Books, Tuples, together
from tidegate.operators.schedule import Int64s

# Smaller parts are put together, so that a long window of small batches is not a long list.
SMALL_PART_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Held:
    """The tuples of one side, in parts that stay as they came until all of a part is of no use.

    Args:
        young: parts of which some chain's last window has not seen every tuple.
        old: the other parts.
    """

    young: tuple[Tuples, ...] = ()
    old: tuple[Tuples, ...] = ()

    @property
    def parts(self) -> tuple[Tuples, ...]:
        """All of the tuples."""
        return (*self.old, *self.young)

    def __len__(self) -> int:
        """Count the tuples, those of no use among them."""
        return sum(map(len, self.parts))

    def with_fresh(self, part: Tuples) -> Held:
        """With what has come."""
        return Held((*self.young, part), self.old) if len(part) else self

    def aged(self, emit_us: int, end_us: int) -> Held:
        """With the parts among the old that a window of such an instant and end has seen all of, and no others."""
        old: list[Tuples] = []
        young: list[Tuples] = []
        for part in self.parts:  # a new chain may have seen less than the others, so old parts become young again
            if part.arrival_us[-1] > emit_us or part.latest_us >= end_us:
                young.append(part)
            elif old and len(old[-1]) < SMALL_PART_ROWS and old[-1].arrival_us[-1] <= part.arrival_us[0]:
                old[-1] = together([old[-1], part])
            else:
                old.append(part)
        return Held(tuple(young), tuple(old))

    def without_before(self, needed_from_us: int) -> Held:
        """Without the parts of which no window needs anything any more."""
        return Held(
            tuple(part for part in self.young if part.latest_us >= needed_from_us),
            tuple(part for part in self.old if part.latest_us >= needed_from_us),
        )

    def needed(self, needed_from_us: int) -> Tuples | None:
        """The tuples that are still of use, in order of arrival; None if there are no parts."""
        if not self.parts:
            return None
        every = together(self.parts)
        every = every[np.flatnonzero(every.event_us >= needed_from_us)]
        return every[np.argsort(every.arrival_us, kind="stable")]

    def anew(self, needed_from_us: int) -> Held:
        """The tuples that are still of use as one young part."""
        every = self.needed(needed_from_us)
        return Held((every,) if every is not None and len(every) else ())


def without_the_late(fresh: Tuples, emit_us: Int64s, needed_from_us: Int64s, spans_us: tuple[Int64s, Int64s]) -> Tuples:
    """The fresh tuples that a window answered at or after their arrival can need.

    Args:
        fresh: in order of arrival.
        emit_us: int64[n], instants of the windows to answer.
        needed_from_us: int64[n + 1], from ``Schedule.needed_from_us`` for them.
        spans_us: from ``Schedule.spans_us`` for them and any windows before.
    """
    cuts = np.searchsorted(fresh.arrival_us, emit_us, side="right")
    arrivals = np.diff(cuts, prepend=0, append=len(fresh))
    needed = fresh.event_us >= np.repeat(needed_from_us, arrivals)
    begin_us, end_us = spans_us
    if len(begin_us) > 1:
        span = np.searchsorted(begin_us, fresh.event_us, side="right") - 1
        needed &= (span >= 0) & (fresh.event_us < end_us[span])
    return fresh if needed.all() else fresh[np.flatnonzero(needed)]


def renamed(
    held: Sequence[Held], slots_of: Sequence[tuple[str, ...]], books: Books, combinations: AllCombinations
) -> tuple[list[Held], Books, AllCombinations, list[Int64s], dict[str, Int64s]]:
    """The same tuples under new codes, with only the values in the books that a tuple has.

    Args:
        held: per side its tuples.
        slots_of: per side the slots that its codes are combinations of.
        books: slot → its values.
        combinations: slots → theirs.

    Returns:
        The tuples, the books, the combinations, per side old code → new code (−1 for codes without tuples), and the
        same per slot for the codes of its values.
    """
    codes_in: dict[tuple[str, ...], list[Int64s]] = {slots: [_NO_CODES] for slots in combinations}
    values_in: dict[str, list[Int64s]] = {slot: [_NO_CODES] for slot in books}
    for side, slots in zip(held, slots_of, strict=True):
        for part in side.parts:
            codes_in[slots].append(part.code)
            for slot in values_in.keys() & part.values.keys():
                values_in[slot].append(part.values[slot])
    used = {}
    for slots, codes_of_parts in codes_in.items():
        seen = np.zeros(combinations[slots].count(books), dtype=bool)
        for codes in codes_of_parts:
            seen[codes] = True
        used[slots] = np.flatnonzero(seen)
    slot_codes = {slots: combinations[slots].slot_codes(codes) for slots, codes in used.items()}
    for codes_of_slots in slot_codes.values():
        for slot, codes in codes_of_slots.items():
            values_in[slot].append(codes)
    fewer_books, renames = {}, {}
    for slot, book in books.items():
        fewer_books[slot], renames[slot] = book.keeping(np.concatenate(values_in[slot]))
    fewer: AllCombinations = {}
    code_of = {}
    for slots, codes in used.items():
        own = [renames[slot][slot_codes[slots][slot]] for slot in slots]
        fewer[slots], new = Combinations.empty(slots).encode(own, len(codes))
        code_of[slots] = np.full(combinations[slots].count(books), -1, dtype=np.int64)
        code_of[slots][codes] = new

    def moved(part: Tuples, slots: tuple[str, ...]) -> Tuples:
        values = {
            slot: column if slot not in renames else renames[slot][column] for slot, column in part.values.items()
        }
        return replace(part, code=code_of[slots][part.code], values=values)

    result = [
        Held(tuple(moved(part, slots) for part in side.young), tuple(moved(part, slots) for part in side.old))
        for side, slots in zip(held, slots_of, strict=True)
    ]
    return result, fewer_books, fewer, [code_of[slots] for slots in slots_of], renames


_NO_CODES = np.zeros(0, dtype=np.int64)
