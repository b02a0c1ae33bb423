"""A plan tied to buffers: what is enqueued, read back, and looked at for damage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cudareduce.backend import Backend, Buffer, Launch
from cudareduce.launch.case import Programs
from cudareduce.launch.plan import Plan
from cudareduce.problem.identity import identity, of_nothing
from cudareduce.problem.inputs import Array
from cudareduce.problem.reference import reference


class Bound:
    """A plan tied to buffers: `run` enqueues one whole reduction, from the input `given` to
    answers.

    May raise OutOfMemory when made. A launch that goes wrong is a KernelFault: on the CPU when it
    is enqueued, on the GPU when it is waited for.
    """

    def __init__(self, backend: Backend, plan: Plan, programs: Programs, given: Buffer) -> None:
        self.plan = plan
        self._backend = backend
        reduction = plan.problem.reduction
        self.out = backend.allocate(max(plan.outputs, 1) * reduction.result_size)
        self._buffers: dict[str, Buffer] = {"in": given, "out": self.out}
        for name, nbytes in plan.scratch.items():
            self._buffers[name] = backend.allocate(nbytes)
        if "counter" in plan.scratch:
            backend.zero(self._buffers["counter"])  # once: from then on the kernel resets it
        self._launches = tuple(self._steps(programs))

    def _steps(self, programs: Programs) -> Iterable[Launch]:
        plan, backend = self.plan, self._backend
        if plan.preset:
            reduction = plan.problem.reduction
            answer = (identity(reduction) if plan.passes else of_nothing(reduction)) * plan.outputs
            yield backend.filler(self._buffers[plan.preset], answer)
        for step in plan.passes:
            program = programs[step.stage]
            if plan.problem.reduction.op.needs_count:
                program.set_constant("COUNT", plan.problem.n)
            source, target = self._buffers[step.source], self._buffers[step.target]
            args: list[Buffer | int] = [source, target, step.n]
            if plan.kernel.scope in ("rows", "warp"):
                args.append(plan.problem.rows)
            if "partials" in plan.scratch:
                args += [self._buffers["partials"], self._buffers["counter"]]
            shared = plan.kernel.shared_bytes(plan.problem.reduction, plan.block)
            yield backend.launcher(program, step.grid, plan.block, args, shared)

    def run(self) -> None:
        """Enqueue the reduction."""
        for launch in self._launches:
            launch()

    def run_before(self) -> None:
        """Enqueue what a first-pass figure leaves out in front: setting answers to the identity."""
        if self.plan.preset:
            self._launches[0]()

    def run_first(self) -> None:
        """Enqueue what a first-pass figure times: the first launch of the kernel alone. A plan
        without elements has none."""
        self._launches[self._first]()

    def run_rest(self) -> None:
        """Enqueue what a first-pass figure leaves out behind, up to the answers."""
        for launch in self._launches[self._first + 1 :]:
            launch()

    @property
    def _first(self) -> int:
        return 1 if self.plan.preset else 0

    @property
    def own(self) -> tuple[Buffer, ...]:
        """All its buffers but the input."""
        return tuple(buffer for name, buffer in self._buffers.items() if name != "in")

    def reset(self) -> None:
        """Overwrite all that is its own: another kernel may have written there."""
        self.poison()
        if "counter" in self._buffers:
            self._backend.zero(self._buffers["counter"])

    def poison(self, byte: int = 0xFF) -> None:
        """Overwrite everything an earlier run may have left, but for the arrival counter."""
        for name, buffer in self._buffers.items():
            if name not in ("in", "counter"):
                self._backend.poison(buffer, byte)

    def answers(self) -> Array:
        """Wait, and bring the answers back: for each row of the input one value, or one row of
        components. Partials that the kernel leaves are folded here, in a wider type. Raises
        KernelFault."""
        reduction, outputs = self.plan.problem.reduction, self.plan.outputs
        values = self._backend.download(
            self.out, reduction.result_dtype, outputs * reduction.op.words
        )
        if self.plan.folds_on_host:
            folded = reference(replace(reduction, dtype=reduction.acc), values, 1).expected
            return folded.astype(reduction.result_dtype)
        return values.reshape(outputs, reduction.op.words) if reduction.op.words > 1 else values

    def damage(self) -> str | None:
        """What the launches have written outside their buffers or left behind, in words; None if
        nothing."""
        if "counter" in self._buffers:
            left = int(self._backend.download(self._buffers["counter"], "uint32", 1)[0])
            if left:
                return f"it leaves the counter at {left} to the next launch, not at 0"
        for name, buffer in self._buffers.items():
            found = self._backend.damage(buffer)
            if found:
                return f"it wrote outside {name!r}: {found}"
        return None

    def release(self) -> None:
        """Free all buffers but the input."""
        self._backend.free(*self.own)
