"""Engines for sharded arrays: how the ranks' partial results are combined.

A kernel runs on each rank's shard and leaves a partial result. Its own last block, a second kernel,
NCCL or the host combines the partials of all ranks.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from cudareduce.backend import Backend, Buffer, Launch, Program, Source, TimedBackend
from cudareduce.errors import BuildError, UsageError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Programs, unit_source
from cudareduce.launch.plan import Plan
from cudareduce.launch.prelude import Stage as PassStage
from cudareduce.launch.prelude import Unit, prelude
from cudareduce.problem.operators import Reduction
from cudareduce.several import engines
from cudareduce.several.engines import Stage
from cudareduce.several.inputs import UFUNCS
from cudareduce.several.kernels import device_text, helper_source, shared_source
from cudareduce.several.nccl import NcclCommunicator
from cudareduce.several.sharded_inputs import ShardedArray, shard_range

#: The stage that leaves a partial result in place of a final one.
_UNFINISHED: dict[PassStage, PassStage] = {"only": "first", "last": "middle"}


@dataclass(frozen=True, slots=True)
class BuiltKernels:
    """The programs of a plan: kernels that leave a partial result, kernels whose last block
    combines (or why not), and the kernels that combine afterwards."""

    alone: Programs
    fused: Programs | str
    behind: Program
    gathered: Program


@dataclass(frozen=True, slots=True)
class KernelSources:
    """The sources of BuiltKernels. `fused` is empty if `why_not` gives a reason."""

    alone: Mapping[Unit, Source]
    fused: Mapping[Unit, Source]
    behind: Source
    gathered: Source
    why_not: str


def kernel_sources(case: Case, plan: Plan, ranks: int, stumble: int = 0) -> KernelSources:
    """The sources of a plan. With `stumble`, the late rank stops for that many clocks between
    sending and waiting."""
    out, why_not = _output_type(case.reduction, ranks, stumble), _why_not_fused(plan)
    head = prelude(case.reduction, "first", 32, 1, 1, out=out)
    return KernelSources(
        alone={step.unit: unit_source(case, (_partial_stage(step.stage, plan), step.link))
               for step in plan.passes},
        fused={} if why_not else {
            step.unit: unit_source(case, ("first", 0), out) for step in plan.passes
        },
        behind=helper_source(head, "spread.cu", "spread"),
        gathered=helper_source(head, "gathered.cu", "gathered"),
        why_not=why_not,
    )  # fmt: skip


def build_kernels(stage: Stage, case: Case, plan: Plan, stumble: int = 0) -> BuiltKernels | str:
    """Compile the kernels; a reason if the kernel cannot leave a partial result. Raises BuildError,
    EnvironmentProblem and RankLost."""
    wanted = kernel_sources(case, plan, stage.comm.size, stumble)
    every = [*wanted.alone.values(), *wanted.fused.values()]
    found = dict(zip(every, engines.build_programs(stage, every), strict=True))
    behind, gathered = engines.compile_programs(stage, [wanted.behind, wanted.gathered])
    for error in map(found.get, wanted.alone.values()):
        if isinstance(error, BuildError):
            return f"does not compile where it is to leave a partial: {_first_error(error)}"
    why_not = wanted.why_not
    handing: Programs = {}
    fused = [found[text] for text in wanted.fused.values()]
    error = next((one for one in fused if isinstance(one, BuildError)), None)
    if error:
        why_not = f"does not compile where it is to assign its answer once: {_first_error(error)}"
    elif wanted.fused:
        handing = _programs(wanted.fused, found)
    return BuiltKernels(_programs(wanted.alone, found), why_not or handing, behind, gathered)


def _programs(
    some: Mapping[Unit, Source], found: Mapping[Source, Program | BuildError | None]
) -> Programs:
    programs: dict[Unit, Program] = {}
    for unit, text in some.items():
        program = found[text]
        assert program is not None  # only a deadline leaves None
        assert not isinstance(program, BuildError)
        programs[unit] = program
    return programs


def _first_error(error: BuildError) -> str:
    """The first error message of a compiler's output."""
    lines = str(error).splitlines()
    return next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])


def _why_not_fused(plan: Plan) -> str:
    """Why the kernel's last block cannot combine the partials; empty if it can."""
    if len(plan.passes) > 1:
        return "takes several launches"
    if plan.preset or plan.folds_on_host:
        return "has no block that has the whole sum"
    return ""


def _partial_stage(stage: PassStage, plan: Plan) -> PassStage:
    """The stage that leaves a partial result in place of a final one."""
    if stage == "only" and len(plan.passes) > 1:  # its last pass makes the result
        return stage
    return _UNFINISHED.get(stage, stage)


def _output_type(reduction: Reduction, ranks: int, stumble: int) -> str:
    """The device code of `Out`: assigning to it sends the partial to all ranks."""
    indexed = "true" if reduction.op.indexed else "false"
    return (
        shared_source(ranks, stumble) + f"constexpr bool INDEXED = {indexed};\n"
        + device_text("spread.cuh")
    )  # fmt: skip


class Combination(Protocol):
    """A kernel on all shards, and how its partials are combined."""

    name: str
    waits: tuple[Program, ...]  # programs that wait for other ranks
    version: str | None  # of a library

    def run(self) -> None:
        """Enqueue everything; the host's part also waits. Raises KernelFault and RankLost."""


@dataclass(frozen=True)
class ShardCall:
    """The buffers and programs of one plan on this rank's shard, which begins at element `begin` of
    `n`."""

    stage: Stage
    plan: Plan
    built: BuiltKernels
    given: Buffer
    partial: Buffer
    partials: Buffer
    answer: Buffer
    n: int
    begin: int

    @property
    def backend(self) -> Backend:
        return self.stage.backend

    @cached_property
    def bound(self) -> Bound:
        """The kernel that leaves a partial result."""
        return Bound(self.backend, self.plan, self.built.alone, self.given, out=self.partial)

    def placed(self, program: Program) -> Program:
        """Set the program's constants: windows, mail, and the shard's position."""
        program.set_constant("WINDOWS", *self.stage.windows.words())
        program.set_constant("MAIL", self.stage.windows.layout.mail)
        program.set_constant("BEGIN", self.begin)
        if self.plan.problem.reduction.op.needs_count:
            program.set_constant("COUNT", self.n)
        return program


class Local:
    """Combines nothing: the time of the shards alone."""

    name = "local"
    waits: tuple[Program, ...] = ()
    version: str | None = None

    def __init__(self, scene: ShardCall) -> None:
        self.run = scene.bound.run


class Fused:
    """The kernel's last block sends its partial to all ranks, and combines theirs."""

    name = "peer:fused"
    version: str | None = None

    def __init__(self, scene: ShardCall) -> None:
        assert not isinstance(scene.built.fused, str)
        self.bound = Bound(
            scene.backend, scene.plan, scene.built.fused, scene.given, out=scene.answer
        )
        self.waits: tuple[Program, ...] = tuple(map(scene.placed, scene.built.fused.values()))
        self.run = self.bound.run


class Behind:
    """A second kernel combines the partials."""

    name = "peer:behind"
    version: str | None = None

    def __init__(self, scene: ShardCall) -> None:
        program = scene.placed(scene.built.behind)
        self.waits: tuple[Program, ...] = (program,)
        self._bound = scene.bound
        self._launch = scene.backend.launcher(program, 1, 1, [scene.partial, scene.answer])

    def run(self) -> None:
        self._bound.run()
        self._launch()


class Nccl:
    """NCCL's all-reduce combines the partials."""

    name = "nccl"
    waits: tuple[Program, ...] = ()

    def __init__(self, scene: ShardCall, backend: TimedBackend, member: NcclCommunicator) -> None:
        reduction = scene.plan.problem.reduction
        self.version: str | None = member.nccl.version
        self._bound = scene.bound
        self._call = member.launch(
            "all-reduce", replace(reduction, dtype=reduction.acc), scene.partial.address,
            scene.answer.address, 1, backend.stream_handle,
        )  # fmt: skip

    def run(self) -> None:
        self._bound.run()
        self._call()


class Host:
    """The host gathers all partials on every rank, and a kernel combines them."""

    name = "host"
    waits: tuple[Program, ...] = ()
    version: str | None = None

    def __init__(self, scene: ShardCall) -> None:
        self._scene = scene
        program = scene.placed(scene.built.gathered)
        places: list[Buffer | int] = [scene.partials, scene.answer, scene.n]
        self._launch: Launch = scene.backend.launcher(program, 1, 1, places)

    def run(self) -> None:
        scene = self._scene
        scene.bound.run()
        size = scene.plan.problem.reduction.acc_size
        own = scene.backend.download(scene.partial, "uint8", size).tobytes()
        texts = scene.stage.comm.all_gather(base64.b64encode(own).decode())
        together = b"".join(base64.b64decode(text) for text in texts)
        scene.backend.write(scene.partials, np.frombuffer(together, np.uint8))
        self._launch()
        scene.backend.synchronize()


#: Shards of this size leave nothing in the cache until their next turn: three times the largest L2,
#: 126 MB of a B200.
_COLD_BYTES = 3 * 126e6


def is_cold(share_bytes: float) -> bool:
    """True if shards of this size come from memory, not from the cache."""
    return share_bytes >= _COLD_BYTES


@dataclass(frozen=True)
class ShardedCalls:
    """The inputs, one for each turn, and the combinations of each case for each input. `refusals`
    has reasons by case and combination."""

    inputs: tuple[Buffer, ...]
    answer: Buffer
    ways: dict[Case, list[tuple[Combination, ...]]]
    refusals: dict[tuple[Case, str], str]


@contextmanager
def prepare_shard(
    stage: Stage, cases: list[Case], n: int, turns: int, member: NcclCommunicator | None = None,
    stumble: int = 0,
) -> Iterator[ShardedCalls]:  # fmt: skip
    """This rank's shard of `n` elements for some turns, while the block runs. `member` is this
    rank's NCCL communicator. Raises OutOfMemory and RankLost."""
    backend, reduction = stage.backend, stage.reduction
    own, size = shard_range(n, stage.comm.rank, stage.comm.size), reduction.acc_size
    inputs = tuple(backend.allocate(len(own) * reduction.dtype.size) for _ in range(turns))
    partial, partials = backend.allocate(size), backend.allocate(size * stage.comm.size)
    answer = backend.allocate(reduction.result_size)
    ways: dict[Case, list[tuple[Combination, ...]]] = {}
    refusals: dict[tuple[Case, str], str] = {}
    scenes: list[ShardCall] = []
    fused: list[Fused] = []
    try:
        for case in cases:
            plan = _plan(stage, case, len(own))
            if isinstance(plan, str):
                refusals[case, ""] = plan
                continue
            made = build_kernels(stage, case, plan, stumble)
            if isinstance(made, str):
                refusals[case, ""] = made
                continue
            why_not = _first_reason(stage, made.fused if isinstance(made.fused, str) else "")
            if why_not:
                refusals[case, Fused.name] = why_not
            mine = [ShardCall(stage, plan, made, given, partial, partials, answer, n, own.start)
                    for given in inputs]  # fmt: skip
            scenes += mine
            handing = [] if why_not else [Fused(scene) for scene in mine]
            fused += handing
            every: list[list[Combination]] = [
                [Local(scene) for scene in mine], [*handing],
                [Behind(scene) for scene in mine], _by_nccl(mine, member),
                [Host(scene) for scene in mine],
            ]  # fmt: skip
            ways[case] = [tuple(some) for some in every if some]
        yield ShardedCalls(inputs, answer, ways, refusals)
    finally:
        for one in fused:
            one.bound.release()
        for scene in scenes:
            scene.bound.release()
        backend.free(*inputs, partial, partials, answer)


def _by_nccl(scenes: list[ShardCall], member: NcclCommunicator | None) -> list[Combination]:
    """NCCL's combination, for operators that it has."""
    if member is None or not scenes:
        return []
    backend, reduction = scenes[0].backend.timed(), scenes[0].stage.reduction
    if backend is None or reduction.op.name not in UFUNCS:
        return []
    return [Nccl(scene, backend, member) for scene in scenes]


def _plan(stage: Stage, case: Case, length: int) -> Plan | str:
    """The plan of a shard, or why a rank has none: shards may differ by one element."""
    found: Plan | str
    try:
        found = case.plan(length, 1, stage.backend.limits())
        if found.outputs != 1:
            found = "leaves more than one value"
    except UsageError as error:
        found = str(error).removeprefix(f"{case.kernel.id} ")
    return _first_reason(stage, found if isinstance(found, str) else "") or found


def _first_reason(stage: Stage, why_not: str) -> str:
    """The first rank's reason; empty if there is none."""
    return next((why for why in stage.comm.all_gather(why_not) if why), "")


def clear_mail(stage: Stage) -> None:
    """Clear the mail and status of all ranks, so that calls count from 1 again."""
    parts, backend = stage.windows.layout, stage.backend
    stage.comm.barrier()
    backend.zero(stage.windows.part(parts.mail, parts.nbytes - parts.mail))
    backend.zero(stage.windows.status)
    backend.synchronize()
    stage.comm.barrier()


class TimedShard:
    """The shard as the stopwatch's subject: keeps the result of each sample and checks it."""

    def __init__(
        self, stage: Stage, on: ShardedCalls, contents: list[ShardedArray], samples: int
    ) -> None:
        timed = stage.backend.timed()
        assert timed is not None
        self._stage, self._backend, self._on = stage, timed, on
        self._right = [content.answer for content in contents]
        size = stage.reduction.result_size
        self._kept = [timed.allocate(size) for _ in range(samples)]

    def close(self) -> None:
        self._backend.free(*self._kept)

    def prepare(self, k: int) -> None:
        self._backend.poison(self._on.answer)

    def keep(self, k: int) -> None:
        self._backend.overwrite(self._kept[k], 0, self._on.answer)

    def wrong(self) -> str | None:
        kind = self._stage.reduction.result_dtype
        for k, kept in enumerate(self._kept):
            why = check_result(
                self._backend.download(kept, kind, 1)[0], self._right[k % len(self._right)]
            )
            if why:
                return f"rank {self._stage.comm.rank}, sample {k + 1}: {why}"
        return None


def check_result(got: np.generic, right: np.ndarray) -> str | None:
    """Why a result is wrong, or None."""
    if got == right or (got != got and right != right):
        return None
    return f"the answer is {got}, not {right}"
