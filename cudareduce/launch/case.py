"""A case: a kernel, what it computes, its launch shape; planned for shapes and compiled, once."""

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

#: Elements of a row, and rows, as asked for: a kernel may take them in a shape of its own.
Shape = tuple[int, int]
Programs = Mapping[Unit, Program]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a run: a kernel, what it computes, and its launch shape, `block` threads of
    `items` elements each on `sms` SMs at most; `name` is what `suite` calls it. Where it was chosen
    for some sizes of a run and not for others, `only` are those, in elements a row."""

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
        """What it asks of its input."""
        return self.kernel.asks

    def at(self, n: int) -> bool:
        """Whether it is to be measured on rows of `n` elements."""
        return self.only is None or n in self.only

    def plan(self, n: int, rows: int = 1, limits: DeviceLimits = DEFAULT_LIMITS) -> Plan:
        """The launches for `rows` reductions of `n` elements, in the shape this kernel takes. One
        that it cannot take is a UsageError."""
        problem = Problem(self.reduction, *self.kernel.shape(n, rows))
        return plan(
            self.kernel, problem, block=self.block, items=self.items, limits=limits, sms=self.sms
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case with its plan for each shape that it takes, why it does not take others, and the
    programs that its plans launch."""

    case: Case
    plans: Mapping[Shape, Plan]
    refusals: Mapping[Shape, str]
    programs: Programs


def planned(
    case: Case, shapes: Sequence[Shape], limits: DeviceLimits
) -> tuple[dict[Shape, Plan], dict[Shape, str]]:
    """Plans of the shapes that a case takes, and for the others the reason why it does not, in
    words that follow the kernel's name."""
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
    """Compile what plans launch, all in parallel, with one `progress` call a unit; a case that does
    not compile has its error, and one that there was no time for is left out. Raises
    EnvironmentProblem where there is no compiler."""
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
    """The programs of one plan a case, where there is no going on unless all compile: raises
    BuildError."""
    built = build(backend, {case: [plan] for case, plan in plans.items()})
    programs: dict[Case, Programs] = {}
    for case, made in built.items():
        if isinstance(made, BuildError):
            raise made
        programs[case] = made
    return programs
