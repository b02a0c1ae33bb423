"""What exchanges arrays among ranks: kernels of ours over memory that all can address, or the host.

An engine runs one collective of one reduction on arrays that lie in windows. All ranks call it with
the same numbers, which grow by one; a call ends when this rank has its answer.


`peer:auto`: which kernel of ours is quickest for an array, by its bytes and the number of ranks.

A kernel takes what it takes for nothing, and the time that its wire carries what it sends: so
packets are for small arrays, and what sends least is for large ones.
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
from cudareduce.several.inputs import UFUNCS, read, share, stored
from cudareduce.several.kernels import AUTO, MOST_MAIL, Exchange, edges, source, vector_of
from cudareduce.several.windows import Windows, flags_bytes

#: The longest that a call takes on GPUs, a thousand times over, and on the emulator, in s.
_CALL_S, _EMULATED_S = 10.0, 60.0
_BY_WAIT = "a kernel waits for other ranks by `wait`, which gives up, or its loop has no end"


class Engine(Protocol):
    """One way to run a collective: where its arrays lie, and the version of the library that it
    calls, if it is none of ours."""

    name: str
    mail: bool  # it takes arrays of a few bytes only
    windows: Windows
    version: str | None

    def why_not(self, n: int) -> str | None:
        """Why it does not take `n` elements, whatever their bytes; None if it does."""

    def run(self, n: int, call: int, late: int) -> None:
        """Arrays of `n` elements; rank `late` is the one that stumbles, in builds that do. Raises
        KernelFault and RankLost."""


class StreamEngine(Engine, Protocol):
    """One whose calls take place on a GPU's stream, and so can be timed."""

    def enqueue(self, n: int, call: int) -> Launch:
        """A ready launch of a call."""


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
    """What tells whether an engine is what it was: SHA-256 of its text, and of its machine code."""

    source_sha: str | None = None
    cubin_sha: str | None = None


class Peer:
    """A kernel of ours, launched by all ranks, with the flags of the window's engine `number`, so
    that its barriers may count as they like. Where it is `tried`, its `edges` are what it must be
    tried with."""

    version: str | None = None

    def __init__(
        self, stage: Stage, kernel: Exchange, program: Program, number: int, *, tried: bool
    ) -> None:
        self.windows = stage.windows
        self.edges = edges(kernel, stage.reduction, stage.comm.size) if tried else {}
        self.name, self.mail = f"peer:{kernel.short}", kernel.mail == "packets"
        self._stage, self._kernel, self._program = stage, kernel, program
        self._flags = stage.windows.layout.flags + number * flags_bytes(stage.comm.size)

    def why_not(self, n: int) -> None:
        """It takes any."""

    @property
    def code(self) -> Code:
        """What tells whether it is what it was."""
        return Code(self._kernel.sha, self._program.binary_sha)

    def enqueue(self, n: int, call: int, late: int = 0) -> Launch:
        stage, kernel = self._stage, self._kernel
        vector, parts = vector_of(stage.reduction), stage.windows.layout
        count = n if self.mail else -(-n // vector)
        blocks, mail = -(-count // kernel.block), parts.mail
        if kernel.mail == "shares":  # as many blocks send as add
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
        look_for_those_who_gave_up(self._stage)


def look_for_those_who_gave_up(stage: Stage) -> None:
    """Raise KernelFault if this rank has waited too long on the device."""
    gave_up, whom = stage.backend.download(stage.windows.status, "uint32", 2)
    if gave_up:
        raise KernelFault(f"rank {stage.windows.rank} has waited too long for rank {whom}")


class Host:
    """The ranks' processes: every array over the meeting's connections, combined by NumPy."""

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
        answer = stored(self._combined([read(array, dtype) for array in arrays]), dtype)
        mine = share(stage.collective, stage.reduction, stage.comm.rank, len(arrays), n)
        place = stage.windows.part(parts.output, n * size)
        stage.backend.write(place, np.ascontiguousarray(answer[mine]), mine.start * size)

    def _combined(self, arrays: list[np.ndarray]) -> np.ndarray:
        """In the order of ranks, in the type that kernels accumulate in."""
        acc: DType = self._stage.reduction.acc
        combine = UFUNCS[self._stage.reduction.op.name]
        value = arrays[0].astype(acc.storage)
        for array in arrays[1:]:
            value = combine(value, array.astype(acc.storage))
        return value


def peer_engines(stage: Stage, kernels: Sequence[Exchange], stumble: int = 0) -> list[Peer]:
    """Kernels of ours as engines. Raises BuildError, EnvironmentProblem and RankLost."""
    ranks = stage.comm.size
    sources = [source(kernel, stage.reduction, ranks, stumble) for kernel in kernels]
    programs = compiled(stage, sources)
    pairs = zip(kernels, programs, strict=True)
    return [Peer(stage, *pair, number, tried=stumble > 0) for number, pair in enumerate(pairs)]


def compiled(stage: Stage, sources: Sequence[Source]) -> list[Program]:
    """The programs of texts that must compile. Raises BuildError, EnvironmentProblem and
    RankLost."""
    programs = []
    for program in built(stage, sources):
        assert program is not None  # there was no deadline
        if isinstance(program, BuildError):
            raise program
        programs.append(program)
    return programs


def built(stage: Stage, sources: Sequence[Source]) -> list[Program | BuildError | None]:
    """What comes of texts: compiled by rank 0 first, so that the others find what it has made.
    Raises EnvironmentProblem and RankLost."""
    if stage.comm.rank > 0:
        stage.comm.barrier()
    found = stage.backend.build(sources)
    if stage.comm.rank == 0:
        stage.comm.barrier()
    stage.comm.barrier()  # no kernel waits for a rank that compiles
    return found


@dataclass(frozen=True, slots=True)
class Cost:
    """What a kernel takes: `floor_us` for nothing, and of an array's bytes so many times over a
    link that carries `gb_s`, by the number of ranks."""

    floor_us: float
    gb_s: float
    wire: Callable[[int], float]


#: Floors and rates are those of two H200 with 18 NVLinks, 2^10 to 2^28 float32, of writes and of
#: reduce-scatter those of two H100; what more ranks send is arithmetic, and their floors are taken
#: to be the same. The floor of an all-reduce that writes is what lets it take over from two shots
#: at 3 MB: at 1 MiB these are quicker on both pairs, at 4 MiB it is.
COSTS: Mapping[str, Mapping[str, Cost]] = MappingProxyType({
    "all-reduce": {
        "packets": Cost(6.2, 290.0, lambda ranks: 2.0 * (ranks - 1)),  # half of it are numbers
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
#: Bytes of a value in a packet.
_VALUE_BYTES = 4


def quickest(collective: str, known: Collection[str], ranks: int, n: int, size: int) -> str:
    """Which of some kernels is quickest for `n` elements of `size` bytes; one whose cost is not
    known is taken only where there is no other."""
    costs = COSTS[collective]

    def us(name: str) -> float:
        cost = costs[name]
        # a packet holds a value of up to 4 bytes, and two hold one of 8
        nbytes = n * max(size, _VALUE_BYTES) if name == "packets" else n * size
        return cost.floor_us + cost.wire(ranks) * nbytes / cost.gb_s / 1e3

    fitting = [name for name in known if name in costs]
    if n * size > MOST_MAIL:
        fitting = [name for name in fitting if name != "packets"]
    return min(fitting, key=us) if fitting else next(iter(known))


class Auto:
    """The engine that picks, at each size, one of some kernels by their short names."""

    name, mail = f"peer:{AUTO}", False
    version: str | None = None
    # which kernel it is depends on the size, and so nobody takes two of its times for one code's
    code = Code()

    def __init__(self, stage: Stage, peers: Mapping[str, Peer]) -> None:
        self.windows = stage.windows
        self._ranks, self._size = stage.comm.size, stage.reduction.dtype.size
        self._collective, self._peers = stage.collective, peers

    def why_not(self, n: int) -> None:
        """It takes any."""

    def enqueue(self, n: int, call: int) -> Launch:
        return self._taken(n).enqueue(n, call)

    def run(self, n: int, call: int, late: int) -> None:
        self._taken(n).run(n, call, late)

    def _taken(self, n: int) -> Peer:
        taken = quickest(self._collective, self._peers, self._ranks, n, self._size)
        return self._peers[taken]


def with_choice(record: Record, known: Collection[str]) -> Record:
    """A record that says which of some kernels was taken, if it is of what picks one."""
    if record.engine != Auto.name:
        return record
    size = DTYPES[record.dtype].size
    taken = quickest(record.kernel, known, record.ranks or 1, record.n, size)
    return replace(record, chosen=f"peer:{taken}")
