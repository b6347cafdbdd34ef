"""What the published algorithms keep, with every access counted: hashed windows, and the list of groups."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from infra.research.published.join_aggregate.query import Arrival, Group

# Section 3.1: a tuple has 18 bytes; of a join result PC keeps the id and the time stamp, 4 bytes. Eq. 7: an int of 4.
TUPLE_BYTES, RESULT_BYTES, COUNTER_BYTES = 18, 4, 4


@dataclass(slots=True)
class Touched:
    """How often an item was accessed; unlike time, this does not depend on the machine.

    ``written``: tuples and join results inserted. ``scanned``: looked at to find what has expired. ``probed``: looked
    at in a hash bucket. ``nested``: pairs of expired tuples compared. ``summed``: counters and join results read to
    answer. ``listed``: nodes of the list of groups passed.
    """

    written: int = 0
    scanned: int = 0
    probed: int = 0
    nested: int = 0
    summed: int = 0
    listed: int = 0

    @property
    def total(self) -> int:
        """All accesses."""
        return sum(getattr(self, one.name) for one in fields(self))


@dataclass(slots=True, eq=False)
class Item:
    """A tuple held, with the counters that TC gives it; ``expires_us``: the instant from which it is in no answer.

    ``pairs``, ``total``: the paper's CV, as a count and as a sum. ``extreme``: its MV. ``by_group``: the CV of GTC.
    """

    side: int
    event_us: int
    expires_us: int
    key: Hashable
    value: Any
    group: Hashable
    pairs: int = 0
    total: int = 0
    extreme: Any = None
    by_group: dict[Group, list[int]] = field(default_factory=dict)


class HashedWindow:
    """A window's tuples in M buckets by join key. At time t it holds the event times in (t − width, t]."""

    def __init__(self, side: int, width_us: int, buckets: int, touched: Touched) -> None:
        self.side = side
        self.width_us = width_us
        self._buckets: list[list[Item]] = [[] for _ in range(buckets)]
        self._touched = touched
        self._length = 0

    def __len__(self) -> int:
        """Count the tuples held."""
        return self._length

    def __iter__(self) -> Iterator[Item]:
        """Go over the tuples bucket by bucket; whoever does counts the accesses."""
        for bucket in self._buckets:
            yield from bucket

    def insert(self, arrival: Arrival) -> Item:
        """Hold a tuple, under the key None if it joins nothing."""
        key = arrival.key
        if isinstance(key, tuple) and None in key:
            key = None
        expires_us = arrival.event_us + self.width_us
        item = Item(self.side, arrival.event_us, expires_us, key, arrival.value, arrival.group)
        self._buckets[self._bucket(key)].append(item)
        self._length += 1
        self._touched.written += 1
        return item

    def expire(self, now_us: int) -> list[Item]:
        """Remove and return what is older than the window, by a scan of all of it as published."""
        self._touched.scanned += self._length
        upto_us = now_us - self.width_us
        expired: list[Item] = []
        for index, bucket in enumerate(self._buckets):
            kept = [item for item in bucket if item.event_us > upto_us]
            if len(kept) < len(bucket):
                expired += [item for item in bucket if item.event_us <= upto_us]
                self._buckets[index] = kept
        self._length -= len(expired)
        return expired

    def probe(self, key: Hashable) -> list[Item]:
        """The tuples with that key, by a scan of its bucket; NULL finds nothing."""
        if key is None:
            return []
        bucket = self._buckets[self._bucket(key)]
        self._touched.probed += len(bucket)
        return [item for item in bucket if item.key == key]

    def _bucket(self, key: Hashable) -> int:
        return 0 if key is None else hash(key) % len(self._buckets)


class GroupList:
    """The paper's ``Glist``: a linked list of groups with their counts, searched from its head."""

    def __init__(self, touched: Touched) -> None:
        self.nodes: list[tuple[Group, list[int]]] = []
        self._touched = touched

    def add(self, group: Group, pairs: int, total: int) -> None:
        """Add to a group's count and sum; a group without pairs leaves the list."""
        for passed, (known, sums) in enumerate(self.nodes):
            if known == group:
                self._touched.listed += passed + 1
                sums[0] += pairs
                sums[1] += total
                if sums[0] == 0:
                    del self.nodes[passed]
                return
        self._touched.listed += len(self.nodes)
        self._touched.written += 1
        self.nodes.append((group, [pairs, total]))


def group_of(groups: Sequence[int], one: Item, other: Item) -> Group:
    """The group of the pair of two tuples."""
    return tuple(one.group if side == one.side else other.group for side in groups)
