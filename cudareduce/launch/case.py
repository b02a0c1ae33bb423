"""A case: a kernel, a reduction and a launch shape; its plans, and its compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cudareduce.backend import Backend, Program, Source
from cudareduce.budget import Deadline
from cudareduce.errors import BuildError, UsageError
from cudareduce.launch.plan import Plan, Problem, plan
from cudareduce.launch.prelude import Unit, source
from cudareduce.library.condition import Condition
from cudareduce.library.kernel import Kernel
from cudareduce.machine.device import DEFAULT_LIMITS, DeviceLimits
from cudareduce.reduction.operators import Reduction

#: Elements of a row, and rows, as requested; a kernel may arrange them differently.
Shape = tuple[int, int]
Programs = Mapping[Unit, Program]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a run: a kernel, a reduction, and `block` threads of `items` elements on at most
    `sms` SMs; `name` is its name in a `suite`. `only` are the sizes, in elements of a row, for
    which it was selected; None is all."""

    kernel: Kernel
    reduction: Reduction
    block: int
    items: int
    suite: str | None = None
    name: str | None = None
    only: frozenset[int] | None = None
    sms: int | None = None

    @property
    def asks(self) -> Condition:
        """The preconditions of its input."""
        return self.kernel.asks

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
    """A case with its plan for each supported shape, the reasons against others, and the programs
    that its plans launch."""

    case: Case
    plans: Mapping[Shape, Plan]
    refusals: Mapping[Shape, str]
    programs: Programs


def planned(
    case: Case, shapes: Sequence[Shape], limits: DeviceLimits
) -> tuple[dict[Shape, Plan], dict[Shape, str]]:
    """Plans for the shapes that a case supports, and the reasons against the others, as words that
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
    """The text of a translation unit of a case; `out` is as in `prelude`."""
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
    """Compile the units of all plans in parallel, with one `progress` call for each; the error of a
    case that does not compile. Cases that the deadline left out are missing. Raises
    EnvironmentProblem without a compiler."""
    units = {case: dict.fromkeys(u for plan in some for u in plan.units)
             for case, some in plans.items()}  # fmt: skip
    wanted = [(case, unit) for case, names in units.items() for unit in names]
    sources = [unit_source(case, unit) for case, unit in wanted]
    unique = list(dict.fromkeys(sources))
    built = dict(zip(unique, backend.build(unique, progress, deadline), strict=True))
    programs: dict[Case, dict[Unit, Program]] = {case: {} for case in plans}
    errors: dict[Case, BuildError] = {}
    late = set()
    for (case, unit), text in zip(wanted, sources, strict=True):
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
    for case, made in built.items():
        if isinstance(made, BuildError):
            raise made
        programs[case] = made
    return programs
