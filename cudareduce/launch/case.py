"""Runs a plan on a backend: programs for its stages, buffers for its names, launches to make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cudareduce.backend import (
    DEFAULT_LIMITS,
    Backend,
    BuildError,
    DeviceLimits,
    Program,
)
from cudareduce.errors import UsageError
from cudareduce.launch.plan import Plan, Problem, plan
from cudareduce.launch.prelude import Stage, source
from cudareduce.library.kernel import Kernel
from cudareduce.problem.operators import Reduction


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a run: a kernel, what it computes, and its launch shape."""

    kernel: Kernel
    what: Reduction
    block: int
    items: int
    suite: str | None = None
    name: str | None = None

    def plan(self, n: int, rows: int = 1, limits: DeviceLimits = DEFAULT_LIMITS) -> Plan:
        """The launches for `rows` reductions of `n` elements, in the shape this kernel takes."""
        problem = Problem(self.what, *self.kernel.shape(n, rows))
        return plan(self.kernel, problem, block=self.block, items=self.items, limits=limits)

    def why_not_at(self, n: int, rows: int, limits: DeviceLimits) -> str | None:
        """Why this size cannot be launched, or None if it can."""
        try:
            self.plan(n, rows, limits)
        except UsageError as error:
            return str(error).removeprefix(f"{self.kernel.id} ")
        return None


Programs = Mapping[Stage, Program]


def build(
    backend: Backend,
    needed: Iterable[tuple[Case, Iterable[Stage]]],
    progress: Callable[[], None] = lambda: None,
) -> dict[Case, Programs | BuildError]:
    """Compile the stages of each case, all in parallel; one that does not compile has its error."""
    wanted = [(case, stage) for case, stages in needed for stage in dict.fromkeys(stages)]
    sources = [source(c.kernel, c.what, stage, c.block, c.items) for c, stage in wanted]
    unique = list(dict.fromkeys(sources))
    built = dict(zip(unique, backend.build(unique, progress), strict=True))
    programs: dict[Case, dict[Stage, Program]] = {}
    errors: dict[Case, BuildError] = {}
    for (case, stage), text in zip(wanted, sources, strict=True):
        program = built[text]
        if isinstance(program, BuildError):
            errors.setdefault(case, program)
        else:
            programs.setdefault(case, {})[stage] = program
    return {case: errors.get(case) or programs[case] for case, _ in wanted}


def usable(built: Programs | BuildError) -> Programs:
    """The programs of a case, where no other way is left than that it compiles."""
    if isinstance(built, BuildError):
        raise built
    return built
