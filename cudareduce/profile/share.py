"""The profiler's own figure for each kernel of a publication, where it is at hand.

It is the share of its peak that the busiest part of the memory system reaches, shared memory and
caches among them: a measure of how hard memory works, not of how many useful bytes arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cudareduce.backends import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem
from cudareduce.launch.case import Case
from cudareduce.profile.metrics import MEMORY_PCT
from cudareduce.profile.ncu import Task, profiled

_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Memory throughput in per cent by kernel, or why there is none."""

    throughput_pct: dict[str, float]
    why_not: str = ""


def shares(spec: BackendSpec, cases: Sequence[Case], n: int, rows: int, pattern: str) -> Shares:
    """Profile the first launch of each case, on `rows` of `n` elements; what goes wrong is in the
    answer."""
    task = Task(spec, tuple(cases), n, rows, pattern)
    try:
        done = profiled(task, [MEMORY_PCT], Deadline(_LIMIT_S))
    except EnvironmentProblem as problem:
        return Shares({}, str(problem))
    counted = {
        launch.kernel: launch.counted[MEMORY_PCT]
        for launch in reversed(done.launches) if launch and MEMORY_PCT in launch.counted
    }  # fmt: skip
    return Shares(counted, "" if counted else next(filter(None, done.reasons), "no figures"))
