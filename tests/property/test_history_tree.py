"""The HDS-Tree against a plain list of leaves, after any sequence of operations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from tidegate.operators.history.tree import (
    MAX,
    MIN,
    HdsTree,
    Leaf,
    Totals,
    height_bound,
    leaf_bytes,
    node_bytes,
)


def leaf_of(start_us: int, length_us: int, values: list[float], fraction: float = 1.0) -> Leaf:
    """A leaf of one column that holds these values."""
    x = np.array(values, dtype=np.float64)
    # The k-th value occurs k microseconds after the start.
    at = [start_us + int(pick(x)) if len(x) else math.inf for pick in (np.argmin, np.argmax)]
    totals = np.array([[len(x), x.sum(), x.min(initial=math.inf), x.max(initial=-math.inf), (x**2).sum(), *at]])
    return Leaf(start_us, start_us + length_us, Totals(len(values), totals), fraction, len(values), (str(start_us),))


values_of = st.lists(st.integers(-100, 100).map(float), max_size=4)


class TreeMachine(RuleBasedStateMachine):
    """Appends, collapses, saves and loads; the model is the list of what every leaf holds."""

    @initialize(fan_out=st.integers(2, 5))
    def start(self, fan_out: int) -> None:
        self.tree = HdsTree(fan_out, ["x"])
        self.model: list[tuple[int, int, list[float]]] = []

    @rule(leaves=st.lists(st.tuples(st.integers(1, 9), values_of), min_size=1, max_size=12))
    def append(self, leaves: list[tuple[int, list[float]]]) -> None:
        for length, values in leaves:
            start = self.model[-1][1] if self.model else -7
            self.tree.append(leaf_of(start, length, values))
            self.model.append((start, start + length, values))

    @rule(levels=st.integers(1, 3), wanted=st.floats(0, 1))
    def collapse(self, levels: int, wanted: float) -> None:
        before = [leaf.fraction for leaf in self.tree.leaves()]
        run = self.tree.fan_out ** (levels - 1)
        self.tree = self.tree.collapse(levels, lambda members: wanted)
        complete = len(self.model) // run * run
        merged = [self.model[i : i + run] for i in range(0, complete, run)]
        rest = self.model[complete:]
        fractions = [min(wanted, *before[i : i + run], 1.0) for i in range(0, complete, run)] + before[complete:]
        self.model = [(m[0][0], m[-1][1], [v for part in m for v in part[2]]) for m in merged] + rest
        assert [leaf.fraction for leaf in self.tree.leaves()] == fractions

    @rule()
    def save_and_load(self) -> None:
        saved = self.tree.to_arrow()
        self.tree = HdsTree.from_arrow(saved)
        assert self.tree.to_arrow().equals(saved)

    @rule()
    def build_anew(self) -> None:
        self.tree = HdsTree.build(self.tree.fan_out, ["x"], list(self.tree.leaves()))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def query(self, data: st.DataObject) -> None:
        start, end = sorted(data.draw(st.lists(st.integers(-10, self.model[-1][1] + 3), min_size=2, max_size=2)))
        covered = self.tree.query(start, end)
        whole = [m for m in self.model if start <= m[0] and m[1] <= end]
        cut = [m for m in self.model if m not in whole and m[0] < end and start < m[1] and start < end]
        assert covered.whole_leaves == len(whole)
        values = [v for m in whole for v in m[2]]
        assert covered.whole.tuples == len(values)
        expected = [len(values), sum(values), min(values, default=math.inf), max(values, default=-math.inf)]
        assert covered.whole.values[0, :4].tolist() == expected
        assert len(cut) <= 2 and [leaf.start_us for leaf, _ in covered.cut] == [m[0] for m in cut]
        for (_, share), m in zip(covered.cut, cut, strict=True):
            assert share == pytest.approx((min(end, m[1]) - max(start, m[0])) / (m[1] - m[0]))
        # A cut leaf's extreme bounds that of the tuples inside.
        reach = [v for m in whole + cut for v in m[2]]
        assert covered.shared.values[0, MIN] == min(reach, default=math.inf)
        assert covered.shared.values[0, MAX] == max(reach, default=-math.inf)

    @invariant()
    def every_invariant_holds(self) -> None:
        self.tree.check()
        assert len(self.tree) == len(self.model)


TreeMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
TestTree = TreeMachine.TestCase


@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 8))
def test_theorem_5_bounds_the_height_of_full_trees(fan_out: int, height: int, columns: int) -> None:
    leaves = fan_out ** (height - 1)
    inner = (leaves - 1) // (fan_out - 1)
    memory = leaves * leaf_bytes(columns) + inner * node_bytes(fan_out, columns)
    bound = height_bound(memory, fan_out, node_bytes(fan_out, columns), leaf_bytes(columns))
    assert bound == pytest.approx(height)


def test_a_tree_says_how_many_bytes_it_holds() -> None:
    tree = HdsTree(3, ["x"])
    for i in range(10):
        tree.append(leaf_of(i, 1, [1.0]))
    # 10 leaves, then 4, 2 and 1 inner nodes.
    assert tree.nbytes == 10 * leaf_bytes(1) + 7 * node_bytes(3, 1)


def test_appending_and_building_make_the_same_tree() -> None:
    def shape(node: object) -> object:
        return [shape(c) for c in node.children] if hasattr(node, "children") else node.start_us  # type: ignore[attr-defined]

    appended = HdsTree(3, ["x"])
    for count in range(1, 60):
        appended.append(leaf_of(count, 1, [float(count)]))
        built = HdsTree.build(3, ["x"], [leaf_of(i, 1, [float(i)]) for i in range(1, count + 1)])
        assert shape(appended.root) == shape(built.root)


@pytest.mark.parametrize("start_us", [5, 11])
def test_leaves_must_adjoin(start_us: int) -> None:
    tree = HdsTree(2, ["x"])
    tree.append(leaf_of(0, 10, []))
    with pytest.raises(ValueError, match="begins at"):
        tree.append(leaf_of(start_us, 5, []))


def test_check_notices_a_wrong_aggregate() -> None:
    tree = HdsTree.build(2, ["x"], [leaf_of(i, 1, [float(i)]) for i in range(5)])
    next(iter(tree.leaves())).totals.values[0, 1] += 1
    with pytest.raises(AssertionError, match="totals"):
        tree.check()


def test_an_empty_tree_answers_nothing() -> None:
    tree = HdsTree(4, ["x"])
    tree.check()
    assert tree.query(0, 10).whole.tuples == 0 and tree.query(0, 10).cut == ()
    assert HdsTree.from_arrow(tree.to_arrow()).height == 0
