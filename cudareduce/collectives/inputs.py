"""Inputs of ranks, and the expected results.

Exact inputs are whole numbers that depend on rank, index and call. A rank that is left out or
counted twice, a shifted slice, or the input of the previous call changes the result; the summation
order does not. Integers use all bits of their type, since sums wrap. Random inputs show whether all
ranks compute the same bits.

A sharded array holds a repeating sequence of small whole numbers, which cancel if they are signed,
so that sums are exact and the expected result is calculated without the array. Each shard has one
marked element, whose value changes the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from cudareduce.reduction.inputs import Array, stored
from cudareduce.reduction.operators import Reduction

#: NumPy's functions for the operators.
UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
#: Bound of float values: sums of 8 ranks are exact in bfloat16, which has 8 significant bits.
_MOST = 16
_FACTORS = np.array([1, 2, 1, -1])


def exact_values(reduction: Reduction, rank: int, call: int, n: int) -> Array:
    """The exact input of a rank in a call: integers in their type, values of floats as int64."""
    index = np.arange(n, dtype=np.uint64)
    mixed = index * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        (rank + 1) * 0xBF58476D1CE4E5B9 + call * 0x94D049BB133111EB & 2**64 - 1
    )
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    product = reduction.op.name == "prod"
    if reduction.dtype.kind != "float":
        unsigned = mixed >> np.uint64(64 - 8 * reduction.dtype.size)
        unsigned |= np.uint64(product)  # odd, since products of even factors lose bits
        wrapped: Array = unsigned.astype(f"u{reduction.dtype.size}")
        return wrapped.view(reduction.dtype.storage)
    bits = (mixed >> np.uint64(40)).astype(np.int64)
    small: Array = bits % (2 * _MOST - 1) - _MOST + 1
    factors: Array = _FACTORS[bits % len(_FACTORS)]
    return factors if product else small


def random_values(rank: int, n: int, *, factors: bool = False) -> Array:
    """Random float64 of both signs, whose sums need rounding; with `factors`, near 1 in magnitude,
    so that products need rounding and stay in range."""
    random = np.random.default_rng([7, rank, n])
    signs: Array = random.choice([-1.0, 1.0], n)
    return signs * (random.uniform(0.75, 1.25, n) if factors else random.exponential(1.0, n))


def expected_result(reduction: Reduction, inputs: list[Array]) -> Array:
    """The exact result for the values of all ranks, in the type of the inputs."""
    result: Array = UFUNCS[reduction.op.name].reduce(inputs)
    return result


#: Operators of sharded arrays.
SHARDED_OPS = ("sum", "prod", "min", "max", "mean", "argmin", "argmax")
#: The period of the sequence: a prime, so that no shard begins at a multiple of it.
_PERIOD = 1_048_583
#: The sequence is below `_SMALL`, or from `_LARGE` on for a minimum; marks are between the two.
_SMALL, _LARGE = 8, 60


def shard_range(n: int, rank: int, ranks: int) -> range:
    """The indices of a rank's shard."""
    return range(n * rank // ranks, n * (rank + 1) // ranks)


@dataclass(frozen=True)
class ShardedArray:
    """An array of `n` elements sharded over `ranks` ranks. Each `turn` has other
    elements. If `nan_of` is a rank, the marked element of its shard is NaN."""

    reduction: Reduction
    n: int
    ranks: int
    turn: int
    nan_of: int | None = None

    @property
    def _signed(self) -> bool:
        return self.reduction.dtype.kind != "uint"

    @property
    def _numbers(self) -> Array:
        return _repeating(self.reduction.op.name, self._signed, self.turn)

    @cached_property
    def marks(self) -> dict[int, int]:
        """The marked elements: values by index. For argmin and argmax the last element repeats the
        extremum, so that a kernel that does not return the lowest index is wrong."""
        marks: dict[int, int] = {}
        op, signed = self.reduction.op.name, self._signed
        for rank in range(self.ranks):
            own = shard_range(self.n, rank, self.ranks)
            turned = (rank + self.turn) % self.ranks
            value = _SMALL + turned + self.turn % _SMALL
            if "min" in op:
                value = _LARGE + _SMALL - 1 - value
            elif "max" in op:
                value += _lowest(signed)
            elif op == "prod":
                value = -2 if signed and turned % 2 else 2
            marks[own[(self.turn * 7919 + rank * 13) % len(own)]] = value
        if self.reduction.op.indexed:
            best = min if op == "argmin" else max
            marks.setdefault(self.n - 1, best(marks.values()))
        return marks

    @property
    def nan_at(self) -> int | None:
        if self.nan_of is None:
            return None
        own = shard_range(self.n, self.nan_of, self.ranks)
        return own[(self.turn * 7919 + self.nan_of * 13) % len(own)]

    def of(self, rank: int) -> Array:
        """The elements of a rank's shard, in the dtype's storage type."""
        own = shard_range(self.n, rank, self.ranks)
        begin = own.start % _PERIOD
        if begin + len(own) <= _PERIOD:
            values = stored(self._numbers[begin : begin + len(own)].copy(), self.reduction.dtype)
        else:
            whole = np.roll(stored(self._numbers, self.reduction.dtype), -begin)
            values = np.resize(whole, len(own))
        for index, value in self.marks.items():
            if index in own:
                written = np.nan if index == self.nan_at else value
                values[index - own.start] = stored(np.array([written]), self.reduction.dtype)[0]
        return values

    @property
    def result(self) -> Array:
        kind, op = np.dtype(self.reduction.result_dtype), self.reduction.op.name
        if self.nan_at is not None:
            return np.array(self.nan_at if self.reduction.op.indexed else np.nan, kind)
        best = min if "min" in op else max
        with np.errstate(over="ignore"):
            if self.reduction.op.indexed:
                winner = best(self.marks.values())
                return np.array(min(p for p, v in self.marks.items() if v == winner), kind)
            if op in ("min", "max"):
                return np.array(best(self.marks.values()), kind)
            if op == "prod":
                return _wrapped(self._product(), kind)
            total = _wrapped(self._sum(), kind)
            return np.divide(total, kind.type(self.n)) if op == "mean" else total

    def _sum(self) -> int:
        whole, rest = divmod(self.n, _PERIOD)
        plain = whole * int(self._numbers.sum()) + int(self._numbers[:rest].sum())
        return plain + sum(v - int(self._numbers[p % _PERIOD]) for p, v in self.marks.items())

    def _product(self) -> int:
        whole, rest = divmod(self.n, _PERIOD)
        minus = self._numbers < 0
        count = whole * int(minus.sum()) + int(minus[:rest].sum())
        count -= sum(bool(minus[p % _PERIOD]) for p in self.marks)
        product = -1 if count % 2 else 1
        for value in self.marks.values():
            product *= value
        return product


@lru_cache(maxsize=8)
def _repeating(op: str, signed: bool, turn: int) -> Array:
    """One period of the sequence for an operator, as a read-only int64 array."""
    random = np.random.default_rng([11, turn])
    if op == "prod":
        base = random.choice([1, -1] if signed else [1], _PERIOD).astype(np.int64)
    elif op in ("sum", "mean"):
        half = random.integers(0, _SMALL, _PERIOD // 2)
        # partial sums stay exact in float32, whatever the array's length
        other = -half if signed else half
        base = random.permutation(np.concatenate([half, other, [0]]))
    else:
        low = _LARGE if "min" in op else _lowest(signed)
        base = random.integers(low, low + _SMALL, _PERIOD)
    base.flags.writeable = False
    return base


def _lowest(signed: bool) -> int:
    """The lowest value of inputs of a maximum: all values of a signed type are negative, which
    exposes a wrong identity of 0."""
    return -_LARGE if signed else 0


def _wrapped(value: int, kind: np.dtype[np.generic]) -> Array:
    """An integer in the type `kind`: modulo 2 ** bits for integer types, unchanged for floats."""
    if kind.kind == "f":
        return np.array(value, kind)
    return np.array(value % 2 ** (8 * kind.itemsize), np.uint64).astype(kind)
