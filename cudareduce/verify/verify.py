"""Whether a kernel is right: bounds from the plan, patterns by operator, sizes where kernels fail.

Never a tolerance by taste, and never relative to the sum alone: a float sum must lie within
gamma_depth * sum|x| of the reference, everything else must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from cudareduce.backend import Backend, Buffer
from cudareduce.errors import KernelFault
from cudareduce.launch.bound import Bound, Workspaces
from cudareduce.launch.case import Case, Prepared, Programs, Shape
from cudareduce.launch.plan import Plan
from cudareduce.problem.nets import needs_schedules
from cudareduce.problem.reference import Reference, reference
from cudareduce.verify.inputs import REPEATS, SMALL, Arrays, Input, Inputs, inputs_for, tiles_of
from cudareduce.verify.shapes import Care
from cudareduce.verify.verdict import (
    RIGHT,
    WROTE_INPUT,
    Effort,
    Verdict,
    judge,
    not_decided,
    worse,
)

#: One of these is among the patterns of every operator.
_GUARDED = ("random", "rising", "cancel")
#: What memory holds before a launch, in turn: NaN and -1, ones and small numbers, and very large
#: numbers of either sign, since no one of them shows in every sum and every extremum.
_POISONS = (0xFF, 0x01, 0x7F, 0xFE)
#: Up to so many elements others are put in the place of an input's: to find out who remembers it,
#: any size does.
_REPLACED_UP_TO = 4097
#: What is added to the seed of elements that are misaligned: an operator may have one pattern only.
_ANOTHER_SEED = 2**31


@dataclass(frozen=True, slots=True)
class _Ready:
    """A case, planned for one shape and compiled."""

    case: Case
    plan: Plan
    programs: Programs
    workspace: Buffer | None

    @property
    def shape(self) -> Shape:
        """Elements and rows as the kernel takes them."""
        return self.plan.problem.n, self.plan.problem.rows


@dataclass(frozen=True, slots=True)
class _Given:
    """An input on the device, with what it must give."""

    input: Input
    data: Arrays
    ref: Reference
    buffers: tuple[Buffer, ...]

    @property
    def many(self) -> bool:
        """Whether the answers of launches on it are compared bit by bit."""
        return self.input.pattern in ("random", "cancel") and self.input.elements <= SMALL


def _verify_on(
    backend: Backend,
    group: Sequence[Input],
    ready: Sequence[_Ready],
    inputs: Inputs,
    begins: Callable[[], None],
    *,
    quick: bool,
) -> Iterator[tuple[Case, list[Verdict | None]]]:
    """Run cases of one reduction on inputs of one shape, and judge each answer: verdicts as
    `_in_every_way` gives them."""
    reduction = ready[0].case.reduction
    with ExitStack() as stack:
        given = []
        for one in group:
            data, ref = inputs.of(one, reduction)
            off = one.offset * reduction.dtype.size
            buffers = tuple(backend.upload(array, off) for array in data)
            stack.callback(backend.free, *buffers)
            given.append(_Given(one, data, ref, buffers))
        for case in ready:
            with ExitStack() as bounds:
                tied = [_bound(backend, case, one.buffers) for one in given]
                for bound in tied:
                    bounds.callback(bound.release)
                yield case.case, _in_every_way(backend, tied, given, begins, quick=quick)


def _bound(backend: Backend, ready: _Ready, given: Sequence[Buffer]) -> Bound:
    return Bound(backend, ready.plan, ready.programs, given[0], ready.workspace, *given[1:])


def _in_its_place(backend: Backend, ready: _Ready, seed: int, inputs: Inputs) -> Verdict:
    """The verdict on a launch whose input lies where that of the one before has lain, with the same
    first, middle and last elements and others between: a kernel may know its input by these."""
    problem = ready.plan.problem
    reduction, n, rows = problem.reduction, problem.n, problem.rows
    positive = ready.case.asks.positive
    old, new = (
        Input("random", n, rows, seed + k * _ANOTHER_SEED, positive=positive) for k in (0, 1)
    )
    data, ref = inputs.of(old, reduction)
    other = tuple(array.copy() for array in inputs.of(new, reduction)[0])
    ends = [0, n // 2, n - 1]
    for array, known in zip(other, data, strict=True):
        lines = min(rows, array.size // n)  # a second input may be of one row
        array.reshape(lines, n, -1)[:, ends] = known.reshape(lines, n, -1)[:, ends]
    with ExitStack() as stack:
        buffers = tuple(backend.upload(array) for array in data)
        stack.callback(backend.free, *buffers)
        bound = _bound(backend, ready, buffers)
        stack.callback(bound.release)
        way = next(iter(backend.ways(1, quick=True)))
        first, _ = _once(bound, _Given(old, data, ref, buffers), way)
        if first is not None and first.outcome == "fail":
            return first
        for buffer, array in zip(buffers, other, strict=True):
            backend.write(buffer, array)
        bound.poison()
        ref = reference(reduction, other[0], rows, *other[1:])
        given = _Given(new, other, ref, buffers)
        second, _ = _once(bound, given, way)
    if second is not None and second.outcome == "fail":
        where = "in the place of another with the same first, middle and last elements"
        return replace(second, reason=f"{where}: {second.reason}")
    return worse(first or RIGHT, second or RIGHT)


def _in_every_way(
    backend: Backend, bounds: Sequence[Bound], given: Sequence[_Given],
    begins: Callable[[], None], *, quick: bool,
) -> list[Verdict | None]:  # fmt: skip
    """The verdict on each input in every way that the backend can run it, up to a failure; None if
    undecided. Inputs take turns, so that no launch finds the one before it to have been given the
    same."""
    verdicts: list[Verdict | None] = [RIGHT] * len(given)
    answers: list[list[bytes]] = [[] for _ in given]
    repeats = REPEATS if any(one.many for one in given) else 2
    for turn, way in enumerate(backend.ways(repeats, quick=quick)):
        for k, (bound, one) in enumerate(zip(bounds, given, strict=True)):
            old = verdicts[k]
            if old is None or (not way and turn > 1 and not one.many):
                continue
            if way and turn and not needs_schedules(one.input.pattern):
                continue
            bound.poison(_POISONS[(turn + k) % len(_POISONS)])
            begins()
            new, bits = _once(bound, one, way)
            verdicts[k] = worse(old, new) if new else None
            if new and new.outcome == "fail":
                # The launch before was right: what this one was given may be why it is not.
                changed = _changed(backend, bound, one) if answers[k] else None
                if changed:
                    why = f"{one.input}: {changed}"
                    verdicts[k] = replace(verdicts[k] or new, reason=why, error=None, bound=None)
                return verdicts
            answers[k].append(bits)
    for k, (bound, one) in enumerate(zip(bounds, given, strict=True)):
        verdict = verdicts[k]
        if verdict is None:
            continue
        changed = _changed(backend, bound, one)
        if changed:
            verdicts[k] = replace(verdict, outcome="fail", reason=f"{one.input}: {changed}")
            return verdicts
        if one.many:
            verdicts[k] = replace(verdict, distinct=len(set(answers[k])), launches=len(answers[k]))
    return verdicts


def _once(bound: Bound, one: _Given, way: str) -> tuple[Verdict | None, bytes]:
    """The verdict on one run, None if undecided, and the bits of its answers."""
    given, bits = one.input, b""
    # Where a kernel writes depends on the size and not on the values: one input of a size shows it.
    guarded = given.offset or given.pattern in _GUARDED
    try:
        if bound.plan.kernel.in_place:
            bound.restore(one.data)
        bound.run()
        answers = bound.answers()
        new = judge(bound.plan, answers, one.ref, given.pattern)
        bits = answers.tobytes()
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


def _changed(backend: Backend, bound: Bound, one: _Given) -> str | None:
    """What has become of an input, where it is small enough to be looked at."""
    if bound.plan.kernel.in_place or not one.input.elements or one.input.elements > SMALL:
        return None
    for data, buffer in zip(one.data, one.buffers, strict=True):
        now = backend.download(buffer, data.dtype.str, data.size).reshape(data.shape)
        places = np.flatnonzero(now.view(np.uint8) != data.view(np.uint8))
        if len(places):
            return f"{WROTE_INPUT}, at element {places[0] // data.dtype.itemsize}"
    return None


def _is_open(verdict: Verdict | None, care: Care) -> bool:
    """Whether another input may change a verdict."""
    return verdict is None or (verdict.outcome != "fail" and care != "least")


def _chosen(
    alike: Sequence[_Ready], shape: Shape, seed: int, care: Care, only: str | None
) -> list[Input]:
    """The inputs of one shape for cases of one reduction, which ask the same of them."""
    reduction = alike[0].case.reduction
    tiles = [tile for one in alike for tile in tiles_of(one.plan)]
    asks = alike[0].case.asks
    chosen = [(only, 0)] if only else inputs_for(reduction, shape, tiles, care, asks)
    # Of an operator of one's own the tolerance is a guess: no further random elements.
    further = 0 if reduction.op.expression else _ANOTHER_SEED
    return [
        Input(
            name, *shape, seed + further * (off > 0), off, positive=asks.positive,
            drops_nan=asks.nan == "drop", any=asks.any,
        ) for name, off in chosen
    ]  # fmt: skip


def verify(
    backend: Backend,
    prepared: Sequence[Prepared],
    shape: Shape,
    inputs: Inputs | None = None,
    *,
    seed: int = 0,
    care: Care = "full",
    only: str | None = None,
    workspaces: Workspaces | None = None,
    begins: Callable[[], None] = lambda: None,
) -> dict[Case, Verdict]:
    """Verify cases of one reduction at one shape, which all of them take; a case that failed is not
    run again. `only` names the one pattern to use, where a user wants to see what it does; `inputs`
    and `workspaces` outlive the call where given; `begins` is called as launches do. Raises
    OutOfMemory."""
    verdicts: dict[Case, Verdict] = {}
    inputs = inputs or Inputs()
    with ExitStack() as stack:
        if workspaces is None:
            workspaces = Workspaces(backend)
            stack.callback(workspaces.release)
        ready = [
            _Ready(one.case, one.plans[shape], one.programs, workspaces.of(one)) for one in prepared
        ]
        for own, asks in dict.fromkeys((one.shape, one.case.kernel.asks) for one in ready):
            alike = [one for one in ready if (one.shape, one.case.kernel.asks) == (own, asks)]
            given = _chosen(alike, own, seed, care, only)
            together = len(given) if own[0] * own[1] <= SMALL and care != "least" else 1
            for first in range(0, len(given), together):
                left = [one for one in alike if _is_open(verdicts.get(one.case), care)]
                group, quick = given[first : first + together], care == "least"
                for case, found in (
                    _verify_on(backend, group, left, inputs, begins, quick=quick) if left else ()
                ):
                    for verdict in found:
                        if verdict is not None:
                            verdicts[case] = worse(verdicts.get(case, RIGHT), verdict)
            if care == "full" and 3 < own[0] * own[1] <= _REPLACED_UP_TO and not only:
                for one in alike if not alike[0].case.reduction.op.expression else ():
                    if _is_open(verdicts.get(one.case), care):
                        after = _in_its_place(backend, one, seed, inputs)
                        verdicts[one.case] = worse(verdicts.get(one.case, RIGHT), after)
    return {one.case: verdicts.get(one.case, not_decided(shape[0])) for one in prepared}
