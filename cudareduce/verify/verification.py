"""Runs kernels on inputs that expose errors, and judges every result.

A float sum must lie within gamma_depth * sum|x| of the reference; the bound follows from the launch
plan. Every other result must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from cudareduce.backends.protocol import Backend, Buffer
from cudareduce.errors import KernelFault
from cudareduce.launch.bound import Bound, Workspaces
from cudareduce.launch.case import Case, Prepared, Programs, Shape
from cudareduce.launch.plan import Plan
from cudareduce.reduction.patterns import needs_schedules
from cudareduce.reduction.reference import Reference, reference, with_elements
from cudareduce.verify.patterns import (
    EVERY_SCHEDULE_UP_TO,
    REPEATS,
    SMALL,
    Arrays,
    Input,
    Inputs,
    inputs_for,
    tiles_of,
)
from cudareduce.verify.test_sets import Level
from cudareduce.verify.verdict import (
    RIGHT,
    WROTE_INPUT,
    Effort,
    Verdict,
    judge,
    not_decided,
    worse,
)

#: Patterns with which guard pages are checked; every operator has one of them.
_GUARD_PATTERNS = ("random", "rising", "cancel")
#: Bytes that memory is filled with before each launch, in turn: NaN and -1, ones and small numbers,
#: very large numbers of either sign. No single one changes every sum and every extremum.
_POISONS = (0xFF, 0x01, 0x7F, 0xFE)
#: Most elements of an input that is replaced in place: any size exposes a kernel that caches it.
_REPLACED_INPUT_MOST = 4097
#: Added to the seed of misaligned inputs: an operator may have one pattern only.
_SEED_STEP = 2**31


@dataclass(frozen=True, slots=True)
class _PlannedCase:
    """A case, planned for one shape and compiled."""

    case: Case
    plan: Plan
    programs: Programs
    workspace: Buffer | None

    @property
    def shape(self) -> Shape:
        """Elements and rows of the plan."""
        return self.plan.problem.n, self.plan.problem.rows


@dataclass(frozen=True, slots=True)
class _DeviceInput:
    """An input on the device with its reference result."""

    input: Input
    data: Arrays
    ref: Reference
    buffers: tuple[Buffer, ...]

    @property
    def compares_bits(self) -> bool:
        """True if the results of repeated launches are compared bit by bit."""
        return self.input.pattern in ("random", "cancel") and self.input.elements <= SMALL


def _verify_on(
    backend: Backend,
    group: Sequence[Input],
    ready: Sequence[_PlannedCase],
    inputs: Inputs,
    before_launch: Callable[[], None],
    *,
    quick: bool,
) -> Iterator[tuple[Case, list[Verdict | None]]]:
    """Run cases of one reduction on inputs of one shape, and judge each result."""
    reduction = ready[0].case.reduction
    with ExitStack() as stack:
        given = []
        for one in group:
            data, ref = inputs.of(one, reduction)
            offset = one.offset * reduction.dtype.size
            buffers = tuple(backend.upload(array, offset) for array in data)
            stack.callback(backend.free, *buffers)
            given.append(_DeviceInput(one, data, ref, buffers))
        for case in ready:
            with ExitStack() as bounds:
                bound = [_bind(backend, case, one.buffers) for one in given]
                for one_bound in bound:
                    bounds.callback(one_bound.release)
                found = _run_all_schedules(backend, bound, given, before_launch, quick=quick)
                yield case.case, found


def _bind(backend: Backend, ready: _PlannedCase, given: Sequence[Buffer]) -> Bound:
    return Bound(backend, ready.plan, ready.programs, given[0], ready.workspace, *given[1:])


def _verify_replaced_input(
    backend: Backend, ready: _PlannedCase, seed: int, inputs: Inputs
) -> Verdict:
    """The verdict on a launch whose input has replaced the previous one at the same address, with
    the same first, middle and last elements: a kernel may recognise its input by these."""
    problem = ready.plan.problem
    reduction, n, rows = problem.reduction, problem.n, problem.rows
    precondition = ready.case.precondition
    old, new = (
        Input(
            "random",
            n,
            rows,
            seed + k * _SEED_STEP,
            positive=precondition.positive,
            any=precondition.any,
        )
        for k in (0, 1)
    )
    data, ref = inputs.of(old, reduction)
    other = tuple(array.copy() for array in inputs.of(new, reduction)[0])
    ends = [0, n // 2, n - 1]
    for array, known in zip(other, data, strict=True):
        lines = min(rows, array.size // n)  # a second input may have one row
        array.reshape(lines, n, -1)[:, ends] = known.reshape(lines, n, -1)[:, ends]
    with ExitStack() as stack:
        buffers = tuple(backend.upload(array) for array in data)
        stack.callback(backend.free, *buffers)
        bound = _bind(backend, ready, buffers)
        stack.callback(bound.release)
        way = next(iter(backend.schedules(1, quick=True)))
        first, _ = _run_once(bound, _DeviceInput(old, data, ref, buffers), way)
        if first is not None and first.outcome == "fail":
            return first
        for buffer, array in zip(buffers, other, strict=True):
            backend.write(buffer, array)
        bound.poison()
        ref = reference(reduction, other[0], rows, *other[1:])
        if precondition.any:
            ref = with_elements(ref, reduction, other[0], rows)
        given = _DeviceInput(new, other, ref, buffers)
        second, _ = _run_once(bound, given, way)
    if second is not None and second.outcome == "fail":
        where = "in the place of another with the same first, middle and last elements"
        return replace(second, reason=f"{where}: {second.reason}")
    return worse(first or RIGHT, second or RIGHT)


def _run_all_schedules(
    backend: Backend, bounds: Sequence[Bound], given: Sequence[_DeviceInput],
    before_launch: Callable[[], None], *, quick: bool,
) -> list[Verdict | None]:  # fmt: skip
    """The verdict on each input under every schedule of the backend, up to a failure; None if
    undecided. Inputs alternate, so that no launch has the same input as the one before."""
    verdicts: list[Verdict | None] = [RIGHT] * len(given)
    bits_of_runs: list[list[bytes]] = [[] for _ in given]
    repeats = REPEATS if any(one.compares_bits for one in given) else 2
    # The schedules other than the first take one input if it is large.
    decisive = next((k for k, one in enumerate(given) if one.compares_bits), 0)
    for turn, way in enumerate(backend.schedules(repeats, quick=quick)):
        for k, (bound, one) in enumerate(zip(bounds, given, strict=True)):
            old = verdicts[k]
            if old is None or (not way and turn > 1 and not one.compares_bits):
                continue
            is_large = one.input.elements > EVERY_SCHEDULE_UP_TO and k != decisive
            if way and turn and (is_large or not needs_schedules(one.input.pattern)):
                continue
            bound.poison(_POISONS[(turn + k) % len(_POISONS)])
            before_launch()
            new, bits = _run_once(bound, one, way)
            verdicts[k] = worse(old, new) if new else None
            if new and new.outcome == "fail":
                # The launch before was right, so it may have changed the input of this one.
                changed = _input_change(backend, bound, one) if bits_of_runs[k] else None
                if changed:
                    why = f"{one.input}: {changed}"
                    verdicts[k] = replace(verdicts[k] or new, reason=why, error=None, bound=None)
                return verdicts
            bits_of_runs[k].append(bits)
    for k, (bound, one) in enumerate(zip(bounds, given, strict=True)):
        verdict = verdicts[k]
        if verdict is None:
            continue
        changed = _input_change(backend, bound, one)
        if changed:
            verdicts[k] = replace(verdict, outcome="fail", reason=f"{one.input}: {changed}")
            return verdicts
        if one.compares_bits:
            verdicts[k] = replace(
                verdict, distinct=len(set(bits_of_runs[k])), launches=len(bits_of_runs[k])
            )
    return verdicts


def _run_once(bound: Bound, one: _DeviceInput, way: str) -> tuple[Verdict | None, bytes]:
    """The verdict on one run, None if undecided, and the bits of its results."""
    given, bits = one.input, b""
    # Where a kernel writes depends on the size, not on the values: one input per size suffices.
    guarded = given.offset or given.pattern in _GUARD_PATTERNS
    try:
        if bound.plan.kernel.in_place:
            bound.restore(one.data)
        bound.run()
        results = bound.results()
        new = judge(bound.plan, results, one.ref, given.pattern)
        bits = results.tobytes()
    except KernelFault as fault:
        new = Verdict("fail", str(fault))
    if new is None:
        return None, bits
    outside = bound.damage() if new.outcome == "pass" and guarded else None
    if outside:
        new = Verdict("fail", outside)
    if new.outcome == "fail":
        where = f"{given}{f', {way}' if way else ''}"
        new = replace(new, reason=f"{where}: {new.reason}")
    schedules = frozenset([way] if way else [])
    launches = Effort(schedules=schedules, launches=len(bound.plan.passes))
    return replace(new, effort=given.effort + launches), bits


def _input_change(backend: Backend, bound: Bound, one: _DeviceInput) -> str | None:
    """How an input has changed, in words; None if it has not, or is too large to compare."""
    if bound.plan.kernel.in_place or not one.input.elements or one.input.elements > SMALL:
        return None
    for data, buffer in zip(one.data, one.buffers, strict=True):
        now = backend.download(buffer, data.dtype.str, data.size).reshape(data.shape)
        places = np.flatnonzero(now.view(np.uint8) != data.view(np.uint8))
        if len(places):
            return f"{WROTE_INPUT}, at element {places[0] // data.dtype.itemsize}"
    return None


def _may_change(verdict: Verdict | None, level: Level) -> bool:
    """True if another input may change a verdict."""
    return verdict is None or (verdict.outcome != "fail" and level != "least")


def _inputs(
    alike: Sequence[_PlannedCase], shape: Shape, seed: int, level: Level, only: str | None
) -> list[Input]:
    """The inputs of one shape for cases of one reduction with the same precondition."""
    reduction = alike[0].case.reduction
    tiles = [tile for one in alike for tile in tiles_of(one.plan)]
    precondition = alike[0].case.precondition
    chosen = [(only, 0)] if only else inputs_for(reduction, shape, tiles, level, precondition)
    # The tolerance of a user's operator is inferred from one set of random elements.
    further = 0 if reduction.op.expression else _SEED_STEP
    return [
        Input(
            name, *shape, seed + further * (off > 0), off, positive=precondition.positive,
            drops_nan=precondition.nan == "drop", any=precondition.any,
        ) for name, off in chosen
    ]  # fmt: skip


def verify(
    backend: Backend,
    prepared: Sequence[Prepared],
    shape: Shape,
    inputs: Inputs | None = None,
    *,
    seed: int = 0,
    level: Level = "full",
    only: str | None = None,
    workspaces: Workspaces | None = None,
    before_launch: Callable[[], None] = lambda: None,
) -> dict[Case, Verdict]:
    """Verify cases of one reduction at one shape that all of them support; a case that failed is
    not run again. `only` is the one pattern to use; `inputs` and `workspaces` are reused between
    calls if given; `before_launch` is called before each launch. Raises OutOfMemory."""
    verdicts: dict[Case, Verdict] = {}
    inputs = inputs or Inputs()
    with ExitStack() as stack:
        if workspaces is None:
            workspaces = Workspaces(backend)
            stack.callback(workspaces.release)
        ready = [
            _PlannedCase(one.case, one.plans[shape], one.programs, workspaces.of(one))
            for one in prepared
        ]
        for own, precondition in dict.fromkeys(
            (one.shape, one.case.kernel.precondition) for one in ready
        ):
            alike = [
                one
                for one in ready
                if (one.shape, one.case.kernel.precondition) == (own, precondition)
            ]
            given = _inputs(alike, own, seed, level, only)
            together = len(given) if own[0] * own[1] <= SMALL and level != "least" else 1
            for first in range(0, len(given), together):
                left = [one for one in alike if _may_change(verdicts.get(one.case), level)]
                group, quick = given[first : first + together], level == "least"
                if not left:
                    continue
                for case, found in _verify_on(
                    backend, group, left, inputs, before_launch, quick=quick
                ):
                    for verdict in found:
                        if verdict is not None:
                            verdicts[case] = worse(verdicts.get(case, RIGHT), verdict)
            if level == "full" and 3 < own[0] * own[1] <= _REPLACED_INPUT_MOST and not only:
                for one in alike if not alike[0].case.reduction.op.expression else ():
                    if _may_change(verdicts.get(one.case), level):
                        after = _verify_replaced_input(backend, one, seed, inputs)
                        verdicts[one.case] = worse(verdicts.get(one.case, RIGHT), after)
    return {one.case: verdicts.get(one.case, not_decided(shape[0])) for one in prepared}
