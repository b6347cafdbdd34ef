"""The priority hash: uniform, independent, the same everywhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tidegate.operators.history.priority import priority

ROWS = 200_000
IDENTIFIERS = {
    "consecutive": [str(i) for i in range(ROWS)],
    "prefixed": [f"a-rather-long-common-prefix/{i:09d}/and-suffix" for i in range(ROWS)],
    "words": [f"AA{i % 7}-{i // 7}-JFK-2013-02-08T{i % 24:02d}" for i in range(ROWS)],
    "other bytes": [f"é{i}☃" for i in range(ROWS)],
}


@pytest.mark.parametrize("kind", IDENTIFIERS)
def test_priorities_are_uniform(kind: str) -> None:
    u = priority("departures", pa.array(IDENTIFIERS[kind]), seed=7)
    assert u.min() >= 0 and u.max() < 1
    # Fixed input, so these are no lotteries: they hold for good or not at all.
    assert stats.kstest(u, "uniform").pvalue > 0.01
    assert stats.chisquare(np.bincount((u * 512).astype(int), minlength=512)).pvalue > 0.01


def test_lower_bits_are_uniform_too() -> None:
    u = priority("departures", pa.array(IDENTIFIERS["consecutive"]), seed=7)
    low = (u * 2.0**53).astype(np.int64) & 255
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > 0.01


@pytest.mark.parametrize("other", [("landings", 7), ("departures", 8), ("departures", -7)])
def test_streams_and_seeds_are_independent(other: tuple[str, int]) -> None:
    ids = pa.array(IDENTIFIERS["consecutive"])
    u, v = priority("departures", ids, 7), priority(*[other[0], ids, other[1]])
    assert abs(np.corrcoef(u, v)[0, 1]) < 4 / np.sqrt(ROWS)


def test_neighbours_are_independent() -> None:
    u = priority("departures", pa.array(IDENTIFIERS["consecutive"]), 7)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 4 / np.sqrt(ROWS)


def test_a_priority_depends_on_its_own_identifier_alone() -> None:
    ids = pa.array(["", "a", "abcdefgh", "abcdefghi", "x" * 1000, "a\0", "a\0\0"])
    together = priority("s", ids, 1)
    alone = [priority("s", pa.array([v.as_py()]), 1)[0] for v in ids]
    assert together.tolist() == alone
    assert len(set(alone)) == len(alone)
    assert priority("s", ids.slice(2, 3), 1).tolist() == alone[2:5]
    assert priority("s", pa.chunked_array([ids.slice(0, 3), ids.slice(3)]), 1).tolist() == alone
    assert priority("s", ids.cast(pa.large_string()), 1).tolist() == alone


def test_the_hash_never_changes() -> None:
    """A change would make every sample in every warehouse another one."""
    u = priority("departures", pa.array(["AA-1", "a longer identifier"]), 7)
    assert (u * 2.0**53).astype(np.int64).tolist() == GOLDEN


def test_nulls_are_refused() -> None:
    with pytest.raises(ValueError, match="NULL"):
        priority("s", pa.array(["a", None]), 1)


def test_no_identifiers_no_priorities() -> None:
    assert len(priority("s", pa.array([], pa.string()), 1)) == 0
    assert len(priority("s", pa.chunked_array([], pa.string()), 1)) == 0


GOLDEN = [8041274442277732, 2825250040355185]
