"""The texts of a kernel that leaves a partial, or hands it on to all ranks itself.

From the partials of all ranks to one answer on each of them: the ways that take turns.

A rank's share of an array on its device, with all that a kernel leaves of it."""

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
from cudareduce.several.kernels import device_text, helper_source, shared
from cudareduce.several.nccl import NcclCommunicator
from cudareduce.several.sharded_inputs import Content, share

#: What each pass leaves where no answer is to be made of it.
_UNFINISHED: dict[PassStage, PassStage] = {"only": "first", "last": "middle"}


@dataclass(frozen=True, slots=True)
class Built:
    """What a plan launches: kernels that leave a partial, those that hand it on, or why there are
    none, and what combines partials behind a kernel, or when they have been brought together."""

    alone: Programs
    fused: Programs | str
    behind: Program
    gathered: Program


@dataclass(frozen=True, slots=True)
class Texts:
    """The same before it is compiled; nothing is `fused` where `why_not` says why."""

    alone: Mapping[Unit, Source]
    fused: Mapping[Unit, Source]
    behind: Source
    gathered: Source
    why_not: str


def texts(case: Case, plan: Plan, ranks: int, stumble: int = 0) -> Texts:
    """Those of a plan among so many ranks. With `stumble` the rank that is `late` stops
    for so many clocks between what it sends and what it waits for."""
    out, why_not = _out(case.reduction, ranks, stumble), _why_not_fused(plan)
    head = prelude(case.reduction, "first", 32, 1, 1, out=out)
    return Texts(
        alone={step.unit: unit_source(case, (_left(step.stage, plan), step.link))
               for step in plan.passes},
        fused={} if why_not else {
            step.unit: unit_source(case, ("first", 0), out) for step in plan.passes
        },
        behind=helper_source(head, "spread.cu", "spread"),
        gathered=helper_source(head, "gathered.cu", "gathered"),
        why_not=why_not,
    )  # fmt: skip


def built(stage: Stage, case: Case, plan: Plan, stumble: int = 0) -> Built | str:
    """All of it, compiled, or why the kernel leaves no partial. Raises BuildError,
    EnvironmentProblem and RankLost."""
    wanted = texts(case, plan, stage.comm.size, stumble)
    every = [*wanted.alone.values(), *wanted.fused.values()]
    found = dict(zip(every, engines.built(stage, every), strict=True))
    behind, gathered = engines.compiled(stage, [wanted.behind, wanted.gathered])
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
    return Built(_programs(wanted.alone, found), why_not or handing, behind, gathered)


def _programs(
    some: Mapping[Unit, Source], found: Mapping[Source, Program | BuildError | None]
) -> Programs:
    """The programs of texts that have compiled."""
    programs: dict[Unit, Program] = {}
    for unit, text in some.items():
        program = found[text]
        assert program is not None  # there was no deadline
        assert not isinstance(program, BuildError)
        programs[unit] = program
    return programs


def _first_error(error: BuildError) -> str:
    """What the first of a compiler's lines says that names an error."""
    lines = str(error).splitlines()
    return next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])


def _why_not_fused(plan: Plan) -> str:
    """Why the kernel's own last block cannot hand the partial on; empty if it can."""
    if len(plan.passes) > 1:
        return "takes several launches"
    if plan.preset or plan.folds_on_host:
        return "has no block that has the whole sum"
    return ""


def _left(stage: PassStage, plan: Plan) -> PassStage:
    """The stage that leaves a partial where another one leaves an answer."""
    if stage == "only" and len(plan.passes) > 1:  # which has no answer to make
        return stage
    return _UNFINISHED.get(stage, stage)


def _out(reduction: Reduction, ranks: int, stumble: int) -> str:
    """What a kernel assigns to, so that its partial goes to all ranks."""
    indexed = "true" if reduction.op.indexed else "false"
    return (
        shared(ranks, stumble) + f"constexpr bool INDEXED = {indexed};\n"
        + device_text("spread.cuh")
    )  # fmt: skip


class Way(Protocol):
    """A kernel on all shares, and what combines its partials."""

    name: str
    waits: tuple[Program, ...]  # those that wait for other ranks on the device
    version: str | None  # of the library that it calls, if it does

    def run(self) -> None:
        """Enqueue it all, or wait for the host's part. Raises KernelFault and RankLost."""


@dataclass(frozen=True)
class Scene:
    """A plan for this rank's share, which begins at element `begin` of an array of `n` and lies at
    `given`; where its partial goes, those of all ranks, and the answer."""

    stage: Stage
    plan: Plan
    built: Built
    given: Buffer
    partial: Buffer
    partials: Buffer
    answer: Buffer
    n: int
    begin: int

    @property
    def backend(self) -> Backend:
        """Where all this takes place."""
        return self.stage.backend

    @cached_property
    def bound(self) -> Bound:
        """The kernel as it leaves a partial."""
        return Bound(self.backend, self.plan, self.built.alone, self.given, out=self.partial)

    def placed(self, program: Program) -> Program:
        """A program that knows where the share and the mail lie, and how long the array is."""
        program.set_constant("WINDOWS", *self.stage.windows.words())
        program.set_constant("MAIL", self.stage.windows.layout.mail)
        program.set_constant("BEGIN", self.begin)
        if self.plan.problem.reduction.op.needs_count:
            program.set_constant("COUNT", self.n)
        return program


class Local:
    """Nothing is combined: what all ranks take for their own shares."""

    name = "local"
    waits: tuple[Program, ...] = ()
    version: str | None = None

    def __init__(self, scene: Scene) -> None:
        self.run = scene.bound.run


class Fused:
    """The kernel's last block hands the partial on, and combines those of all ranks."""

    name = "peer:fused"
    version: str | None = None

    def __init__(self, scene: Scene) -> None:
        assert not isinstance(scene.built.fused, str)
        self.bound = Bound(
            scene.backend, scene.plan, scene.built.fused, scene.given, out=scene.answer
        )
        self.waits: tuple[Program, ...] = tuple(map(scene.placed, scene.built.fused.values()))
        self.run = self.bound.run


class Behind:
    """A second kernel does."""

    name = "peer:behind"
    version: str | None = None

    def __init__(self, scene: Scene) -> None:
        program = scene.placed(scene.built.behind)
        self.waits: tuple[Program, ...] = (program,)
        self._bound = scene.bound
        self._launch = scene.backend.launcher(program, 1, 1, [scene.partial, scene.answer])

    def run(self) -> None:
        self._bound.run()
        self._launch()


class Nccl:
    """NCCL combines the partials, which are then the answer."""

    name = "nccl"
    waits: tuple[Program, ...] = ()

    def __init__(self, scene: Scene, backend: TimedBackend, member: NcclCommunicator) -> None:
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
    """The ranks' processes bring all partials to all GPUs, where a kernel combines them."""

    name = "host"
    waits: tuple[Program, ...] = ()
    version: str | None = None

    def __init__(self, scene: Scene) -> None:
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


#: Bytes of a share from which on nothing of it is left in the cache when its turn comes again,
#: behind another one of the same length: three times the largest L2 there is, 126 MB of a B200.
_COLD_BYTES = 3 * 126e6


def cold(share_bytes: float) -> bool:
    """Whether shares of this size come from memory, and not from the cache."""
    return share_bytes >= _COLD_BYTES


@dataclass(frozen=True)
class Share:
    """Inputs of one length, one for each turn, and the ways of each case for each of them. What a
    case does not take, or has no way for, is in `refusals`."""

    inputs: tuple[Buffer, ...]
    answer: Buffer
    ways: dict[Case, list[tuple[Way, ...]]]
    refusals: dict[tuple[Case, str], str]


@contextmanager
def on_share(
    stage: Stage, cases: list[Case], n: int, turns: int, member: NcclCommunicator | None = None,
    stumble: int = 0,
) -> Iterator[Share]:  # fmt: skip
    """A rank's share of an array of `n` elements, for so many turns, as long as it is needed; by
    NCCL as well, of which this rank is a `member`. Raises OutOfMemory and RankLost."""
    backend, reduction = stage.backend, stage.reduction
    own, size = share(n, stage.comm.rank, stage.comm.size), reduction.acc_size
    inputs = tuple(backend.allocate(len(own) * reduction.dtype.size) for _ in range(turns))
    partial, partials = backend.allocate(size), backend.allocate(size * stage.comm.size)
    answer = backend.allocate(reduction.result_size)
    ways: dict[Case, list[tuple[Way, ...]]] = {}
    refusals: dict[tuple[Case, str], str] = {}
    scenes: list[Scene] = []
    fused: list[Fused] = []
    try:
        for case in cases:
            plan = _plan(stage, case, len(own))
            if isinstance(plan, str):
                refusals[case, ""] = plan
                continue
            made = built(stage, case, plan, stumble)
            if isinstance(made, str):
                refusals[case, ""] = made
                continue
            why_not = _agreed(stage, made.fused if isinstance(made.fused, str) else "")
            if why_not:
                refusals[case, Fused.name] = why_not
            mine = [Scene(stage, plan, made, given, partial, partials, answer, n, own.start)
                    for given in inputs]  # fmt: skip
            scenes += mine
            handing = [] if why_not else [Fused(scene) for scene in mine]
            fused += handing
            every: list[list[Way]] = [
                [Local(scene) for scene in mine], [*handing],
                [Behind(scene) for scene in mine], _by_nccl(mine, member),
                [Host(scene) for scene in mine],
            ]  # fmt: skip
            ways[case] = [tuple(some) for some in every if some]
        yield Share(inputs, answer, ways, refusals)
    finally:
        for one in fused:
            one.bound.release()
        for scene in scenes:
            scene.bound.release()
        backend.free(*inputs, partial, partials, answer)


def _by_nccl(scenes: list[Scene], member: NcclCommunicator | None) -> list[Way]:
    """NCCL's way, where partials are numbers that it combines, and sums need no last step."""
    if member is None or not scenes:
        return []
    backend, reduction = scenes[0].backend.timed(), scenes[0].stage.reduction
    if backend is None or reduction.op.name not in UFUNCS:
        return []
    return [Nccl(scene, backend, member) for scene in scenes]


def _plan(stage: Stage, case: Case, length: int) -> Plan | str:
    """The launches for so many elements, or why some rank has none: shares may differ by one."""
    found: Plan | str
    try:
        found = case.plan(length, 1, stage.backend.limits())
        if found.outputs != 1:
            found = "leaves more than one value"
    except UsageError as error:
        found = str(error).removeprefix(f"{case.kernel.id} ")
    return _agreed(stage, found if isinstance(found, str) else "") or found


def _agreed(stage: Stage, why_not: str) -> str:
    """Why it does not go on some rank; empty if it goes on all."""
    return next((why for why in stage.comm.all_gather(why_not) if why), "")


def cleared(stage: Stage) -> None:
    """Empty the mail of all ranks, and forget who has given up: all count their calls anew."""
    parts, backend = stage.windows.layout, stage.backend
    stage.comm.barrier()
    backend.zero(stage.windows.part(parts.mail, parts.nbytes - parts.mail))
    backend.zero(stage.windows.status)
    backend.synchronize()
    stage.comm.barrier()


class Timed:
    """The share as a Stopwatch's subject: the right answers of two turns, and those that are
    kept."""

    def __init__(self, stage: Stage, on: Share, contents: list[Content], samples: int) -> None:
        timed = stage.backend.timed()
        assert timed is not None
        self._stage, self._backend, self._on = stage, timed, on
        self._right = [content.answer for content in contents]
        size = stage.reduction.result_size
        self._kept = [timed.allocate(size) for _ in range(samples)]

    def close(self) -> None:
        """Give memory back."""
        self._backend.free(*self._kept)

    def prepare(self, k: int) -> None:
        self._backend.poison(self._on.answer)

    def keep(self, k: int) -> None:
        self._backend.overwrite(self._kept[k], 0, self._on.answer)

    def wrong(self) -> str | None:
        kind = self._stage.reduction.result_dtype
        for k, kept in enumerate(self._kept):
            why = judged(
                self._backend.download(kept, kind, 1)[0], self._right[k % len(self._right)]
            )
            if why:
                return f"rank {self._stage.comm.rank}, sample {k + 1}: {why}"
        return None


def judged(got: np.generic, right: np.ndarray) -> str | None:
    """Why an answer is wrong; None if it is right."""
    if got == right or (got != got and right != right):
        return None
    return f"the answer is {got}, not {right}"
