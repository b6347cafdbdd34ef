"""Ids that come again, found by 64-bit hashes; exact, because the few whose hashes agree are compared themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)


def hashes(ids: pa.StringArray) -> Hashes:
    """A 64-bit hash of each id, uint64[n]; the same on every machine and in every version.

    Not for ids whose authors mean harm: hashes that agree only cost time. **Cost**: O(octets), some tens of
    nanoseconds an id. **Source**: the finaliser of MurmurHash3 over words of eight octets.

    >>> len(set(hashes(pa.array(["a", "b", "", "a"])).tolist()))
    3
    """
    if not len(ids):
        return np.empty(0, np.uint64)
    _, places, content = ids.buffers()
    offsets = np.frombuffer(places, np.int32)[ids.offset : ids.offset + len(ids) + 1].astype(np.int64)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    octets = np.frombuffer(content or b"", np.uint8)[offsets[0] : offsets[-1]]
    padded = np.concatenate([octets, np.zeros(8, np.uint8)])
    words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded.data, strides=(1,))
    found = lengths.astype(np.uint64) * _ODD
    for at in range(0, int(lengths.max()), 8):
        left = lengths - at
        there = left > 0
        # An id that ends before reads the word at its own end, of which nothing is kept.
        word = words[np.where(there, starts + at, 0)] & _MASKS[np.clip(left, 0, 8)]
        mixed = (found ^ word) * _MIX[0]
        found = np.where(there, mixed ^ (mixed >> np.uint64(32)), found)
    found ^= found >> np.uint64(33)
    found *= _MIX[1]
    return found ^ (found >> np.uint64(29))


def suspects(new: Hashes, past: Iterable[Hashes]) -> tuple[npt.NDArray[np.int64], Hashes]:
    """Which of the new hashes come more than once, among themselves or in the past: their places, ascending.

    Also the hashes, each once, that are in the past. ``past``: read one after the other, and not kept.
    **Cost**: a sort of the new ones; some nanoseconds for each of the past.
    """
    if not len(new):
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    ranked = np.sort(new)
    same = ranked[1:][ranked[1:] == ranked[:-1]]
    # Most of the past is told apart by a few bits.
    bits = np.uint64((1 << max(len(new) * 8 - 1, 1).bit_length()) - 1)
    table = np.zeros(int(bits) + 1, dtype=bool)
    table[(new & bits).astype(np.int64)] = True
    met: list[Hashes] = [np.empty(0, np.uint64)]
    for one in past:
        likely = one[table[(one & bits).astype(np.int64)]]
        place = np.searchsorted(ranked, likely)
        met.append(likely[ranked[np.minimum(place, len(ranked) - 1)] == likely])
    known = np.unique(np.concatenate(met))
    asked = np.union1d(same, known)
    if not len(asked):
        return np.empty(0, np.int64), known
    place = np.searchsorted(asked, new)
    return np.flatnonzero(asked[np.minimum(place, len(asked) - 1)] == new), known


Turn = tuple[Any, ...]
"""What orders a stream's tuples: arrival (microseconds), then for files event time, name and position, and for what has
landed batch, partition and position."""


def repeated(
    ids: Sequence[str],
    turns: Sequence[Turn],
    last_us: Mapping[str, int],
    length_us: int,
    memory_us: int,
) -> list[int]:
    """Places of the tuples that are refused: an accepted one bore their id that arrived in the last ``memory_us``.

    The first to arrive is accepted. The bound keeps the memory of ids finite; it counts whole intervals, so that a run
    over many decides as many runs of one would.

    Args:
        ids: of each tuple.
        turns: of each tuple: its arrival (microseconds), and what orders those of the same arrival.
        last_us: id → start of the interval in which it was last accepted before all of these.
        length_us: of an interval.
        memory_us: a multiple of ``length_us``.

    >>> repeated(["a", "a", "b"], [(5, 5, "f", 0), (3, 3, "f", 1), (4, 4, "f", 2)], {"b": 0}, 10, 10)
    [2, 0]
    """
    by_id: dict[str, list[int]] = defaultdict(list)
    for place, id_ in enumerate(ids):
        by_id[id_].append(place)
    refused = []
    for id_ in sorted(by_id, reverse=True):
        last = last_us.get(id_)
        for place in sorted(by_id[id_], key=turns.__getitem__):
            begin_us = turns[place][0] // length_us * length_us
            if last is None or last < begin_us - memory_us:
                last = begin_us
            else:
                refused.append(place)
    return refused
