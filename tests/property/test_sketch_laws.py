"""Approximate aggregates: their bounds, and the same value in whatever order and parts they are held."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.aggregates import AGGREGATES
from tidegate.aggregates.accumulators import LEAST, Partial, ranked, value_lists
from tidegate.aggregates.exact import split, split_squares, variation
from tidegate.aggregates.packed import pack, unpack
from tidegate.values.types import arrow_type

LAW = settings(max_examples=examples(200), deadline=None)
NUMBERS = st.one_of(st.just(0.0), st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))


def value(name: str, values: pa.Array, parameters: tuple[float, ...]) -> object:
    """An aggregate of some values, through what it is held as."""
    function = AGGREGATES[name]
    held = function.held(values, None, parameters).drop_null()
    counts = sorted((one["values"].as_py(), one["counts"].as_py()) for one in pc.value_counts(held))
    numbers = np.array([number for _, number in counts], dtype=np.int64)
    codes = pa.array([code for code, _ in counts], held.type)
    lists = value_lists(np.zeros(len(codes), dtype=np.int64), 1, codes, numbers)
    columns: dict[str, object] = {"a0_count": [len(held)], "a0_values": lists}
    if function.of_ranks:
        ordered = sorted(held.to_pylist())
        ranks = function.ranks(np.array([len(held)]), parameters)
        columns |= {f"a0_{ranked(place)}": pa.array([ordered[rank.item()]]) for place, rank in enumerate(ranks)}
    rows = pa.table(columns)
    kind = arrow_type(function.result("double"))
    return function.finish(Partial("a0", rows, pa.array([1.0]), kind, parameters))[0].as_py()


@LAW
@example([1.6608505280233684e308], 0.0, 2)
@given(st.lists(NUMBERS, min_size=1, max_size=50), st.floats(0, 1), st.sampled_from([2, 10, 100, 10_000]))
def test_an_approximate_percentile_is_within_its_error_of_the_value_of_its_rank(
    numbers: list[float], share: float, accuracy: int
) -> None:
    found = value("percentile_approx", pa.array(numbers), (share, float(accuracy)))
    true = sorted(numbers)[max(math.ceil(share * len(numbers)) - 1, 0)]
    assert isinstance(found, float)
    assert abs(found - true) <= abs(true) / accuracy * (1 + 1e-6)


@pytest.mark.parametrize("count", [1, 10, 1000, 30_000, 1_000_000])
@pytest.mark.parametrize("deviation", [0.05, 0.01])
def test_an_approximate_count_is_within_four_deviations(count: int, deviation: float) -> None:
    rng = np.random.default_rng(count)
    for values in (np.arange(count), rng.random(count)):
        found = value("approx_count_distinct", pa.array(np.append(values, values[:100])), (deviation,))
        assert isinstance(found, int)
        assert abs(found - count) <= max(4 * deviation * count, 0.5)


def test_an_approximate_count_is_unbiased_from_few_to_many() -> None:
    for count in (200, 1000, 2000, 5000, 20_000):
        errors = []
        for seed in range(40):
            found = value("approx_count_distinct", pa.array(np.arange(count) + seed * 10**6), (0.05,))
            errors.append(found / count - 1)  # type: ignore[operator]
        assert abs(np.mean(errors)) <= 4 * 0.05 / math.sqrt(40)
        assert np.std(errors) <= 1.3 * 0.05


def test_texts_are_hashed_alike_everywhere() -> None:
    """By BLAKE2b: the first 9 bits are the register, the zeros before the next 1 the rank, less one."""
    held = AGGREGATES["approx_count_distinct"].held(pa.array(["a", None, "é"]), None, (0.05,)).to_pylist()
    for text, found in zip(("a", "é"), held[::2], strict=True):
        bits = f"{int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), 'big'):064b}"
        assert found == int(bits[:9], 2) * 64 + bits[9:].index("1") + 1
    assert held[1] is None


@LAW
@example([0.0, 2.2250738585e-313], 0)
@example([0.0, 1.6e-162], 0)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12), st.integers(0, 1))
def test_variances_are_rounded_once(numbers: list[float], freedom: int) -> None:
    parts, squares = (
        {part: np.array([sum(map(int, column))]) for part, column in of(np.array(numbers)).items()}
        for of in (split, split_squares)
    )
    found = float(variation(parts, squares, np.array([len(numbers)]))[0])
    exact = [Fraction(number) for number in numbers]
    true = len(exact) * sum(number * number for number in exact) - sum(exact) ** 2
    try:
        assert found == float(true)
    except OverflowError:
        assert found == math.inf


TEXTS = st.text(st.sampled_from(["a", "b", "é", "\0", "\x01"]), max_size=3)
KINDS = {
    "string": TEXTS,
    "integer": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False).map(lambda number: number + 0.0),
    "boolean": st.booleans(),
    "decimal(38,0)": st.integers(-(10**37), 10**37),
}


@LAW
@given(st.data(), st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(KINDS)), st.booleans())
def test_what_is_packed_orders_by_what_it_is_chosen_by_and_comes_out_again(
    data: st.DataObject, by_kind: str, kind: str, last: bool
) -> None:
    pairs = data.draw(st.lists(st.tuples(KINDS[by_kind], st.none() | KINDS[kind]), min_size=1, max_size=8))
    by, values = (pa.array([p[i] for p in pairs], arrow_type(k)) for i, k in ((0, by_kind), (1, kind)))
    packed = pack(by, values, null_is_less=last)
    assert unpack(packed, arrow_type(kind)) == values

    def key(place: int) -> tuple[object, ...]:
        chosen, one = pairs[place]
        texts = [x.encode() if isinstance(x, str) else x for x in (chosen, one)]
        return texts[0], (one is None) != last, b"" if one is None else texts[1]

    octets = packed.to_pylist()
    for one in range(len(pairs)):
        for other in range(len(pairs)):
            if (key(one)[1] == key(other)[1] and pairs[one][1] is not None) or key(one)[0] != key(other)[0]:
                assert (octets[one] < octets[other]) == (key(one) < key(other))
    assert LEAST.sign == 1
