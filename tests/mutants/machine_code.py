"""Whether nvcc makes the same of a mutant: then it is the same kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from cudareduce.backend import BuildError, Source
from cudareduce.compiled.nvcc import Nvcc
from cudareduce.launch.prelude import source
from cudareduce.verify.job import Job

#: Hopper's: of two texts that differ for one architecture alone there is none among the kernels.
_ARCH = 90


@dataclass(frozen=True, slots=True)
class SameCode:
    """Compares with the original in every unit that a verification launches."""

    nvcc: Nvcc

    def __call__(self, queue: Iterable[Job], original: str, changed: str) -> bool:
        """Whether the machine code of two texts is the same, byte by byte; not where one of them
        does not compile. `queue` are the jobs of the original."""
        return all(
            self._same(unit, replace(unit, text=unit.text.replace(original, changed)))
            for unit in _units(queue)
        )

    def _same(self, unit: Source, changed: Source) -> bool:
        before, after = _code(self.nvcc, unit), _compile(self.nvcc, changed)
        return before is not None and before == after


def _units(queue: Iterable[Job]) -> list[Source]:
    """What jobs launch, each once."""
    return list(
        dict.fromkeys(
            source(case.kernel, case.reduction, stage, case.block, case.items)
            for job in queue for case in [job.prepared.case]
            for plan in job.prepared.plans.values() for stage in plan.stages
        )
    )  # fmt: skip


def _compile(nvcc: Nvcc, unit: Source) -> bytes | None:
    made = nvcc.compile(unit, _ARCH)
    return None if isinstance(made, BuildError) else made.cubin


@cache
def _code(nvcc: Nvcc, unit: Source) -> bytes | None:
    """That of an original, which has many mutants."""
    return _compile(nvcc, unit)
