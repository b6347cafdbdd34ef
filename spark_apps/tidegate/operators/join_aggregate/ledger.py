"""How many bytes the held tuples take, window by window, in a layout that depends on neither batches nor codes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.arrivals import is_text, layout_bytes
from tidegate.operators.join_aggregate.chains import rank
from tidegate.operators.join_aggregate.combinations import Combinations
from tidegate.operators.join_aggregate.held import Held
from tidegate.operators.join_aggregate.spec import Spec
from tidegate.operators.join_aggregate.tuples import Books, Tuples, held_schema
from tidegate.operators.schedule import Int64s


def bytes_held(spec: Spec, side: int, tuples: Tuples, books: Books, combinations: Combinations) -> int:
    """Bytes of some tuples of a side."""
    text = _TextLengths(spec, side, books, combinations)
    return layout_bytes(held_schema(spec, side), len(tuples), text.total(tuples))


def bytes_by_window(
    spec: Spec,
    side: int,
    held: Held,
    books: Books,
    combinations: Combinations,
    emit_us: Int64s,
    needed_from_us: Int64s,
    left: Callable[[Tuples], Int64s] | None = None,
) -> Int64s:
    """Bytes of a side's tuples at each window: those that arrived before its answer and are needed by it or later.

    What arrives at the very instant of an answer is in it, but is not yet held: the plan of that instant says what of
    it stays.

    Args:
        spec: the query.
        side: the side's number.
        held: the tuples that the window before the first one left, and what has come since.
        books: slot → its values.
        combinations: what the tuples' codes stand for.
        emit_us: int64[n], the windows' instants.
        needed_from_us: int64[n], ascending; a tuple before it is no longer needed.
        left: for a part the first window that needs a tuple no longer, n or more for none, if that is known.

    Returns:
        int64[n], by ``layout_bytes``.

    **Cost**: O(young tuples + tuples in parts that begin to leave + windows); with strings O(tuples).
    """
    text = _TextLengths(spec, side, books, combinations)
    windows = len(emit_us)
    rows, letters = np.zeros(windows, dtype=np.int64), np.zeros(windows, dtype=np.int64)
    for part in held.old:
        rows[0] += len(part)
        letters[0] += text.total(part)
    apart = bool((np.diff(emit_us) > 0).all())
    for part in held.young:
        cuts = np.searchsorted(part.arrival_us, emit_us, side="left")
        rows += np.diff(cuts, prepend=0)
        if text.any:
            running = np.concatenate(([0], np.cumsum(text.each(part))))
            letters += np.diff(running[cuts], prepend=0)
    for part in held.parts:
        if part.earliest_us < needed_from_us[-1]:
            if part.in_order and not text.any and apart:
                rows -= np.diff(np.searchsorted(part.event_us, needed_from_us), prepend=0)
                continue
            leaves = rank(needed_from_us, part.event_us) if left is None else left(part)
            if not apart:
                # Of several windows of one instant the last one may need it no longer.
                leaves = np.maximum(leaves, np.searchsorted(emit_us, part.arrival_us, side="right"))
            rows -= np.bincount(leaves, minlength=windows)[:windows]
            if text.any:
                gone = np.bincount(leaves, text.each(part), windows)
                letters -= gone[:windows].astype(np.int64)
    return layout_bytes(held_schema(spec, side), np.cumsum(rows), np.cumsum(letters))


class _TextLengths:
    """Bytes of the strings that a tuple has."""

    def __init__(self, spec: Spec, side: int, books: Books, combinations: Combinations) -> None:
        names = [field.name for field in held_schema(spec, side) if is_text(field.type)]
        self.any = bool(names)
        self._combinations = combinations
        self._lengths = {
            name: np.append(pc.binary_length(books[name].values).cast(pa.int64()).to_numpy(zero_copy_only=False), 0)
            for name in names
        }

    def each(self, part: Tuples) -> Int64s:
        total = np.zeros(len(part), dtype=np.int64)
        codes = self._combinations.slot_codes(part.code)
        for name, lengths in self._lengths.items():
            if name in codes:
                total += lengths[codes[name]]
            elif name in part.nulls:
                total += np.where(part.nulls[name], 0, lengths[part.values[name]])
            else:
                total += lengths[part.values[name]]
        return total

    def total(self, part: Tuples) -> int:
        return int(self.each(part).sum()) if self.any else 0
