"""Codes of values: found by hash where many are known, and right though hashes agree."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators import duplicates
from tidegate.operators.join_aggregate import codebook
from tidegate.operators.join_aggregate.codebook import Codebook


@pytest.mark.parametrize("bits", [64, 6, 0])
def test_codes_are_the_places_in_order_of_first_meeting_however_many_hashes_agree(bits, monkeypatch):
    mask = np.uint64((1 << bits) - 1)
    asked = []

    def few(values):
        asked.append(len(values))
        return duplicates.hashes(values) & mask

    monkeypatch.setattr(codebook, "hashes", few)
    monkeypatch.setattr(codebook, "_MANY", 16)
    chance = np.random.default_rng(bits)
    book, places = Codebook.empty(pa.string()), {}
    for turn, rows in enumerate((300, 20, 1, 40, 200, 30)):
        if turn == 3:
            kept = list(places)[::2]
            book, _ = book.keeping(np.arange(0, len(places), 2))
            places = {value: place for place, value in enumerate(kept)}
        values = [None if n % 17 == 0 else f"v{n}" for n in chance.integers(0, 1000, rows).tolist()]
        book, codes = book.encode(pa.array(values, pa.string()))
        # A batch's new values are numbered as it first has them.
        expected = [-1 if value is None else places.setdefault(value, len(places)) for value in values]
        assert codes.tolist() == expected
    assert book.values.to_pylist() == list(places) and asked
