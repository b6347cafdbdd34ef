"""APPROX_COUNT_DISTINCT(x, deviation)."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pyarrow as pa
from sqlglot import exp

from tidegate.aggregates.accumulators import VALUES, Partial
from tidegate.aggregates.base import AggregateFunction, Call, CallError
from tidegate.aggregates.by_value import ByValue
from tidegate.aggregates.exact import Float64s, Int64s
from tidegate.values.limbs import is_decimal
from tidegate.values.ordered import as_ordered_integers
from tidegate.values.types import ColumnType

DEFAULT_DEVIATION = 0.05
_RANKS = 64


class ApproxCountDistinct(AggregateFunction):
    """How many different values there are, to within a relative standard deviation: 0.05, or the second argument.

    **Idea.** HyperLogLog over hashes that are the same everywhere: a value is held as the register that its hash
    chooses, and how many zeros the rest of the hash begins with. These are counted like values: in any order, taken
    back, merged, always with the same result; a register's rank is the largest that is there.
    **Guarantee**: a relative standard deviation of at most that, by 1.04 / √registers, for up to some 2^50 values.
    **Source**: Flajolet et al. 2007; the estimate is that of Ertl, "New cardinality estimation algorithms for
    HyperLogLog sketches" (2017), section 4, which has no range where it is biased.
    """

    name = "approx_count_distinct"
    nodes = (exp.ApproxDistinct,)
    shapes = ("APPROX_COUNT_DISTINCT(x)",)
    by_value = True
    of_nothing = "0"
    zero_of_nothing = True

    def read(self, node: exp.Expression) -> Call:
        """The value, and the deviation."""
        given = node.args.get("accuracy") or exp.Literal.number(DEFAULT_DEVIATION)
        if not (isinstance(given, exp.Literal) and not given.is_string and 0.004 <= float(given.this) <= 0.4):
            raise CallError("the deviation is a number from 0.004 to 0.4", "APPROX_COUNT_DISTINCT(x, 0.05)")
        return Call(self, super().read(node).argument, parameters=(float(given.this),))

    def result(self, kind: ColumnType | None) -> ColumnType:
        """A whole number."""
        return "integer"

    def measured(self, kind: ColumnType) -> ColumnType:
        """The values as they are."""
        return kind

    def held_type(self, measured: ColumnType) -> pa.DataType:
        """A register's number and a rank."""
        return pa.int64()

    def held(self, values: pa.Array, by: pa.Array | None, parameters: tuple[float, ...]) -> pa.Array:
        """Registers and ranks of the values' hashes."""
        null, bits = values.is_null().to_numpy(zero_copy_only=False), _bits(parameters)
        own = _hashes(values)
        register = (own >> np.uint64(64 - bits)).astype(np.int64)
        # A bit behind the rest ends the zeros.
        rest = (own << np.uint64(bits)) | np.uint64(1 << (bits - 1))
        rank = 1 + _leading_zeros(rest)
        return pa.array(register * _RANKS + rank, mask=null)

    def finish(self, partial: Partial) -> pa.Array | pa.ChunkedArray:
        """The nearest whole number to the estimate."""
        held, bits = ByValue.of(partial.column(VALUES).combine_chunks()), _bits(partial.parameters)
        code = held.values.to_numpy(zero_copy_only=False)
        register, row = code // _RANKS, held.rows
        last = np.ones(len(code), dtype=bool)  # codes ascend, so a register's largest rank is its last
        last[:-1] = (register[1:] != register[:-1]) | (row[1:] != row[:-1])
        most = 64 - bits + 1
        counts = np.zeros((len(held.lengths), most + 1), dtype=np.int64)
        np.add.at(counts, (row[last], code[last] % _RANKS), 1)
        counts[:, 0] = (1 << bits) - counts.sum(axis=1)
        return pa.array(np.rint(_estimates(counts, 1 << bits)).astype(np.int64))

    def called(self, argument: str, by: str = "", parameters: tuple[float, ...] = ()) -> str:
        """As it is written."""
        return f"APPROX_COUNT_DISTINCT({argument}, {parameters[0]:g})"


def _bits(parameters: tuple[float, ...]) -> int:
    """How many bits choose a register."""
    return max(4, math.ceil(2 * math.log2(1.04 / parameters[0])))


def _hashes(values: pa.Array) -> np.ndarray:
    """64 bits a value, the same on every machine; whatever for NULL."""
    kind = values.type
    if pa.types.is_string(kind) or (is_decimal(kind) and kind.precision > 18):
        encoded = values.dictionary_encode()
        texts = (b"" if one is None else str(one).encode() for one in encoded.dictionary.to_pylist())
        hashed = [int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") for text in texts]
        places = encoded.indices.fill_null(len(hashed)).to_numpy()
        return np.asarray(np.array([*hashed, 0], dtype=np.uint64)[places])
    own = as_ordered_integers(values).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    # The finalizer of splitmix64.
    own = (own ^ (own >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    own = (own ^ (own >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(own ^ (own >> np.uint64(31)))


def _leading_zeros(numbers: np.ndarray) -> Int64s:
    """Of numbers above 0, by halves: a double would round."""
    found, left = np.zeros(len(numbers), dtype=np.int64), numbers.copy()
    for step in (32, 16, 8, 4, 2, 1):
        small = left < (np.uint64(1) << np.uint64(64 - step))
        found += step * small
        left = np.where(small, left << np.uint64(step), left)
    return found


def _estimates(counts: Int64s, registers: int) -> Float64s:
    """How many values there are, from how many registers have each rank: int64[rows, ranks]."""
    most = counts.shape[1] - 1
    found = registers * _tau(1 - counts[:, most] / registers)
    for rank in range(most - 1, 0, -1):
        found = 0.5 * (found + counts[:, rank])
    found = found + registers * _sigma(counts[:, 0] / registers)
    with np.errstate(divide="ignore"):
        return np.where(counts[:, 0] == registers, 0.0, registers * registers / (2 * math.log(2) * found))


def _sigma(share: Float64s) -> Float64s:
    """Σ share^(2^k) · 2^(k − 1), and the share itself."""
    with np.errstate(over="ignore", invalid="ignore"):
        power, weight, total = share.copy(), 1.0, share.copy()
        for _ in range(64):
            power, before = power * power, total
            total = total + power * weight
            weight *= 2
            if (total == before).all():
                break
    return np.where(share >= 1, np.inf, total)


def _tau(share: Float64s) -> Float64s:
    """(1 − share − Σ (1 − share^(2^−k))² · 2^−k) / 3."""
    inside = (share > 0) & (share < 1)
    root, weight = np.where(inside, share, 0.5), 1.0
    total = 1 - root
    for _ in range(64):
        root, before = np.sqrt(root), total
        weight *= 0.5
        total = total - (1 - root) ** 2 * weight
        if (total == before).all():
            break
    return np.where(inside, total / 3, 0.0)
