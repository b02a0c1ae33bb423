"""Whether nvcc makes the same of a mutant: then it is the same kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from cudareduce.backends.protocol import Source
from cudareduce.compare.nvcc import Nvcc, find_nvcc
from cudareduce.errors import BuildError, EnvironmentProblem
from cudareduce.launch.case import unit_source
from cudareduce.verify.jobs import Job

#: Hopper's: of two texts that differ for one architecture alone there is none among the kernels.
_ARCH = 90


@dataclass(frozen=True, slots=True)
class SameCode:
    """Compares with the original in every unit that a verification launches; without nvcc nothing
    is the same."""

    nvcc: Nvcc | None

    def __call__(self, queue: Iterable[Job], original: str, changed: str) -> bool:
        """Whether the machine code of two texts is the same, byte by byte; not where one of them
        does not compile. `queue` are the jobs of the original."""
        nvcc = self.nvcc
        return nvcc is not None and all(
            _same(nvcc, unit, replace(unit, text=unit.text.replace(original, changed)))
            for unit in _units(queue)
        )


def comparison() -> SameCode:
    """With the nvcc of this machine."""
    try:
        return SameCode(find_nvcc())
    except EnvironmentProblem:
        return SameCode(None)


def _same(nvcc: Nvcc, unit: Source, changed: Source) -> bool:
    before, after = _code(nvcc, unit), _compile(nvcc, changed)
    return before is not None and before == after


def _units(queue: Iterable[Job]) -> list[Source]:
    """What jobs launch, each once."""
    return list(
        dict.fromkeys(
            unit_source(case, unit)
            for job in queue for case in [job.prepared.case]
            for plan in job.prepared.plans.values() for unit in plan.units
        )
    )  # fmt: skip


def _compile(nvcc: Nvcc, unit: Source) -> bytes | None:
    made = nvcc.compile(unit, _ARCH)
    return None if isinstance(made, BuildError) else made.cubin


@cache
def _code(nvcc: Nvcc, unit: Source) -> bytes | None:
    """That of an original, which has many mutants."""
    return _compile(nvcc, unit)
