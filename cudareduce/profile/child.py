"""Runs in the process that Nsight Compute watches: launches the first pass of each case once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cudareduce.backend import TimedBackend
from cudareduce.backends import BackendSpec, open_timed
from cudareduce.errors import CudareduceError, KernelFault
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.problem.inputs import Array, make_all


@dataclass(frozen=True, slots=True)
class Task:
    """The launches: each case on `rows` of `n` elements of a pattern."""

    spec: BackendSpec
    cases: tuple[Case, ...]
    n: int
    rows: int
    pattern: str = "random"


def launch_all(job: tuple[Task, Path]) -> None:
    """Launch each case of a task once. A line of the file of the job says of each case that could
    not be launched, by its number, why."""
    task, failures = job
    failed = []
    inputs = {
        reduction: make_all(task.pattern, reduction, task.n, task.rows)
        for reduction in dict.fromkeys(case.reduction for case in task.cases)
    }
    with open_timed(task.spec) as backend:
        for number, case in enumerate(task.cases):
            try:
                _launch(backend, case, task, inputs[case.reduction])
            except CudareduceError as error:
                failed.append(f"{number} {' '.join(str(error).split())}\n")
                if isinstance(error, KernelFault):  # after which this process launches nothing
                    break
    failures.write_text("".join(failed), encoding="utf-8")


def _launch(backend: TimedBackend, case: Case, task: Task, inputs: tuple[Array, ...]) -> None:
    plan = case.plan(task.n, task.rows, backend.limits())
    programs = programs_of(backend, {case: plan})[case]
    given = [backend.upload(array) for array in inputs]
    bound = Bound(backend, plan, programs, given[0], other=given[1] if given[1:] else None)
    bound.run_before()
    bound.run_first()
    backend.synchronize()
    bound.release()
    backend.free(*given)
