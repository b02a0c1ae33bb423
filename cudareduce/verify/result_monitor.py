"""Checks the result of every timed launch, outside of the timed region.

A kernel could recognise that it is timed: by the number of launches, by the content of its output,
or by an input that it has seen before. So before each timed launch its output and partial results
are overwritten and a chunk of the input changes; after it the result is judged. All of this is
done before the cache is flushed, or after the last event.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import Generic, Protocol, TypeVar

import numpy as np

from cudareduce.backends.protocol import Buffer, TimedBackend
from cudareduce.launch.case import Shape
from cudareduce.launch.plan import Plan
from cudareduce.reduction.dtypes import DType
from cudareduce.reduction.inputs import Array, as_numbers, as_results, is_exact, make_all
from cudareduce.reduction.operators import OPERATORS, Reduction
from cudareduce.reduction.reference import Reference, reference, with_elements
from cudareduce.reduction.transforms import reduce_transformed
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.patterns import repeats
from cudareduce.verify.verdict import RIGHT, WROTE_INPUT, Verdict, judge, worse

#: Fraction of the input in the chunk, so that a sum changes by more than its error bound, and most
#: bytes of the chunk, so that it is quickly written.
_SHARE, _MOST_BYTES = 64, 2**20
#: Operators whose result depends on one element.
_EXTREMA = ("min", "max", "argmin", "argmax")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The elements in which the two inputs differ: index of the first, and their values in
    either input."""

    start: int
    kept: tuple[Array, Array]

    @property
    def place(self) -> slice:
        """The elements that differ."""
        return slice(self.start, self.start + len(self.kept[0]))


class TimedData:
    """Two inputs of one pattern on the host: number 0 as generated from `seed` (or given as
    `elements`), and number 1, which differs in a chunk at a random position, so that a cached
    result is detected. If a transform takes two arrays, each of `arrays` has a chunk."""

    def __init__(
        self,
        pattern: str,
        reduction: Reduction,
        n: int,
        rows: int,
        seed: int,
        plans: Iterable[Plan],
        elements: Array | None = None,
    ) -> None:
        self.pattern, self.reduction = pattern, reduction
        made = make_all(pattern, reduction, n, rows, seed) if elements is None else (elements,)
        self.arrays: tuple[Array, ...] = made
        used = min((plan.problem.elements for plan in plans), default=0)
        count = max(1, min(used // _SHARE, _MOST_BYTES // reduction.dtype.size))
        random, exact = Random(seed), is_exact(pattern, reduction)
        most = max(0, used - count)
        starts = [  # mostly zeros, with a nonzero element in the middle
            min(n // 2, most) if reduction.within else random.randrange(max(1, most)) for _ in made
        ]
        places = [slice(start, start + count) for start in starts]
        if reduction.map:
            others = _mapped_others(reduction, made, places)
        else:
            others = [_other(made[0][places[0]], made[0], reduction, exact)]
        self.chunks = tuple(
            Chunk(place.start, (array[place].copy(), other))
            for array, place, other in zip(made, places, others, strict=True)
        )
        self._refs: dict[tuple[Shape, int], Reference] = {}
        self._detects_stale: dict[int, bool] = {}  # of plans, by their identity
        self._found: dict[tuple[int, int, bytes], Verdict | None] = {}

    @property
    def elements(self) -> Array:
        """The elements of the first array."""
        return self.arrays[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)

    def reference(self, shape: Shape, number: int) -> Reference:
        """The reference results of one of the two inputs, with its first elements in this shape."""
        key = shape, number
        if key not in self._refs:
            self.place(number)
            used, *other = (array[: shape[0] * shape[1]] for array in self.arrays)
            self._refs[key] = reference(self.reduction, used, shape[1], *other)
            self.place(0)
        return self._refs[key]

    def place(self, number: int) -> None:
        """Write the chunk of one input into the arrays, which may fill half of the memory."""
        for array, chunk in zip(self.arrays, self.chunks, strict=True):
            array[chunk.place] = chunk.kept[number]

    def judged(self, plan: Plan, results: Array, number: int) -> Verdict | None:
        """The verdict on results, None if the bound is too wide to decide. The same bits are judged
        once, since most kernels return the same ones in hundreds of launches."""
        key = id(plan), number, blake2b(results.tobytes()).digest()
        if key not in self._found:
            self._found[key] = self._verdict(plan, results, number)
        return self._found[key]

    def _verdict(self, plan: Plan, results: Array, number: int) -> Verdict | None:
        shape = plan.problem.n, plan.problem.rows
        ref = self.reference(shape, number)
        if not plan.kernel.precondition.any:
            return judge(plan, results, ref, self.pattern)
        self.place(number)
        used = self.elements[: shape[0] * shape[1]]
        known = with_elements(ref, self.reduction, used, shape[1])
        verdict = judge(plan, results, known, self.pattern)
        self.place(0)
        return verdict

    def detects_stale_result(self, plan: Plan) -> bool:
        """True if the result of one input is detected as wrong for the other."""
        shape = plan.problem.n, plan.problem.rows
        if id(plan) not in self._detects_stale:
            kept = as_results(self.reference(shape, 0).expected, self.reduction)
            found = None if plan.folds_on_host else self.judged(plan, kept, 1)
            self._detects_stale[id(plan)] = found is not None and found.outcome == "fail"
        return self._detects_stale[id(plan)]


def _other(chunk: Array, data: Array, reduction: Reduction, exact: bool) -> Array:
    """A chunk that changes the result by more than its bound; an `exact` pattern stays exact."""
    dtype, name = reduction.dtype, reduction.op.name
    other = chunk.copy()
    if reduction.op.expression:  # the tolerance is inferred from the values themselves
        return other
    if name in _EXTREMA:
        other[len(other) // 2] = _beyond(data, dtype, highest="max" in name)
        return other
    bits = other.view(f"u{dtype.size}")
    highest = bits.dtype.type(1 << (8 * dtype.size - 1))
    if reduction.within:
        other[:] = 0  # the largest is among them
    elif dtype.kind != "float":
        bits[0] ^= highest if reduction.op.words == 1 else 1
    elif exact or name == "prod":
        bits[0] ^= highest
    elif (bits & highest).any():
        bits &= ~highest  # all positive
    else:
        bits |= highest
    return other


def _mapped_others(
    reduction: Reduction, arrays: Sequence[Array], places: Sequence[slice]
) -> list[Array]:
    """For each array the candidate chunk that changes the transformed result most: zeros, absolute
    values, the elements of the other array, or values beyond all others."""
    others = []
    op = OPERATORS["sum"] if reduction.op.name == "mean" else reduction.op
    for k, place in enumerate(places):
        old = arrays[k][place]
        bits = old.view(f"u{reduction.dtype.size}")
        sign = bits.dtype.type(1 << (8 * reduction.dtype.size - 1))
        tried = [old, np.zeros_like(old), (bits & ~sign).view(old.dtype)]
        if not reduction.within:  # whose limit the other array may exceed
            tried += [array[place] for j, array in enumerate(arrays) if j != k]
        if op.name in _EXTREMA:
            ends = (_beyond(old, reduction.dtype, highest=highest) for highest in (True, False))
            tried += [np.array([end] * len(old), old.dtype) for end in ends]
        rows = [tried if j == k else [array[place]] * len(tried) for j, array in enumerate(arrays)]
        given = tuple(as_numbers(np.array(some), reduction.dtype) for some in rows)
        results = reduce_transformed(replace(reduction, op=op), given).result.astype(float)
        others.append(tried[int(np.argmax(np.abs(results - results[0])))].copy())
    return others


def _beyond(data: Array, dtype: DType, *, highest: bool) -> object:
    """An element beyond all of the input, or the limit of an integer type."""
    if dtype.kind != "float":
        info = np.iinfo(dtype.storage)
        return info.max if highest else info.min
    if dtype.name == "bfloat16":  # 2 and -2, where random ones are below 1
        return 0x4000 if highest else 0xC000
    two = data.dtype.type(2)
    return two if highest else -two


class TimedInput:
    """The timed input on the device in one context, with a `spare` copy to restore it from if
    requested."""

    def __init__(
        self, backend: TimedBackend, timer: DeviceTimer, given: TimedData, misalign: int = 0,
        *, spare: bool = False,
    ) -> None:  # fmt: skip
        self._backend, self.data = backend, given
        self.buffers = tuple(backend.upload(array, misalign) for array in given.arrays)
        self._chunks = [
            tuple(backend.upload(kept) for kept in chunk.kept) for chunk in given.chunks
        ]
        self._spare = tuple(backend.upload(array) for array in given.arrays if spare)
        self._digests = timer.content_hashes(self.buffers)
        self._right = self._digests()
        self.number = 0

    @property
    def buffer(self) -> Buffer:
        """The buffer of the first array."""
        return self.buffers[0]

    def turn_to(self, number: int) -> None:
        """Enqueue the change to input 0 or 1."""
        if number != self.number:
            size = self.data.reduction.dtype.size
            for buffer, chunk, kept in zip(
                self.buffers, self.data.chunks, self._chunks, strict=True
            ):
                self._backend.overwrite(buffer, chunk.start * size, kept[number])
            self.number = number

    def renew(self) -> None:
        """Enqueue a copy from the spare input, for kernels that overwrite theirs."""
        number, self.number = self.number, 0
        for buffer, spare in zip(self.buffers, self._spare, strict=True):
            self._backend.overwrite(buffer, 0, spare)
        self.turn_to(number)

    def restored(self) -> bool:
        """Change to input 0, restore it if a launch has written to it, and return whether it was
        intact."""
        self.turn_to(0)
        if self._digests() == self._right:
            return True
        for buffer, array in zip(self.buffers, self.data.arrays, strict=True):
            self._backend.write(buffer, array)  # the digest has synchronized
        return False

    def release(self) -> None:
        """Free the buffers if the context stays open."""
        kept = (one for pair in self._chunks for one in pair)
        self._backend.free(*self.buffers, *kept, *self._spare)


def distinct_results(bound: Watched, cost_us: float, given: TimedInput) -> tuple[int, int]:
    """Number of different results, bit by bit, of repeated launches on one input, and number of
    launches; each takes about `cost_us`."""
    launches = repeats(cost_us)
    seen = set()
    for _ in range(launches):
        if bound.plan.kernel.in_place:
            given.renew()
        bound.poison()
        bound.run()
        seen.add(bound.results().tobytes())
    return len(seen), launches


Key = TypeVar("Key", bound=Hashable)

#: Bytes that memory is filled with before a launch: NaN and -1, or numbers. None leaves the result
#: of the previous launch, which belongs to the other input.
_POISONS = (0xFF, 0x01, None)
#: Most bytes of results that are copied to the host after each launch; larger ones are hashed.
_SMALL_BYTES = 4096


class Watched(Protocol):
    """A prepared call with its buffers: launches of a kernel, or a call of a library."""

    @property
    def plan(self) -> Plan:
        """The plan that gives the error bound."""

    @property
    def out(self) -> Buffer | None:
        """The buffer of results, None if the library has its own."""

    @property
    def own(self) -> Sequence[Buffer]:
        """All buffers of the call except the input."""

    def run(self) -> None:
        """Enqueue the call."""

    def reset(self) -> None:
        """Restore all its own buffers."""

    def poison(self, byte: int = ...) -> None:
        """Overwrite results and partial results of earlier launches."""

    def results(self) -> Array:
        """Synchronize and copy the results to the host."""


class FirstPass(Protocol):
    """The launches around a first pass that is timed alone."""

    def run_before(self) -> None:
        """Enqueue the launches before it."""

    def run_rest(self) -> None:
        """Enqueue the launches after it."""


class OwnBuffers(Generic[Key]):
    """The buffers of all calls that are timed in one context, except the input."""

    def __init__(self, bounds: Mapping[Key, Watched], timer: DeviceTimer) -> None:
        self._bounds = bounds
        self._owners = [key for key, bound in bounds.items() for _ in bound.own]
        self._digests = timer.content_hashes(
            [buffer for bound in bounds.values() for buffer in bound.own]
        )

    def name(self, key: Key) -> str:
        """The name of the call that owns buffers."""
        return self._bounds[key].plan.kernel.id

    def hashes(self) -> list[tuple[Key, int]]:
        """The owner and a hash of each buffer."""
        return list(zip(self._owners, self._digests(), strict=True))

    def restored_owner(self, before: list[tuple[Key, int]], by: Key) -> Key | None:
        """Restore buffers that the call `by` changed but does not own. Returns the first owner,
        None if nothing changed."""
        now = zip(before, self.hashes(), strict=True)
        changed = {old[0]: None for old, new in now if old != new and old[0] != by}
        for key in changed:
            self._bounds[key].reset()
        return next(iter(changed), None)


class ResultMonitor(Generic[Key]):
    """Judges the timed launches of one call in one context; `verdict` covers all of them.

    `undecided` is True if some results could not be judged, since the bound is too wide. With
    `keep_cache` (warm timing) the input changes only between passes. `first` runs the other
    launches if the first pass alone is timed.
    """

    def __init__(
        self,
        key: Key,
        bound: Watched,
        given: TimedInput,
        others: OwnBuffers[Key],
        timer: DeviceTimer,
        *,
        keep_cache: bool,
        first: FirstPass | None = None,
    ) -> None:
        self.verdict, self.undecided = RIGHT, False
        self._key, self._bound, self._given, self._others = key, bound, given, others
        self._first, self._keep_cache = first, keep_cache
        # First passes of a warm batch accumulate into an output that is initialized only once.
        sets = bound.plan.preset is not None
        self._accumulates = first is not None and keep_cache and sets
        leaves = not keep_cache and given.data.detects_stale_result(bound.plan)
        self._poisons = _POISONS if leaves else _POISONS[:-1]
        self._random = Random()  # unseeded: a kernel must not be able to predict it
        self._before: list[tuple[Key, int]] = []
        out = bound.out
        few = out is None or out.nbytes <= _SMALL_BYTES
        self._digest = None if few or out is None else timer.content_hashes([out])
        self._seen: set[tuple[int, bytes | int]] = set()
        self._launches = 0

    def begin(self) -> None:
        self._given.restored()  # an unmonitored launch may have changed it
        self._given.turn_to(self._random.randrange(2))
        self._before = self._others.hashes()

    def before(self) -> None:
        poison = self._random.choice(self._poisons)
        if poison is not None:
            self._bound.poison(poison)
        if not self._keep_cache:
            number = 1 - self._given.number if poison is None else self._random.randrange(2)
            self._given.turn_to(number)
        if self._bound.plan.kernel.in_place:
            self._given.renew()
        if self._first is not None:
            self._first.run_before()

    def after(self) -> None:
        self._launches += 1
        if self._first is not None:
            self._first.run_rest()
        if self._accumulates:
            return
        number = self._given.number
        seen = number, self._digest()[0] if self._digest else self._bound.results().tobytes()
        if seen in self._seen:
            return
        self._seen.add(seen)
        results = self._bound.results()  # a second copy, but rare
        found = self._given.data.judged(self._bound.plan, results, number)
        self.undecided = self.undecided or found is None
        if found is not None and (found.outcome == "fail" or number == 0):
            self._add(found)  # reported errors belong to the requested input

    def end(self) -> None:
        if not self._given.restored() and not self._bound.plan.kernel.in_place:
            self.verdict = RIGHT  # which explains any wrong result
            self._add(Verdict("fail", WROTE_INPUT))
        other = self._others.restored_owner(self._before, self._key)
        if other is not None:
            self._add(Verdict("fail", f"it wrote to memory of {self._others.name(other)}"))

    def _add(self, found: Verdict) -> None:
        if found.outcome == "fail":
            found = replace(found, reason=f"timed launch {self._launches}: {found.reason}")
        self.verdict = worse(self.verdict, found)
