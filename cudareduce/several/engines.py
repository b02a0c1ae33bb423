"""Engines that run collectives: our kernels over peer memory, and the host.

All ranks call an engine with the same call numbers, which grow by one. A call ends when this rank
has its result. `peer:auto` takes the fastest kernel for the array's size.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np

from cudareduce.backend import Backend, Launch, Program, Source
from cudareduce.errors import BuildError, KernelFault
from cudareduce.problem.dtypes import DTYPES, DType
from cudareduce.problem.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.several.collectives import Collective
from cudareduce.several.communicator import Communicator, watchdog
from cudareduce.several.inputs import UFUNCS, from_storage, output_slice, to_storage
from cudareduce.several.kernels import (
    AUTO,
    MOST_MAIL,
    ExchangeKernel,
    edge_sizes,
    source,
    vector_of,
)
from cudareduce.several.windows import Windows, flags_bytes

#: Limits for a call in s, a thousand times what it takes, on GPUs and on the emulator.
_CALL_S, _EMULATED_S = 10.0, 60.0
_BY_WAIT = "a kernel waits for other ranks by `wait`, which gives up, or its loop has no end"


class Engine(Protocol):
    """One implementation of a collective. `version` is a library's."""

    name: str
    mail: bool  # LL protocol: small arrays only
    windows: Windows
    version: str | None

    def why_not(self, n: int) -> str | None:
        """Why it does not support `n` elements, or None."""

    def run(self, n: int, call: int, late: int) -> None:
        """Run one call on `n` elements. In builds that stumble, rank `late` does. Raises
        KernelFault and RankLost."""


class StreamEngine(Engine, Protocol):
    """An engine whose calls run on a GPU's stream, so that they can be timed."""

    def enqueue(self, n: int, call: int) -> Launch:
        """A prepared launch of one call."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What all engines of a run share."""

    backend: Backend
    comm: Communicator
    windows: Windows
    collective: Collective
    reduction: Reduction


@dataclass(frozen=True, slots=True)
class Code:
    """SHA-256 of an engine's source and of its machine code."""

    source_sha: str | None = None
    cubin_sha: str | None = None


class KernelEngine:
    """One of our kernels. `number` selects its flags in the window, so that its barriers can count
    freely. When `tried`, its `edges` are sizes that must be verified."""

    version: str | None = None

    def __init__(
        self, stage: Stage, kernel: ExchangeKernel, program: Program, number: int, *, tried: bool
    ) -> None:
        self.windows = stage.windows
        self.edges = edge_sizes(kernel, stage.reduction, stage.comm.size) if tried else {}
        self.name, self.mail = f"peer:{kernel.short}", kernel.mail == "packets"
        self._stage, self._kernel, self._program = stage, kernel, program
        self._flags = stage.windows.layout.flags + number * flags_bytes(stage.comm.size)

    def why_not(self, n: int) -> None:
        """It takes any."""

    @property
    def code(self) -> Code:
        return Code(self._kernel.sha, self._program.binary_sha)

    def enqueue(self, n: int, call: int, late: int = 0) -> Launch:
        stage, kernel = self._stage, self._kernel
        vector, parts = vector_of(stage.reduction), stage.windows.layout
        count = n if self.mail else -(-n // vector)
        blocks, mail = -(-count // kernel.block), parts.mail
        if kernel.mail == "shares":  # half of the blocks send, half add
            blocks, mail = 2 * -(-blocks // stage.comm.size), parts.boxes
        grid = max(1, min(blocks, self.edges.get(n, kernel.blocks)))
        places = [parts.input, parts.output, count, self._flags, mail, call]
        ranks = stage.windows.words(late, call // 2 % grid)
        return stage.backend.launcher(self._program, grid, kernel.block, [ranks, *places])

    def run(self, n: int, call: int, late: int) -> None:
        limit_s = _CALL_S if self._stage.backend.timed() else _EMULATED_S
        what = f"{self.name} of {n} elements"
        with watchdog(what, limit_s, _BY_WAIT, KernelFault.exit_code):
            self.enqueue(n, call, late)()
            self._stage.backend.synchronize()
        raise_if_gave_up(self._stage)


def raise_if_gave_up(stage: Stage) -> None:
    """Raise KernelFault if this rank's kernel gave up waiting for another rank."""
    gave_up, whom = stage.backend.download(stage.windows.status, "uint32", 2)
    if gave_up:
        raise KernelFault(f"rank {stage.windows.rank} has waited too long for rank {whom}")


class HostEngine:
    """Combines the arrays with NumPy, over the communicator's connections."""

    name, mail = "host", False
    version: str | None = None

    def __init__(self, stage: Stage) -> None:
        self._stage, self.windows = stage, stage.windows

    def why_not(self, n: int) -> None:
        """It takes any."""

    def run(self, n: int, call: int, late: int) -> None:
        stage, dtype = self._stage, self._stage.reduction.dtype
        parts, size = stage.windows.layout, dtype.size
        own = stage.backend.download(stage.windows.part(parts.input, n * size), dtype.storage, n)
        texts = stage.comm.all_gather(base64.b64encode(own.tobytes()).decode())
        arrays = [np.frombuffer(base64.b64decode(text), dtype.storage) for text in texts]
        answer = to_storage(self._combined([from_storage(array, dtype) for array in arrays]), dtype)
        mine = output_slice(stage.collective, stage.reduction, stage.comm.rank, len(arrays), n)
        place = stage.windows.part(parts.output, n * size)
        stage.backend.write(place, np.ascontiguousarray(answer[mine]), mine.start * size)

    def _combined(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Combine in rank order, in the accumulator's type."""
        acc: DType = self._stage.reduction.acc
        combine = UFUNCS[self._stage.reduction.op.name]
        value = arrays[0].astype(acc.storage)
        for array in arrays[1:]:
            value = combine(value, array.astype(acc.storage))
        return value


def kernel_engines(
    stage: Stage, kernels: Sequence[ExchangeKernel], stumble: int = 0
) -> list[KernelEngine]:
    """Compile our kernels as engines. Raises BuildError, EnvironmentProblem and RankLost."""
    ranks = stage.comm.size
    sources = [source(kernel, stage.reduction, ranks, stumble) for kernel in kernels]
    programs = compile_programs(stage, sources)
    pairs = zip(kernels, programs, strict=True)
    return [
        KernelEngine(stage, *pair, number, tried=stumble > 0) for number, pair in enumerate(pairs)
    ]


def compile_programs(stage: Stage, sources: Sequence[Source]) -> list[Program]:
    """Compile sources that must compile. Raises BuildError, EnvironmentProblem and RankLost."""
    programs = []
    for program in build_programs(stage, sources):
        assert program is not None  # only a deadline leaves None
        if isinstance(program, BuildError):
            raise program
        programs.append(program)
    return programs


def build_programs(stage: Stage, sources: Sequence[Source]) -> list[Program | BuildError | None]:
    """Compile sources on rank 0 first, so that the other ranks find them in the cache. Raises
    EnvironmentProblem and RankLost."""
    if stage.comm.rank > 0:
        stage.comm.barrier()
    found = stage.backend.build(sources)
    if stage.comm.rank == 0:
        stage.comm.barrier()
    stage.comm.barrier()  # no kernel waits for a rank that compiles
    return found


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost model: `floor_us` for an empty array, plus `wire(ranks)` times the array's bytes over
    a link of `gb_s`."""

    floor_us: float
    gb_s: float
    wire: Callable[[int], float]


#: Measured on two H200 with 18 NVLinks, 2^10 to 2^28 float32; `writes` and reduce-scatter on two
#: H100. For more ranks the bytes are calculated, with the same floors. The floor of `writes` makes
#: it take over from `two_shot` at 3 MB: it is slower at 1 MiB and faster at 4 MiB on both machines.
COSTS: Mapping[str, Mapping[str, Cost]] = MappingProxyType({
    "all-reduce": {
        "packets": Cost(6.2, 290.0, lambda ranks: 2.0 * (ranks - 1)),  # half of the bytes are flags
        "one_shot": Cost(9.5, 300.0, lambda ranks: ranks - 1.0),
        "two_shot": Cost(9.8, 345.0, lambda ranks: 2 * (ranks - 1) / ranks),
        "writes": Cost(10.3, 366.0, lambda ranks: 2 * (ranks - 1) / ranks),
    },
    "reduce-scatter": {
        "scatter": Cost(11.0, 333.0, lambda ranks: (ranks - 1) / ranks),
        "writes": Cost(11.3, 366.0, lambda ranks: (ranks - 1) / ranks),
    },
    "reduce": {},
})  # fmt: skip
#: Bytes of data in a slot of the LL protocol.
_VALUE_BYTES = 4


def fastest_kernel(collective: str, known: Collection[str], ranks: int, n: int, size: int) -> str:
    """The kernel with the lowest modelled time for `n` elements of `size` bytes. A kernel without a
    cost model is taken only if there is no other."""
    costs = COSTS[collective]

    def us(name: str) -> float:
        cost = costs[name]
        # a slot holds up to 4 bytes of data, so 8-byte types take two
        nbytes = n * max(size, _VALUE_BYTES) if name == "packets" else n * size
        return cost.floor_us + cost.wire(ranks) * nbytes / cost.gb_s / 1e3

    fitting = [name for name in known if name in costs]
    if n * size > MOST_MAIL:
        fitting = [name for name in fitting if name != "packets"]
    return min(fitting, key=us) if fitting else next(iter(known))


class AutoEngine:
    """The engine `peer:auto`, which chooses one of some kernels at each size."""

    name, mail = f"peer:{AUTO}", False
    version: str | None = None
    # unknown, so that no comparison takes it for unchanged code: the kernel depends on the size
    code = Code()

    def __init__(self, stage: Stage, peers: Mapping[str, KernelEngine]) -> None:
        self.windows = stage.windows
        self._ranks, self._size = stage.comm.size, stage.reduction.dtype.size
        self._collective, self._peers = stage.collective, peers

    def why_not(self, n: int) -> None:
        """It takes any."""

    def enqueue(self, n: int, call: int) -> Launch:
        return self._taken(n).enqueue(n, call)

    def run(self, n: int, call: int, late: int) -> None:
        self._taken(n).run(n, call, late)

    def _taken(self, n: int) -> KernelEngine:
        taken = fastest_kernel(self._collective, self._peers, self._ranks, n, self._size)
        return self._peers[taken]


def record_choice(record: Record, known: Collection[str]) -> Record:
    """The record with the kernel that `peer:auto` chose; other records are unchanged."""
    if record.engine != AutoEngine.name:
        return record
    size = DTYPES[record.dtype].size
    taken = fastest_kernel(record.kernel, known, record.ranks or 1, record.n, size)
    return replace(record, chosen=f"peer:{taken}")
