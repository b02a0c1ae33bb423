"""From the partials of all ranks to one answer on each of them: the ways that take turns."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from cudareduce.backend import Backend, Buffer, Launch, Program, TimedBackend
from cudareduce.launch.bound import Bound
from cudareduce.launch.plan import Plan
from cudareduce.several.engines import Stage
from cudareduce.several.libraries.nccl import NcclCommunicator
from cudareduce.several.spread.text import Built


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
