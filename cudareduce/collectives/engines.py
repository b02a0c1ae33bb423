"""Engines that run collectives: our kernels over peer memory, and the host.

All ranks call an engine with the same call numbers, which grow by one. A call ends when this rank
has its result. `peer:auto` takes the fastest kernel for the array's size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from cudareduce.backend import Backend, Launch, Program, Source
from cudareduce.collectives.communicator import Communicator, watchdog
from cudareduce.collectives.inputs import UFUNCS, from_storage, output_slice, to_storage
from cudareduce.collectives.kernels import (
    AUTO,
    MOST_MAIL,
    ExchangeKernel,
    edge_sizes,
    helper_kernel,
    source,
    vector_of,
)
from cudareduce.collectives.names import Collective
from cudareduce.collectives.windows import Windows, flags_bytes
from cudareduce.errors import BuildError, KernelFault
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import Reduction
from cudareduce.results.record import Record

#: Limits for a call in s, a thousand times what it takes, on GPUs and on the emulator.
_CALL_S, _EMULATED_S = 10.0, 60.0
_BY_WAIT = "a kernel waits for other ranks by `wait`, which gives up, or its loop has no end"


@dataclass(frozen=True, slots=True)
class Stage:
    """What all engines of a run share."""

    backend: Backend
    comm: Communicator
    windows: Windows
    collective: Collective
    reduction: Reduction


class Engine:
    """One implementation of a collective. `mail`: by the LL protocol, so for small arrays only.
    `edges` are sizes that must be verified, each with the number of blocks to launch. `version` is
    a library's, the SHA-256 sums are those of a kernel's source and machine code."""

    name: str
    mail = False
    version: str | None = None
    source_sha: str | None = None
    binary_sha: str | None = None
    edges: Mapping[int, int] = MappingProxyType({})

    def __init__(self, stage: Stage) -> None:
        self.stage, self.windows = stage, stage.windows

    def why_not(self, n: int) -> str | None:
        """Why it does not support `n` elements, or None."""
        return None

    def run(self, n: int, call: int, late: int) -> None:
        """Run one call on `n` elements. In builds that stumble, rank `late` does. Raises
        KernelFault and RankLost."""
        raise NotImplementedError


class StreamEngine(Engine):
    """An engine whose calls run on a GPU's stream, so that they can be timed."""

    def enqueue(self, n: int, call: int) -> Launch:
        """A prepared launch of one call."""
        raise NotImplementedError


class KernelEngine(StreamEngine):
    """One of our kernels. `number` selects its flags in the window, so that its barriers can count
    freely."""

    def __init__(
        self, stage: Stage, kernel: ExchangeKernel, program: Program, number: int,
        edges: Mapping[int, int],
    ) -> None:  # fmt: skip
        super().__init__(stage)
        self.name, self.mail = kernel.engine, kernel.mail == "packets"
        self.source_sha, self.binary_sha = kernel.sha, program.binary_sha
        self.edges = edges
        self._kernel, self._program = kernel, program
        self._flags = stage.windows.layout.flags + number * flags_bytes(stage.comm.size)

    def enqueue(self, n: int, call: int, late: int = 0) -> Launch:
        stage, kernel, parts = self.stage, self._kernel, self.windows.layout
        count = n if self.mail else -(-n // vector_of(stage.reduction))
        blocks, mail = -(-count // kernel.block), parts.mail
        if kernel.mail == "shares":  # half of the blocks send, half add
            blocks, mail = 2 * -(-blocks // stage.comm.size), parts.slots
        grid = max(1, min(blocks, self.edges.get(n, kernel.blocks)))
        args = [parts.input, parts.output, count, self._flags, mail, call]
        ranks = self.windows.words(late, call // 2 % grid)
        return stage.backend.launcher(self._program, grid, kernel.block, [ranks, *args])

    def run(self, n: int, call: int, late: int) -> None:
        backend = self.stage.backend
        limit_s = _CALL_S if backend.timed() else _EMULATED_S
        what = f"{self.name} of {n} elements"
        with watchdog(what, limit_s, _BY_WAIT, KernelFault.exit_code):
            self.enqueue(n, call, late)()
            backend.synchronize()
        raise_if_gave_up(self.stage)


def raise_if_gave_up(stage: Stage) -> None:
    """Raise KernelFault if this rank's kernel gave up waiting for another rank."""
    gave_up, rank = stage.backend.download(stage.windows.status, "uint32", 2)
    if gave_up:
        raise KernelFault(f"rank {stage.windows.rank} has waited too long for rank {rank}")


class HostEngine(Engine):
    """Combines the arrays with NumPy, over the communicator's connections."""

    name = "host"

    def run(self, n: int, call: int, late: int) -> None:
        stage, parts, reduction = self.stage, self.windows.layout, self.stage.reduction
        dtype, nbytes = reduction.dtype, n * reduction.dtype.size
        own = stage.backend.download(self.windows.part(parts.input, nbytes), dtype.storage, n)
        value: np.ndarray | None = None
        for data in stage.comm.all_gather_bytes(own.tobytes()):
            array = from_storage(np.frombuffer(data, dtype.storage), dtype)
            array = array.astype(reduction.acc.storage)
            value = array if value is None else UFUNCS[reduction.op.name](value, array)
        assert value is not None
        own_part = output_slice(stage.collective, reduction, stage.comm.rank, stage.comm.size, n)
        result = np.ascontiguousarray(to_storage(value, dtype)[own_part])
        output = self.windows.part(parts.output, nbytes)
        stage.backend.write(output, result, own_part.start * dtype.size)


def kernel_engines(
    stage: Stage, kernels: Sequence[ExchangeKernel], stumble: int = 0
) -> list[KernelEngine]:
    """Compile our kernels as engines, to be verified in builds that stumble, else to be timed.
    Raises BuildError, EnvironmentProblem and RankLost."""
    reduction, ranks = stage.reduction, stage.comm.size
    programs = compile_programs(stage, [source(k, reduction, ranks, stumble) for k in kernels])
    return [
        KernelEngine(stage, kernel, programs[number], number,
                     edge_sizes(kernel, reduction, ranks) if stumble else {})
        for number, kernel in enumerate(kernels)
    ]  # fmt: skip


def compile_helpers(stage: Stage, file: str, *entries: str) -> list[Program]:
    """Compile measuring kernels of one of our files. Raises BuildError."""
    sources = [helper_kernel(file, entry, stage.reduction, stage.comm.size) for entry in entries]
    return compile_programs(stage, sources)


def compile_programs(stage: Stage, sources: Sequence[Source]) -> list[Program]:
    """Compile sources that must compile. Raises BuildError, EnvironmentProblem and RankLost."""
    programs = []
    for program in build_programs(stage, sources):
        if isinstance(program, BuildError):
            raise program
        programs.append(program)
    return programs


def build_programs(stage: Stage, sources: Sequence[Source]) -> list[Program | BuildError]:
    """Compile sources on rank 0 first, so that the other ranks find them in the cache. Raises
    EnvironmentProblem and RankLost."""
    if stage.comm.rank > 0:
        stage.comm.barrier()
    programs = stage.backend.build(sources)
    if stage.comm.rank == 0:
        stage.comm.barrier()
    stage.comm.barrier()  # no kernel waits for a rank that compiles
    return [program for program in programs if program is not None]  # None only at a deadline


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


class AutoEngine(StreamEngine):
    """The engine `peer:auto`, which chooses one of some kernels at each size. Its SHA-256 sums stay
    unknown, so that no comparison takes it for unchanged code."""

    name = f"peer:{AUTO}"

    def __init__(self, stage: Stage, engines: Mapping[str, KernelEngine]) -> None:
        super().__init__(stage)
        self._engines = engines

    def enqueue(self, n: int, call: int) -> Launch:
        return self._fastest(n).enqueue(n, call)

    def run(self, n: int, call: int, late: int) -> None:
        self._fastest(n).run(n, call, late)

    def _fastest(self, n: int) -> KernelEngine:
        stage, size = self.stage, self.stage.reduction.dtype.size
        return self._engines[
            fastest_kernel(stage.collective, self._engines, stage.comm.size, n, size)
        ]


def record_choice(record: Record, known: Collection[str]) -> Record:
    """The record with the kernel that `peer:auto` chose; other records are unchanged."""
    if record.engine != AutoEngine.name:
        return record
    size = DTYPES[record.dtype].size
    name = fastest_kernel(record.kernel, known, record.ranks or 1, record.n, size)
    return replace(record, chosen=f"peer:{name}")
