"""A job: one case to be verified on some shapes, wherever that takes place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cudareduce.backend import Backend
from cudareduce.backends import BackendSpec
from cudareduce.errors import BuildError, OutOfMemory, TooManyBlocks
from cudareduce.launch.bound import Workspaces
from cudareduce.launch.case import Prepared, Shape, build
from cudareduce.verify.far import verify_far
from cudareduce.verify.idle import idle_blocks
from cudareduce.verify.inputs import Inputs, work
from cudareduce.verify.shapes import FAR, LEAST, Care
from cudareduce.verify.verdict import HANGS, HAZARD, RIGHT, Verdict, skipped, unbuilt, worse
from cudareduce.verify.verify import verify

#: A job that takes so many seconds of a processor counts as hanging, and on a GPU one launch of it:
#: 10 and a tenth of the pace of the slowest kernel known, one atomic per element.
_START_S, _ELEMENTS_PER_S = 10.0, 250_000
#: The same of a kernel of which much is guessed: a file may have many that take too long.
_GUESSED_START_S = 4.0
#: What it says where the emulator, and not a kernel, may be the cause.
_UNDECIDED = ("is not possible here", HANGS)
#: What it says where it is too small for a kernel.
_TOO_SMALL = "and the emulator runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Verify one case on shapes that it takes, in order, with so much `care`; `prepared` comes
    without programs, which the child builds for itself.

    `only` is the one pattern to verify with. A kernel that takes longer than `limit_s` counts as
    hanging: of the clock's seconds where the user has said so (`wall`), else of a processor's.
    `label` is what a failure begins with. What an `optional` job cannot decide is a remark.
    """

    spec: BackendSpec
    prepared: Prepared
    shapes: tuple[Shape, ...]
    limit_s: float
    wall: bool = False
    seed: int = 0
    care: Care = "full"
    only: str | None = None
    label: str = ""
    optional: bool = False

    @property
    def walk(self) -> tuple[tuple[Shape, Care], ...]:
        """The shapes in the order in which they are tried, with what is tried on each: up, and in
        the same loaded program once down, since a kernel may keep something of a larger grid."""
        up = tuple((shape, self.care) for shape in self.shapes)
        down = tuple((shape, LEAST) for shape in reversed(self.shapes[:-1]))
        return up + down if self.care == "full" else up

    @property
    def input_bytes(self) -> int:
        """Of the largest input, of both where there are two."""
        shapes = () if self.care == FAR else self.shapes  # which take next to nothing
        elements = max((n * rows for n, rows in shapes), default=0)
        reduction = self.prepared.case.reduction
        return elements * reduction.dtype.size * reduction.inputs


def limited(job: Job, asked_s: float | None) -> Job:
    """The job with the limit that the user asked for, else with one that follows the work."""
    if asked_s is not None:
        return replace(job, limit_s=asked_s, wall=True)
    plans = job.prepared.plans
    if job.spec.timed:
        elements = max(work(plans[shape], LEAST, job.only) for shape in job.shapes)
    else:
        elements = sum(work(plans[shape], care, job.only) for shape, care in job.walk)
    start_s = _START_S if job.prepared.case.kernel.guessed is None else _GUESSED_START_S
    return replace(job, limit_s=start_s + elements / _ELEMENTS_PER_S)


def verify_job(
    job: Job, backend: Backend, inputs: Inputs, compiled: Callable[[], None] = lambda: None
) -> Verdict:
    """The verdict of a job, in this process; `compiled` is called when kernels begin to run, on a
    GPU as each launch begins."""
    return told(job, _verdict(job, backend, inputs, compiled))


def _verdict(job: Job, backend: Backend, inputs: Inputs, compiled: Callable[[], None]) -> Verdict:
    case = job.prepared.case
    built = build(backend, {case: [job.prepared.plans[shape] for shape in job.shapes]})[case]
    if isinstance(built, BuildError):
        return unbuilt(built, of_others=case.kernel.guessed is not None)
    compiled()
    ready = replace(job.prepared, programs=built)
    if job.care == FAR:
        sparse = backend.sparse()
        assert sparse is not None
        return verify_far(sparse, ready, job.shapes)
    verdict, left_out, ran = RIGHT, "", False
    workspaces = Workspaces(backend)
    try:
        for shape, care in job.walk:
            try:
                new = verify(
                    backend, [ready], shape, inputs, seed=job.seed, care=care, only=job.only,
                    workspaces=workspaces, begins=compiled if job.spec.timed else lambda: None,
                )[case]  # fmt: skip
            except TooManyBlocks as error:
                left_out = left_out or f"left out: n = {shape[0]}: {error}"
                continue
            verdict, ran = worse(verdict, new), True
            if verdict.outcome == "fail":
                break
        idle = idle_blocks(backend, ready) if verdict.outcome == "pass" and ran else ""
    except OutOfMemory as error:
        return skipped("machine", str(error))
    except MemoryError:
        return skipped("machine", "out of host memory")
    finally:
        workspaces.release()
    if left_out and not ran:
        return skipped("machine", left_out.removeprefix("left out: "))
    return replace(verdict, reason=verdict.reason or left_out or idle)


def told(job: Job, verdict: Verdict) -> Verdict:
    """A verdict as it counts for the case: with the job's label and, where its launch was assumed,
    with that; of an optional job that has not decided only a remark."""
    if verdict.outcome == "fail" and _TOO_SMALL in verdict.reason:
        left = skipped("machine", f"cannot be decided here: {verdict.reason}: --grid says fewer")
        verdict = replace(left, effort=verdict.effort)
    reason = f"{job.label}: {verdict.reason}" if job.label and verdict.reason else verdict.reason
    guessed = job.prepared.case.kernel.guessed
    if guessed and verdict.outcome == "fail" and HAZARD not in reason:
        options = ", ".join(f"--{name}" for name in (*guessed, "op"))
        reason += (
            f"; where it is not as was assumed, {options} say better, and --multiple-of K or "
            "--n N --sizes-only for which n"
        )
    undecided = verdict.outcome == "skip" or any(words in reason for words in _UNDECIDED)
    if job.optional and undecided and verdict.outcome != "pass":
        return replace(RIGHT, reason=reason, effort=verdict.effort, undecided=True)
    return replace(verdict, reason=reason, conditions=job.prepared.case.asks.texts)


def both(old: Verdict, new: Verdict) -> Verdict:
    """The verdict that stands after both, and the remarks of both where they are right; what one
    could not decide the other need not say again."""
    stands = worse(old, new)
    if stands.outcome != "pass":
        return stands
    if old.undecided and new.undecided:
        return replace(stands, reason=old.reason)
    remarks = [old.reason] + [new.reason] * (new.reason not in old.reason)
    return replace(stands, reason="; ".join(filter(None, remarks)))
