"""The input that is timed: two that differ in a chunk, so that an answer which was kept shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random

import numpy as np

from cudareduce.backend import Buffer, TimedBackend
from cudareduce.launch.case import Shape
from cudareduce.launch.plan import Plan
from cudareduce.problem.dtypes import DType
from cudareduce.problem.expression import fold_mapped
from cudareduce.problem.inputs import Array, as_answers, as_numbers, make_all, rounds_nothing
from cudareduce.problem.operators import OPERATORS, Reduction
from cudareduce.problem.reference import Reference, reference, with_elements
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.verdict import Verdict, judge

#: The share of the input that a chunk is, so that a sum moves by more than its bound, and its most
#: bytes, so that it is quickly written.
_SHARE, _MOST_BYTES = 64, 2**20
#: Operators of which one element decides.
_EXTREMA = ("min", "max", "argmin", "argmax")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where one input differs from the other, in elements, and what stands there in either."""

    start: int
    kept: tuple[Array, Array]

    @property
    def place(self) -> slice:
        """The elements that differ."""
        return slice(self.start, self.start + len(self.kept[0]))


class TimedData:
    """Two inputs of one pattern, as the host knows them: number 0 as it was made, and number 1,
    which differs in a chunk somewhere. A `seed` gives the same; `elements` are what it would
    make. Where a map takes two arrays, `arrays` are both, and each has a chunk of its own."""

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
        random, exact = Random(seed), rounds_nothing(pattern, reduction)
        most = max(0, used - count)
        starts = [  # where hardly any are other than 0, one is in the middle
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
        self._tells: dict[int, bool] = {}  # of plans, by their identity
        self._found: dict[tuple[int, int, bytes], Verdict | None] = {}

    @property
    def elements(self) -> Array:
        """Those of the first input, or the only one."""
        return self.arrays[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs."""
        return sum(array.nbytes for array in self.arrays)

    def reference(self, shape: Shape, number: int) -> Reference:
        """The right answers of the first elements of an input, taken as this shape."""
        key = shape, number
        if key not in self._refs:
            self.place(number)
            used, *other = (array[: shape[0] * shape[1]] for array in self.arrays)
            self._refs[key] = reference(self.reduction, used, shape[1], *other)
            self.place(0)
        return self._refs[key]

    def place(self, number: int) -> None:
        """Make the elements those of an input; in place, since they may fill half of the memory."""
        for array, chunk in zip(self.arrays, self.chunks, strict=True):
            array[chunk.place] = chunk.kept[number]

    def judged(self, plan: Plan, answers: Array, number: int) -> Verdict | None:
        """The verdict on answers; None where the bound is too wide to tell. The same bits are
        judged once: most kernels give the same ones at each of hundreds of launches."""
        key = id(plan), number, blake2b(answers.tobytes()).digest()
        if key not in self._found:
            self._found[key] = self._verdict(plan, answers, number)
        return self._found[key]

    def _verdict(self, plan: Plan, answers: Array, number: int) -> Verdict | None:
        shape = plan.problem.n, plan.problem.rows
        ref = self.reference(shape, number)
        if not plan.kernel.asks.any:
            return judge(plan, answers, ref, self.pattern)
        self.place(number)
        used = self.elements[: shape[0] * shape[1]]
        known = with_elements(ref, self.reduction, used, shape[1])
        verdict = judge(plan, answers, known, self.pattern)
        self.place(0)
        return verdict

    def tells(self, plan: Plan) -> bool:
        """Whether an answer to one input shows as a wrong one to the other."""
        shape = plan.problem.n, plan.problem.rows
        if id(plan) not in self._tells:
            kept = as_answers(self.reference(shape, 0).expected, self.reduction)
            found = None if plan.folds_on_host else self.judged(plan, kept, 1)
            self._tells[id(plan)] = found is not None and found.outcome == "fail"
        return self._tells[id(plan)]


def _other(chunk: Array, data: Array, reduction: Reduction, exact: bool) -> Array:
    """A chunk that moves the answer, and by more than a bound unless all is `exact`: then what is
    exact stays so."""
    dtype, name = reduction.dtype, reduction.op.name
    other = chunk.copy()
    if reduction.op.expression:  # how far a float answer may be off is a guess: no further values
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
    """For each input the chunk, of a few, that moves what becomes of it most: none of its elements,
    all without their signs, what the other input has there, or what is beyond all others."""
    others = []
    op = OPERATORS["sum"] if reduction.op.name == "mean" else reduction.op
    for k, place in enumerate(places):
        old = arrays[k][place]
        bits = old.view(f"u{reduction.dtype.size}")
        sign = bits.dtype.type(1 << (8 * reduction.dtype.size - 1))
        tried = [old, np.zeros_like(old), (bits & ~sign).view(old.dtype)]
        others_have = (array[place] for j, array in enumerate(arrays) if j != k)
        tried += [] if reduction.within else list(others_have)  # which may leave that
        if op.name in _EXTREMA:
            ends = (_beyond(old, reduction.dtype, highest=highest) for highest in (True, False))
            tried += [np.array([end] * len(old), old.dtype) for end in ends]
        rows = [tried if j == k else [array[place]] * len(tried) for j, array in enumerate(arrays)]
        given = tuple(as_numbers(np.array(some), reduction.dtype) for some in rows)
        answers = fold_mapped(replace(reduction, op=op), given).answer.astype(float)
        others.append(tried[int(np.argmax(np.abs(answers - answers[0])))].copy())
    return others


def _beyond(data: Array, dtype: DType, *, highest: bool) -> object:
    """An element beyond all of the input's, or the last that the type has."""
    if dtype.kind != "float":
        info = np.iinfo(dtype.storage)
        return info.max if highest else info.min
    if dtype.name == "bfloat16":  # 2 and -2, where random ones are below 1
        return 0x4000 if highest else 0xC000
    two = data.dtype.type(2)
    return two if highest else -two


class TimedInput:
    """The timed input on the device, in one context; with `spare` there is a second one, to restore
    it from."""

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
        self._digests = timer.digests(self.buffers)
        self._right = self._digests()
        self.number = 0

    @property
    def buffer(self) -> Buffer:
        """The first input, or the only one."""
        return self.buffers[0]

    def turn_to(self, number: int) -> None:
        """Enqueue a change to one of the two, from the other."""
        if number != self.number:
            size = self.data.reduction.dtype.size
            for buffer, chunk, kept in zip(
                self.buffers, self.data.chunks, self._chunks, strict=True
            ):
                self._backend.overwrite(buffer, chunk.start * size, kept[number])
            self.number = number

    def renew(self) -> None:
        """Enqueue that it is again what a launch has found, from the spare one."""
        number, self.number = self.number, 0
        for buffer, spare in zip(self.buffers, self._spare, strict=True):
            self._backend.overwrite(buffer, 0, spare)
        self.turn_to(number)

    def restored(self) -> bool:
        """Turn to number 0, and say whether it was untouched; if not, it is again."""
        self.turn_to(0)
        if self._digests() == self._right:
            return True
        for buffer, array in zip(self.buffers, self.data.arrays, strict=True):
            self._backend.write(buffer, array)  # the digest has waited
        return False

    def release(self) -> None:
        """Free it, where the context goes on."""
        kept = (one for pair in self._chunks for one in pair)
        self._backend.free(*self.buffers, *kept, *self._spare)
