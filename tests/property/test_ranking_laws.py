"""The value of a rank, at any window, is the one that stands there in the list of all values."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.operators.join_aggregate import ranking
from tidegate.operators.join_aggregate.ranking import Ranking


def int64s(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


@given(st.data(), st.integers(1, 5), st.integers(1, 9), st.integers(1, 20), st.sampled_from([1, 7, 60, ranking.BATCH]))
def test_ranks_are_those_of_the_sorted_values(data: st.DataObject, groups: int, windows: int, values: int, batch: int):
    pairs = data.draw(st.permutations([(group, value) for group in range(groups) for value in range(values)]))
    pairs = pairs[: data.draw(st.integers(1, len(pairs)))]
    numbers = {pair: data.draw(st.lists(st.integers(0, 3), min_size=windows, max_size=windows)) for pair in pairs}
    first, window, number = [], [], []
    for pair in pairs:
        first.append(len(window))
        for at, count in enumerate(numbers[pair]):
            # A row may say what the one before it says.
            if at == 0 or count != numbers[pair][at - 1] or data.draw(st.booleans()):
                window.append(at)
                number.append(count)
    there = Ranking(
        int64s([group for group, _ in pairs]),
        int64s([value for _, value in pairs]),
        *map(int64s, (first, window, number)),
        groups,
        windows,
    )
    questions = [
        (group, at, rank, value)
        for group in range(groups)
        for at in range(windows)
        for rank, value in enumerate(
            value for value in range(values) if (group, value) in numbers for _ in range(numbers[group, value][at])
        )
    ]
    asked = int64s(data.draw(st.permutations(questions))).reshape(-1, 4)
    with patch.object(ranking, "BATCH", batch):
        history = there.histories_of(asked[:, 0], asked[:, 1], asked[:, 2])
    assert there.group[history].tolist() == asked[:, 0].tolist()
    assert there.value[history].tolist() == asked[:, 3].tolist()
