"""A plan bound to buffers: launches, results, and checks of memory around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cudareduce.backends.protocol import Backend, Buffer, KernelCall, Launch, Program
from cudareduce.catalog.program import (
    Address,
    CopyStep,
    FillStep,
    KernelStep,
    ProgramStep,
    Run,
    Value,
    WriteStep,
)
from cudareduce.catalog.program import Program as ExternalProgram
from cudareduce.launch.case import Case, Prepared, Programs
from cudareduce.launch.plan import Pass, Plan
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.inputs import Array, as_numbers
from cudareduce.reduction.reference import preset, reference

#: Scratch buffers that are zeroed once and then maintained by the kernel.
KEPT = frozenset({"counter", "workspace"})
INPUTS = frozenset({"in", "other"})


def arguments(plan: Plan, step: Pass, buffers: Mapping[str, Buffer]) -> list[Buffer | int]:
    """The kernel arguments of one launch of a plan."""
    args: list[Buffer | int] = [buffers[step.source], buffers[step.target], step.n]
    if plan.kernel.inputs > 1:
        args.insert(1, buffers["other"])
    if plan.kernel.scope in ("rows", "warp"):
        args.append(plan.problem.rows)
    return args + [buffers[name] for name in plan.scratch_arguments]


class Workspaces:
    """The workspaces of kernels: one per case, used by the launches of all sizes, as an application
    would."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._held: dict[Case, Buffer] = {}

    def of(self, prepared: Prepared) -> Buffer | None:
        """The workspace of a case, zeroed at its allocation and large enough for all plans; None if
        the kernel needs none. Raises OutOfMemory."""
        most = max(plan.scratch.get("workspace", 0) for plan in prepared.plans.values())
        held = self._held.get(prepared.case)
        if held is None and most:
            held = self._held[prepared.case] = self._backend.allocate(most)
            self._backend.zero(held)
        return held

    def release(self) -> None:
        """Free all workspaces."""
        self._backend.free(*self._held.values())


class Replay:
    """The recorded launches, fills and copies of an external program. `inputs` are the
    inputs by their names in the program. Raises OutOfMemory."""

    def __init__(
        self, backend: Backend, external: ExternalProgram, run: Run, program: Program,
        inputs: Mapping[str, Buffer],
    ) -> None:  # fmt: skip
        self._backend, self._program = backend, program
        self.allocated = {name: backend.allocate(nbytes) for name, nbytes in run.buffers}
        self.buffers = {**inputs, **self.allocated}
        self._variables: dict[str, tuple[Buffer, bytes]] = {}
        for index, variable in enumerate(external.variables):
            held = backend.variable(program, index, variable.nbytes)
            self.buffers[variable.buffer] = held[0]
            self._variables[variable.buffer] = held
        self.launches = tuple(map(self._launch, run.steps))

    @property
    def variables(self) -> tuple[tuple[Buffer, bytes], ...]:
        """The memory and the initial bytes of each variable."""
        return tuple(self._variables.values())

    def reset_variables(self) -> None:
        """Give all variables their initial values."""
        for memory, initial in self.variables:
            self._backend.write(memory, np.frombuffer(initial, np.uint8))

    def _launch(self, step: ProgramStep) -> Launch:
        backend, buffers = self._backend, self.buffers
        match step:
            case KernelStep():
                arguments = tuple(self._argument(argument) for argument in step.arguments)
                shape = step.grid, step.block, step.shared, step.cooperative
                return backend.call(self._program, KernelCall(step.kernel, *shape, arguments))
            case FillStep(target):
                pattern = bytes([step.byte]) * step.nbytes
                return backend.filler(buffers[target.buffer], pattern, target.offset)
            case WriteStep(target):
                data = self._argument(step.value)
                assert isinstance(data, bytes)
                return backend.filler(buffers[target.buffer], data, target.offset)
            case CopyStep(target, source):
                return backend.copier(
                    buffers[target.buffer], target.offset, buffers[source.buffer], source.offset,
                    step.nbytes,
                )  # fmt: skip

    def _argument(self, argument: Address | Value) -> int | bytes:
        """A recorded argument, with its pointers replaced by the addresses of these buffers."""
        if isinstance(argument, Address):
            return self.buffers[argument.buffer].address + argument.offset
        data = bytearray(argument.data)
        for at, address in argument.pointers:
            pointer = self.buffers[address.buffer].address + address.offset
            data[at : at + 8] = pointer.to_bytes(8, "little")
        for at, address in argument.functions:
            _, initial = self._variables[address.buffer]
            data[at : at + 8] = initial[address.offset : address.offset + 8]
        return bytes(data)


class Bound:
    """A plan bound to buffers: `run` enqueues one reduction of `data` (and `other`, for a transform
    of two inputs).

    Raises OutOfMemory. A faulty launch raises KernelFault: on the emulator when it is enqueued, on
    the GPU at the next synchronization. `workspace` and `out`, if given, are not freed; `workspace`
    keeps the state of earlier launches of the kernel.
    """

    def __init__(
        self, backend: Backend, plan: Plan, programs: Programs, data: Buffer,
        workspace: Buffer | None = None, other: Buffer | None = None, out: Buffer | None = None,
    ) -> None:  # fmt: skip
        self.plan = plan
        self._backend = backend
        self._buffers: dict[str, Buffer] = {"in": data}
        if other is not None:
            self._buffers["other"] = other
        self._replay: Replay | None = None
        external = plan.kernel.program
        if plan.recorded is not None and external is not None:
            program = programs[plan.passes[0].unit]
            replay = Replay(backend, external, plan.recorded, program, self._buffers)
            self._replay, self._buffers, self._launches = replay, replay.buffers, replay.launches
            self._shared = tuple(memory for memory, _ in replay.variables)
            self.out = self._buffers[plan.recorded.result.buffer]
            return
        result_bytes = plan.outputs * plan.problem.reduction.result_size
        self.out = self._buffers["out"] = out or backend.allocate(result_bytes)
        self._shared = tuple(buffer for buffer in (workspace, out) if buffer is not None)
        for name, nbytes in plan.scratch.items():
            shared = workspace if name == "workspace" else None
            self._buffers[name] = shared or backend.allocate(nbytes)
            if name in KEPT and shared is None:
                backend.zero(self._buffers[name])
        self._launches = tuple(self._planned_launches(programs))

    def _planned_launches(self, programs: Programs) -> Iterator[Launch]:
        plan, backend, reduction = self.plan, self._backend, self.plan.problem.reduction
        if plan.preset:
            value = preset(reduction, empty=not plan.passes)
            yield backend.filler(self._buffers[plan.preset], value * plan.outputs)
        for step in plan.passes:
            program = programs[step.unit]
            if reduction.op.needs_count:
                program.set_constant("COUNT", plan.problem.n)
            shared = plan.kernel.shared_bytes(reduction, step.block)
            args = arguments(plan, step, self._buffers)
            yield backend.launcher(program, step.grid, step.block, args, shared)

    def run(self) -> None:
        """Enqueue the reduction."""
        for launch in self._launches:
            launch()

    def run_before(self) -> None:
        """Enqueue the steps before the first launch, which are not part of first-pass times."""
        for launch in self._launches[: self._first]:
            launch()

    def run_first(self) -> None:
        """Enqueue only the first kernel launch, which first-pass times measure. The plan must have
        elements."""
        self._launches[self._first]()

    def run_rest(self) -> None:
        """Enqueue the steps after the first launch."""
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
        """All buffers except inputs and shared ones."""
        return tuple(
            buffer
            for name, buffer in self._buffers.items()
            if name not in INPUTS and buffer not in self._shared
        )

    def reset(self) -> None:
        """Restore all own buffers after another kernel may have written to them."""
        self.poison()
        for name in self._buffers.keys() & KEPT:
            self._backend.zero(self._buffers[name])

    def poison(self, byte: int = 0xFF) -> None:
        """Overwrite all own buffers except counter and workspace, which the kernel maintains.
        Resets the variables of an external program, unless it is a function that is called
        repeatedly."""
        for name, buffer in self._buffers.items():
            if name not in INPUTS and name not in KEPT and buffer not in self._shared:
                self._backend.poison(buffer, byte)
        external = self.plan.kernel.program
        if self._replay is not None and external is not None and not external.called:
            self._replay.reset_variables()

    def restore(self, data: Sequence[Array]) -> None:
        """Write the inputs again, for kernels that overwrite them. No work may be in flight."""
        for name, array in zip(("in", "other"), data, strict=False):
            self._backend.write(self._buffers[name], array)

    def results(self) -> Array:
        """Synchronize and download the results: one value, or one row of components, per row of the
        input. Adds partial results on the host, if the plan says so, in a wider type. Raises
        KernelFault."""
        plan, reduction = self.plan, self.plan.problem.reduction
        count, words = plan.outputs, reduction.op.words
        external = plan.kernel.program
        if plan.recorded is not None and external is not None:
            kind, offset = DTYPES[external.result], plan.recorded.result.offset
            nbytes = offset + count * kind.size
            data = self._backend.download(self.out, "uint8", nbytes)[offset:]
            values = as_numbers(np.ascontiguousarray(data).view(kind.storage), kind)
            if external.root:
                values = np.square(values.astype(float))
        else:
            values = self._backend.download(self.out, reduction.result_dtype, count * words)
        if plan.folds_on_host:
            plain = replace(reduction, dtype=reduction.acc, map=None)
            values = reference(plain, values.astype(reduction.acc.storage), 1).expected
        narrow = reduction.stored is not None
        values = values.astype(reduction.acc.storage if narrow else reduction.result_dtype)
        return values.reshape(count, words) if words > 1 else values

    def damage(self) -> str | None:
        """A description of writes outside of the buffers, or of a counter that is not reset; or
        None."""
        if "counter" in self._buffers:
            counts = self.plan.scratch["counter"] // 4
            left = int(self._backend.download(self._buffers["counter"], "uint32", counts).max())
            if left:
                return f"it leaves the counter at {left} to the next launch, not at 0"
        for name, buffer in self._buffers.items():
            damage = self._backend.damage(buffer)
            if damage:
                return f"it wrote outside {name!r}: {damage}"
        return None

    def release(self) -> None:
        """Free all own buffers, and reset variables for the next plan."""
        if self._replay is not None:
            self._replay.reset_variables()
        self._backend.free(*self.own)
