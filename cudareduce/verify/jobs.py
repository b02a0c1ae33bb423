"""Verification jobs: one case on some shapes, in this process or in a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import BackendSpec
from cudareduce.errors import BuildError, OutOfMemory, TooManyBlocks
from cudareduce.launch.bound import Workspaces
from cudareduce.launch.case import Prepared, Shape, build
from cudareduce.verify.diagnosis import explain
from cudareduce.verify.large_index import verify_large_indices
from cudareduce.verify.patterns import Inputs, runs, work
from cudareduce.verify.test_sets import LARGE_INDEX, LEAST, Level, keeps_state
from cudareduce.verify.verdict import (
    HANGS,
    RIGHT,
    WRONG_RESULT,
    Verdict,
    skipped,
    unbuilt,
    worse,
)
from cudareduce.verify.verification import verify

#: Time limit of a job in seconds of processor time, on a GPU of one launch: a constant, and a tenth
#: of the speed of the slowest known kernel (one atomic per element).
_START_S, _ELEMENTS_PER_S = 10.0, 250_000
#: Seconds that a job takes on one processor: for itself with its compilation, for each launch, each
#: of its threads and each element; without and with race detection. Fitted to all kernels of the
#: package at 2^20 and 2^25 elements.
_JOB_S, _LAUNCH_S = 0.1, 3.5e-4
_THREAD_S, _ELEMENT_S = {False: 1.3e-7, True: 1.5e-6}, {False: 6e-9, True: 1e-7}
#: The constant for external kernels: a file may have many that take too long.
_EXTERNAL_START_S = 4.0
#: Parts of reasons whose cause may be the emulator, not the kernel.
_UNDECIDED = ("is not possible here", HANGS)
#: Part of the reason if the emulated device is too small for a kernel.
_TOO_SMALL = "and the emulator runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Verify one case on supported shapes, in order, at a verification level. `prepared` has no
    programs: the worker builds them.

    `only` is the one pattern to verify with. A kernel that takes longer than `limit_s` hangs:
    seconds of wall time if the user has set the limit (`wall`), else of processor time. The reason
    of a failure begins with `label`. An `optional` job that cannot decide leaves a remark.
    """

    spec: BackendSpec
    prepared: Prepared
    shapes: tuple[Shape, ...]
    limit_s: float
    wall: bool = False
    seed: int = 0
    level: Level = "full"
    only: str | None = None
    label: str = ""
    optional: bool = False

    @property
    def walk(self) -> tuple[tuple[Shape, Level, int], ...]:
        """Shapes in the order of verification, each with its level and seed: increasing. If the
        kernel may keep state between launches, sizes then shrink and grow again twice at the full
        level, with other elements each time, and with an even and an odd number of launches between
        two of a size."""
        up = tuple((shape, self.level, self.seed) for shape in self.shapes)
        if self.level != "full" or not keeps_state(self.prepared):
            return up
        some = [shape for shape in self.shapes if shape[0] * shape[1]]
        history = [*some[-2::-1], *some[1:], *some[-2::-1], *some[:1], *some[1:]]
        later = ((shape, LEAST, self.seed + k) for k, shape in enumerate(history, 1))
        return (*up, *later)

    @property
    def input_bytes(self) -> int:
        """Bytes of the largest input, of both arrays if there are two."""
        shapes = (
            () if self.level == LARGE_INDEX else self.shapes
        )  # which reserves address space only
        elements = max((n * rows for n, rows in shapes), default=0)
        reduction = self.prepared.case.reduction
        return elements * reduction.dtype.size * reduction.inputs


def limited(job: Job, asked_s: float | None) -> Job:
    """The job with the time limit that the user has set, else with one that grows with its work."""
    if asked_s is not None:
        return replace(job, limit_s=asked_s, wall=True)
    plans = job.prepared.plans
    if job.spec.timed:
        elements = max(work(plans[shape], LEAST, job.only) for shape in job.shapes)
    else:
        elements = sum(work(plans[shape], level, job.only) for shape, level, _ in job.walk)
    start_s = _START_S if job.prepared.case.kernel.program is None else _EXTERNAL_START_S
    return replace(job, limit_s=start_s + elements / _ELEMENTS_PER_S)


def estimated_s(job: Job) -> float:
    """Seconds of processor time that a job takes on the emulator, right within a factor of a few.
    Sums over many jobs are nearer."""
    seconds, watched = _JOB_S, job.spec.hazards
    for shape, level, _ in job.walk if job.level != LARGE_INDEX else ():
        plan = job.prepared.plans[shape]
        recorded = plan.recorded.launches if plan.recorded else ()
        threads = sum(step.grid * plan.block for step in plan.passes)
        threads += sum(prod(one.grid) * prod(one.block) for one in recorded)
        once = threads * _THREAD_S[watched] + plan.problem.elements * _ELEMENT_S[watched]
        once += _LAUNCH_S * (len(plan.passes) + len(recorded))
        seconds += once * runs(plan, level, job.only, schedules=2 if watched else 3)
    return seconds


def verify_job(
    job: Job, backend: Backend, inputs: Inputs, compiled: Callable[[], None] = lambda: None
) -> Verdict:
    """Verify a job in this process; `compiled` is called when kernels begin to run, on a GPU before
    each launch."""
    return final_verdict(job, _verdict(job, backend, inputs, compiled))


def _verdict(job: Job, backend: Backend, inputs: Inputs, compiled: Callable[[], None]) -> Verdict:
    case = job.prepared.case
    built = build(backend, {case: [job.prepared.plans[shape] for shape in job.shapes]})[case]
    if isinstance(built, BuildError):
        return unbuilt(built, of_others=case.kernel.program is not None)
    compiled()
    ready = replace(job.prepared, programs=built)
    if job.level == LARGE_INDEX:
        sparse = backend.sparse()
        assert sparse is not None
        return verify_large_indices(sparse, ready, job.shapes)
    verdict, left_out, ran = RIGHT, "", False
    workspaces = Workspaces(backend)
    try:
        for shape, level, seed in job.walk:
            try:
                new = verify(
                    backend, [ready], shape, inputs, seed=seed, level=level, only=job.only,
                    workspaces=workspaces,
                    before_launch=compiled if job.spec.timed else lambda: None,
                )[case]  # fmt: skip
            except TooManyBlocks as error:
                left_out = left_out or f"left out: n = {shape[0]}: {error}"
                continue
            verdict, ran = worse(verdict, new), True
            if verdict.outcome == "fail":
                verdict = _explained(backend, ready, shape, verdict)
                break
    except OutOfMemory as error:
        return skipped("machine", str(error))
    except MemoryError:
        return skipped("machine", "out of host memory")
    finally:
        workspaces.release()
    if left_out and not ran:
        return skipped("machine", left_out.removeprefix("left out: "))
    return replace(verdict, reason=verdict.reason or left_out)


def _explained(backend: Backend, ready: Prepared, shape: Shape, verdict: Verdict) -> Verdict:
    """The verdict on a wrong result with its cause, if one is found."""
    if WRONG_RESULT not in verdict.reason:
        return verdict
    cause = explain(backend, ready, shape, verdict.reason)
    reason = f"{verdict.reason}: {cause}" if cause else verdict.reason
    return replace(verdict, reason=reason, explained=bool(cause))


def final_verdict(job: Job, verdict: Verdict) -> Verdict:
    """A verdict as it counts for the case: with the job's label. An optional job that cannot
    decide leaves a remark."""
    if verdict.outcome == "fail" and _TOO_SMALL in verdict.reason:
        left = skipped("machine", f"cannot be decided here: {verdict.reason}: --grid says fewer")
        verdict = replace(left, effort=verdict.effort)
    reason = f"{job.label}: {verdict.reason}" if job.label and verdict.reason else verdict.reason
    undecided = verdict.outcome == "skip" or any(words in reason for words in _UNDECIDED)
    if job.optional and undecided and verdict.outcome != "pass":
        return replace(RIGHT, reason=reason, effort=verdict.effort, undecided=True)
    return replace(verdict, reason=reason, conditions=job.prepared.case.precondition.texts)


def combined(old: Verdict, new: Verdict) -> Verdict:
    """The worse of two verdicts with the remarks of both if they pass; a remark that something
    could not be decided is kept once."""
    stands = worse(old, new)
    if stands.outcome != "pass":
        return stands
    if old.undecided and new.undecided:
        return replace(stands, reason=old.reason)
    remarks = [old.reason] + [new.reason] * (new.reason not in old.reason)
    return replace(stands, reason="; ".join(filter(None, remarks)))
