"""Engines that run collectives: our kernels over peer memory, and NumPy on the host.

All ranks call an engine with the same call numbers, which grow by one. A call ends when this rank
has its result. `peer:auto` selects the fastest kernel for the array's size from a cost model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np

from cudareduce.backends.protocol import (
    Backend,
    BackendName,
    Launch,
    Program,
    Source,
    require_built,
)
from cudareduce.collectives.communicator import LIBRARY_REMEDY, LIMIT_S, Communicator, watchdog
from cudareduce.collectives.inputs import UFUNCS
from cudareduce.collectives.kernels import (
    AUTO,
    MOST_LL_BYTES,
    ExchangeKernel,
    edge_sizes,
    helper_kernel,
    kernel_source,
    vector_of,
)
from cudareduce.collectives.names import Collective
from cudareduce.collectives.windows import Windows, flags_bytes
from cudareduce.errors import BuildError, EnvironmentProblem, KernelFault
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.inputs import as_numbers, stored
from cudareduce.reduction.operators import Reduction
from cudareduce.results.record import Record

#: Limits in s for a kernel call, on GPUs and on the emulator: a thousand times its duration.
_CALL_S, _EMULATED_S = 10.0, 60.0
_KERNEL_REMEDY = "see that it waits for other ranks only with `wait`, and that its loops end"
#: The largest array in bytes that the host engine takes.
_HOST_BYTES = 2**22


def engine_record(
    collective: Collective, reduction: Reduction, ranks: int, backend: BackendName, engine: str,
    n: int, **fields: Any,
) -> Record:  # fmt: skip
    """A record with verdict pass and no times; `fields` override."""
    plain = Record(
        kernel=collective, op=reduction.op.name, dtype=reduction.dtype.name,
        acc=reduction.acc.name, n=n, rows=1, block=None, items=None, grid=None, passes=None,
        backend=backend, scope="device" if engine.startswith("peer:") else "library",
        timing="warm", region="total", pattern="exact", verdict="pass", reason="", ranks=ranks,
        engine=engine,
    )  # fmt: skip
    return replace(plain, **fields)


@dataclass(frozen=True, slots=True)
class Stage:
    """Backend, ranks, windows and problem that all engines of a run share."""

    backend: Backend
    comm: Communicator
    windows: Windows
    collective: Collective
    reduction: Reduction

    def own_slice(self, n: int) -> slice:
        """The elements of the result for `n` elements that this rank receives: slices end at
        16-byte packs."""
        rank, size, vector = self.comm.rank, self.comm.size, vector_of(self.reduction)
        if self.collective == "all-reduce":
            return slice(0, n)
        if self.collective == "reduce":
            return slice(0, n if rank == 0 else 0)
        packs = -(-n // vector)
        begin, end = packs * rank // size, packs * (rank + 1) // size
        return slice(min(n, begin * vector), min(n, end * vector))

    def record(self, engine: str, n: int, **fields: Any) -> Record:
        return engine_record(
            self.collective, self.reduction, self.comm.size, self.backend.name, engine, n, **fields
        )


class Engine(ABC):
    """One implementation of a collective.

    `largest` is the most elements that it takes. `edges` maps sizes that must be verified to the
    number of blocks to launch. `version` is set for libraries, `source_sha` and `binary_sha`
    (SHA-256 of source and machine code) for kernels.
    """

    name: str
    largest: float = inf
    version: str | None = None
    source_sha: str | None = None
    binary_sha: str | None = None
    edges: Mapping[int, int] = MappingProxyType({})

    def __init__(self, stage: Stage) -> None:
        self.stage, self.windows = stage, stage.windows

    def why_not(self, n: int) -> str | None:
        """Why it does not support `n` elements, or None."""
        return None

    @abstractmethod
    def run(self, n: int, call: int, late: int = 0) -> None:
        """Run one call on `n` elements. In builds with delays, rank `late` is delayed."""


class StreamEngine(Engine):
    """An engine whose calls are enqueued on a GPU's stream, so that they can be timed. A call that
    takes longer than `limit_s` ends the process with `exit_code` and prints `remedy`."""

    limit_s, remedy, exit_code = LIMIT_S, LIBRARY_REMEDY, EnvironmentProblem.exit_code

    @abstractmethod
    def enqueue(self, n: int, call: int, late: int = 0) -> Launch:
        """A prepared launch of one call."""

    def run(self, n: int, call: int, late: int = 0) -> None:
        with watchdog(f"{self.name} of {n} elements", self.limit_s, self.remedy, self.exit_code):
            self.enqueue(n, call, late)()
            self.stage.backend.synchronize()
        raise_if_gave_up(self.stage)


def raise_if_gave_up(stage: Stage) -> None:
    """Raise KernelFault if a kernel of this rank timed out in `Ranks::wait`."""
    gave_up, rank = stage.backend.download(stage.windows.status, "uint32", 2)
    if gave_up:
        raise KernelFault(f"rank {stage.windows.rank} timed out waiting for rank {rank}")


class KernelEngine(StreamEngine):
    """One of our kernels. `number` selects its own flags in the window, so that barrier numbers of
    kernels do not collide. With `delay_clocks` it is built for verification."""

    remedy, exit_code = _KERNEL_REMEDY, KernelFault.exit_code

    def __init__(
        self, stage: Stage, kernel: ExchangeKernel, program: Program, number: int, delay_clocks: int
    ) -> None:
        super().__init__(stage)
        self.name, self.source_sha, self.binary_sha = kernel.engine, kernel.sha, program.binary_sha
        self.limit_s = _CALL_S if stage.backend.timed() else _EMULATED_S
        if kernel.mail == "packets":
            self.largest = MOST_LL_BYTES // stage.reduction.dtype.size
        if delay_clocks:
            self.edges = edge_sizes(kernel, stage.reduction, stage.comm.size)
        self._kernel, self._program = kernel, program
        self._flags = stage.windows.layout.flags + number * flags_bytes(stage.comm.size)

    def enqueue(self, n: int, call: int, late: int = 0) -> Launch:
        stage, kernel, parts = self.stage, self._kernel, self.windows.layout
        count = n if kernel.mail == "packets" else -(-n // vector_of(stage.reduction))
        blocks, mail = -(-count // kernel.block), parts.mail
        if kernel.mail == "shares":  # half of the blocks send, the others combine
            blocks, mail = 2 * -(-blocks // stage.comm.size), parts.slots
        grid = max(1, min(blocks, self.edges.get(n, kernel.blocks)))
        args = [parts.input, parts.output, count, self._flags, mail, call]
        ranks = self.windows.words(late, call // 2 % grid)
        return stage.backend.launcher(self._program, grid, kernel.block, [ranks, *args])


class HostEngine(Engine):
    """Gathers all arrays over the communicator and combines them with NumPy."""

    name = "host"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.largest = _HOST_BYTES // stage.reduction.dtype.size

    def run(self, n: int, call: int, late: int = 0) -> None:
        stage, parts, dtype = self.stage, self.windows.layout, self.stage.reduction.dtype
        nbytes = n * dtype.size
        own = stage.backend.download(self.windows.part(parts.input, nbytes), dtype.storage, n)
        arrays = [
            as_numbers(np.frombuffer(data, dtype.storage), dtype)
            for data in stage.comm.all_gather_bytes(own.tobytes())
        ]
        acc = stage.reduction.acc.storage
        value = UFUNCS[stage.reduction.op.name].reduce(arrays, dtype=acc)
        part = stage.own_slice(n)
        result = np.ascontiguousarray(stored(value, dtype)[part])
        stage.backend.write(
            self.windows.part(parts.output, nbytes), result, part.start * dtype.size
        )


def kernel_engines(
    stage: Stage, kernels: Sequence[ExchangeKernel], delay_clocks: int = 0
) -> list[KernelEngine]:
    """Compile our kernels as engines: with `delay_clocks` for verification, else for timing."""
    reduction, ranks = stage.reduction, stage.comm.size
    programs = compile_programs(
        stage, [kernel_source(k, reduction, ranks, delay_clocks) for k in kernels]
    )
    return [
        KernelEngine(stage, kernel, programs[number], number, delay_clocks)
        for number, kernel in enumerate(kernels)
    ]


def compile_helpers(stage: Stage, file: str, *entries: str) -> list[Program]:
    sources = [helper_kernel(file, entry, stage.reduction, stage.comm.size) for entry in entries]
    return compile_programs(stage, sources)


def compile_programs(stage: Stage, sources: Sequence[Source]) -> list[Program]:
    """Compile sources that must compile. Raises BuildError, EnvironmentProblem and RankLost."""
    return require_built(build_programs(stage, sources))


def build_programs(stage: Stage, sources: Sequence[Source]) -> list[Program | BuildError]:
    """Compile sources on rank 0 first, so that the other ranks find them in the cache."""
    if stage.comm.rank > 0:
        stage.comm.barrier()
    programs = stage.backend.build(sources)
    if stage.comm.rank == 0:
        stage.comm.barrier()
    stage.comm.barrier()  # no kernel waits for a rank that still compiles
    return [program for program in programs if program is not None]  # None only at a deadline


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost model: time = `floor_us` + `wire(ranks)` * array bytes / `gb_s`."""

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
    """The kernel in `known` with the lowest modelled time for `n` elements of `size` bytes. If none
    has a cost model, the first one."""
    costs = COSTS[collective]

    def us(name: str) -> float:
        cost = costs[name]
        # a slot holds up to 4 bytes of data, so 8-byte types take two
        nbytes = n * max(size, _VALUE_BYTES) if name == "packets" else n * size
        return cost.floor_us + cost.wire(ranks) * nbytes / cost.gb_s / 1e3

    fitting = [name for name in known if name in costs]
    if n * size > MOST_LL_BYTES:
        fitting = [name for name in fitting if name != "packets"]
    return min(fitting, key=us) if fitting else next(iter(known))


class AutoEngine(StreamEngine):
    """The engine `peer:auto`, which selects a kernel for each size. Its hashes stay None, so that
    no comparison treats it as identical code."""

    name = f"peer:{AUTO}"
    remedy, exit_code = _KERNEL_REMEDY, KernelFault.exit_code

    def __init__(self, stage: Stage, engines: Mapping[str, KernelEngine]) -> None:
        super().__init__(stage)
        self._engines, self.limit_s = engines, next(iter(engines.values())).limit_s

    def enqueue(self, n: int, call: int, late: int = 0) -> Launch:
        stage, size = self.stage, self.stage.reduction.dtype.size
        name = fastest_kernel(stage.collective, self._engines, stage.comm.size, n, size)
        return self._engines[name].enqueue(n, call, late)


def record_choice(record: Record, known: Collection[str]) -> Record:
    """The record with `chosen` set if its engine is `peer:auto`; else the record unchanged."""
    if record.engine != AutoEngine.name:
        return record
    size = DTYPES[record.dtype].size
    name = fastest_kernel(record.kernel, known, record.ranks or 1, record.n, size)
    return replace(record, chosen=f"peer:{name}")
