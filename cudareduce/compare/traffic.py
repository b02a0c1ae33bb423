"""Count a kernel's memory accesses on the emulator, from the addresses of its threads.

Machine code does not show whether accesses of a warp are coalesced or have bank conflicts. Running
the kernel thread by thread does, with deterministic counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cudareduce.backends.selection import counting_emulator
from cudareduce.errors import BuildError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.launch.plan import Plan
from cudareduce.machine import DeviceLimits
from cudareduce.progress import phase
from cudareduce.workers import Exited, Limit, Parent, Raised, Returned, Worker, WorkerPool

#: Elements per row, and rows: enough for a few blocks to loop several times.
_SHAPES = ((2**16, 1), (2**10, 64))
#: A GPU so small that blocks of a fixed grid process several tiles.
_LIMITS = DeviceLimits(sm_count=2, threads_per_sm=2048)
#: Time limit per kernel in seconds; one takes about 0.1 s.
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Counts over all launches of one reduction: bytes of threads in global memory, requests of
    warps and the 32-byte sectors they touch, accesses to shared memory and their wavefronts,
    atomics, barriers, shuffles and votes, blocks with a GPU-wide fence, and atomics or volatile
    stores after a plain store without such a fence."""

    kernel: str
    op: str
    dtype: str
    block: int
    items: int
    read_bytes: int
    written_bytes: int
    requests: int
    sectors: int
    accesses: int
    wavefronts: int
    atomics: int
    barriers: int
    collectives: int
    fenced_blocks: int
    unfenced: int

    @property
    def sectors_a_request(self) -> float:
        """Sectors per request of a warp: 4 if lanes read adjacent 4-byte words, 32 if no two are
        close."""
        return self.sectors / max(1, self.requests)

    @property
    def wavefronts_an_access(self) -> float:
        """Wavefronts per access to shared memory: 1 without bank conflicts."""
        return self.wavefronts / max(1, self.accesses)


@dataclass(frozen=True, slots=True)
class Counted:
    """Memory traffic of several kernels, and notes on those that could not be counted."""

    traffic: tuple[Traffic, ...]
    notes: tuple[str, ...]


def plan_of(case: Case) -> Plan | None:
    """The launches to count; None if the emulator lacks the hardware or the kernel takes no such
    shape."""
    kernel = case.kernel
    n, rows = _SHAPES[kernel.scope == "rows"]
    if kernel.requires or kernel.why_not_shape(*kernel.shape(n, rows)):
        return None
    return case.plan(n, rows, _LIMITS)


def count_traffic(cases: Sequence[Case], cache: Path | None, quiet: bool) -> Counted:
    """Run each case on the emulator, in a process that may crash or hang. Raises EnvironmentProblem
    without g++."""
    found: list[Traffic] = []
    notes: list[str] = []
    todo = [case for case in cases if plan_of(case)]
    notes += [f"{case.kernel.id} is not counted: it needs {', '.join(case.kernel.requires)}"
              for case in cases if case not in todo and case.kernel.requires]  # fmt: skip
    with (
        phase("counting accesses", len(todo), quiet) as progress,
        WorkerPool(partial(_Counter, cache), fresh=True) as pool,
    ):
        if todo:  # what crashes here crashes again when it is counted
            pool.worker().call(_Counter.compile, tuple(todo))
        for case in todo:
            traffic = _traffic(pool.worker(), case)
            if isinstance(traffic, Traffic):
                found.append(traffic)
            else:
                notes.append(f"{case.kernel.id} is not counted: {traffic}")
            progress.step()
    return Counted(tuple(found), tuple(notes))


def _traffic(worker: Worker[_Counter], case: Case) -> Traffic | str:
    """The traffic of one case, or why it cannot be counted."""
    event = worker.call(_Counter.count, case, Limit(_LIMIT_S))
    if not isinstance(event, Returned):
        worker.end()
    match event:
        case Returned(traffic):
            assert isinstance(traffic, Traffic)
            return traffic
        case Raised(error):
            lines = str(error).splitlines()
            return next((line for line in lines if "error: " in line), lines[0])
        case Exited(last_line=line):
            return f"{event.how} {line}".strip()
        case _:
            return f"it does not end within {_LIMIT_S:g} s"


class _Counter:
    """The counting emulator in a worker process, kept open between cases."""

    def __init__(self, cache: Path | None, parent: Parent) -> None:
        self._open = ExitStack()
        self._backend = self._open.enter_context(counting_emulator(cache))

    def compile(self, cases: tuple[Case, ...]) -> None:
        """Compile all cases together; later each finds its programs in the cache."""
        plans = {case: plan for case in cases if (plan := plan_of(case))}
        build(self._backend, {case: [plan] for case, plan in plans.items()})

    def count(self, case: Case) -> Traffic:
        """The traffic of one case. Raises BuildError and KernelFault."""
        plan, backend = plan_of(case), self._backend
        assert plan is not None
        programs = build(backend, {case: [plan]})[case]
        if isinstance(programs, BuildError):
            raise programs
        reduction = case.reduction
        data = np.ones(plan.problem.elements, reduction.dtype.storage)
        inputs = [backend.upload(data) for _ in range(reduction.inputs)]
        bound = Bound(backend, plan, programs, inputs[0], other=inputs[1] if inputs[1:] else None)
        backend.traffic()
        bound.run()
        totals = backend.traffic()
        bound.release()
        backend.free(*inputs)
        return Traffic(
            kernel=case.kernel.id, op=reduction.op.name, dtype=reduction.dtype.name,
            block=case.block, items=case.items, **totals,
        )  # fmt: skip
