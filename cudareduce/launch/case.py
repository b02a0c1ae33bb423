"""Cases: a kernel with reduction and launch configuration; their plans and compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cudareduce.backends.protocol import Backend, Program, Source
from cudareduce.budget import Deadline
from cudareduce.catalog.condition import Condition
from cudareduce.catalog.kernel import Kernel
from cudareduce.errors import BuildError, UsageError
from cudareduce.launch.plan import Plan, Problem, plan
from cudareduce.launch.prelude import Unit, source
from cudareduce.machine import DEFAULT_LIMITS, DeviceLimits
from cudareduce.reduction.operators import Reduction

#: Elements per row, and rows, as requested. A kernel may use another shape of the same size.
Shape = tuple[int, int]
Programs = Mapping[Unit, Program]


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel with a reduction and a launch configuration: `block` threads with `items` elements
    each, on at most `sms` SMs. `name` is its name in a `suite`. `only` restricts it to these sizes,
    in elements per row."""

    kernel: Kernel
    reduction: Reduction
    block: int
    items: int
    suite: str | None = None
    name: str | None = None
    only: frozenset[int] | None = None
    sms: int | None = None

    @property
    def precondition(self) -> Condition:
        """The preconditions on its input."""
        return self.kernel.precondition

    def at(self, n: int) -> bool:
        """True if it runs on rows of `n` elements."""
        return self.only is None or n in self.only

    def plan(self, n: int, rows: int = 1, limits: DeviceLimits = DEFAULT_LIMITS) -> Plan:
        """The launches for `rows` reductions of `n` elements. Raises UsageError for a shape that
        the kernel does not support."""
        problem = Problem(self.reduction, *self.kernel.shape(n, rows))
        return plan(
            self.kernel, problem, block=self.block, items=self.items, limits=limits, sms=self.sms
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case with the plans of supported shapes, the reasons why other shapes are refused, and the
    programs of the plans."""

    case: Case
    plans: Mapping[Shape, Plan]
    refusals: Mapping[Shape, str]
    programs: Programs


def planned(
    case: Case, shapes: Sequence[Shape], limits: DeviceLimits
) -> tuple[dict[Shape, Plan], dict[Shape, str]]:
    """The plans of supported shapes, and the reasons why other shapes are refused, as phrases that
    follow the kernel's name."""
    plans: dict[Shape, Plan] = {}
    refusals: dict[Shape, str] = {}
    for shape in shapes:
        try:
            plans[shape] = case.plan(*shape, limits)
        except UsageError as error:
            refusals[shape] = str(error).removeprefix(f"{case.kernel.id} ")
    return plans, refusals


def unit_source(case: Case, unit: Unit, out: str = "") -> Source:
    """The source of one translation unit of a case. `out` is as in `prelude`."""
    stage, index = unit
    program = case.kernel.program
    if program is not None:
        names = tuple(variable.name for variable in program.variables)
        text = program.texts[index]
        return Source(text, case.kernel.entry, case.kernel.path, program.kernels, names)
    return source(case.kernel, case.reduction, stage, case.block, case.items, out)


def build(
    backend: Backend,
    plans: Mapping[Case, Sequence[Plan]],
    progress: Callable[[], None] = lambda: None,
    deadline: Deadline | None = None,
) -> dict[Case, Programs | BuildError]:
    """Compile the units of all plans in parallel and call `progress` after each. Returns the
    programs or the error of each case; cases not compiled before the deadline are missing. Raises
    EnvironmentProblem without a compiler."""
    units = {case: dict.fromkeys(u for plan in case_plans for u in plan.units)
             for case, case_plans in plans.items()}  # fmt: skip
    requested = [(case, unit) for case, names in units.items() for unit in names]
    sources = [unit_source(case, unit) for case, unit in requested]
    unique = list(dict.fromkeys(sources))
    built = dict(zip(unique, backend.build(unique, progress, deadline), strict=True))
    programs: dict[Case, dict[Unit, Program]] = {case: {} for case in plans}
    errors: dict[Case, BuildError] = {}
    late = set()
    for (case, unit), text in zip(requested, sources, strict=True):
        program = built[text]
        if program is None:
            late.add(case)
        elif isinstance(program, BuildError):
            errors.setdefault(case, program)
        else:
            programs[case][unit] = program
    return {case: errors.get(case) or programs[case] for case in plans if case not in late}


def programs_of(backend: Backend, plans: Mapping[Case, Plan]) -> dict[Case, Programs]:
    """The programs of one plan for each case. Raises BuildError."""
    built = build(backend, {case: [plan] for case, plan in plans.items()})
    programs: dict[Case, Programs] = {}
    for case, result in built.items():
        if isinstance(result, BuildError):
            raise result
        programs[case] = result
    return programs
