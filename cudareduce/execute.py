"""Runs a plan on a backend: programs for its stages, buffers for its names, launches to make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from cudareduce.backend import Backend, Buffer, BuildError, Launch, Program
from cudareduce.errors import UsageError
from cudareduce.inputs import Array
from cudareduce.operators import Reduction
from cudareduce.plan import DEFAULT_LIMITS, DeviceLimits, Plan, Problem, plan
from cudareduce.prelude import Stage, source
from cudareduce.reference import reference
from cudareduce.registry import Kernel


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


class Bound:
    """A plan tied to buffers: `run` enqueues one whole reduction, from input to answer."""

    def __init__(self, backend: Backend, plan: Plan, programs: Programs, given: Buffer) -> None:
        self.plan = plan
        self._backend = backend
        what = plan.problem.what
        self.out = backend.allocate(max(plan.outputs, 1) * what.result_size)
        self._buffers: dict[str, Buffer] = {"in": given, "out": self.out}
        for name, nbytes in plan.scratch.items():
            self._buffers[name] = backend.allocate(nbytes)
        if "counter" in plan.scratch:
            backend.zero(self._buffers["counter"])  # once: from then on the kernel resets it
        self._launches = tuple(self._steps(programs))

    def _steps(self, programs: Programs) -> Iterable[Launch]:
        plan, backend = self.plan, self._backend
        if plan.preset:
            what = plan.problem.what
            answer = (what.identity() if plan.passes else what.of_nothing()) * plan.outputs
            yield backend.filler(self._buffers[plan.preset], answer)
        for step in plan.passes:
            program = programs[step.stage]
            if plan.problem.what.op.needs_count:
                program.set_constant("COUNT", plan.problem.n)
            source, target = self._buffers[step.source], self._buffers[step.target]
            args: list[Buffer | int] = [source, target, step.n]
            if plan.kernel.scope in ("rows", "warp"):
                args.append(plan.problem.rows)
            if "partials" in plan.scratch:
                args += [self._buffers["partials"], self._buffers["counter"]]
            shared = plan.kernel.dynamic_shared
            yield backend.launcher(program, step.grid, plan.block, args, shared)

    def run(self) -> None:
        """Enqueue the reduction."""
        for launch in self._launches:
            launch()

    def run_first(self) -> None:
        """Enqueue what a first-pass figure times: the first launch of the kernel alone."""
        self._launches[1 if self.plan.preset else 0]()

    def poison(self) -> None:
        """Overwrite everything an earlier run may have left, but for the arrival counter."""
        for name, buffer in self._buffers.items():
            if name not in ("in", "counter"):
                self._backend.poison(buffer)

    def answers(self) -> Array:
        """Wait, and bring the answers back: one row each, or one row of components each. Partials
        that the kernel leaves are folded here, in a wider type."""
        what, outputs = self.plan.problem.what, self.plan.outputs
        values = self._backend.download(self.out, what.result_dtype, outputs * what.op.words)
        if self.plan.folds_on_host:
            return reference(replace(what, dtype=what.acc), values, 1).expected
        return values.reshape(outputs, what.op.words) if what.op.words > 1 else values

    def damage(self) -> str | None:
        """What the launches have written outside their buffers; None if nothing."""
        for name, buffer in self._buffers.items():
            found = self._backend.damage(buffer)
            if found:
                return f"it wrote outside {name!r}: {found}"
        return None

    def release(self) -> None:
        """Free all buffers but the input."""
        self._backend.free(*(b for name, b in self._buffers.items() if name != "in"))
