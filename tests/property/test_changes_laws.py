"""Rows that have changed, and keys that have left, on top of the first state give every state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.operators.changes import changes

VALUES = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")])
STATES = st.lists(st.dictionaries(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2)), VALUES), max_size=5)


def same(value: float | None) -> str:
    return repr(value + 0.0 if value is not None else None)


@given(st.lists(STATES, max_size=3), st.randoms(use_true_random=False))
@settings(max_examples=examples(200), deadline=None)
def test_what_changed_and_what_left_give_every_state(windows, random):
    """Several windows, each with its states, whose rows come in any order."""
    number, rows, before, after = 0, [], [], []
    for states in windows:
        for place, state in enumerate(states):
            before.append(number - 1 if place else -1)
            after.append(number + 1 if place < len(states) - 1 else -1)
            rows += [(number, *key, value) for key, value in state.items()]
            number += 1
    random.shuffle(rows)
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = (pa.int64(), pa.string(), pa.int64(), pa.float64())
    state, *content = (pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True))
    table = pa.table(content, names=["k", "m", "v"])
    numbers = (np.array(links, dtype=np.int64) for links in (before, after))
    new, left, left_in = changes(table, ["k", "m"], state.to_numpy(), *numbers)
    replayed: list[dict[tuple[str | None, int], str]] = []
    for number, earlier in enumerate(before):
        current = dict(replayed[earlier]) if earlier >= 0 else {}
        for row in left[left_in == number].tolist():
            del current[rows[row][1:3]]
        for row in new.tolist():
            if rows[row][0] == number:
                assert current.get(rows[row][1:3]) != same(rows[row][3])
                current[rows[row][1:3]] = same(rows[row][3])
        replayed.append(current)
    expected = [{key: same(value) for key, value in state.items()} for states in windows for state in states]
    assert replayed == expected
