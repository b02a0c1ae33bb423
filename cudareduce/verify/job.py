"""A job: one case to be verified on some shapes, wherever that takes place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cudareduce.backend import Backend, BuildError, OutOfMemory
from cudareduce.backends import BackendSpec
from cudareduce.launch.case import Prepared, Shape, build
from cudareduce.verify.verdict import RIGHT, Verdict, skipped, unbuilt, worse
from cudareduce.verify.verify import Inputs, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Verify one case on shapes that it takes, in order; `prepared` comes without programs, which
    the child builds for itself.

    `thorough` tries all patterns and schedules, not the decisive one alone; `only` is the one
    pattern to verify with. A kernel that takes longer than `limit_s` counts as hanging.
    """

    spec: BackendSpec
    prepared: Prepared
    shapes: tuple[Shape, ...]
    limit_s: float
    seed: int = 0
    thorough: bool = True
    only: str | None = None


def verify_job(
    job: Job, backend: Backend, inputs: Inputs, compiled: Callable[[], None] = lambda: None
) -> Verdict:
    """The verdict of a job, in this process; `compiled` is called when kernels begin to run."""
    case = job.prepared.case
    built = build(backend, {case: [job.prepared.plans[shape] for shape in job.shapes]})[case]
    if isinstance(built, BuildError):
        return unbuilt(built)
    compiled()
    ready = replace(job.prepared, programs=built)
    verdict = RIGHT
    try:
        for shape in job.shapes:
            new = verify(
                backend, [ready], shape, inputs, seed=job.seed, thorough=job.thorough,
                only=job.only,
            )[case]  # fmt: skip
            verdict = worse(verdict, new)
            if verdict.outcome == "fail":
                break
    except OutOfMemory as error:
        return skipped("machine", str(error))
    except MemoryError:
        return skipped("machine", "out of host memory")
    return verdict
