"""What a kernel asks of memory, counted by the emulator from the addresses of its threads.

Machine code does not show whether the lanes of a warp read neighbours, or meet in one bank of
shared memory. The same text, run thread by thread, does, and always to the same counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from cudareduce.backend import CountingBackend
from cudareduce.backends import counting_emulator
from cudareduce.errors import BuildError, CudareduceError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.launch.plan import Plan
from cudareduce.machine.device import DeviceLimits
from cudareduce.progress import phase
from cudareduce.signals import held
from cudareduce.verify.children import Spawned, answer_jobs, begin_spawned

#: Elements of a row, and rows: enough for a few blocks to go round several times.
_SHAPES = ((2**16, 1), (2**10, 64))
#: A GPU so small that blocks of a fixed grid meet more than one tile of these.
_LIMITS = DeviceLimits(sm_count=2, threads_per_sm=2048)
#: Seconds for one kernel: it takes a tenth of one.
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What all launches of one reduction ask for: bytes that threads read and write in global
    memory, requests of warps there and the sectors of 32 bytes that these touch, accesses of warps
    to shared memory and the wavefronts that these take, atomic operations of threads, barriers that
    blocks pass, shuffles and votes of warps, blocks in which a fence for the whole GPU is met, and
    atomics, or stores to volatiles, behind a plain store with no such fence between."""

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
        """4 where lanes read neighbours of 4 bytes each, 32 where none lies near another."""
        return self.sectors / max(1, self.requests)

    @property
    def wavefronts_an_access(self) -> float:
        """1 where no two lanes need different words of one bank."""
        return self.wavefronts / max(1, self.accesses)


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted, and why not of others, a line each."""

    traffic: tuple[Traffic, ...]
    notes: tuple[str, ...]


def plan_of(case: Case) -> Plan | None:
    """The launches that are counted; None for what the emulator lacks the hardware for, or what
    takes no such shape."""
    kernel = case.kernel
    n, rows = _SHAPES[kernel.scope == "rows"]
    if kernel.requires or kernel.why_not_shape(*kernel.shape(n, rows)):
        return None
    return case.plan(n, rows, _LIMITS)


def count_traffic(cases: Sequence[Case], cache: Path | None, quiet: bool) -> Counted:
    """Run each case on the emulator, in a process of its own that may crash or hang. Raises
    EnvironmentProblem without g++."""
    found: list[Traffic] = []
    notes: list[str] = []
    todo = [case for case in cases if plan_of(case)]
    notes += [f"{case.kernel.id} is not counted: it needs {', '.join(case.kernel.requires)}"
              for case in cases if case not in todo and case.kernel.requires]  # fmt: skip
    child: Spawned | None = None
    with phase("counting accesses", len(todo), quiet) as progress:
        for case in todo:
            if child is None:
                with held():
                    child = Spawned(serve, cache)
                child.pipe.send(tuple(todo))
            answer = _answer(child, case)
            if isinstance(answer, Traffic):
                found.append(answer)
            else:
                notes.append(f"{case.kernel.id} is not counted: {answer}")
                child.end()
                child = None
            progress.step()
    if child is not None:
        child.end()
    return Counted(tuple(found), tuple(notes))


def _answer(child: Spawned, case: Case) -> Traffic | str:
    """What comes of one case, or why nothing does."""
    try:
        child.pipe.send(case)
        while child.pipe.poll(_LIMIT_S):
            answer = child.heard()
            if isinstance(answer, Traffic):
                return answer
            if isinstance(answer, CudareduceError):
                lines = str(answer).splitlines()
                return next((line for line in lines if "error: " in line), lines[0])
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return " ".join(child.how_it_ended()).strip()
    return f"it does not end within {_LIMIT_S:g} s"


def serve(pipe: Connection, cache: Path | None, log: str) -> None:
    """The child: cases to be compiled together, then each to be counted, until the pipe closes."""
    begin_spawned(pipe, log)
    with counting_emulator(cache) as backend:
        answer_jobs(pipe, lambda job: _done(backend, job))


def _done(backend: CountingBackend, job: Case | tuple[Case, ...]) -> Traffic | None:
    if isinstance(job, Case):
        return _counted(backend, job)
    plans = {case: plan for case in job if (plan := plan_of(case))}
    build(backend, {case: [plan] for case, plan in plans.items()})  # for all of them at once
    return None


def _counted(backend: CountingBackend, case: Case) -> Traffic:
    plan = plan_of(case)
    assert plan is not None
    programs = build(backend, {case: [plan]})[case]
    if isinstance(programs, BuildError):
        raise programs
    reduction = case.reduction
    data = np.ones(plan.problem.elements, reduction.dtype.storage)
    given = [backend.upload(data) for _ in range(reduction.inputs)]
    bound = Bound(backend, plan, programs, given[0], other=given[1] if given[1:] else None)
    backend.traffic()
    bound.run()
    totals = backend.traffic()
    bound.release()
    backend.free(*given)
    return Traffic(
        kernel=case.kernel.id, op=reduction.op.name, dtype=reduction.dtype.name,
        block=case.block, items=case.items, **totals,
    )  # fmt: skip
