"""A plan tied to buffers: what is enqueued, read back, and looked at for damage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cudareduce.backend import Backend, Buffer, KernelCall, Launch, Program
from cudareduce.launch.case import Case, Prepared, Programs
from cudareduce.launch.plan import Pass, Plan
from cudareduce.library.program import (
    Address,
    CopyStep,
    FillStep,
    KernelStep,
    ProgramStep,
    Run,
    Value,
    WriteStep,
)
from cudareduce.library.program import Program as ExternalProgram
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.inputs import Array, as_numbers
from cudareduce.reduction.reference import preset, reference

#: Scratch buffers that are zeroed when they are allocated, and then left to the kernel.
KEPT = frozenset({"counter", "workspace"})
#: What is given, and not the kernel's own.
INPUTS = frozenset({"in", "other"})


def arguments(plan: Plan, step: Pass, buffers: Mapping[str, Buffer]) -> list[Buffer | int]:
    """What the entry point is launched with in one step of a plan."""
    args: list[Buffer | int] = [buffers[step.source], buffers[step.target], step.n]
    if plan.kernel.inputs > 1:
        args.insert(1, buffers["other"])
    if plan.kernel.scope in ("rows", "warp"):
        args.append(plan.problem.rows)
    return args + [buffers[name] for name in plan.behind]


class Workspaces:
    """The workspace of each case: launches of all sizes follow one another there, as they would in
    a program."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._held: dict[Case, Buffer] = {}

    def of(self, prepared: Prepared) -> Buffer | None:
        """That of a case, with room for all its plans, zeroed when it is first asked for; None if
        it has none. May raise OutOfMemory."""
        most = max(plan.scratch.get("workspace", 0) for plan in prepared.plans.values())
        held = self._held.get(prepared.case)
        if held is None and most:
            held = self._held[prepared.case] = self._backend.allocate(most)
            self._backend.zero(held)
        return held

    def release(self) -> None:
        """Free them."""
        self._backend.free(*self._held.values())


class Replay:
    """The launches, fills and copies of an external program on its buffers, in its author's order;
    `given` are the inputs by their names in the program."""

    def __init__(
        self, backend: Backend, external: ExternalProgram, run: Run, program: Program,
        given: Mapping[str, Buffer],
    ) -> None:  # fmt: skip
        self._backend = backend
        self.own = {name: backend.allocate(nbytes) for name, nbytes in run.buffers}
        self.buffers = {**given, **self.own}
        self._initial: list[tuple[Buffer, bytes]] = []
        for index, variable in enumerate(external.variables):
            memory, initial = backend.variable(program, index, variable.nbytes)
            self.buffers[variable.buffer] = memory
            self._initial.append((memory, initial))
        self.launches = tuple(self._ready(program, step) for step in run.steps)

    @property
    def variables(self) -> tuple[Buffer, ...]:
        """The memory of the program's variables."""
        return tuple(memory for memory, _ in self._initial)

    def reset_variables(self) -> None:
        """Give variables the values that they have when the program is loaded."""
        for memory, initial in self._initial:
            self._backend.write(memory, np.frombuffer(initial, np.uint8))

    def _ready(self, program: Program, step: ProgramStep) -> Launch:
        match step:
            case KernelStep():
                arguments = tuple(self._argument(one) for one in step.arguments)
                shape = step.grid, step.block, step.shared, step.cooperative
                return self._backend.call(program, KernelCall(step.kernel, *shape, arguments))
            case FillStep(target):
                buffer, pattern = self.buffers[target.buffer], bytes([step.byte]) * step.nbytes
                return self._backend.filler(buffer, pattern, target.offset)
            case WriteStep(target):
                data = self._argument(step.value)
                assert isinstance(data, bytes)
                return self._backend.filler(self.buffers[target.buffer], data, target.offset)
            case CopyStep(target, source):
                return self._backend.copier(
                    self.buffers[target.buffer], target.offset, self.buffers[source.buffer],
                    source.offset, step.nbytes,
                )  # fmt: skip

    def _argument(self, argument: Address | Value) -> int | bytes:
        """A recorded argument with the addresses of these buffers."""
        if isinstance(argument, Address):
            return self.buffers[argument.buffer].address + argument.offset
        data = bytearray(argument.data)
        for at, address in argument.pointers:
            where = self.buffers[address.buffer].address + address.offset
            data[at : at + 8] = where.to_bytes(8, "little")
        return bytes(data)


class Bound:
    """A plan tied to buffers: `run` enqueues one whole reduction, from the input `given`, and the
    `other` where there are two, to answers.

    May raise OutOfMemory when made. A launch that goes wrong is a KernelFault: on the CPU when it
    is enqueued, on the GPU when it is waited for. A `workspace` that is given holds what launches
    of this kernel have left there, of whatever size, and is not freed here, nor is an `out` for the
    answers.
    """

    def __init__(
        self, backend: Backend, plan: Plan, programs: Programs, given: Buffer,
        workspace: Buffer | None = None, other: Buffer | None = None, out: Buffer | None = None,
    ) -> None:  # fmt: skip
        self.plan = plan
        self._backend = backend
        reduction = plan.problem.reduction
        self._buffers: dict[str, Buffer] = {"in": given}
        self._buffers |= {} if other is None else {"other": other}
        self._replay: Replay | None = None
        external = plan.kernel.program
        if plan.recorded is not None and external is not None:
            program = programs[plan.passes[0].unit]
            self._replay = Replay(backend, external, plan.recorded, program, self._buffers)
            self._buffers = self._replay.buffers
            self._launches = self._replay.launches
            self._shared = self._replay.variables
            self.out = self._buffers[plan.recorded.result.buffer]
            return
        self.out = out or backend.allocate(plan.outputs * reduction.result_size)
        self._buffers["out"] = self.out
        self._shared = tuple(buffer for buffer in (workspace, out) if buffer is not None)
        for name, nbytes in plan.scratch.items():
            shared = workspace if name == "workspace" else None
            self._buffers[name] = shared or backend.allocate(nbytes)
            if name in KEPT and shared is None:
                backend.zero(self._buffers[name])  # once: from then on it is the kernel's
        self._launches = tuple(self._steps(programs))

    def _steps(self, programs: Programs) -> Iterable[Launch]:
        plan, backend = self.plan, self._backend
        if plan.preset:
            reduction = plan.problem.reduction
            answer = preset(reduction, empty=not plan.passes)
            yield backend.filler(self._buffers[plan.preset], answer * plan.outputs)
        for step in plan.passes:
            program, kernel = programs[step.unit], plan.kernel
            if plan.problem.reduction.op.needs_count:
                program.set_constant("COUNT", plan.problem.n)
            args = arguments(plan, step, self._buffers)
            shared = kernel.shared_bytes(plan.problem.reduction, step.block)
            yield backend.launcher(program, step.grid, step.block, args, shared)

    def run(self) -> None:
        """Enqueue the reduction."""
        for launch in self._launches:
            launch()

    def run_before(self) -> None:
        """Enqueue what a first-pass figure leaves out in front: setting answers to the identity."""
        for launch in self._launches[: self._first]:
            launch()

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
        if self.plan.recorded is not None:
            kernels = (isinstance(step, KernelStep) for step in self.plan.recorded.steps)
            return list(kernels).index(True)
        return int(self.plan.preset is not None)

    @property
    def own(self) -> tuple[Buffer, ...]:
        """All its buffers but the inputs and what it shares with others."""
        return tuple(
            buffer
            for name, buffer in self._buffers.items()
            if name not in INPUTS and buffer not in self._shared
        )

    def reset(self) -> None:
        """Overwrite all that is its own: another kernel may have written there."""
        self.poison()
        for name in self._buffers.keys() & KEPT:
            self._backend.zero(self._buffers[name])

    def poison(self, byte: int = 0xFF) -> None:
        """Overwrite everything an earlier run may have left, but for what it may leave to the
        next: its arrival counter and its workspace. Variables of an external program get the
        values that they have when it is loaded."""
        for name, buffer in self._buffers.items():
            if name not in INPUTS and name not in KEPT and buffer not in self._shared:
                self._backend.poison(buffer, byte)
        if self._replay is not None:
            self._replay.reset_variables()

    def restore(self, data: Sequence[Array]) -> None:
        """Make the inputs what they were, where a launch before has overwritten them; no work may
        be in flight."""
        for name, array in zip(("in", "other"), data, strict=False):
            self._backend.write(self._buffers[name], array)

    def answers(self) -> Array:
        """Wait, and bring the answers back: for each row of the input one value, or one row of
        components. Partials that the kernel leaves are folded here, in a wider type. Raises
        KernelFault."""
        reduction, outputs = self.plan.problem.reduction, self.plan.outputs
        if self.plan.recorded is not None:
            return self._recorded_answers(self.plan.recorded)
        values = self._backend.download(
            self.out, reduction.result_dtype, outputs * reduction.op.words
        )
        return values.reshape(outputs, reduction.op.words) if reduction.op.words > 1 else values

    def _recorded_answers(self, run: Run) -> Array:
        """The results of an external program, in the type in which they are judged."""
        reduction, external = self.plan.problem.reduction, self.plan.kernel.program
        assert external is not None
        kind, offset = DTYPES[external.result], run.result.offset
        nbytes = offset + self.plan.outputs * kind.size
        held = self._backend.download(self.out, "uint8", nbytes)[offset:]
        values = as_numbers(np.ascontiguousarray(held).view(kind.storage), kind)
        if self.plan.folds_on_host:
            plain = replace(reduction, dtype=reduction.acc, map=None)
            values = reference(plain, values.astype(reduction.acc.storage), 1).expected
        narrow = reduction.stored is not None
        return values.astype(reduction.acc.storage if narrow else reduction.result_dtype)

    def damage(self) -> str | None:
        """What the launches have written outside their buffers or left behind, in words; None if
        nothing."""
        if "counter" in self._buffers:
            counts = self.plan.scratch["counter"] // 4
            left = int(self._backend.download(self._buffers["counter"], "uint32", counts).max())
            if left:
                return f"it leaves the counter at {left} to the next launch, not at 0"
        for name, buffer in self._buffers.items():
            found = self._backend.damage(buffer)
            if found:
                return f"it wrote outside {name!r}: {found}"
        return None

    def release(self) -> None:
        """Free all buffers but the inputs. The next plan finds the variables as it loads them."""
        if self._replay is not None:
            self._replay.reset_variables()
        self._backend.free(*self.own)
