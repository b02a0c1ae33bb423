"""Inputs of ranks, and the expected results.

Exact inputs are whole numbers that depend on rank, index and call, so that a rank that is left out
or counted twice, a shifted share, and the input of the previous call all change the result, while
every summation order gives the same. Integers use all digits of their type, since sums wrap. Random
inputs show whether all ranks have the same bits.

A sharded array holds small whole numbers that repeat, and cancel where they have signs, so that
sums are exact and the expected result needs no array. One mark in each shard changes the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from cudareduce.collectives.kernels import vector_of
from cudareduce.collectives.names import Collective
from cudareduce.reduction.inputs import Array, stored
from cudareduce.reduction.operators import Reduction

#: NumPy's functions for the operators.
UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
#: Values of floats are below this: sums of 8 ranks are exact in bfloat16, which has 8 bits.
_MOST = 16
_FACTORS = np.array([1, 2, 1, -1])


def exact_values(reduction: Reduction, rank: int, call: int, n: int) -> Array:
    """The exact input of a rank at a call: integers in their type, floats as int64."""
    place = np.arange(n, dtype=np.uint64)
    mixed = place * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        (rank + 1) * 0xBF58476D1CE4E5B9 + call * 0x94D049BB133111EB & 2**64 - 1
    )
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    product = reduction.op.name == "prod"
    if reduction.dtype.kind != "float":
        unsigned = mixed >> np.uint64(64 - 8 * reduction.dtype.size)
        unsigned |= np.uint64(product)  # odd: products of even factors lose bits
        wrapped: Array = unsigned.astype(f"u{reduction.dtype.size}")
        return wrapped.view(reduction.dtype.storage)
    bits = (mixed >> np.uint64(40)).astype(np.int64)
    small: Array = bits % (2 * _MOST - 1) - _MOST + 1
    factors: Array = _FACTORS[bits % len(_FACTORS)]
    return factors if product else small


def random_values(rank: int, n: int, *, factors: bool = False) -> Array:
    """Random float64 of both signs, whose sums are rounded; with `factors` their products are, and
    stay in range."""
    random = np.random.default_rng([7, rank, n])
    signs: Array = random.choice([-1.0, 1.0], n)
    return signs * (random.uniform(0.75, 1.25, n) if factors else random.exponential(1.0, n))


def expected(reduction: Reduction, inputs: list[Array]) -> Array:
    """The result for the values of all ranks, in a wider type."""
    answer: Array = UFUNCS[reduction.op.name].reduce(inputs)
    return answer


def output_slice(
    collective: Collective, reduction: Reduction, rank: int, size: int, n: int
) -> slice:
    """The elements of the result that a rank must have."""
    if collective == "all-reduce":
        return slice(0, n)
    if collective == "reduce":
        return slice(0, n if rank == 0 else 0)
    vector = vector_of(reduction)
    packs = -(-n // vector)
    begin, end = packs * rank // size, packs * (rank + 1) // size
    return slice(min(n, begin * vector), min(n, end * vector))


#: Operators of sharded arrays.
SHARDED_OPS = ("sum", "prod", "min", "max", "mean", "argmin", "argmax")
#: The period of the numbers: a prime, so that no shard begins at one.
_PERIOD = 1_048_583
#: Numbers are below the first, those of a minimum above the second; marks are between the two.
_SMALL, _LARGE = 8, 60


def shard_range(n: int, rank: int, ranks: int) -> range:
    """The elements of the array that a rank has."""
    return range(n * rank // ranks, n * (rank + 1) // ranks)


@dataclass(frozen=True)
class ShardedArray:
    """An array of `n` elements over `ranks` ranks in a turn. The mark of rank `nan_of` is NaN."""

    reduction: Reduction
    n: int
    ranks: int
    turn: int
    nan_of: int | None = None

    @property
    def _signed(self) -> bool:
        return self.reduction.dtype.kind != "uint"

    @property
    def _base(self) -> Array:
        return _repeating(self.reduction.op.name, self._signed, self.turn)

    @cached_property
    def marks(self) -> dict[int, int]:
        """Indices and values of the marks. The extremum of an index operator stands at the end once
        more, where it must lose."""
        found: dict[int, int] = {}
        op, signed = self.reduction.op.name, self._signed
        for rank in range(self.ranks):
            own = shard_range(self.n, rank, self.ranks)
            turned = (rank + self.turn) % self.ranks
            value = _SMALL + turned + self.turn % _SMALL
            if "min" in op:
                value = _LARGE + _SMALL - 1 - value
            elif "max" in op:
                value += _least(signed)
            elif op == "prod":
                value = -2 if signed and turned % 2 else 2
            found[own[(self.turn * 7919 + rank * 13) % len(own)]] = value
        if self.reduction.op.indexed:
            best = min if op == "argmin" else max
            found.setdefault(self.n - 1, best(found.values()))
        return found

    @property
    def nan_at(self) -> int | None:
        if self.nan_of is None:
            return None
        own = shard_range(self.n, self.nan_of, self.ranks)
        return own[(self.turn * 7919 + self.nan_of * 13) % len(own)]

    def of(self, rank: int) -> Array:
        """A rank's elements in storage."""
        own = shard_range(self.n, rank, self.ranks)
        begin = own.start % _PERIOD
        if begin + len(own) <= _PERIOD:
            values = stored(self._base[begin : begin + len(own)].copy(), self.reduction.dtype)
        else:
            whole = np.roll(stored(self._base, self.reduction.dtype), -begin)
            values = np.resize(whole, len(own))
        for place, value in self.marks.items():
            if place in own:
                written = np.nan if place == self.nan_at else value
                values[place - own.start] = stored(np.array([written]), self.reduction.dtype)[0]
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
        plain = whole * int(self._base.sum()) + int(self._base[:rest].sum())
        return plain + sum(v - int(self._base[p % _PERIOD]) for p, v in self.marks.items())

    def _product(self) -> int:
        whole, rest = divmod(self.n, _PERIOD)
        minus = self._base < 0
        count = whole * int(minus.sum()) + int(minus[:rest].sum())
        count -= sum(bool(minus[p % _PERIOD]) for p in self.marks)
        product = -1 if count % 2 else 1
        for value in self.marks.values():
            product *= value
        return product


@lru_cache(maxsize=8)
def _repeating(op: str, signed: bool, turn: int) -> Array:
    """The repeating numbers of an operator in a turn, as a read-only int64 array."""
    random = np.random.default_rng([11, turn])
    if op == "prod":
        base = random.choice([1, -1] if signed else [1], _PERIOD).astype(np.int64)
    elif op in ("sum", "mean"):
        half = random.integers(0, _SMALL, _PERIOD // 2)
        # partial sums stay exact in float32, whatever the array's length
        other = -half if signed else half
        base = random.permutation(np.concatenate([half, other, [0]]))
    else:
        low = _LARGE if "min" in op else _least(signed)
        base = random.integers(low, low + _SMALL, _PERIOD)
    base.flags.writeable = False
    return base


def _least(signed: bool) -> int:
    """The least value for a maximum: all values are negative if the type allows, so that a wrong
    identity of 0 is found."""
    return -_LARGE if signed else 0


def _wrapped(value: int, kind: np.dtype[np.generic]) -> Array:
    """A whole number modulo the range of a type."""
    if kind.kind == "f":
        return np.array(value, kind)
    return np.array(value % 2 ** (8 * kind.itemsize), np.uint64).astype(kind)
