"""The input that is timed: two that differ in a chunk, so that an answer which was kept shows."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from random import Random

import numpy as np

from cudareduce.backend import Buffer, TimedBackend
from cudareduce.launch.case import Shape
from cudareduce.launch.plan import Plan
from cudareduce.problem.dtypes import DType
from cudareduce.problem.inputs import Array, make, rounds_nothing
from cudareduce.problem.operators import Reduction
from cudareduce.problem.reference import Reference, reference
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.verdict import Verdict, judge

#: The share of the input that a chunk is, so that a sum moves by more than its bound, and its most
#: bytes, so that it is quickly written.
_SHARE, _MOST_BYTES = 64, 2**20
#: What is wrong with a kernel after which the input is not what it was.
WROTE_INPUT = "it wrote to its input"
#: Operators of which one element decides.
_EXTREMA = ("min", "max", "argmin", "argmax")


class TimedData:
    """Two inputs of one pattern, as the host knows them: number 0 as it was made, and number 1,
    which differs in a chunk somewhere. A `seed` gives the same; `elements` are what it would
    make."""

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
        self.elements = make(pattern, reduction, n, rows, seed) if elements is None else elements
        used = min((plan.problem.elements for plan in plans), default=0)
        count = max(1, min(used // _SHARE, _MOST_BYTES // reduction.dtype.size))
        self.start = Random(seed).randrange(max(1, used - count))
        self._chunk = slice(self.start, self.start + count)
        old = self.elements[self._chunk].copy()
        exact = rounds_nothing(pattern, reduction)
        self.chunks = (old, _other(old, self.elements, reduction, exact))
        self._refs: dict[tuple[Shape, int], Reference] = {}
        self._tells: dict[int, bool] = {}  # of plans, by their identity
        self._found: dict[tuple[int, int, bytes], Verdict | None] = {}

    def reference(self, shape: Shape, number: int) -> Reference:
        """The right answers of the first elements of an input, taken as this shape."""
        key = shape, number
        if key not in self._refs:
            self.place(number)
            used = self.elements[: shape[0] * shape[1]]
            self._refs[key] = reference(self.reduction, used, shape[1])
            self.place(0)
        return self._refs[key]

    def place(self, number: int) -> None:
        """Make the elements those of an input; in place, since they may fill half of the memory."""
        self.elements[self._chunk] = self.chunks[number]

    def judged(self, plan: Plan, answers: Array, number: int) -> Verdict | None:
        """The verdict on answers; None where the bound is too wide to tell. The same bits are
        judged once: most kernels give the same ones at each of hundreds of launches."""
        key = id(plan), number, blake2b(answers.tobytes()).digest()
        if key not in self._found:
            shape = plan.problem.n, plan.problem.rows
            self._found[key] = judge(plan, answers, self.reference(shape, number), self.pattern)
        return self._found[key]

    def tells(self, plan: Plan) -> bool:
        """Whether an answer to one input shows as a wrong one to the other."""
        shape = plan.problem.n, plan.problem.rows
        if id(plan) not in self._tells:
            kept = self.reference(shape, 0).expected.astype(self.reduction.result_dtype)
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
    if dtype.kind != "float":
        bits[0] ^= highest if reduction.op.words == 1 else 1
    elif exact or name == "prod":
        bits[0] ^= highest
    elif (bits & highest).any():
        bits &= ~highest  # all positive
    else:
        bits |= highest
    return other


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
    """The timed input on the device, in one context."""

    def __init__(
        self, backend: TimedBackend, timer: DeviceTimer, given: TimedData, misalign: int = 0
    ) -> None:
        self._backend, self.data = backend, given
        self.buffer: Buffer = backend.upload(given.elements, misalign)
        self._chunks = tuple(backend.upload(chunk) for chunk in given.chunks)
        self._digest = timer.digests([self.buffer])
        self._right = self._digest()
        self.number = 0

    def turn_to(self, number: int) -> None:
        """Enqueue a change to one of the two, from the other."""
        if number != self.number:
            start = self.data.start * self.data.reduction.dtype.size
            self._backend.overwrite(self.buffer, start, self._chunks[number])
            self.number = number

    def restored(self) -> bool:
        """Turn to number 0, and say whether it was untouched; if not, it is again."""
        self.turn_to(0)
        if self._digest() == self._right:
            return True
        self._backend.write(self.buffer, self.data.elements)  # the digest has waited
        return False

    def release(self) -> None:
        """Free it, where the context goes on."""
        self._backend.free(self.buffer, *self._chunks)
