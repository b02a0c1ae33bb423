"""Verify calls on every rank: exact results of pairs of calls, then the bits of repeated calls.

Inputs change between consecutive calls, and each rank in turn is delayed. This exposes a rank that
does not wait for another's input, or that overwrites an input while another rank reads it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from cudareduce.collectives.communicator import Communicator
from cudareduce.collectives.engines import Engine, Stage
from cudareduce.collectives.inputs import exact_values, expected_result, random_values
from cudareduce.collectives.kernels import PACK_BYTES, TEST_BLOCKS, vector_of
from cudareduce.collectives.windows import GUARD_BYTES, Part
from cudareduce.errors import KernelFault
from cudareduce.reduction.inputs import Array, as_numbers, stored
from cudareduce.results.record import Record

#: The least number of call pairs, and calls with the same input. The delay of the late rank: in s
#: on the host, and in a kernel in SM clocks, or ns on the emulator.
_LEAST_PAIRS, REPEATS = 3, 10
_LATE_S, DELAY_CLOCKS = 2e-3, 2_000_000


class VerifiedCalls(Protocol):
    """The calls of one engine on `n` elements, as the checks below need them."""

    @property
    def n(self) -> int: ...

    def exact(self, turn: int, turns: int) -> tuple[Array, Any]:
        """This rank's input of call `turn` of `turns`, and the expected result."""

    def repeated(self) -> tuple[Array, Any, Any]:
        """This rank's input of repeated calls, the expected result, and the bound of its error, or
        None if the result must be exact."""

    def run(self, values: Array, late: int) -> Any:
        """The output of one call with rank `late` delayed. Raises KernelFault and RankLost."""

    def result(self, output: Any) -> Any:
        """The elements of an output that belong to this rank's result."""

    def why_wrong(self, output: Any, values: Array, expected: Any) -> str | None:
        """Why an output is wrong, or None."""


def verify_pairs(comm: Communicator, calls: VerifiedCalls, pairs: int) -> str | None:
    """Run pairs of consecutive calls. Returns why a call was wrong on a rank, or None; the same on
    all ranks.

    The same rank is delayed in both calls of a pair, so that the others enter the second call while
    it still reads inputs of the first. Inputs are generated before and results are checked after
    both calls, since work in between would hide the race.
    """
    wrong = None
    for pair in range(pairs):  # continue after an error: other ranks wait for this one
        turns = (2 * pair, 2 * pair + 1)
        inputs = [calls.exact(turn, 2 * pairs) for turn in turns]
        outputs = []
        for values, _ in inputs:
            if comm.rank == pair % comm.size:
                time.sleep(_LATE_S)
            outputs.append(_run(calls, values, pair % comm.size))
        for turn, output, (values, right) in zip(turns, outputs, inputs, strict=True):
            why = output if isinstance(output, str) else calls.why_wrong(output, values, right)
            wrong = wrong or (why and f"rank {comm.rank}, n = {calls.n}, call {turn + 1}: {why}")
    return next(filter(None, comm.all_gather(wrong)), None)


def verify_repeats(
    comm: Communicator, calls: VerifiedCalls, *, same_bits: bool
) -> tuple[int, str | None]:
    """Run calls with the same input. Returns the number of distinct results, and why one is wrong,
    or None. With `same_bits`, all ranks must have identical results."""
    values, right, bound = calls.repeated()
    hashes, wrong = [], None
    for _ in range(REPEATS):  # continue after an error, as above
        output = _run(calls, values, 0)
        why = output if isinstance(output, str) else None
        if why is None:
            result = calls.result(output)
            hashes.append(hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest())
            if bound is None and not np.array_equal(result, right):
                why = "a repeated call has another result"
            if bound is not None and not (np.abs(result - right) <= bound).all():
                why = "the error exceeds the bound of every summation order"
        wrong = wrong or (why and f"rank {comm.rank}, n = {calls.n}: {why}")
    gathered = comm.all_gather([hashes, wrong])
    by_rank = [rank_hashes for rank_hashes, _ in gathered]
    wrong = next((why for _, why in gathered if why), None)
    if not wrong and same_bits and any(each != by_rank[0] for each in by_rank):
        wrong = "the bits of the result differ between ranks"
    return max(len(set(each)) for each in by_rank), wrong


def _run(calls: VerifiedCalls, values: Array, late: int) -> Any:
    """The output of a call, or the message of its fault."""
    try:
        return calls.run(values, late)
    except KernelFault as fault:
        return str(fault)


def call_pairs(ranks: int, blocks: int = 1) -> int:
    """The number of call pairs: one for each delayed rank, and one for each most delayed block if
    the launch has only `TEST_BLOCKS`."""
    return max(_LEAST_PAIRS, ranks, blocks if blocks <= TEST_BLOCKS else 1)


def verify_engine(
    stage: Stage, engine: Engine, sizes: list[int], numbers: Iterator[int]
) -> Record:  # fmt: skip
    """Verify an engine at all test sizes. All ranks call it together and get the same record: of
    the largest requested size, or of the first size with a wrong result. Raises RankLost."""
    stage = replace(stage, windows=engine.windows)
    comm, launches, distinct = stage.comm, 0, None
    for n in _test_sizes(vector_of(stage.reduction), comm.size, sizes, engine.edges):
        if engine.why_not(n):
            continue
        pairs = call_pairs(comm.size, engine.edges.get(n, 1))
        launches += 2 * pairs
        with comm.during(f"{engine.name} of {n} elements"):
            wrong = verify_pairs(comm, EngineCalls(stage, engine, n, numbers), pairs)
        if wrong:
            break
    else:
        n, launches = max(sizes), launches + REPEATS
        with comm.during(f"{engine.name} of {n} elements"):
            calls = EngineCalls(stage, engine, n, numbers)
            same_bits = stage.collective == "all-reduce"
            distinct, wrong = verify_repeats(comm, calls, same_bits=same_bits)
    stage.backend.zero(stage.windows.status)
    return stage.record(
        engine.name, n, verdict="fail" if wrong else "pass", reason=wrong or "",
        distinct=distinct, launches=None if distinct is None else REPEATS, tried_launches=launches,
        version=engine.version,
    )  # fmt: skip


def _test_sizes(
    vector: int, ranks: int, requested: list[int], more: Iterable[int]
) -> list[int]:  # fmt: skip
    """The requested sizes, `more`, and sizes around the ends of packs and slices up to the largest
    of these."""
    pack, packs = vector, vector * ranks
    edges = {1, pack - 1, pack, pack + 1, packs - 1, packs, packs + 1, 1000, 4099, *more}
    return sorted({n for n in edges if 0 < n <= max([*requested, *more])} | set(requested))


@dataclass(frozen=True, slots=True)
class CallOutput:
    """The state after a call: the output as numbers, the bytes of the input, and the bytes of the
    output with its guard bytes."""

    result: Array
    input: Array
    output: Array


@dataclass(frozen=True, slots=True)
class EngineCalls:
    """`VerifiedCalls` of an engine, on arrays in its windows."""

    stage: Stage
    engine: Engine
    n: int
    numbers: Iterator[int]

    def exact(self, turn: int, turns: int) -> tuple[Array, Array]:
        reduction, ranks, rank = self.stage.reduction, self.stage.comm.size, self.stage.comm.rank
        inputs = [exact_values(reduction, each, turn, self.n) for each in range(ranks)]
        # libraries differ in how min and max treat NaN
        library = self.engine.version and reduction.op.name in ("min", "max")
        if reduction.dtype.kind == "float" and turn % 2 and not library:
            inputs = [values.astype(np.float64) for values in inputs]
            inputs[(turn // 2 + 1) % ranks][self.n // 2] = np.nan
        return stored(inputs[rank], reduction.dtype), self._rounded(
            expected_result(reduction, inputs)
        )

    def repeated(self) -> tuple[Array, Array, Array | None]:
        reduction, ranks, rank = self.stage.reduction, self.stage.comm.size, self.stage.comm.rank
        product = reduction.op.name == "prod"
        if reduction.dtype.kind != "float":
            inputs = [exact_values(reduction, each, 0, self.n) for each in range(ranks)]
            right = self._rounded(expected_result(reduction, inputs))
            return stored(inputs[rank], reduction.dtype), right, None
        own = [stored(random_values(each, self.n, factors=product), reduction.dtype)
               for each in range(ranks)]  # fmt: skip
        values = [as_numbers(each, reduction.dtype).astype(np.float64) for each in own]
        # at most `ranks` roundings per element, the last one to the dtype
        sizes = (np.prod if product else np.sum)(np.abs(values), axis=0)
        bound: Array = ranks * reduction.dtype.epsilon * sizes[self._own]
        return own[rank], expected_result(reduction, values)[self._own], bound

    def run(self, values: Array, late: int) -> CallOutput:
        """Run one call with a poisoned output; downloads input, output and guard bytes."""
        backend, front = self.stage.backend, self._front
        source = self.stage.windows.part(self.stage.windows.layout.input, values.nbytes)
        packs = -(-values.nbytes // PACK_BYTES)
        output = self.stage.windows.part(
            self.stage.windows.layout.output - front, front + packs * PACK_BYTES + GUARD_BYTES
        )
        backend.poison(output)
        backend.write(source, values)
        self.engine.run(self.n, next(self.numbers), late)
        before, after = self._bytes(source), self._bytes(output)
        dtype = self.stage.reduction.dtype
        result = after[front : front + values.nbytes].view(dtype.storage)
        return CallOutput(as_numbers(result, dtype), before, after)

    def result(self, output: CallOutput) -> Array:
        return output.result[self._own]

    def why_wrong(self, output: CallOutput, values: Array, expected: Array) -> str | None:
        result, size = output.result[self._own], self.stage.reduction.dtype.size
        nans = (result != result) & (expected != expected)
        wrong = np.flatnonzero(~((result == expected) | nans))
        if len(wrong):
            first = wrong[0]
            return (
                f"element {self._own.start + first} is {result[first]}, not {expected[first]}; "
                f"{len(wrong)} of {len(expected)} are wrong"
            )
        changed = np.flatnonzero(output.input != values.view("uint8"))
        if len(changed) and not self._in_place:
            return f"it writes to its input, at element {changed[0] // size}"
        # an in-place engine's input stays outside of the result; the rest of a pack may be written
        allowed = slice(0, self.n) if self._in_place else self._own
        rest = output.output.copy()
        end = -(-allowed.stop * size // PACK_BYTES) * PACK_BYTES
        rest[self._front + allowed.start * size : self._front + end] = 0xFF
        written = np.flatnonzero(rest != 0xFF)
        if len(written):
            first = (written[0] - self._front) // size
            return f"it writes outside of the result, at element {first}"
        return None

    def _rounded(self, values: Array) -> Array:
        """This rank's slice of a result, rounded to the dtype."""
        dtype = self.stage.reduction.dtype
        return as_numbers(stored(values, dtype), dtype)[self._own]

    def _bytes(self, part: Part) -> Array:
        return self.stage.backend.download(part, "uint8", part.nbytes).copy()

    @property
    def _own(self) -> slice:
        return self.stage.own_slice(self.n)

    @property
    def _in_place(self) -> bool:
        return self.stage.windows.layout.input == self.stage.windows.layout.output

    @property
    def _front(self) -> int:
        """The number of guard bytes in front of an output; 0 for in-place engines."""
        return 0 if self._in_place else GUARD_BYTES
