"""The HDS-Tree: an index in memory over the exact aggregates of history's leaves.

Leaves adjoin in time and stand on one level; every inner node is full except on the rightmost path, so the tree has the
least height for its leaves. A node's aggregates are those of its children.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Float64s = npt.NDArray[np.float64]
COUNT, SUM, MIN, MAX, SUM_SQUARES, MIN_TIME, MAX_TIME = range(7)
AGGREGATES = ("count", "sum", "min", "max", "sum_squares", "min_time", "max_time")
_NOTHING = np.array([0.0, 0.0, math.inf, -math.inf, 0.0, math.inf, math.inf])
_VALUE_BYTES = 8


@dataclass(frozen=True, eq=False)
class Totals:
    """Aggregates over some stretch of history.

    Args:
        tuples: exact number of tuples.
        values: float64[columns, 7]: count, sum, min, max, sum of squares of each numeric column, and when its least
            and its greatest value occur first (microseconds since 1970, which doubles hold exactly until 2255). Min and
            max of nothing are +inf and −inf; a time that is not known is +inf.
    """

    tuples: int
    values: Float64s

    @classmethod
    def empty(cls, columns: int) -> Totals:
        """The totals of no tuples."""
        return cls(0, np.tile(_NOTHING, (columns, 1)))

    def __add__(self, other: Totals) -> Totals:
        mine, theirs = self.values, other.values
        values = mine + theirs
        for extreme, at, better in ((MIN, MIN_TIME, np.less), (MAX, MAX_TIME, np.greater)):
            a, b = mine[:, extreme], theirs[:, extreme]
            values[:, extreme] = np.where(better(b, a), b, a)
            times = np.where(better(b, a), theirs[:, at], mine[:, at])
            values[:, at] = np.where(a == b, np.minimum(mine[:, at], theirs[:, at]), times)
        return Totals(self.tuples + other.tuples, values)

    def agrees_with(self, other: Totals) -> bool:
        """Equal counts and extremes, and sums equal up to rounding."""
        exact = [COUNT, MIN, MAX, MIN_TIME, MAX_TIME]
        scale = np.sqrt(np.maximum(self.values[:, SUM_SQUARES] * self.values[:, COUNT], 0.0))
        return (
            self.tuples == other.tuples
            and np.array_equal(self.values[:, exact], other.values[:, exact])
            and bool((np.abs(self.values[:, SUM] - other.values[:, SUM]) <= 1e-9 * (scale + 1e-300)).all())
            and np.allclose(self.values[:, SUM_SQUARES], other.values[:, SUM_SQUARES], rtol=1e-9, atol=0.0)
        )


def added_up(values: Float64s, group: npt.NDArray[np.int64], count: int) -> Float64s:
    """``Totals.values`` of many parts added up group by group: float64[count, columns, 7] from float64[n, columns, 7].

    Cost: O(n), vectorised.

    >>> parts = np.array([[[1, 3.0, 3, 3, 9, 50, 50]], [[2, 4.0, 1, 3, 10, 70, 40]]])
    >>> added_up(parts, np.array([0, 0]), 1)[0].tolist()
    [[3.0, 7.0, 1.0, 3.0, 19.0, 70.0, 40.0]]
    """
    found = np.tile(_NOTHING, (count, values.shape[1], 1))
    with np.errstate(over="ignore"):  # sums beyond the doubles are infinite
        for kind in (COUNT, SUM, SUM_SQUARES):
            np.add.at(found[:, :, kind], group, values[:, :, kind])
    for extreme, at, reach in ((MIN, MIN_TIME, np.minimum), (MAX, MAX_TIME, np.maximum)):
        reach.at(found[:, :, extreme], group, values[:, :, extreme])
        times = np.where(values[:, :, extreme] == found[group, :, extreme], values[:, :, at], math.inf)
        np.minimum.at(found[:, :, at], group, times)
    return found


@dataclass(eq=False)
class Leaf:
    """One leaf: the period [start_us, end_us), exact totals, the fraction and size of its sample and where that is."""

    start_us: int
    end_us: int
    totals: Totals
    fraction: float = 0.0
    sampled: int = 0
    locations: tuple[str, ...] = ()
    next: Leaf | None = None


@dataclass(eq=False)
class Inner:
    """One inner node: its children's totals and number of leaves; their starts, from the second on, are the keys."""

    children: list[Leaf | Inner]
    totals: Totals
    leaves: int
    keys_us: list[int]

    @property
    def start_us(self) -> int:
        """Start of the first child."""
        return self.children[0].start_us

    @property
    def end_us(self) -> int:
        """End of the last child."""
        return self.children[-1].end_us


@dataclass(frozen=True, eq=False)
class Covered:
    """What a scope covers: the totals of whole leaves, their number, and the at most two leaves that it cuts.

    ``cut`` holds each cut leaf with the share (covered length / length) of it that lies in the scope.
    """

    whole: Totals
    whole_leaves: int
    cut: tuple[tuple[Leaf, float], ...]

    @property
    def shared(self) -> Totals:
        """Whole leaves and the cut leaves' shares: counts and sums in proportion, extremes as bounds only.

        The number of tuples is rounded to the nearest whole.
        """
        totals, tuples = self.whole, float(self.whole.tuples)
        for leaf, share in self.cut:
            values = leaf.totals.values * np.array([share, share, 1.0, 1.0, share, 1.0, 1.0])
            totals, tuples = totals + Totals(0, values), tuples + share * leaf.totals.tuples
        return Totals(round(tuples), totals.values)


class HdsTree:
    """HDS-Tree with fan-out b over ordered, adjoining leaves.

    Cost: append O(log n); build and collapse O(n); query O(b · log n); space O(n).
    Guarantee: a query over leaf boundaries is exact (sums up to the rounding of doubles). Height is least possible.
    Source: papers/03, "HDS-Tree", with "Settled here": a new root's totals are those of both children (the printed step
    counts twice); collapsing merges complete subtrees only, C = b^(λ−1) leaves each, keeps the rest, and rebuilds the
    levels above; queries visit the last leaf too.

    >>> tree = HdsTree(3, ["x"])
    >>> for start in range(0, 40, 10):
    ...     tree.append(Leaf(start, start + 10, Totals(2, np.array([[2, 3.0, 1, 2, 5, 0, 0]]))))
    >>> tree.height, tree.query(10, 35).whole.tuples, tree.query(10, 35).shared.values[0, :2].tolist()
    (3, 4, [5.0, 7.5])
    """

    def __init__(self, fan_out: int, columns: Sequence[str]):
        if fan_out < 2:
            raise ValueError(f"fan_out must be at least 2, not {fan_out}")
        self.fan_out = fan_out
        self.columns = tuple(columns)
        self.root: Leaf | Inner | None = None
        self._first: Leaf | None = None
        self._last: Leaf | None = None
        self._count = 0
        self.height = 0

    def __len__(self) -> int:
        return self._count

    def leaves(self) -> Iterator[Leaf]:
        """The leaves in order of time."""
        leaf = self._first
        while leaf is not None:
            yield leaf
            leaf = leaf.next

    def append(self, leaf: Leaf) -> None:
        """Add a leaf at the right. It must begin where the newest ends; periods without tuples need an empty leaf."""
        self._chain(leaf)
        if self.root is None:
            self.root, self.height = leaf, 1
            return
        path: list[Inner] = []
        node = self.root
        while isinstance(node, Inner):
            path.append(node)
            node = node.children[-1]
        # The deepest node of the rightmost path that has room takes the leaf, below a chain of new nodes.
        depth = next((i for i in reversed(range(len(path))) if len(path[i].children) < self.fan_out), -1)
        child = self._tower(leaf, self.height - 2 - depth)
        if depth < 0:
            self.root = self._inner([self.root, child])
            self.height += 1
            return
        path[depth].children.append(child)
        path[depth].keys_us.append(leaf.start_us)
        for parent in path[: depth + 1]:
            parent.totals = parent.totals + leaf.totals
            parent.leaves += 1

    @classmethod
    def build(cls, fan_out: int, columns: Sequence[str], leaves: Iterable[Leaf]) -> HdsTree:
        """A tree over ordered, adjoining leaves, level by level; the same tree as by appending them."""
        tree = cls(fan_out, columns)
        level: list[Leaf | Inner] = []
        for leaf in leaves:
            leaf.next = None
            tree._chain(leaf)
            level.append(leaf)
        values = np.array([node.totals.values for node in level])
        while level:
            tree.height += 1
            if len(level) == 1:
                tree.root = level[0]
                break
            # A whole level at once: numpy takes as long for one small array as for a hundred.
            parts = [level[i : i + fan_out] for i in range(0, len(level), fan_out)]
            values = added_up(values, np.arange(len(level)) // fan_out, len(parts))
            totals = (Totals(sum(n.totals.tuples for n in part), own) for part, own in zip(parts, values, strict=True))
            level = [_node(part, own) for part, own in zip(parts, totals, strict=True)]
        return tree

    def query(self, start_us: int, end_us: int) -> Covered:
        """Aggregates over event times in [start_us, end_us), top down: whole nodes give theirs, cut leaves a share."""
        whole, whole_leaves = Totals.empty(len(self.columns)), 0
        cut: list[tuple[Leaf, float]] = []
        todo: list[Leaf | Inner] = [] if self.root is None or end_us <= start_us else [self.root]
        while todo:
            node = todo.pop()
            if node.end_us <= start_us or end_us <= node.start_us:
                continue
            if start_us <= node.start_us and node.end_us <= end_us:
                whole, whole_leaves = whole + node.totals, whole_leaves + _leaf_count(node)
            elif isinstance(node, Leaf):
                covered = min(end_us, node.end_us) - max(start_us, node.start_us)
                cut.append((node, covered / (node.end_us - node.start_us)))
            else:
                todo.extend(reversed(node.children))
        return Covered(whole, whole_leaves, tuple(cut))

    def collapse(self, levels: int, fraction: Callable[[Sequence[Leaf]], float]) -> HdsTree:
        """The tree after every complete subtree of height λ became one leaf.

        Args:
            levels: λ ≥ 1; runs of C = b^(λ−1) leaves merge, λ = 1 thins each leaf in place.
            fraction: target fraction of a run; the merged leaf takes min(target, its members' fractions). ``sampled``
                of the result is what the members held: whoever thins the samples (u < fraction) counts them.
        """
        if levels < 1:
            raise ValueError(f"levels (λ) must be at least 1, not {levels}")
        run = self.fan_out ** (levels - 1)
        leaves = list(self.leaves())
        complete = len(leaves) // run * run
        merged = [_merged(leaves[i : i + run], fraction) for i in range(0, complete, run)]
        return HdsTree.build(self.fan_out, self.columns, [*merged, *leaves[complete:]])

    @property
    def nbytes(self) -> int:
        """Bytes of the values that the tree holds: S_leaf for each leaf and S_node for each inner node."""
        inner, level = 0, self._count
        while level > 1:
            level = -(-level // self.fan_out)
            inner += level
        return self._count * leaf_bytes(len(self.columns)) + inner * node_bytes(self.fan_out, len(self.columns))

    def check(self) -> None:
        """AssertionError unless every invariant holds."""
        if self.root is None:
            assert self._count == self.height == 0 and self._first is None and self._last is None
            return
        found: list[Leaf] = []
        self._check_node(self.root, 1, rightmost=True, found=found)
        chained = list(self.leaves())
        assert len(found) == len(chained) == self._count, "leaves are chained once each"
        assert all(a is b for a, b in zip(found, chained, strict=True)), "the chain is in order of time"
        assert chained[-1] is self._last and self._first is chained[0]
        for left, right in zip(chained, chained[1:], strict=False):
            assert left.end_us == right.start_us, "adjacent leaves adjoin"
        least = 1
        while self.fan_out ** (least - 1) < self._count:
            least += 1
        assert self.height == least, f"height {self.height} is not the least, {least}"

    def _check_node(self, node: Leaf | Inner, depth: int, rightmost: bool, found: list[Leaf]) -> None:
        if isinstance(node, Leaf):
            assert depth == self.height, "all leaves are on one level"
            assert node.start_us < node.end_us and 0.0 <= node.fraction <= 1.0 and node.totals.tuples >= 0
            found.append(node)
            return
        assert 1 <= len(node.children) <= self.fan_out
        assert rightmost or len(node.children) == self.fan_out, "inner nodes off the rightmost path are full"
        assert node.keys_us == [c.start_us for c in node.children[1:]], "keys split the period"
        totals = Totals.empty(len(self.columns))
        for child in node.children:
            totals = totals + child.totals
        assert totals.agrees_with(node.totals), "a node's totals are its children's"
        assert node.leaves == sum(_leaf_count(child) for child in node.children)
        for child in node.children:
            self._check_node(child, depth + 1, rightmost and child is node.children[-1], found)

    def to_arrow(self) -> pa.Table:
        """The leaves as Arrow; ``from_arrow`` makes the same tree of them."""
        leaves = list(self.leaves())
        values = np.array([leaf.totals.values for leaf in leaves]).reshape(
            len(leaves), len(self.columns), len(AGGREGATES)
        )
        columns = {
            "start_us": pa.array([leaf.start_us for leaf in leaves], pa.int64()),
            "end_us": pa.array([leaf.end_us for leaf in leaves], pa.int64()),
            "tuples": pa.array([leaf.totals.tuples for leaf in leaves], pa.int64()),
            "sampled": pa.array([leaf.sampled for leaf in leaves], pa.int64()),
            "fraction": pa.array([leaf.fraction for leaf in leaves], pa.float64()),
            "locations": pa.array([list(leaf.locations) for leaf in leaves], pa.list_(pa.string())),
        }
        for c, name in enumerate(self.columns):
            for a, aggregate in enumerate(AGGREGATES):
                columns[f"{name}_{aggregate}"] = pa.array(values[:, c, a])
        return pa.table(columns).replace_schema_metadata(
            {"fan_out": str(self.fan_out), "columns": "\n".join(self.columns)}
        )

    @classmethod
    def from_arrow(cls, table: pa.Table) -> HdsTree:
        """The tree that ``to_arrow`` wrote."""
        metadata = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}
        columns = metadata["columns"].split("\n") if metadata["columns"] else []
        names = [f"{c}_{a}" for c in columns for a in AGGREGATES]
        values = np.column_stack([table.column(n).to_numpy() for n in names]) if names else np.empty((len(table), 0))
        plain = table.select(["start_us", "end_us", "tuples", "sampled", "fraction", "locations"]).to_pylist()
        leaves = [
            Leaf(
                row["start_us"],
                row["end_us"],
                Totals(row["tuples"], values[i].reshape(len(columns), len(AGGREGATES)).copy()),
                row["fraction"],
                row["sampled"],
                tuple(row["locations"]),
            )
            for i, row in enumerate(plain)
        ]
        return cls.build(int(metadata["fan_out"]), columns, leaves)

    def _chain(self, leaf: Leaf) -> None:
        if leaf.end_us <= leaf.start_us:
            raise ValueError(f"leaf [{leaf.start_us}, {leaf.end_us}) is empty or reversed")
        if self._last is not None:
            if leaf.start_us != self._last.end_us:
                raise ValueError(f"leaf begins at {leaf.start_us}, but the newest ends at {self._last.end_us}")
            self._last.next = leaf
        else:
            self._first = leaf
        self._last = leaf
        self._count += 1

    def _inner(self, children: list[Leaf | Inner]) -> Inner:
        totals = children[0].totals
        for child in children[1:]:
            totals = totals + child.totals
        return _node(children, totals)

    def _tower(self, leaf: Leaf, levels: int) -> Leaf | Inner:
        node: Leaf | Inner = leaf
        for _ in range(levels):
            node = self._inner([node])
        return node


def leaf_bytes(columns: int) -> int:
    """S_leaf: the aggregates, tuples, fraction, sampled, location, start, end, next."""
    return _VALUE_BYTES * (len(AGGREGATES) * columns + 7)


def node_bytes(fan_out: int, columns: int) -> int:
    """S_node: the aggregates, tuples, b − 1 keys and b children."""
    return _VALUE_BYTES * (len(AGGREGATES) * columns + 1 + 2 * fan_out - 1)


def height_bound(memory_bytes: float, fan_out: int, s_node_bytes: float, s_leaf_bytes: float) -> float:
    """Theorem 5: the greatest height (levels, leaves included) at which a full tree fits the memory.

    >>> height_bound(4 * 80 + 1 * 100, 4, 100, 80)
    2.0
    """
    leaves = ((fan_out - 1) * memory_bytes + s_node_bytes) / (s_node_bytes + s_leaf_bytes * (fan_out - 1))
    return 1 + math.log(leaves, fan_out)


def _node(children: list[Leaf | Inner], totals: Totals) -> Inner:
    return Inner(children, totals, sum(_leaf_count(c) for c in children), [c.start_us for c in children[1:]])


def _leaf_count(node: Leaf | Inner) -> int:
    return 1 if isinstance(node, Leaf) else node.leaves


def _merged(members: Sequence[Leaf], fraction: Callable[[Sequence[Leaf]], float]) -> Leaf:
    totals = members[0].totals
    for member in members[1:]:
        totals = totals + member.totals
    return Leaf(
        members[0].start_us,
        members[-1].end_us,
        totals,
        min(fraction(members), *(member.fraction for member in members)),
        sum(member.sampled for member in members),
        tuple(dict.fromkeys(place for member in members for place in member.locations)),
    )
